use units::Rate;

/// Returns the speed of the fastest of a set of link modes, whose bits are numbered as
/// ETHTOOL_LINK_MODE_*_BIT (include/uapi/linux/ethtool.h). Returns `None` if no mode has a speed.
pub fn fastest(words: &[u32]) -> Option<Rate> {
    let bits = words.iter().enumerate().flat_map(|(at, word)| {
        (0..32).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at * 32 + bit)
    });
    bits.filter_map(mbit).max().map(Rate::from_mbit)
}

/// Returns the speed of a mode. Bits without a speed describe ports, pause and FEC.
fn mbit(bit: usize) -> Option<u64> {
    Some(match bit {
        0 | 1 | 92 | 99..=101 => 10,
        2 | 3 | 67 | 90 | 91 => 100,
        4 | 5 | 17 | 41 | 68 => 1_000,
        15 | 47 => 2_500,
        48 => 5_000,
        12 | 18..=20 | 42..=46 => 10_000,
        21 | 22 => 20_000,
        31..=33 => 25_000,
        23..=26 => 40_000,
        34 | 35 | 40 | 52..=56 => 50_000,
        27..=30 => 56_000,
        36..=39 | 57..=61 | 75..=79 => 100_000,
        62..=66 | 80..=84 => 200_000,
        69..=73 | 85..=89 => 400_000,
        93..=98 => 800_000,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_link_mode_of_a_set_is_found() {
        // 10, 100 and 1000 Mbit/s with negotiation and pause.
        assert_eq!(fastest(&[0b10_0010_1111_1111]), Some(Rate::from_mbit(1_000)));
        assert_eq!(fastest(&[1 << 5, 1 << 15]), Some(Rate::from_mbit(2_500)));
        assert_eq!(fastest(&[1 << 6 | 1 << 13]), None);
        assert_eq!(fastest(&[]), None);
        assert_eq!(fastest(&[u32::MAX; 200]), Some(Rate::from_mbit(800_000)));
    }
}
