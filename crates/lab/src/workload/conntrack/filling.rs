//! The slope of a tracker's count while it fills.

use crate::Failure;
use std::time::{Duration, Instant};

/// How a count rose from one value to another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Filling {
    /// New connections within the time.
    pub(super) new: f64,
    pub(super) seconds: f64,
}

/// Reads the count until it has grown by `wanted`, and returns the middle part of its growth.
/// `None` if it does not come so far within the patience.
pub(super) fn watch(
    before: u64,
    wanted: u64,
    patience: Duration,
    mut count: impl FnMut() -> Result<u64, Failure>,
) -> Result<Option<Filling>, Failure> {
    let begun = Instant::now();
    let mut seen = Vec::new();
    loop {
        let asked = begun.elapsed();
        let grown = count()?.saturating_sub(before);
        // The answer is from some time in between.
        let at = (asked + begun.elapsed()).as_secs_f64() / 2.0;
        seen.push((at, grown as f64));
        if grown >= wanted {
            return Ok(middle(&seen, wanted as f64));
        }
        if begun.elapsed() > patience {
            return Ok(None);
        }
    }
}

/// The part between the tenth and the ninetieth percent; between the last reading without growth
/// and the first reading with all of it where the readings are too few.
fn middle(seen: &[(f64, f64)], wanted: f64) -> Option<Filling> {
    let first_above = |share: f64| seen.iter().find(|(_, grown)| *grown >= share * wanted);
    let (from, to) = (first_above(0.1)?, first_above(0.9)?);
    let between =
        |from: &(f64, f64), to: &(f64, f64)| Filling { new: to.1 - from.1, seconds: to.0 - from.0 };
    let filling = between(from, to);
    if filling.seconds > 0.0 && filling.new >= 0.5 * wanted {
        return Some(filling);
    }
    let last_without = seen.iter().rev().find(|(_, grown)| *grown <= 0.0)?;
    let filling = between(last_without, first_above(1.0)?);
    (filling.seconds > 0.0).then_some(filling)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_a_filling_do_not_count() {
        let mut seen = vec![(0.0, 0.0), (0.9, 1.0)];
        seen.extend((0..=100).map(|step| (1.0 + f64::from(step) / 100.0, f64::from(step) * 10.0)));
        seen.push((9.0, 1000.0));
        let filling = middle(&seen, 1000.0).unwrap();
        assert_eq!(filling.new, 800.0);
        assert!((filling.seconds - 0.8).abs() < 1e-9);
    }

    #[test]
    fn few_readings_bound_the_time() {
        let seen = [(0.0, 0.0), (1.0, 0.0), (1.5, 1000.0)];
        assert_eq!(middle(&seen, 1000.0), Some(Filling { new: 1000.0, seconds: 0.5 }));
        assert_eq!(middle(&[(0.0, 1000.0)], 1000.0), None);
    }

    #[test]
    fn a_count_that_stops_is_given_up() {
        let stopped = watch(5, 10, Duration::from_millis(5), || Ok(9)).unwrap();
        assert_eq!(stopped, None);
    }
}
