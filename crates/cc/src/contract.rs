use crate::caqm::CaqmSettings;
use std::fmt::Debug;
use units::{Bytes, Rate, Share, Span, Time};
use wire::caqm::Info;

/// One acknowledgement, with the rate sample that it completes
/// (draft-ietf-ccwg-bbr, section on delivery rate estimation; `struct rate_sample` in Linux).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack {
    pub now: Time,
    /// New sample; `None` if only retransmitted data was acknowledged (Karn).
    pub rtt: Option<Span>,
    /// The smallest on this connection so far.
    pub min_rtt: Option<Span>,
    /// Newly acknowledged, cumulatively or selectively.
    pub acked: Bytes,
    /// Newly marked as lost by this acknowledgement.
    pub lost: Bytes,
    /// The part of `acked` with a congestion mark.
    pub marked: Bytes,
    /// Sent and neither acknowledged nor marked as lost, after this acknowledgement.
    pub inflight: Bytes,
    /// Everything delivered since the connection began, this ACK included.
    pub delivered: Bytes,
    /// `delivered` at the time when the newest packet acknowledged here was sent. A round trip has
    /// ended when this is past the `delivered` at the round's beginning. Zero if nothing was
    /// acknowledged.
    pub prior_delivered: Bytes,
    /// Bytes in flight when that packet was sent, itself included.
    pub sent_inflight: Bytes,
    /// Marked as lost since that packet was sent.
    pub lost_since: Bytes,
    /// The longer of the sending time and the acknowledging time of the sample; zero if there is no
    /// sample.
    pub interval: Span,
    /// The sample was taken while the application did not send enough.
    pub app_limited: bool,
    /// The window bounds what is in flight. If the application or the receiver does, a larger
    /// window would prove nothing (`tcp_is_cwnd_limited` in Linux, RFC 7661).
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
    /// In flight before anything was marked as lost. At a timeout: everything sent and not
    /// acknowledged cumulatively (RFC 5681's FlightSize).
    pub inflight: Bytes,
    /// The timeout is inside a loss event: the threshold was already reduced and stays (RFC 5681,
    /// 3.1).
    pub repeated: bool,
}

/// The known state of a path before the first packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path {
    pub mss: Bytes,
    /// RFC 6928's ten segments unless the host is configured otherwise.
    pub initial_window: Bytes,
    /// From the handshake.
    pub handshake_rtt: Option<Span>,
    pub now: Time,
    /// Seed for random choices, such as the moment of a probe.
    pub seed: u64,
    /// An earlier connection's memory; algorithms without a use for it ignore it.
    pub memory: Option<Memory>,
    /// The network's settings, if both ends and a port on the path speak CAQM.
    pub caqm: Option<CaqmSettings>,
}

/// A connection's estimate of a path, for the next connection on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    pub rate: Rate,
    pub min_rtt: Span,
    pub age: Span,
}

/// Which side shrinks the window while a loss is repaired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduction {
    /// The host, by proportional rate reduction towards the algorithm's `ssthresh` (RFC 6937).
    Proportional,
    /// The algorithm sets its window at all times.
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

    /// The losses of a timeout are repaired. The window has grown by itself since then
    /// (`in_recovery` is false after a timeout).
    fn on_timeout_repaired(&mut self, _now: Time) {}

    /// The loss event or timeout proved spurious (F-RTO, DSACK, Eifel): return to the state before
    /// it. The event has ended; no [`Self::on_recovered`] follows.
    fn on_undo(&mut self, now: Time);

    /// The host sends after `idle`, at least one retransmission timeout, without anything in
    /// flight.
    fn on_idle(&mut self, now: Time, idle: Span);

    /// The limit on bytes in flight.
    fn cwnd(&self) -> Bytes;

    /// The target of the window while a loss is repaired, and the end of slow start.
    fn ssthresh(&self) -> Bytes;

    /// `None` leaves pacing to the host: Linux then paces at 2 (slow start) or 1.2 windows a round
    /// trip, if it paces at all.
    fn pacing_rate(&self) -> Option<Rate>;

    fn reduction(&self) -> Reduction;

    /// The estimate to remember for the path when the connection ends. With `None` the old memory
    /// stays.
    fn note(&self) -> Option<Memory> {
        None
    }

    /// The path's own loss, as far as known, from algorithms that tell it from congestion loss.
    fn path_loss(&self) -> Option<Share> {
        None
    }

    /// The minimum window of the host, if the algorithm depends on it: BBR waits until little is in
    /// flight, and would wait for ever while the host keeps more there. With `None` the host
    /// chooses.
    fn min_window_segments(&self) -> Option<u64> {
        None
    }

    /// Whether the window counts bytes on the path alone. The host then leaves bytes that wait at
    /// the ends out of [`Ack::inflight`], and sends as many bytes beyond [`Self::cwnd`].
    fn leaves_out_waiting_bytes(&self) -> bool {
        false
    }

    /// Whether packets are to carry ECN-capable marks.
    fn wants_ecn(&self) -> bool {
        false
    }

    /// The CAQM request for each of `_segments` segments that leave together. With `None` they
    /// carry no tag, and the host does not call this again.
    fn request(&mut self, _segments: u32) -> Option<Info> {
        None
    }

    /// The ports' answers in an ACK; called before [`Self::on_ack`] for the same ACK.
    fn answer(&mut self, _told: Info, _window_limited: bool, _now: Time) {}

    fn in_slow_start(&self) -> bool {
        self.cwnd() < self.ssthresh()
    }
}

impl Ack {
    /// The rate sample (draft-ietf-ccwg-bbr: delivery rate), if there is one.
    pub fn delivery_rate(&self) -> Option<Rate> {
        let nanos = u128::from(self.interval.nanos());
        let bytes = self.delivered.saturating_sub(self.prior_delivered).count();
        let bits = (u128::from(bytes) * 8_000_000_000).checked_div(nanos)?;
        Some(Rate::from_bits_per_second(u64::try_from(bits).unwrap_or(u64::MAX)))
    }
}
