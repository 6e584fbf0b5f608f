//! Corrupts a frame as a faulty wire does.

use crate::headers::MAC_HEADER;

/// Flips one bit after the MAC header, so that the receiver's checksum detects the error. `random`
/// chooses the bit. The MAC header stays intact, because a frame with a damaged MAC address would
/// reach no receiver. Returns false if the frame has no bytes after the MAC header.
pub fn flip_bit(frame: &mut [u8], random: u64) -> bool {
    let Some(body) = frame.get_mut(MAC_HEADER..).filter(|body| !body.is_empty()) else {
        return false;
    };
    let bit = random % (body.len() as u64 * 8);
    body[(bit / 8) as usize] ^= 1 << (bit % 8);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_bit_outside_the_addresses_is_flipped() {
        for random in [0, 1, 7, 8, 12345, u64::MAX] {
            let mut frame = [0u8; 60];
            assert!(flip_bit(&mut frame, random));
            assert_eq!(frame.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
            assert_eq!(frame[..14], [0; 14]);
        }
        assert!(!flip_bit(&mut [0; 14], 3));
        assert!(!flip_bit(&mut [], 3));
    }
}
