/// Returns the increment of a counter, also across a wrap at 32 bits. `None` after any other
/// decrease, which is a reset.
pub fn counted(later: u64, earlier: u64) -> Option<u64> {
    match later.checked_sub(earlier) {
        Some(increment) => Some(increment),
        None if earlier <= WRAP && earlier > WRAP / 4 * 3 && later < WRAP / 4 => {
            Some(later + (WRAP + 1) - earlier)
        }
        None => None,
    }
}

const WRAP: u64 = u32::MAX as u64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrapped_counter_has_an_increment_and_a_reset_counter_has_none() {
        assert_eq!(counted(7, 3), Some(4));
        assert_eq!(counted(3, WRAP), Some(4));
        assert_eq!(counted(3, 1000), None, "reset");
        assert_eq!(counted(WRAP / 2, WRAP), None, "reset");
        assert_eq!(counted(3, u64::MAX), None);
        assert_eq!(counted(u64::MAX, 0), Some(u64::MAX));
    }
}
