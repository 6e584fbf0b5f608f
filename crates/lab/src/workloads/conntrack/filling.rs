//! The slope of a tracker's count while the tracker fills.

use crate::model::Failure;
use std::time::{Duration, Instant};

/// The time that a number of new connections took to appear in the tracker.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Filling {
    /// Number of new connections within `seconds`.
    pub(super) new: f64,
    pub(super) seconds: f64,
}

/// Reads the count until the count has grown by `wanted` or grows no longer, and returns the middle
/// part of the growth. A few packets may be lost before they reach the tracker. `Err` holds the
/// highest number of new connections of any reading.
pub(super) fn watch(
    before: u64,
    wanted: u64,
    patience: Patience,
    mut count: impl FnMut() -> Result<u64, Failure>,
) -> Result<Result<Filling, u64>, Failure> {
    let begun = Instant::now();
    let mut seen = Vec::new();
    let (mut most, mut grew) = (0, Duration::ZERO);
    loop {
        let asked = begun.elapsed();
        let grown = count()?.saturating_sub(before);
        // Take the middle between request and reply as the time of the count.
        let at = (asked + begun.elapsed()).as_secs_f64() / 2.0;
        seen.push((at, grown as f64));
        if grown > most {
            (most, grew) = (grown, begun.elapsed());
        }
        // Compare the time of the request, so that a stall of the machine before the reply does not
        // end the wait.
        let is_over = asked > patience.whole || asked.saturating_sub(grew) > patience.still;
        if grown >= wanted || is_over {
            let is_enough = most as f64 >= ENOUGH * wanted as f64;
            let filling = middle(&seen, most as f64).filter(|_| is_enough);
            return Ok(filling.ok_or(most));
        }
    }
}

/// `whole`: the time for all connections. `still`: the time without a new connection after which
/// the lab expects no more. `still` is shorter than the lifetime of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    pub(super) whole: Duration,
    pub(super) still: Duration,
}

pub(super) const PATIENCE: Patience =
    Patience { whole: Duration::from_secs(60), still: Duration::from_secs(10) };
/// Minimum share of the wanted connections that must appear in the tracker.
const ENOUGH: f64 = 0.99;

/// Returns the part of the growth between 10 % and 90 %. With too few readings: the part between
/// the last reading without growth and the first reading with the whole growth.
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
    fn a_filling_counts_from_10_to_90_percent() {
        let mut seen = vec![(0.0, 0.0), (0.9, 1.0)];
        seen.extend((0..=100).map(|step| (1.0 + f64::from(step) / 100.0, f64::from(step) * 10.0)));
        seen.push((9.0, 1000.0));
        let filling = middle(&seen, 1000.0).unwrap();
        assert_eq!(filling.new, 800.0);
        assert!((filling.seconds - 0.8).abs() < 1e-9);
    }

    #[test]
    fn with_few_readings_a_filling_counts_from_the_last_reading_without_growth() {
        let seen = [(0.0, 0.0), (1.0, 0.0), (1.5, 1000.0)];
        assert_eq!(middle(&seen, 1000.0), Some(Filling { new: 1000.0, seconds: 0.5 }));
        assert_eq!(middle(&[(0.0, 1000.0)], 1000.0), None);
    }

    #[test]
    fn a_filling_that_stops_below_its_goal_is_an_error() {
        let short = Duration::from_millis(5);
        let patience = Patience { whole: Duration::from_secs(60), still: short };
        assert_eq!(watch(5, 10, patience, || Ok(9)).unwrap(), Err(4));
        // The highest reading counts, although connections expire afterwards.
        let patience = Patience { whole: short, still: Duration::from_secs(60) };
        let mut counts = [12].into_iter();
        assert_eq!(watch(5, 10, patience, || Ok(counts.next().unwrap_or(5))).unwrap(), Err(7));
    }

    #[test]
    fn a_filling_may_miss_half_a_percent_of_its_goal() {
        let patience = Patience { whole: Duration::from_secs(60), still: Duration::from_millis(5) };
        let mut count = 0;
        let filling = watch(0, 1000, patience, || {
            count = (count + 1).min(995);
            Ok(count)
        });
        assert!(filling.unwrap().is_ok());
    }
}
