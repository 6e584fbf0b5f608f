//! Finds, reads and rewrites ACK frames in decrypted payloads (RFC 9000, section 19.3).

use crate::ranges::Ranges;
use std::ops::Range;
use std::time::Duration;

/// An ACK frame and its byte range in the payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AckFrame {
    pub(crate) place: Range<usize>,
    pub(crate) ranges: Ranges,
    pub(crate) largest: u64,
    /// The ACK Delay field, in units of the peer's `ack_delay_exponent`.
    raw_delay: u64,
    /// The byte range of the three encoded ECN counts, if the frame has them.
    ecn: Option<Range<usize>>,
}

impl AckFrame {
    /// Returns the first ACK frame of a payload. The engine writes ACK frames at the start of a
    /// packet, or after stream data. Returns `None` for a malformed payload, which the engine
    /// handles.
    pub(crate) fn find(payload: &[u8]) -> Option<Self> {
        let mut at = 0;
        while at < payload.len() {
            let start = at;
            match number(payload, &mut at)? {
                kind @ (ACK | ACK_ECN) => return Self::read(payload, start, at, kind == ACK_ECN),
                kind => skip(payload, &mut at, kind)?,
            }
        }
        None
    }

    fn read(payload: &[u8], start: usize, mut at: usize, with_ecn: bool) -> Option<Self> {
        let largest = number(payload, &mut at)?;
        let raw_delay = number(payload, &mut at)?;
        let more = number(payload, &mut at)?;
        let mut low = largest.checked_sub(number(payload, &mut at)?)?;
        let mut ranges = Ranges::default();
        ranges.insert(low..largest + 1, |_| {});
        for _ in 0..more {
            let gap = number(payload, &mut at)?;
            let length = number(payload, &mut at)?;
            let high = low.checked_sub(gap)?.checked_sub(2)?;
            low = high.checked_sub(length)?;
            ranges.insert(low..high + 1, |_| {});
        }
        let counters = at;
        if with_ecn {
            for _ in 0..3 {
                number(payload, &mut at)?;
            }
        }
        let ecn = with_ecn.then_some(counters..at);
        Some(Self { place: start..at, ranges, largest, raw_delay, ecn })
    }

    /// Returns the time for which the peer delayed the acknowledgement. Weir's endpoints use the
    /// default exponent (RFC 9000, section 18.2).
    pub(crate) fn delay(&self) -> Duration {
        Duration::from_micros(self.raw_delay.min(MOST_DELAY) << ACK_DELAY_EXPONENT)
    }

    /// Returns the payload with `ranges` in place of the frame's own ranges. If `ranges` is empty,
    /// the frame becomes padding.
    pub(crate) fn replaced(&self, payload: &[u8], ranges: &Ranges) -> Vec<u8> {
        let mut out = Vec::with_capacity(payload.len() + 64);
        out.extend_from_slice(&payload[..self.place.start]);
        // The frame format requires descending order.
        let mut descending = ranges.iter().rev().take(MOST_RANGES);
        let count = ranges.iter().count().min(MOST_RANGES) as u64;
        if let Some(first) = descending.next() {
            write(&mut out, if self.ecn.is_some() { ACK_ECN } else { ACK });
            write(&mut out, first.end - 1);
            write(&mut out, self.raw_delay);
            write(&mut out, count - 1);
            write(&mut out, first.end - first.start - 1);
            let mut low = first.start;
            for range in descending {
                write(&mut out, low - range.end - 1);
                write(&mut out, range.end - range.start - 1);
                low = range.start;
            }
            if let Some(ecn) = &self.ecn {
                out.extend_from_slice(&payload[ecn.clone()]);
            }
        }
        out.extend_from_slice(&payload[self.place.end..]);
        if out.is_empty() {
            // RFC 9000, section 12.4: a packet holds at least one frame.
            out.push(PADDING as u8);
        }
        out
    }
}

/// Whether the peer has to acknowledge a packet with this payload (RFC 9002, section 2): the
/// payload contains frames other than ACK and PADDING. Also returns true for CONNECTION_CLOSE,
/// which needs no acknowledgement. The wrong result is harmless, because a Weir endpoint sends no
/// ack-eliciting frame after CONNECTION_CLOSE.
pub(crate) fn is_ack_eliciting(payload: &[u8]) -> bool {
    let mut at = 0;
    while at < payload.len() {
        let start = at;
        match number(payload, &mut at) {
            Some(PADDING) => {}
            Some(kind @ (ACK | ACK_ECN)) => {
                match AckFrame::read(payload, start, at, kind == ACK_ECN) {
                    Some(frame) => at = frame.place.end,
                    None => return true,
                }
            }
            _ => return true,
        }
    }
    false
}

/// Whether the peer asks for an immediate answer: by PATH_CHALLENGE (RFC 9000, section 8.2.2), or
/// by IMMEDIATE_ACK, which a probe carries (draft-ietf-quic-ack-frequency). Returns false for a
/// malformed payload, which the engine handles.
pub(crate) fn is_urgent(payload: &[u8]) -> bool {
    let mut at = 0;
    while at < payload.len() {
        let skipped = match number(payload, &mut at) {
            Some(PATH_CHALLENGE | IMMEDIATE_ACK) => return true,
            Some(kind @ (ACK | ACK_ECN)) => skip_ack(payload, &mut at, kind == ACK_ECN),
            Some(kind) => skip(payload, &mut at, kind),
            None => None,
        };
        if skipped.is_none() {
            return false;
        }
    }
    false
}

/// Skips the body of an ACK frame.
fn skip_ack(payload: &[u8], at: &mut usize, with_ecn: bool) -> Option<()> {
    number(payload, at)?;
    number(payload, at)?;
    let more = number(payload, at)?;
    number(payload, at)?;
    for _ in 0..more {
        number(payload, at)?;
        number(payload, at)?;
    }
    if with_ecn {
        for _ in 0..3 {
            number(payload, at)?;
        }
    }
    Some(())
}

/// Skips a frame's body (RFC 9000, section 19; RFC 9221, section 4).
fn skip(payload: &[u8], at: &mut usize, kind: u64) -> Option<()> {
    let (numbers, bytes) = match kind {
        PADDING | PING | HANDSHAKE_DONE | IMMEDIATE_ACK => (0, Body::None),
        RESET_STREAM => (3, Body::None),
        STOP_SENDING | MAX_STREAM_DATA | STREAM_DATA_BLOCKED => (2, Body::None),
        MAX_DATA | MAX_STREAMS_BIDI | MAX_STREAMS_UNI | DATA_BLOCKED | STREAMS_BLOCKED_BIDI
        | STREAMS_BLOCKED_UNI | RETIRE_CONNECTION_ID => (1, Body::None),
        CRYPTO => (1, Body::Counted),
        NEW_TOKEN => (0, Body::Counted),
        STREAM..=STREAM_LAST => {
            let offset = usize::from(kind & STREAM_OFFSET != 0);
            (1 + offset, if kind & STREAM_LENGTH != 0 { Body::Counted } else { Body::Rest })
        }
        DATAGRAM => (0, Body::Rest),
        DATAGRAM_LENGTH => (0, Body::Counted),
        PATH_CHALLENGE | PATH_RESPONSE => (0, Body::Fixed(8)),
        NEW_CONNECTION_ID => {
            number(payload, at)?;
            number(payload, at)?;
            let length = *payload.get(*at)?;
            // The body has the length, a connection ID and a reset token.
            (0, Body::Fixed(1 + usize::from(length) + 16))
        }
        ACK_FREQUENCY => (4, Body::None),
        _ => return None,
    };
    for _ in 0..numbers {
        number(payload, at)?;
    }
    let length = match bytes {
        Body::None => 0,
        Body::Fixed(length) => length,
        Body::Counted => usize::try_from(number(payload, at)?).ok()?,
        Body::Rest => payload.len() - *at,
    };
    *at = at.checked_add(length).filter(|end| *end <= payload.len())?;
    Some(())
}

enum Body {
    None,
    Fixed(usize),
    /// A body that begins with its own length.
    Counted,
    /// A body that extends to the end of the packet.
    Rest,
}

/// Whether a payload is a packet size probe (RFC 8899): a PING, optionally IMMEDIATE_ACK, and
/// padding.
pub(crate) fn is_size_probe(payload: &[u8]) -> bool {
    let rest = match payload {
        [PING_BYTE, IMMEDIATE_ACK_BYTE, rest @ ..] | [PING_BYTE, rest @ ..] => rest,
        _ => return false,
    };
    rest.iter().all(|byte| u64::from(*byte) == PADDING)
}

/// Reads a variable-length integer (RFC 9000, section 16).
fn number(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let first = *bytes.get(*at)?;
    let length = 1 << (first >> 6);
    let encoded = bytes.get(*at..*at + length)?;
    *at += length;
    let value = encoded.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
    Some(value & (u64::MAX >> (66 - 8 * length)))
}

fn write(out: &mut Vec<u8>, value: u64) {
    match value {
        0..0x40 => out.push(value as u8),
        0x40..0x4000 => out.extend_from_slice(&(0x4000 | value as u16).to_be_bytes()),
        0x4000..0x4000_0000 => out.extend_from_slice(&(0x8000_0000 | value as u32).to_be_bytes()),
        _ => out.extend_from_slice(&(0xc000_0000_0000_0000 | value).to_be_bytes()),
    }
}

const PADDING: u64 = 0x00;
const PING: u64 = 0x01;
const ACK: u64 = 0x02;
const ACK_ECN: u64 = 0x03;
const RESET_STREAM: u64 = 0x04;
const STOP_SENDING: u64 = 0x05;
const CRYPTO: u64 = 0x06;
const NEW_TOKEN: u64 = 0x07;
const STREAM: u64 = 0x08;
const STREAM_LENGTH: u64 = 0x02;
const STREAM_OFFSET: u64 = 0x04;
const STREAM_LAST: u64 = 0x0f;
const MAX_DATA: u64 = 0x10;
const MAX_STREAM_DATA: u64 = 0x11;
const MAX_STREAMS_BIDI: u64 = 0x12;
const MAX_STREAMS_UNI: u64 = 0x13;
const DATA_BLOCKED: u64 = 0x14;
const STREAM_DATA_BLOCKED: u64 = 0x15;
const STREAMS_BLOCKED_BIDI: u64 = 0x16;
const STREAMS_BLOCKED_UNI: u64 = 0x17;
const NEW_CONNECTION_ID: u64 = 0x18;
const RETIRE_CONNECTION_ID: u64 = 0x19;
const PATH_CHALLENGE: u64 = 0x1a;
const PATH_RESPONSE: u64 = 0x1b;
const HANDSHAKE_DONE: u64 = 0x1e;
const DATAGRAM: u64 = 0x30;
const DATAGRAM_LENGTH: u64 = 0x31;
/// Frame types of draft-ietf-quic-ack-frequency-04, sections 4 and 5.
const ACK_FREQUENCY: u64 = 0xaf;
const IMMEDIATE_ACK: u64 = 0x1f;
const PING_BYTE: u8 = PING as u8;
const IMMEDIATE_ACK_BYTE: u8 = IMMEDIATE_ACK as u8;
const ACK_DELAY_EXPONENT: u32 = 3;
/// Maximum delay that a peer may report: one minute.
const MOST_DELAY: u64 = 60_000_000 >> ACK_DELAY_EXPONENT;
/// Maximum number of ranges that the engine writes into a frame.
const MOST_RANGES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ranges(all: &[Range<u64>]) -> Ranges {
        let mut ranges = Ranges::default();
        for range in all {
            ranges.insert(range.clone(), |_| {});
        }
        ranges
    }

    /// Builds a payload: a PING, an ACK frame of packets 95 to 99 and 80 to 89, and a STREAM frame.
    fn payload() -> Vec<u8> {
        let mut out = vec![PING as u8, ACK as u8];
        for value in [99, 25, 1, 4, 4, 9] {
            write(&mut out, value);
        }
        out.extend_from_slice(&[0x0a, 0, 1, b'x']);
        out
    }

    #[test]
    fn an_ack_frame_is_found_after_frames_without_a_body() {
        let payload = payload();
        let frame = AckFrame::find(&payload).unwrap();
        assert_eq!(frame.ranges, ranges(&[80..90, 95..100]));
        assert_eq!((frame.largest, frame.delay()), (99, Duration::from_micros(200)));
        assert_eq!(&payload[frame.place.end..], &[0x0a, 0, 1, b'x']);
        assert_eq!(AckFrame::find(&[0x0a, 0, 1, b'x']), None);
    }

    #[test]
    fn an_ack_frame_is_found_after_any_other_frame() {
        let others: [&[u8]; 9] = [
            &[0x0e, 4, 9, 2, b'a', b'b'],
            &[0x04, 1, 2, 3],
            &[0x06, 0, 1, 7],
            &[0x11, 4, 0x40, 0x50],
            &[0x18, 1, 0, 4, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[0x1a, 0, 0, 0, 0, 0, 0, 0, 0],
            &[0x31, 2, 8, 9],
            &[0x40, 0xaf, 0, 1, 2, 3],
            &[0x19, 1],
        ];
        for other in others {
            let mut whole = other.to_vec();
            whole.extend(payload());
            let frame = AckFrame::find(&whole);
            assert_eq!(frame.map(|frame| frame.place.start), Some(other.len() + 1), "{other:?}");
        }
    }

    #[test]
    fn an_ack_frame_without_ranges_becomes_padding() {
        let mut payload = vec![ACK as u8];
        for value in [9, 0, 0, 0] {
            write(&mut payload, value);
        }
        let frame = AckFrame::find(&payload).unwrap();
        assert_eq!(frame.replaced(&payload, &Ranges::default()), vec![PADDING as u8]);
    }

    #[test]
    fn a_ping_with_padding_is_a_size_probe() {
        assert!(is_size_probe(&[1, 0, 0, 0]));
        assert!(is_size_probe(&[1, 0x1f, 0, 0]));
        assert!(!is_size_probe(&[0x1f, 0, 0]));
        assert!(!is_size_probe(&[1, 0x1f, 0, 0x0a]));
        assert!(!is_size_probe(&payload()));
        assert!(!is_size_probe(&[]));
    }

    #[test]
    fn all_frames_except_ack_and_padding_are_ack_eliciting() {
        assert!(is_ack_eliciting(&payload()));
        let end = payload().len() - 4;
        assert!(!is_ack_eliciting(&payload()[1..end]));
        assert!(!is_ack_eliciting(&[0, 0, 0]));
        assert!(is_ack_eliciting(&[0, PING as u8]));
    }

    #[test]
    fn a_challenge_and_a_request_for_an_acknowledgement_are_urgent() {
        let plain = [ACK_ECN as u8, 9, 0, 1, 2, 0, 3, 1, 2, 3, STREAM as u8, 0, 7, 7];
        assert!(!is_urgent(&plain));
        assert!(!is_urgent(&[PING as u8, 0, 0]));
        assert!(!is_urgent(&[]));
        assert!(is_urgent(&[PING as u8, IMMEDIATE_ACK_BYTE]));
        let mut challenge = plain[..10].to_vec();
        challenge.push(PATH_CHALLENGE as u8);
        challenge.extend_from_slice(&[0; 8]);
        assert!(is_urgent(&challenge));
    }

    proptest! {
        #[test]
        fn an_encoded_ack_frame_decodes_to_the_same_ranges(
            numbers in proptest::collection::vec((0u64..(1 << 40), 1u64..100), 1..40),
            ecn in any::<bool>(),
        ) {
            let written = ranges(&numbers.iter().map(|(at, n)| *at..*at + *n).collect::<Vec<_>>());
            let mut empty = vec![if ecn { ACK_ECN } else { ACK } as u8, 0, 7, 0, 0];
            if ecn {
                empty.extend_from_slice(&[1, 2, 3]);
            }
            let again = AckFrame::find(&empty).unwrap().replaced(&empty, &written);
            let frame = AckFrame::find(&again).unwrap();
            prop_assert_eq!(frame.ecn.is_some(), ecn);
            prop_assert_eq!(frame.place, 0..again.len());
            prop_assert_eq!(frame.ranges, written);
        }

        #[test]
        fn finding_ack_frames_in_arbitrary_bytes_causes_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            if let Some(frame) = AckFrame::find(&bytes) {
                frame.replaced(&bytes, &frame.ranges.below(frame.largest));
            }
            is_ack_eliciting(&bytes);
            is_urgent(&bytes);
        }
    }
}
