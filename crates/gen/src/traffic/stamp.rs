use units::Time;
use wire::checksum::Sum;

/// The mark of this generator's packets, at the start of a UDP payload: it survives devices that
/// change addresses and ports. Its first two bytes check the others, so that a device that corrupts
/// a packet makes no latency or sequence number up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    pub stream: u16,
    pub sequence: u64,
    /// On `CLOCK_MONOTONIC`.
    pub sent: Time,
}

/// The place of a stamp in a packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct StampPlace {
    pub(super) at: usize,
    pub(super) checksum_at: usize,
}

impl Stamp {
    pub const LEN: usize = 18;

    /// Reads the stamp of a frame; `None` for frames of others.
    #[inline]
    pub fn read(frame: &[u8]) -> Option<Self> {
        let layout = wire::Layout::parse(frame)?;
        if layout.transport != wire::Transport::Udp {
            return None;
        }
        let at = layout.transport_offset + 8;
        let bytes: &[u8; Self::LEN] = frame[..layout.end].get(at..)?.first_chunk()?;
        if bytes[..2] != check(bytes) {
            return None;
        }
        let long = |range: std::ops::Range<usize>| {
            bytes[range].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        Some(Self {
            stream: long(2..4) as u16,
            sequence: long(4..10),
            sent: Time::from_nanos(long(10..18)),
        })
    }

    fn bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[2..4].copy_from_slice(&self.stream.to_be_bytes());
        bytes[4..10].copy_from_slice(&self.sequence.to_be_bytes()[2..]);
        bytes[10..].copy_from_slice(&self.sent.nanos().to_be_bytes());
        let check = check(&bytes);
        bytes[..2].copy_from_slice(&check);
        bytes
    }
}

impl StampPlace {
    /// Writes the stamp over zeroes and completes the checksum, which counts them as zeroes.
    #[inline]
    pub(super) fn write(self, stamp: Stamp, frame: &mut [u8]) {
        let bytes = stamp.bytes();
        let (Some(place), true) =
            (frame.get_mut(self.at..self.at + Stamp::LEN), self.checksum_at + 2 <= self.at)
        else {
            return;
        };
        place.copy_from_slice(&bytes);
        let field = &mut frame[self.checksum_at..self.checksum_at + 2];
        let before = u16::from_be_bytes([field[0], field[1]]);
        if before != 0 {
            let sum = Sum::default().plus_word(!before).plus(Sum::of(&bytes));
            field.copy_from_slice(&sum.checksum_nonzero().to_be_bytes());
        }
    }
}

/// The first two bytes of a stamp, by the bytes behind them. Padding of zeroes has others.
#[inline]
fn check(stamp: &[u8; Stamp::LEN]) -> [u8; 2] {
    let mixed = stamp[2..].chunks_exact(8).fold(SALT, |mixed, half| {
        let half = half.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let mixed = (mixed ^ half).wrapping_mul(ODD);
        mixed ^ mixed >> 32
    });
    ((mixed.wrapping_mul(ODD) >> 48) as u16).to_be_bytes()
}

const SALT: u64 = 0xd957_0000_0000_0001;
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_with_any_changed_bit_is_not_read() {
        let stamp =
            Stamp { stream: 7, sequence: 0x1234_5678_9abc, sent: Time::from_nanos(1 << 45) };
        let bytes = stamp.bytes();
        assert_eq!(bytes[..2], check(&bytes));
        for bit in 0..Stamp::LEN * 8 {
            let mut changed = bytes;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(changed[..2], check(&changed), "bit {bit}");
        }
        assert_ne!([0, 0], check(&[0; Stamp::LEN]));
    }
}
