use std::fmt::Debug;
use units::{Bytes, Rate, Share, Span, Time};
use wire::caqm::Info;

/// One acknowledgement, with the rate sample that it completes
/// (draft-ietf-ccwg-bbr, section on delivery rate estimation; `struct rate_sample` in Linux).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack {
    pub now: Time,
    /// Newly measured; `None` where only retransmitted data was acknowledged (Karn).
    pub rtt: Option<Span>,
    /// The smallest the host has seen on this connection.
    pub min_rtt: Option<Span>,
    /// Newly acknowledged, cumulatively or selectively.
    pub acked: Bytes,
    /// Newly marked as lost by this acknowledgement.
    pub lost: Bytes,
    /// Of `acked`, what came with a congestion mark.
    pub marked: Bytes,
    /// Sent and neither acknowledged nor marked as lost, after this acknowledgement.
    pub inflight: Bytes,
    /// Everything delivered since the connection began, this included.
    pub delivered: Bytes,
    /// What `delivered` was when the newest packet acknowledged here was sent: when that is past the
    /// `delivered` of a round's beginning, a round trip is over. Zero where nothing was acknowledged.
    pub prior_delivered: Bytes,
    /// What was in flight when that packet was sent, itself included.
    pub sent_inflight: Bytes,
    /// Marked as lost since that packet was sent.
    pub lost_since: Bytes,
    /// Between the sample's two ends, as the longer of sending and acknowledging it took; zero where
    /// there is no sample.
    pub interval: Span,
    /// The sample was taken while the application did not send enough.
    pub app_limited: bool,
    /// The window bounds what is in flight; where the application or the receiver does, a larger one
    /// would prove nothing (`tcp_is_cwnd_limited` in Linux, RFC 7661).
    pub window_limited: bool,
    /// The host is repairing a loss (between [`CongestionControl::on_loss`] and
    /// [`CongestionControl::on_recovered`]).
    pub in_recovery: bool,
}

/// A loss event: the first loss after a state without any (RFC 5681, RFC 6582).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    pub now: Time,
    /// Newly marked as lost.
    pub lost: Bytes,
    /// Before anything was marked as lost; at a timeout everything sent and not acknowledged
    /// cumulatively (RFC 5681's FlightSize).
    pub inflight: Bytes,
    /// A timeout inside a loss event: the threshold was reduced for it already and stays (RFC 5681, 3.1).
    pub repeated: bool,
}

/// What is known of a path before the first packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path {
    pub mss: Bytes,
    /// RFC 6928's ten segments unless the host was told otherwise.
    pub initial_window: Bytes,
    /// Of the handshake.
    pub handshake_rtt: Option<Span>,
    pub now: Time,
    /// For what an algorithm draws by chance, such as the moment of a probe.
    pub seed: u64,
    /// What an earlier connection left; algorithms without a use for it pass it over.
    pub memory: Option<Memory>,
}

/// What a connection found out about a path, for the next one on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    pub rate: Rate,
    pub min_rtt: Span,
    pub age: Span,
}

/// Who shrinks the window while a loss is repaired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduction {
    /// The host, by proportional rate reduction towards the algorithm's `ssthresh` (RFC 6937).
    Proportional,
    /// The algorithm decides its window at all times.
    Own,
}

/// One algorithm on one connection.
pub trait CongestionControl: Debug + Send {
    fn name(&self) -> &'static str;

    fn on_ack(&mut self, ack: &Ack);

    /// A loss event begins; once for all losses of one window.
    fn on_loss(&mut self, loss: &Loss);

    /// The losses of that event are repaired. Not called after a timeout.
    fn on_recovered(&mut self, now: Time);

    /// The retransmission timer expired; everything in flight counts as lost.
    fn on_timeout(&mut self, loss: &Loss);

    /// What was lost with a timeout is repaired. The window has grown on its own since then
    /// (`in_recovery` is false after a timeout).
    fn on_timeout_repaired(&mut self, _now: Time) {}

    /// The loss event or timeout proved wrong (F-RTO, DSACK, Eifel): go back to the state before it. The event is over;
    /// no [`Self::on_recovered`] follows.
    fn on_undo(&mut self, now: Time);

    /// Something is to be sent after `idle`, at least one retransmission timeout, without anything in
    /// flight.
    fn on_idle(&mut self, now: Time, idle: Span);

    /// How much may be in flight.
    fn cwnd(&self) -> Bytes;

    /// Where the window goes while a loss is repaired, and where slow start ends.
    fn ssthresh(&self) -> Bytes;

    /// `None` leaves pacing to the host: Linux then paces at 2 (slow start) or 1.2 windows a round trip,
    /// if it paces at all.
    fn pacing_rate(&self) -> Option<Rate>;

    fn reduction(&self) -> Reduction;

    /// What should be remembered of the path when the connection ends; none where it told nothing, and
    /// what was remembered before stays.
    fn note(&self) -> Option<Memory> {
        None
    }

    /// What the path loses by itself, as far as it was found out, by algorithms that tell that from what congestion
    /// loses.
    fn path_loss(&self) -> Option<Share> {
        None
    }

    /// Packets are to carry ECN-capable marks.
    fn wants_ecn(&self) -> bool {
        false
    }

    /// What each of so many segments that leave together is to ask of the ports on the way (CAQM); none: they bear
    /// no tag, and this is not asked again.
    fn request(&mut self, _segments: u32) -> Option<Info> {
        None
    }

    /// What an acknowledgement tells of the ports' answers; before [`Self::on_ack`] for the same one.
    fn answer(&mut self, _told: Info, _window_limited: bool, _now: Time) {}

    fn in_slow_start(&self) -> bool {
        self.cwnd() < self.ssthresh()
    }
}

impl Ack {
    /// The rate sample (draft-ietf-ccwg-bbr: delivery rate), where there is one.
    pub fn delivery_rate(&self) -> Option<Rate> {
        let nanos = u128::from(self.interval.nanos());
        let bytes = self.delivered.saturating_sub(self.prior_delivered).count();
        let bits = (u128::from(bytes) * 8_000_000_000).checked_div(nanos)?;
        Some(Rate::from_bits_per_second(u64::try_from(bits).unwrap_or(u64::MAX)))
    }
}
