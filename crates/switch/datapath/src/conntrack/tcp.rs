//! The state of a TCP connection, after Guido van Rooij's "Real Stateful TCP Packet Filtering in IP
//! Filter" (2000). Open vSwitch's userspace datapath and FreeBSD's pf use the same method; the
//! states and limits here are the same.

use super::extract::{u16_at, u32_at};
use super::settings::Phase;

/// An endpoint of a connection, as derived from its packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct End {
    /// The sequence number after the last data that the endpoint has sent.
    sent: u32,
    /// The sequence number up to which the peer's window lets the endpoint send.
    allowed: u32,
    /// The largest window that the endpoint has advertised, before scaling.
    window: u16,
    scale: Scale,
    pub(super) state: State,
}

impl End {
    pub(super) const FREE: Self =
        Self { sent: 0, allowed: 0, window: 0, scale: Scale::NONE, state: State::Closed };
}

/// The state of one endpoint, in Open vSwitch's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    Closed,
    SynSent,
    Established,
    Closing,
    FinWait2,
    TimeWait,
}

/// A window scale, in one byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Scale(u8);

impl Scale {
    const NONE: Self = Self(0);
    /// The scale of a connection whose handshake was not seen.
    const UNKNOWN: Self = Self(1 << 6);

    /// Builds the scale that the option of a SYN segment announces.
    fn by_option(shift: u8) -> Self {
        Self(1 << 7 | shift)
    }

    fn known(self) -> Option<u8> {
        (self.0 & 1 << 7 != 0).then_some(self.0 & 0xf)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Update {
    Valid(Phase),
    /// The segment is only tolerated: it does not extend the connection's lifetime.
    Tolerated,
    /// The connection is still new.
    New(Phase),
    Invalid,
    /// The segment starts another connection with the same addresses and ports.
    Restart,
}

/// The parts of a segment that tracking uses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    sequence: u32,
    acknowledgement: u32,
    flags: u8,
    window: u16,
    payload: u32,
    scale: Option<u8>,
}

impl Segment {
    /// Reads a segment whose header is complete.
    pub(super) fn read(transport: &[u8]) -> Option<Self> {
        let header: &[u8; 20] = transport.first_chunk()?;
        let length = usize::from(header[12] >> 4) * 4;
        let flags = header[13];
        let scale = if flags & SYN != 0 { window_scale(transport.get(20..length)?) } else { None };
        Some(Self {
            sequence: u32_at(header, 4)?,
            acknowledgement: u32_at(header, 8)?,
            flags,
            window: u16_at(header, 14)?,
            payload: transport.len().saturating_sub(length) as u32,
            scale,
        })
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Returns the length of the segment in sequence numbers.
    fn length(&self) -> u32 {
        self.payload + u32::from(self.has(SYN)) + u32::from(self.has(FIN))
    }

    fn has_valid_flags(&self) -> bool {
        if self.has(SYN) && (self.has(RST) || self.has(FIN)) {
            return false;
        }
        if !self.has(SYN) && !self.has(ACK) && !self.has(RST) {
            return false;
        }
        self.has(ACK) || !(self.has(FIN) || self.has(PSH) || self.has(URG))
    }

    /// Whether a connection may start with this segment. A SYN may start a connection, and so may a
    /// segment from the middle of a connection that is older than tracking. A SYN-ACK may not start
    /// a connection, because tracking has missed its SYN.
    pub(super) fn may_start(&self) -> bool {
        self.has_valid_flags() && !(self.has(SYN) && self.has(ACK))
    }
}

/// Returns the states of both endpoints after the first segment of the connection.
pub(super) fn start(segment: &Segment) -> [End; 2] {
    let mut first = End {
        sent: segment.sequence,
        allowed: segment.sequence.wrapping_add(segment.length()).wrapping_add(1),
        window: segment.window.max(1),
        scale: Scale::NONE,
        state: State::SynSent,
    };
    let mut second = End { allowed: NOT_SEEN, window: 1, ..End::FREE };
    if segment.has(SYN) {
        if let Some(scale) = segment.scale {
            first.scale = Scale::by_option(scale);
            first.window = unscaled(first.window, scale);
        }
    } else {
        first.scale = Scale::UNKNOWN;
        second.scale = Scale::UNKNOWN;
    }
    [first, second]
}

/// Updates both endpoints with a segment. `ends[0]` is the endpoint that started the connection.
pub(super) fn update(
    ends: &mut [End; 2],
    segment: &Segment,
    is_reply: bool,
    checks_sequence: bool,
) -> Update {
    if !segment.has_valid_flags() {
        return Update::Invalid;
    }
    let [first, second] = ends;
    let (source, destination) = if is_reply { (second, first) } else { (first, second) };
    if segment.has(SYN) && !segment.has(ACK) {
        if source.state >= State::FinWait2 && destination.state >= State::FinWait2 {
            return Update::Restart;
        }
        if source.state <= State::SynSent {
            source.state = State::SynSent;
            return Update::New(Phase::TcpSynSent);
        }
    }
    let mut window = Window::new(source, destination, segment);
    if source.state < State::SynSent {
        window.first_segment(source, destination, segment);
    }
    window.place(source, destination, segment);
    if !checks_sequence || window.contains(source, destination, segment) {
        window.advance(source, destination);
        return Update::Valid(advance_states(source, destination, segment));
    }
    let is_loose = destination.state < State::SynSent
        || destination.state >= State::FinWait2
        || source.state >= State::FinWait2;
    if is_loose
        && is_at_least(source.allowed.wrapping_add(FUDGE), window.end)
        && is_at_least(window.start, source.sent.wrapping_sub(FUDGE))
    {
        // Data of a connection that started before tracking, or late data of a connection that has
        // just closed.
        window.advance(source, destination);
        if segment.has(FIN) && source.state < State::Closing {
            source.state = State::Closing;
        }
        if segment.has(RST) {
            (source.state, destination.state) = (State::TimeWait, State::TimeWait);
        }
        return Update::Tolerated;
    }
    Update::Invalid
}

/// A segment, compared with the windows of both endpoints.
struct Window {
    source_scale: u32,
    destination_scale: u32,
    advertised: u16,
    start: u32,
    end: u32,
    acknowledgement: u32,
    checks_acknowledgement: bool,
}

impl Window {
    fn new(source: &End, destination: &End, segment: &Segment) -> Self {
        let (source_scale, destination_scale) = if segment.has(SYN) {
            (0, 0)
        } else if let (Some(source), Some(destination)) =
            (source.scale.known(), destination.scale.known())
        {
            (source.into(), destination.into())
        } else if source.scale == Scale::UNKNOWN && destination.scale == Scale::UNKNOWN {
            (MAX_SCALE.into(), MAX_SCALE.into())
        } else {
            (0, 0)
        };
        Self {
            source_scale,
            destination_scale,
            advertised: segment.window,
            start: segment.sequence,
            end: segment.sequence.wrapping_add(segment.length()),
            acknowledgement: segment.acknowledgement,
            checks_acknowledgement: true,
        }
    }

    /// Initializes an endpoint from its first segment.
    fn first_segment(&mut self, source: &mut End, destination: &mut End, segment: &Segment) {
        if segment.has(SYN)
            && let Some(scale) = destination.scale.known()
        {
            if let Some(own) = segment.scale {
                source.scale = Scale::by_option(own);
                self.source_scale = own.into();
                self.destination_scale = scale.into();
                self.advertised = unscaled(self.advertised, own);
            } else {
                // Window scaling needs the option in both SYN segments.
                let window = u32::from(destination.window) << scale;
                destination.window = window.min(u16::MAX.into()) as u16;
                destination.scale = Scale::NONE;
            }
        }
        source.sent = self.start;
        source.state = State::SynSent;
        let window = u32::from(destination.window) << self.destination_scale;
        let allowed = self.end.wrapping_add(window.max(1));
        if source.allowed == NOT_SEEN || is_at_least(allowed, source.allowed) {
            source.allowed = allowed;
            self.checks_acknowledgement = false;
        }
        source.window = source.window.max(self.advertised);
    }

    fn place(&mut self, source: &End, destination: &End, segment: &Segment) {
        let has_none = self.acknowledgement == 0 && segment.has(RST);
        if !segment.has(ACK) || has_none {
            self.acknowledgement = destination.sent;
        }
        if self.start == self.end {
            (self.start, self.end) = (source.sent, source.sent);
        }
    }

    fn contains(&self, source: &End, destination: &End, segment: &Segment) -> bool {
        let window = u32::from(destination.window) << self.destination_scale;
        let skew = if self.checks_acknowledgement {
            destination.sent.wrapping_sub(self.acknowledgement) as i32
        } else {
            0
        };
        let fudge = i64::from(FUDGE);
        is_at_least(source.allowed, self.end)
            && is_at_least(self.start, source.sent.wrapping_sub(window))
            && i64::from(skew) >= -fudge
            && i64::from(skew) <= fudge << self.source_scale
            && (!segment.has(RST) || segment.sequence.abs_diff_wrapping(source.sent) <= 1)
    }

    fn advance(&self, source: &mut End, destination: &mut End) {
        source.window = source.window.max(self.advertised);
        if is_at_least(self.end, source.sent) {
            source.sent = self.end;
        }
        let window = u32::from(self.advertised) << self.source_scale;
        if is_at_least(self.acknowledgement.wrapping_add(window), destination.allowed) {
            destination.allowed = self.acknowledgement.wrapping_add(window.max(1));
        }
    }
}

fn advance_states(source: &mut End, destination: &mut End, segment: &Segment) -> Phase {
    if segment.has(FIN) && source.state < State::Closing {
        source.state = State::Closing;
    }
    if segment.has(ACK) {
        match destination.state {
            State::SynSent => destination.state = State::Established,
            State::Closing => destination.state = State::FinWait2,
            _ => {}
        }
    }
    if segment.has(RST) {
        (source.state, destination.state) = (State::TimeWait, State::TimeWait);
    }
    let (less, more) = if source.state < destination.state {
        (source.state, destination.state)
    } else {
        (destination.state, source.state)
    };
    if less >= State::FinWait2 {
        Phase::TcpClose
    } else if less >= State::Closing {
        Phase::TcpTimeWait
    } else if less < State::Established {
        Phase::TcpSynRecv
    } else if more >= State::Closing {
        Phase::TcpFinWait
    } else {
        Phase::TcpEstablished
    }
}

impl State {
    /// Returns the name in `dpctl/dump-conntrack`, which shows the later of both endpoints' states.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Closed => "CLOSED",
            Self::SynSent => "SYN_SENT",
            Self::Established => "ESTABLISHED",
            Self::Closing => "CLOSING",
            Self::FinWait2 | Self::TimeWait => "TIME_WAIT",
        }
    }
}

trait Distance {
    fn abs_diff_wrapping(self, other: Self) -> u32;
}

impl Distance for u32 {
    fn abs_diff_wrapping(self, other: Self) -> u32 {
        (self.wrapping_sub(other) as i32).unsigned_abs()
    }
}

/// Whether `number` equals `other` or follows it in sequence order.
fn is_at_least(number: u32, other: u32) -> bool {
    number.wrapping_sub(other) as i32 >= 0
}

fn unscaled(window: u16, scale: u8) -> u16 {
    u32::from(window).div_ceil(1 << scale) as u16
}

/// Reads the shift of the window scale option, at most 14 (RFC 7323 section 2.3).
fn window_scale(mut options: &[u8]) -> Option<u8> {
    loop {
        match options {
            [0, ..] | [] => return None,
            [1, rest @ ..] => options = rest,
            [3, 3, shift, ..] => return Some((*shift).min(MAX_SCALE)),
            [_, length, ..] => options = options.get(usize::from(*length).max(2)..)?,
            _ => return None,
        }
    }
}

const FIN: u8 = 1;
const SYN: u8 = 1 << 1;
const RST: u8 = 1 << 2;
const PSH: u8 = 1 << 3;
const ACK: u8 = 1 << 4;
const URG: u8 = 1 << 5;
const MAX_SCALE: u8 = 14;
/// `End::allowed` of an endpoint that has not sent anything.
const NOT_SEEN: u32 = 1;
/// Distance outside the window at which segments are still accepted: a full window and a segment of
/// 1500 bytes.
const FUDGE: u32 = 0xffff + 1500;
