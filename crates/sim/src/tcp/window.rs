use super::receiver::initial_window;
use crate::{ReceiveWindow, TcpConfig};
use units::{Span, Time};

/// The window that a receiver offers: fixed, or as Linux 6.18 tunes it. All sizes are in bytes of
/// payload; Linux converts these sizes to memory and back by the same ratio (`tcp_win_from_space`).
///
/// The buffer holds twice the data of the best round trip so far, more while this data grows, and
/// the data behind a hole (`tcp_rcvbuf_grow`). Data behind a hole takes up room. A threshold that
/// rises by twice each arriving segment limits the window as well (`tcp_grow_window`).
#[derive(Debug, Clone)]
pub(super) struct Window {
    /// The size of the buffer: `window_clamp` after the first segment.
    buffer: u64,
    /// The limit on the window: `rcv_ssthresh`.
    threshold: u64,
    max: u64,
    is_fixed: bool,
    mss: u64,
    /// The data of the best round trip so far (`rcvq_space.space`).
    space: u64,
    arrived: u64,
    since: Time,
    /// The handshake's round trip, and the shortest one-way delay since.
    base: Option<Span>,
    shortest: Span,
}

/// The data that one segment brought into order.
#[derive(Debug, Clone, Copy)]
pub(super) struct InOrder {
    pub(super) bytes: u64,
    /// The bytes of the segment that has just arrived.
    pub(super) new: u64,
    /// The distance from the first missing byte to the last byte behind a hole.
    pub(super) span: u64,
}

impl Window {
    pub(super) fn new(config: &TcpConfig) -> Self {
        let offered = u64::from(initial_window(config));
        let (max, is_fixed) = match config.receive_window {
            ReceiveWindow::Fixed(_) => (offered, true),
            ReceiveWindow::Auto { max, .. } => (max.count().min(u64::from(u32::MAX)), false),
        };
        Self {
            buffer: (offered * MEASURED_RATIO / ASSUMED_RATIO).min(max),
            threshold: offered,
            max,
            is_fixed,
            mss: config.mss.count(),
            space: offered.min(FIRST_ROUND * config.mss.count()).max(1),
            arrived: 0,
            since: Time::ZERO,
            base: None,
            shortest: Span::MAX,
        }
    }

    /// Returns the window with an empty buffer.
    #[inline]
    pub(super) fn widest(&self) -> u64 {
        self.threshold
    }

    /// Returns the window with `unread` bytes in order and `beyond` bytes behind holes
    /// (`__tcp_select_window`).
    #[inline]
    pub(super) fn offered(&self, unread: u64, beyond: u64) -> u64 {
        if self.is_fixed {
            return self.buffer.saturating_sub(unread);
        }
        let free = self.buffer.saturating_sub(unread + beyond);
        if free < self.mss || free < self.buffer / 16 { 0 } else { free.min(self.threshold) }
    }

    /// Returns the receiver's estimate of the round trip.
    pub(super) fn rtt(&self) -> Option<Span> {
        self.base.or((self.shortest < Span::MAX).then(|| self.shortest * 2))
    }

    pub(super) fn handshake(&mut self, now: Time, rtt: Option<Span>) {
        self.since = now;
        self.base = rtt;
    }

    /// Records a segment with new data. The buffer holds `held` bytes; the last byte behind a hole
    /// is `span` bytes beyond the first missing byte.
    #[inline]
    pub(super) fn segment(&mut self, length: u64, held: u64, span: u64) {
        if self.is_fixed {
            return;
        }
        if span > 0 {
            self.enlarge((2 * self.space).saturating_add(span));
        }
        let most = self.buffer.saturating_sub(held);
        if self.threshold < most {
            self.threshold = (self.threshold + 2 * length).min(most);
        }
    }

    /// Records that a segment sent at `sent_at` brought bytes into order. The application reads the
    /// bytes at once, segment by segment (`tcp_rcv_space_adjust`).
    #[inline]
    pub(super) fn in_order(&mut self, now: Time, sent_at: Time, came: InOrder) {
        let InOrder { bytes, new, span } = came;
        let way = now.since(sent_at);
        if way < self.shortest {
            self.shortest = way;
        }
        if self.buffer == self.max {
            return;
        }
        // Add the present queueing delay towards the receiver to the handshake's time. Timestamps
        // show this delay to a receiver, but not the delay of its ACKs.
        let rtt = self.base.unwrap_or(self.shortest * 2) + (way - self.shortest);
        if now.since(self.since) < rtt {
            self.arrived += bytes;
            return;
        }
        // Linux ends the round trip when the application reads the first segment that came into
        // order. The segments behind a repaired gap are still unread then, and count in the next
        // round trip.
        let rest = bytes.saturating_sub(new);
        let copied = (self.arrived + bytes - rest).saturating_sub(rest);
        if copied > self.space {
            let grown = u128::from(copied - self.space);
            let ahead = 4 * u128::from(copied) * grown / u128::from(self.space);
            let ahead = u64::try_from(ahead).unwrap_or(u64::MAX);
            self.space = copied;
            self.enlarge((2 * copied).saturating_add(ahead).saturating_add(span));
        }
        self.arrived = rest;
        self.since = now;
    }

    fn enlarge(&mut self, wanted: u64) {
        self.buffer = self.buffer.max(wanted.min(self.max));
    }
}

/// The payload in 256 bytes of memory: Linux's assumption, and Linux's measurement of the first
/// segment that arrives in a frame of 1514 bytes (`tcp_measure_rcv_mss`). 131072 bytes of memory
/// give a window of 64 KiB in the handshake, and of 80 KiB after the handshake.
const ASSUMED_RATIO: u64 = 128;
const MEASURED_RATIO: u64 = 160;
/// The segments of the first round trip that do not count as growth (`tcp_init_buffer_space`).
const FIRST_ROUND: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use units::Bytes;

    const MSS: u64 = 1448;

    fn window() -> Window {
        let (initial, max) = (Bytes::new(64 * MSS), Bytes::new(1000 * MSS));
        let receive_window = ReceiveWindow::Auto { initial, max };
        let mut window = Window::new(&TcpConfig { receive_window, ..TcpConfig::default() });
        window.handshake(Time::ZERO, Some(Span::from_millis(100)));
        window
    }

    /// Brings `segments` segments into order at `at` milliseconds, when the last missing segment
    /// arrives.
    fn read(window: &mut Window, at: u64, segments: u64) {
        let now = Time::ZERO + Span::from_millis(at);
        let sent_at = Time::ZERO + Span::from_millis(at.saturating_sub(50));
        let came = InOrder { bytes: segments * MSS, new: MSS, span: 0 };
        window.in_order(now, sent_at, came);
        window.segment(MSS, 0, 0);
    }

    #[test]
    fn the_buffer_follows_the_data_of_a_round_trip() {
        let mut window = window();
        for at in 51..71 {
            read(&mut window, at, 1);
        }
        assert_eq!(window.buffer, 80 * MSS);
        // 21 segments follow the first ten: the buffer holds twice the 21, and four times the
        // growth.
        read(&mut window, 100, 1);
        assert_eq!(
            (window.space, window.buffer),
            (21 * MSS, (2 * 21 + 4 * 21 * 11 / 10) * MSS + 579)
        );
        // A round trip of the same amount is no growth.
        let before = window.buffer;
        for at in 101..122 {
            read(&mut window, at, 1);
        }
        read(&mut window, 200, 0);
        assert_eq!(window.buffer, before);
    }

    #[test]
    fn the_window_opens_by_twice_each_segment_up_to_the_buffer() {
        let mut window = window();
        window.buffer = 70 * MSS;
        let opened: Vec<u64> = (0..4)
            .map(|_| {
                window.segment(MSS, 0, 0);
                window.offered(0, 0) / MSS
            })
            .collect();
        assert_eq!(opened, [66, 68, 70, 70]);
    }

    #[test]
    fn data_behind_a_hole_takes_up_room_and_enlarges_the_buffer() {
        let mut window = window();
        assert_eq!(window.offered(0, 40 * MSS), 40 * MSS);
        // In a nearly full buffer, the window does not open.
        assert_eq!(window.offered(0, 76 * MSS), 0);
        window.segment(MSS, 76 * MSS, 78 * MSS);
        // The buffer holds twice the first ten segments, and the data from the hole to its last
        // byte.
        assert_eq!((window.buffer, window.offered(0, 76 * MSS)), (98 * MSS, 22 * MSS));
    }

    /// A repair releases many segments at once, which are unread when Linux measures.
    #[test]
    fn data_released_by_a_repair_counts_in_the_next_round_trip() {
        let mut window = window();
        for at in 51..71 {
            read(&mut window, at, 1);
        }
        read(&mut window, 120, 30);
        assert_eq!((window.space, window.buffer), (10 * MSS, 80 * MSS));
        read(&mut window, 220, 1);
        assert_eq!(window.space, 30 * MSS);
    }

    #[test]
    fn a_fixed_window_does_not_depend_on_holes() {
        let receive_window = ReceiveWindow::Fixed(Bytes::new(10 * MSS));
        let mut window = Window::new(&TcpConfig { receive_window, ..TcpConfig::default() });
        window.segment(MSS, 5 * MSS, 6 * MSS);
        assert_eq!((window.offered(0, 5 * MSS), window.offered(MSS, 0)), (10 * MSS, 9 * MSS));
    }
}
