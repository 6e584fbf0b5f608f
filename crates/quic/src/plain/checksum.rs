//! Checksums and pseudo-random words.

/// A checksum that detects every change of a single bit, and every change within one aligned group
/// of eight bytes: each step is a bijection of the state.
#[derive(Debug, Clone, Copy)]
pub(super) struct Checksum(u64);

impl Checksum {
    pub(super) fn new(start: u64) -> Self {
        Self(Word::new(start).value())
    }

    pub(super) fn with(self, number: u64) -> Self {
        Self((self.0 ^ number).wrapping_mul(ODD).rotate_left(29))
    }

    /// Adds `bytes` and their length, so that the same bytes in other portions give another sum.
    pub(super) fn over(self, bytes: &[u8]) -> Self {
        let (words, rest) = bytes.as_chunks::<8>();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let sum = words.iter().fold(self, |sum, word| sum.with(u64::from_le_bytes(*word)));
        sum.with(u64::from_le_bytes(last)).with(bytes.len() as u64)
    }

    pub(super) fn value(self) -> u64 {
        Word::new(self.0).value()
    }

    pub(super) fn tag(self) -> [u8; 16] {
        let mut tag = [0; 16];
        Word::new(self.0).fill(&mut tag);
        tag
    }
}

/// A pseudo-random word from which other words are derived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Word(u64);

impl Word {
    /// Creates a word from a seed with the finaliser of SplitMix64 (Steele, Lea and Flood 2014).
    pub(super) fn new(seed: u64) -> Self {
        let mut z = seed.wrapping_add(GOLDEN_RATIO);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self(z ^ (z >> 31))
    }

    pub(super) fn value(self) -> u64 {
        self.0
    }

    pub(super) fn number(self, number: u64) -> Self {
        Self::new(self.0.wrapping_add(number.wrapping_mul(GOLDEN_RATIO)))
    }

    pub(super) fn fill(self, out: &mut [u8]) {
        for (number, part) in out.chunks_mut(8).enumerate() {
            let word = self.number(number as u64).0.to_le_bytes();
            part.copy_from_slice(&word[..part.len()]);
        }
    }
}

const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;
/// An odd multiplier, so that the multiplication is invertible.
const ODD: u64 = 0x9fb2_1c65_1e98_df25;
