use crate::TcpConfig;
use units::{Bytes, Rate, Span, Time};

/// Spaces bursts at a rate (`tcp_update_skb_after_send`, `tcp_tso_autosize` in Linux).
#[derive(Debug, Clone, Default)]
pub(crate) struct Pacer {
    pub(crate) next: Time,
}

impl Pacer {
    /// Returns the size of a burst: the bytes that the rate carries in about a millisecond. On
    /// short paths a burst is larger, because its queue soon drains.
    pub(crate) fn burst(rate: Rate, min_rtt: Option<Span>, mss: u64, config: &TcpConfig) -> u64 {
        let most = config.burst_max.count();
        let mut bytes = rate.bytes_in(config.burst_time).count();
        if let Some(doublings) = min_rtt.map(|rtt| (rtt.nanos() / 1000) >> 9).filter(|d| *d < 32) {
            bytes += most >> doublings;
        }
        let segments = (bytes.min(most) / mss).max(u64::from(config.burst_segments));
        segments * mss
    }

    /// Records that a burst has left. A late burst earns credit for up to half of its time.
    pub(crate) fn sent(&mut self, now: Time, bytes: u64, rate: Rate) {
        let takes = rate.time_for(Bytes::new(bytes));
        let credit = now.since(self.next).min(takes / 2);
        self.next = self.next.max(now) + (takes - credit);
    }
}
