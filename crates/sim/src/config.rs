use crate::SimError;
use crate::packet::Tag;
use cc::caqm::CaqmSettings;
use units::{Bytes, Span};
use wire::caqm::Info;

/// The behaviour of the two hosts of a connection. The default is Linux's behaviour with buffers
/// large enough not to limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpConfig {
    /// The payload of a full segment: 1448 with timestamps on an MTU of 1500.
    pub mss: Bytes,
    /// The size of a frame beyond its payload, from the MAC addresses on.
    pub headers: Bytes,
    /// The initial window in segments (RFC 6928).
    pub initial_window: u32,
    /// The end that opens the connection; or the connection is open from the beginning.
    pub opening: Opening,
    /// The shortest retransmission timeout (Linux's TCP_RTO_MIN, 200 ms).
    pub rto_min: Span,
    /// The timeout before the first sample of the round-trip time (RFC 6298, 2.1).
    pub rto_initial: Span,
    /// The longest retransmission timeout (Linux's TCP_RTO_MAX, 120 s).
    pub rto_max: Span,
    /// The unit of timers: Linux's jiffies, 4 ms with CONFIG_HZ=250. With zero, timers are exact.
    pub tick: Span,
    /// The longest time that an ACK waits for a second segment; `None` acknowledges each segment.
    pub delayed_ack: Option<Span>,
    /// The number of segments that the receiver acknowledges one by one (Linux's quick acks).
    pub quick_acks: u32,
    /// Receive coalescing: the receiver acknowledges in-order segments that arrive within this time
    /// after the first segment together, up to 64 KiB.
    pub coalesce: Option<Span>,
    /// The receiver's buffer, which bounds the data in flight.
    pub receive_window: ReceiveWindow,
    /// The limit on sent and unacknowledged data.
    pub send_buffer: Option<Bytes>,
    /// Whether packets are ECN-capable, and the sender's reaction to marks.
    pub ecn: Ecn,
    /// Whether the host paces algorithms that do not set a rate: at two windows a round trip in
    /// slow start, and at 1.2 afterwards (`tcp_update_pacing_rate`).
    pub paces: bool,
    /// The length of a burst, as the time that it takes at the pacing rate.
    pub burst_time: Span,
    /// Minimum number of segments in a burst.
    pub burst_segments: u32,
    /// Maximum size of a burst.
    pub burst_max: Bytes,
    /// Whether the host has segmentation offload: a small super-packet then waits until a third of
    /// the window is free if ACKs follow each other within a millisecond (`tcp_tso_should_defer`).
    pub offload: bool,
    /// Whether the sender restarts from the initial window after an idle timeout (RFC 5681, 4.1).
    pub slow_start_after_idle: bool,
    /// Whether the sender probes for a lost tail before its timeout (RFC 8985, section 7).
    pub tail_loss_probe: bool,
    /// An earlier connection's estimate of the path, for algorithms that use it.
    pub memory: Option<cc::Memory>,
    /// The CAQM support of the hosts, for flows with [`cc::Algorithm::Caqm`].
    pub caqm: CaqmHosts,
    /// A mistake in the model, for tests of the validation only.
    #[doc(hidden)]
    pub flaw: Option<Flaw>,
}

/// A mistake in the model that the validation must find. Only tests make such a mistake.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// ACKs report no ranges beyond a gap.
    NoSack,
    /// CUBIC keeps half of its window at a loss instead of 0.7.
    WrongBeta,
    /// Hosts do not pace.
    NoPacing,
    /// The links of the validation are 5 % longer than they should be.
    LongDelay,
}

/// The ends of a connection that support CAQM, and their settings. Such an end offers CAQM in its
/// part of the handshake, and asks whether a port on the path of the data supports CAQM. Unless
/// both ends and a port support CAQM, the connection runs Reno without tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CaqmHosts {
    /// Whether the end that sends the data supports CAQM.
    pub sender: bool,
    /// Whether the end that receives the data supports CAQM.
    pub receiver: bool,
    /// Whether the hosts assume that the ports support CAQM instead of asking: ports of other
    /// implementations do not answer.
    pub trusts_path: bool,
    /// The parameters of CAQM's host algorithm.
    pub settings: CaqmSettings,
    /// The TPID that identifies a tag; see [`wire::caqm::TPID`].
    pub tpid: u16,
    /// The tag's kind: 0 is CAQM's, and ports ignore other kinds.
    pub kind: u8,
}

/// The end that opens a connection, or a connection that is open already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// The sender connects and sends: an upload.
    BySender,
    /// The receiver connects and sends a request: a download.
    ByReceiver,
    /// The connection exists already, and the round-trip time is unknown.
    Established,
}

/// The size of the receive buffer over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiveWindow {
    /// A window that always has this size.
    Fixed(Bytes),
    /// A buffer that grows with the data of a round trip (Linux's `tcp_rcv_space_adjust`).
    /// `initial` is the window in the handshake; the first segment makes the window a quarter
    /// wider.
    Auto {
        /// The window in the handshake.
        initial: Bytes,
        /// The largest window.
        max: Bytes,
    },
}

/// The use of Explicit Congestion Notification by a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ecn {
    /// Packets are not ECN-capable. Queues drop such packets instead of marking them.
    Off,
    /// ECN if the algorithm requests it, with an echo for each mark (RFC 8257).
    ByAlgorithm,
    /// RFC 3168: a mark counts as a loss, once in a round trip.
    Classic,
}

impl TcpConfig {
    /// Checks that hosts can have these settings.
    pub fn validate(&self) -> Result<(), SimError> {
        let refuse = |setting, advice| Err(SimError::Setting { setting, advice });
        if !(1..=65_000).contains(&self.mss.count()) {
            return refuse("mss", "it lies between 1 and 65000 bytes; 1448 is usual");
        }
        if self.headers.count() > 1000 {
            return refuse("headers", "they are 66 bytes on Ethernet with timestamps");
        }
        if self.initial_window == 0 {
            return refuse("initial_window", "give at least one segment; 10 is usual");
        }
        if self.rto_min == Span::ZERO || self.rto_initial == Span::ZERO {
            return refuse("rto_min", "a timeout of 0 never ends; 200ms is usual");
        }
        if self.rto_max < self.rto_min {
            return refuse("rto_max", "it must not be below rto_min");
        }
        let window = match self.receive_window {
            ReceiveWindow::Fixed(bytes) => bytes,
            ReceiveWindow::Auto { initial, max } => initial.min(max),
        };
        if window < self.mss || window.count() > u64::from(u32::MAX) {
            return refuse("receive_window", "it must hold a segment and be at most 4 GiB");
        }
        if self.send_buffer.is_some_and(|buffer| buffer < self.mss) {
            return refuse("send_buffer", "it must hold a segment");
        }
        if self.burst_segments == 0 || self.burst_max < self.mss {
            return refuse("burst_segments", "a burst must hold a segment");
        }
        self.caqm.validate()
    }
}

impl Default for TcpConfig {
    fn default() -> Self {
        Self {
            mss: Bytes::new(1448),
            headers: Bytes::new(66),
            initial_window: 10,
            opening: Opening::BySender,
            rto_min: Span::from_millis(200),
            rto_initial: Span::from_secs(1),
            rto_max: Span::from_secs(120),
            tick: Span::from_millis(4),
            delayed_ack: Some(Span::from_millis(40)),
            quick_acks: 16,
            coalesce: None,
            receive_window: ReceiveWindow::Auto {
                initial: Bytes::kib(64),
                max: Bytes::kib(256 * 1024),
            },
            send_buffer: None,
            ecn: Ecn::ByAlgorithm,
            paces: false,
            burst_time: Span::from_millis(1),
            burst_segments: 2,
            burst_max: Bytes::kib(64),
            offload: true,
            slow_start_after_idle: true,
            tail_loss_probe: true,
            memory: None,
            caqm: CaqmHosts::default(),
            flaw: None,
        }
    }
}

impl CaqmHosts {
    /// Checks the algorithm's parameters, the tag's kind (0 to 7) and the TPID.
    pub fn validate(&self) -> Result<(), SimError> {
        let refuse = |setting, advice| Err(SimError::Setting { setting, advice });
        self.settings.validate()?;
        if self.kind > 7 {
            return refuse("caqm.kind", "it has three bits: 0 to 7");
        }
        if !wire::caqm::is_free(self.tpid) {
            return refuse("caqm.tpid", "another protocol has this number; 0x88a8 is usual");
        }
        Ok(())
    }

    pub(crate) fn tag(&self, info: Info) -> Tag {
        Tag::new(self.tpid, info.of_kind(self.kind))
    }

    /// Reads a tag of this kind as if it were of kind 0.
    #[inline]
    pub(crate) fn read(&self, tag: Tag) -> Option<Info> {
        let info = tag.info(self.tpid)?;
        (info.kind() == self.kind).then(|| info.of_kind(0))
    }
}

impl Default for CaqmHosts {
    fn default() -> Self {
        Self {
            sender: true,
            receiver: true,
            trusts_path: false,
            settings: CaqmSettings::default(),
            tpid: wire::caqm::TPID,
            kind: 0,
        }
    }
}
