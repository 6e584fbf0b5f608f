//! Mixes a word into a hash of the words before it. All hashes of keys use this step.

#[inline]
#[must_use]
pub fn mix(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word) * u128::from(MULTIPLIER);
    (product as u64 ^ (product >> 64) as u64).wrapping_add(SEED).rotate_left(23)
}

/// The initial value of a hash.
pub const SEED: u64 = 0x243f_6a88_85a3_08d3;
/// An odd number in which about half of the bits are ones.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
