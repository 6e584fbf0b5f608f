use units::Time;

/// The mark of this generator's packets at the start of the UDP payload. Devices that change
/// addresses and ports do not change the payload. The first two bytes of the stamp are a checksum
/// of its other bytes, so that a corrupted packet gives no false latency or sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    pub stream: u16,
    pub sequence: u64,
    /// The send time on `CLOCK_MONOTONIC`.
    pub sent: Time,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct StampPlace {
    pub(super) at: usize,
    pub(super) checksum_at: usize,
}

impl Stamp {
    pub const LEN: usize = 18;

    /// Reads the stamp of a frame. Returns `None` for frames that this generator did not send.
    #[inline]
    pub fn read(frame: &[u8]) -> Option<Self> {
        let layout = wire::Layout::parse(frame)?;
        if layout.transport != wire::Transport::Udp {
            return None;
        }
        let at = layout.transport_offset + 8;
        let bytes: &[u8; Self::LEN] = frame.get(..layout.end)?.get(at..)?.first_chunk()?;
        let [c0, c1, halves @ ..] = bytes;
        let (halves, _) = halves.as_chunks::<8>();
        let [first, second] = *halves else { return None };
        let (first, second) = (u64::from_be_bytes(first), u64::from_be_bytes(second));
        if u16::from_be_bytes([*c0, *c1]) != check(first, second) {
            return None;
        }
        Some(Self {
            stream: (first >> 48) as u16,
            sequence: first & SEQUENCE,
            sent: Time::from_nanos(second),
        })
    }

    /// Returns the bytes after the stamp's checksum (its first two bytes) as two numbers.
    #[inline]
    fn halves(self) -> (u64, u64) {
        ((u64::from(self.stream) << 48) | (self.sequence & SEQUENCE), self.sent.nanos())
    }
}

impl StampPlace {
    /// Writes the stamp in place of zeroes, and adds the stamp's sum to the UDP checksum, which was
    /// computed with the zeroes. Computes in registers, because every packet of a search has a
    /// stamp.
    #[inline]
    pub(super) fn write(self, stamp: Stamp, frame: &mut [u8]) {
        if self.checksum_at + 2 > self.at {
            return;
        }
        let Some((front, back)) = frame.split_at_mut_checked(self.at) else { return };
        let (Some(place), Some(field)) = (
            back.first_chunk_mut::<{ Stamp::LEN }>(),
            front.get_mut(self.checksum_at..).and_then(|rest| rest.first_chunk_mut::<2>()),
        ) else {
            return;
        };
        let (first, second) = stamp.halves();
        let check = check(first, second);
        place[..2].copy_from_slice(&check.to_be_bytes());
        place[2..10].copy_from_slice(&first.to_be_bytes());
        place[10..].copy_from_slice(&second.to_be_bytes());
        let before = u16::from_be_bytes(*field);
        if before != 0 {
            let sum = u64::from(!before) + u64::from(check) + halved(first) + halved(second);
            *field = checksum(sum).to_be_bytes();
        }
    }
}

/// Returns the sum of the 32-bit halves. 2^16 is 1 modulo 0xffff, so this sum folds to the one's
/// complement sum of the 16-bit words (RFC 1071 section 2 C).
#[inline]
fn halved(number: u64) -> u64 {
    (number >> 32) + (number & 0xffff_ffff)
}

/// Returns the value of UDP's checksum field for a sum below 2^48.
#[inline]
fn checksum(sum: u64) -> u16 {
    let sum = (sum & 0xffff) + ((sum >> 16) & 0xffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    match !(sum as u16) {
        // A checksum field of 0 would mean "no checksum" (RFC 768).
        0 => 0xffff,
        checksum => checksum,
    }
}

/// Returns the stamp's checksum, which is its first two bytes. A payload of zeroes has a wrong
/// checksum.
#[inline]
fn check(first: u64, second: u64) -> u16 {
    let mixed = [first, second].into_iter().fold(SALT, |mixed, half| {
        let mixed = (mixed ^ half).wrapping_mul(ODD);
        mixed ^ mixed >> 32
    });
    (mixed.wrapping_mul(ODD) >> 48) as u16
}

/// The mask of a sequence number, which has 48 bits.
const SEQUENCE: u64 = (1 << 48) - 1;
const SALT: u64 = 0xd957_0000_0000_0001;
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use wire::checksum::Sum;

    fn check_of(bytes: &[u8; Stamp::LEN]) -> u16 {
        let half = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap());
        check(half(2), half(10))
    }

    #[test]
    fn a_stamp_with_any_changed_bit_is_not_read() {
        let stamp =
            Stamp { stream: 7, sequence: 0x1234_5678_9abc, sent: Time::from_nanos(1 << 45) };
        let mut bytes = [0; Stamp::LEN + 2];
        StampPlace { at: 2, checksum_at: 0 }.write(stamp, &mut bytes);
        let bytes: [u8; Stamp::LEN] = bytes[2..].try_into().unwrap();
        let first = |bytes: &[u8; Stamp::LEN]| u16::from_be_bytes([bytes[0], bytes[1]]);
        assert_eq!(first(&bytes), check_of(&bytes));
        for bit in 0..Stamp::LEN * 8 {
            let mut changed = bytes;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(first(&changed), check_of(&changed), "bit {bit}");
        }
        assert_ne!(0, check_of(&[0; Stamp::LEN]));
    }

    #[test]
    fn a_frame_without_room_for_a_stamp_is_unchanged() {
        let stamp = Stamp { stream: 1, sequence: 2, sent: Time::from_nanos(3) };
        for (at, checksum_at) in [(40, 2), (30, 2), (2, 1), (0, 0), (usize::MAX, 0)] {
            let mut frame = [0xaa; 32];
            StampPlace { at, checksum_at }.write(stamp, &mut frame);
            assert_eq!(frame, [0xaa; 32], "{at} {checksum_at}");
        }
    }

    proptest! {
        /// Compares the checksum with a checksum that is computed over the whole packet.
        #[test]
        fn a_stamp_keeps_the_udp_checksum_valid(
            stream: u16, sequence in 0u64..1 << 48, nanos: u64,
            rest in prop::collection::vec(any::<u8>(), 8..9),
        ) {
            let mut frame = [0u8; 8 + Stamp::LEN];
            frame[..8].copy_from_slice(&rest);
            frame[6..8].fill(0);
            let before = Sum::of(&frame).checksum_nonzero();
            frame[6..8].copy_from_slice(&before.to_be_bytes());
            let stamp = Stamp { stream, sequence, sent: Time::from_nanos(nanos) };
            StampPlace { at: 8, checksum_at: 6 }.write(stamp, &mut frame);
            let written = u16::from_be_bytes([frame[6], frame[7]]);
            frame[6..8].fill(0);
            prop_assert_eq!(written, Sum::of(&frame).checksum_nonzero());
        }
    }
}
