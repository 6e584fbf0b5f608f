use super::receiver::initial_window;
use crate::{ReceiveWindow, TcpConfig};
use units::{Span, Time};

/// The window that a receiver offers: fixed, or twice the data of a round trip and more while that
/// grows (`tcp_rcv_space_adjust`).
#[derive(Debug, Clone)]
pub(super) struct Window {
    offered: u32,
    max: u32,
    mss: u32,
    /// The data of the previous round trip.
    space: u64,
    arrived: u64,
    since: Time,
    /// The handshake's round trip, and the shortest one-way delay since.
    base: Option<Span>,
    shortest: Span,
}

impl Window {
    pub(super) fn new(config: &TcpConfig) -> Self {
        let offered = initial_window(config);
        let max = match config.receive_window {
            ReceiveWindow::Fixed(_) => offered,
            ReceiveWindow::Auto { max, .. } => max.count().min(u64::from(u32::MAX)) as u32,
        };
        Self {
            offered,
            max,
            mss: config.mss.count() as u32,
            space: u64::from(offered).min(FIRST_ROUND * config.mss.count()),
            arrived: 0,
            since: Time::ZERO,
            base: None,
            shortest: Span::MAX,
        }
    }

    #[inline]
    pub(super) fn offered(&self) -> u32 {
        self.offered
    }

    /// The receiver's estimate.
    pub(super) fn rtt(&self) -> Option<Span> {
        self.base.or((self.shortest < Span::MAX).then(|| self.shortest * 2))
    }

    pub(super) fn handshake(&mut self, now: Time, rtt: Option<Span>) {
        self.since = now;
        self.base = rtt;
    }

    /// `bytes` reached the application; their segment was sent at `sent_at`.
    #[inline]
    pub(super) fn arrived(&mut self, now: Time, sent_at: Time, bytes: u64) {
        let way = now.since(sent_at);
        if way < self.shortest {
            self.shortest = way;
        }
        if self.offered == self.max {
            return;
        }
        self.arrived += bytes;
        // The handshake's time and the queueing delay on the way to the receiver since. Timestamps
        // show the latter to a receiver; those of ACKs travel the other way.
        let rtt = self.base.unwrap_or(self.shortest * 2) + (way - self.shortest);
        if now.since(self.since) < rtt {
            return;
        }
        if self.arrived > self.space {
            let grown = self.arrived - self.space;
            let wanted = 2 * self.arrived + 16 * u64::from(self.mss);
            let ahead =
                (u128::from(wanted) * u128::from(grown) / u128::from(self.space.max(1))) as u64;
            let wanted = wanted.saturating_add(ahead.saturating_mul(2)).min(u64::from(self.max));
            self.offered = self.offered.max(wanted as u32);
            self.space = self.arrived;
        }
        self.arrived = 0;
        self.since = now;
    }
}

/// In segments: this part of the first round trip is not growth yet (`tcp_init_buffer_space`).
const FIRST_ROUND: u64 = 10;
