use units::Time;
use wire::checksum::Sum;

/// The mark of this generator's packets, at the start of a UDP payload: it survives devices that
/// change addresses and ports.
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
        if bytes[..2] != MAGIC {
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
        bytes[..2].copy_from_slice(&MAGIC);
        bytes[2..4].copy_from_slice(&self.stream.to_be_bytes());
        bytes[4..10].copy_from_slice(&self.sequence.to_be_bytes()[2..]);
        bytes[10..].copy_from_slice(&self.sent.nanos().to_be_bytes());
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

/// No text begins so, and no padding of zeroes.
const MAGIC: [u8; 2] = [0xd9, 0x57];
