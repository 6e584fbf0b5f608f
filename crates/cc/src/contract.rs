use crate::caqm::CaqmSettings;
use std::fmt::Debug;
use units::{Bytes, Rate, Share, Span, Time};
use wire::caqm::Info;

/// One acknowledgement, with the rate sample that it completes
/// (draft-ietf-ccwg-bbr, section on delivery rate estimation; `struct rate_sample` in Linux).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack {
    /// The time at which the host handles the ACK.
    pub now: Time,
    /// The RTT sample; `None` if the ACK acknowledges only retransmitted data (Karn).
    pub rtt: Option<Span>,
    /// The smallest RTT of this connection so far.
    pub min_rtt: Option<Span>,
    /// Bytes that this ACK newly acknowledges, cumulatively or selectively.
    pub acked: Bytes,
    /// Bytes that the host marks as lost because of this ACK.
    pub lost: Bytes,
    /// The part of `acked` with a congestion mark.
    pub marked: Bytes,
    /// Bytes in flight after this ACK: sent and neither acknowledged nor marked as lost.
    pub inflight: Bytes,
    /// Bytes delivered since the connection began, including those of this ACK.
    pub delivered: Bytes,
    /// `delivered` at the time when the host sent the newest packet that this ACK acknowledges. A
    /// round trip has ended once this value exceeds `delivered` at the round's beginning. Zero if
    /// the ACK acknowledges no packet.
    pub prior_delivered: Bytes,
    /// Bytes in flight when the host sent the newest acknowledged packet, including this packet.
    pub sent_inflight: Bytes,
    /// Bytes marked as lost since the host sent the newest acknowledged packet.
    pub lost_since: Bytes,
    /// The duration of the rate sample, which is the longer of its sending time and its
    /// acknowledging time; zero if there is no sample.
    pub interval: Span,
    /// Whether the application did not send enough during the sample.
    pub app_limited: bool,
    /// Whether the window limits the bytes in flight. If the application or the receiver limits
    /// the bytes in flight, an algorithm should not grow its window (`tcp_is_cwnd_limited` in
    /// Linux, RFC 7661).
    pub window_limited: bool,
    /// Whether the host is repairing a loss (between [`CongestionControl::on_loss`] and
    /// [`CongestionControl::on_recovered`]).
    pub in_recovery: bool,
}

/// A loss event: the first loss while the host repairs no other loss (RFC 5681, RFC 6582).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// The time at which the host detects the loss.
    pub now: Time,
    /// Bytes newly marked as lost.
    pub lost: Bytes,
    /// Bytes in flight before the host marked the lost bytes. At a timeout: the bytes sent and
    /// not acknowledged cumulatively (RFC 5681's FlightSize).
    pub inflight: Bytes,
    /// Whether the timeout is inside a loss event: the loss event has already reduced the
    /// threshold, and the timeout leaves the threshold unchanged (RFC 5681, 3.1).
    pub repeated: bool,
}

/// The known properties of a path before the first packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path {
    /// Payload of a full segment.
    pub mss: Bytes,
    /// The first window: ten segments (RFC 6928) unless the host is configured otherwise.
    pub initial_window: Bytes,
    /// The RTT sample of the handshake.
    pub handshake_rtt: Option<Span>,
    /// The time at which the connection starts.
    pub now: Time,
    /// Seed for random choices, such as the moment of a probe.
    pub seed: u64,
    /// An earlier connection's estimate of the path, which some algorithms ignore.
    pub memory: Option<Memory>,
    /// The network's settings, if both ends and a port on the path support CAQM.
    pub caqm: Option<CaqmSettings>,
}

/// A connection's estimate of a path, for the next connection on the same path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// The estimated rate at which the path delivers.
    pub rate: Rate,
    /// The smallest round-trip time on the path.
    pub min_rtt: Span,
    /// The time since the estimate was made; zero in a new estimate.
    pub age: Span,
}

/// The side that shrinks the window while the host repairs a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduction {
    /// The host shrinks the window, by proportional rate reduction towards the algorithm's
    /// `ssthresh` (RFC 6937).
    Proportional,
    /// The algorithm sets its window at all times.
    Own,
}

/// One algorithm on one connection.
pub trait CongestionControl: Debug + Send {
    /// Returns the algorithm's name. All variants of CUBIC are named `cubic`.
    fn name(&self) -> &'static str;

    /// Takes an ACK and the rate sample that it completes.
    fn on_ack(&mut self, ack: &Ack);

    /// Begins a loss event. The host calls this method once for all losses of one window.
    fn on_loss(&mut self, loss: &Loss);

    /// Ends a loss event, whose losses are repaired. The host does not call this method after a
    /// timeout.
    fn on_recovered(&mut self, now: Time);

    /// Handles an expired retransmission timer; all bytes in flight count as lost.
    fn on_timeout(&mut self, loss: &Loss);

    /// Ends the repair of a timeout's losses. The window has grown since the timeout, because
    /// `in_recovery` is false after the timeout.
    fn on_timeout_repaired(&mut self, _now: Time) {}

    /// Returns the algorithm to the state before a loss event or timeout that proved spurious
    /// (F-RTO, DSACK, Eifel). The event has ended; no [`Self::on_recovered`] follows.
    fn on_undo(&mut self, now: Time);

    /// Handles the end of an idle period of length `idle`: for at least one retransmission timeout
    /// no byte was in flight, and the host sends again.
    fn on_idle(&mut self, now: Time, idle: Span);

    /// Returns the limit on bytes in flight.
    fn cwnd(&self) -> Bytes;

    /// Returns the target of the window while the host repairs a loss, and the end of slow start.
    fn ssthresh(&self) -> Bytes;

    /// Returns the rate at which packets leave. `None` leaves pacing to the host: Linux then paces
    /// at 2 windows a round trip in slow start and at 1.2 afterwards, or does not pace.
    fn pacing_rate(&self) -> Option<Rate> {
        None
    }

    /// Returns the side that shrinks the window in a loss event.
    fn reduction(&self) -> Reduction;

    /// Returns the estimate to remember for the path when the connection ends. With `None` the host
    /// keeps its old estimate.
    fn note(&self) -> Option<Memory> {
        None
    }

    /// Returns the path's own loss, from algorithms that distinguish it from congestion loss.
    fn path_loss(&self) -> Option<Share> {
        None
    }

    /// Returns the minimum window that the host must use. BBR waits until few segments are in
    /// flight, and would wait for ever if the host kept more segments in flight. With `None` the
    /// host chooses its minimum window.
    fn min_window_segments(&self) -> Option<u64> {
        None
    }

    /// Whether the window counts bytes on the path alone. If so, a host that can count the bytes
    /// that wait at the ends leaves these bytes out of [`Ack::inflight`], and sends as many bytes
    /// beyond [`Self::cwnd`]. TCP cannot count these bytes.
    fn leaves_out_waiting_bytes(&self) -> bool {
        false
    }

    /// Whether the host should send packets with ECN-capable marks.
    fn wants_ecn(&self) -> bool {
        false
    }

    /// Returns the CAQM request for each of `_segments` segments that leave together. With `None`
    /// the segments carry no tag, and the host does not call this method again.
    fn request(&mut self, _segments: u32) -> Option<Info> {
        None
    }

    /// Takes the ports' answers in an ACK. The host calls this method before [`Self::on_ack`] for
    /// the same ACK.
    fn answer(&mut self, _told: Info, _window_limited: bool, _now: Time) {}

    /// Whether the window is below [`Self::ssthresh`], and so grows fast.
    fn in_slow_start(&self) -> bool {
        self.cwnd() < self.ssthresh()
    }
}

impl Ack {
    /// Returns the rate sample (draft-ietf-ccwg-bbr: delivery rate), if the ACK has a rate sample.
    pub fn delivery_rate(&self) -> Option<Rate> {
        let nanos = u128::from(self.interval.nanos());
        let bytes = self.delivered.saturating_sub(self.prior_delivered).count();
        let bits = (u128::from(bytes) * 8_000_000_000).checked_div(nanos)?;
        Some(Rate::from_bits_per_second(u64::try_from(bits).unwrap_or(u64::MAX)))
    }
}
