//! The correlation of successive repeats. Intervals of medians and of ratios need independent
//! repeats: at a correlation of 0.6 an interval of six repeats that states 96.9 %
//! covers the median in 79 % of cases.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

use crate::median_interval::FEWEST;

/// The serial correlation of repeats: how much a repeat resembles the previous repeat.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Correlation {
    /// The correlation over all series, from -1 to 1. With few repeats the estimate is unreliable,
    /// unless there are many series.
    pub estimate: f64,
    /// The share of random orders of the repeats whose correlation is at least as high. This share
    /// is at most 5 % in one of twenty runs whose repeats are independent.
    pub p: f64,
    /// The number of series in the estimate.
    pub series: usize,
}

impl Correlation {
    /// Whether the correlation is significant.
    pub fn is_shown(&self) -> bool {
        self.p <= LEVEL && self.estimate > 0.0
    }
}

/// Estimates the correlation of successive repeats over several series of the same run, such as one
/// metric in all cells. The values of a series are in the order of time, and the n-th values of all
/// series are close in time.
///
/// The statistic is the serial correlation of the ranks (Bartels, JASA 77, 1982), which outliers
/// hardly move. The test permutes the order of the repeats of all series alike, so it is valid for
/// series that depend on each other. `None` if no series has six repeats that differ.
pub fn successive(series: &[Vec<f64>]) -> Option<Correlation> {
    let ranked: Vec<Vec<f64>> = series.iter().filter_map(|values| centred_ranks(values)).collect();
    let longest = ranked.iter().map(Vec::len).max()?;
    let order: Vec<usize> = (0..longest).collect();
    let measured = mean(&ranked, &order);
    let mut draw = Pcg64Mcg::seed_from_u64(SEED);
    let mut shuffled = order.clone();
    let as_high = (0..ORDERS).filter(|_| {
        shuffled.shuffle(&mut draw);
        mean(&ranked, &shuffled) >= measured - ROUNDING
    });
    // Count the measured order too, because the measured order is one of the possible orders.
    let p = (as_high.count() + 1) as f64 / (ORDERS + 1) as f64;
    let expected: f64 =
        ranked.iter().map(|ranks| unbiased(serial(ranks, &order), ranks.len())).sum();
    let estimate = (expected / ranked.len() as f64).clamp(-1.0, 1.0);
    Some(Correlation { estimate, p, series: ranked.len() })
}

/// Returns the ranks less their mean, scaled to a sum of squares of 1. Equal values share a rank.
fn centred_ranks(values: &[f64]) -> Option<Vec<f64>> {
    if values.len() < FEWEST || values.iter().any(|value| value.is_nan()) {
        return None;
    }
    let rank = |value: &f64| {
        let below = values.iter().filter(|other| *other < value).count();
        let equal = values.iter().filter(|other| *other == value).count();
        below as f64 + (equal as f64 - 1.0) / 2.0
    };
    let middle = (values.len() as f64 - 1.0) / 2.0;
    let ranks: Vec<f64> = values.iter().map(|value| rank(value) - middle).collect();
    let norm = ranks.iter().map(|rank| rank * rank).sum::<f64>().sqrt();
    (norm > 0.0).then(|| ranks.iter().map(|rank| rank / norm).collect())
}

/// Returns the serial correlation in this order. A shorter series skips the repeats that it does
/// not have.
fn serial(ranks: &[f64], order: &[usize]) -> f64 {
    let mut places = order.iter().filter(|place| **place < ranks.len());
    let Some(mut before) = places.next() else { return 0.0 };
    let mut sum = 0.0;
    for place in places {
        sum += ranks[*before] * ranks[*place];
        before = place;
    }
    sum
}

fn mean(ranked: &[Vec<f64>], order: &[usize]) -> f64 {
    ranked.iter().map(|ranks| serial(ranks, order)).sum::<f64>() / ranked.len() as f64
}

/// Removes the bias of a short series to the first order: the expected value of the statistic is
/// `r - (1 + 4 r) / n` (Marriott & Pope, Biometrika 41, 1954, for a sum of `n - 1` products).
fn unbiased(serial: f64, repeats: usize) -> f64 {
    let n = repeats as f64;
    (serial + 1.0 / n) / (1.0 - 4.0 / n)
}

const LEVEL: f64 = 0.05;
const ORDERS: usize = 2_000;
const ROUNDING: f64 = 1e-12;
/// A fixed seed, so that the same samples always give the same p.
const SEED: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    const TIED: [f64; 8] = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0];
    const RISING: [f64; 6] = [1.0, 2.0, 4.0, 3.0, 6.0, 5.0];

    fn of(series: &[&[f64]]) -> Correlation {
        let series: Vec<Vec<f64>> = series.iter().map(|values| values.to_vec()).collect();
        successive(&series).unwrap()
    }

    /// The ranks of `TIED` less their mean are -0.5, -3, 0.5, -3, 1.5, 3.5, -1.5, 2.5. The products
    /// of neighbours sum to -9.75, the squares to 41.5: (-9.75/41.5 + 1/8) / (1 - 4/8) = -0.21988.
    #[test]
    fn tied_ranks_have_the_correlation_computed_by_hand() {
        let found = of(&[&TIED]);
        assert!((found.estimate + 0.219_879_518).abs() < 1e-9, "{found:?}");
        assert_eq!(found.series, 1);
        // The estimate of `RISING` alone is (0.3 + 1/6) / (1 - 4/6).
        let both = of(&[&TIED, &RISING]);
        assert!((both.estimate - (1.4 - 0.219_879_518) / 2.0).abs() < 1e-9, "{both:?}");
        assert_eq!((both.series, of(&[&RISING]).estimate), (2, 1.0));
    }

    /// Shares of all 720 or 40,320 orders, counted. Shares of random orders differ from these
    /// shares by chance.
    #[test]
    fn p_is_the_share_of_orders_with_as_high_a_correlation() {
        let sorted = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        for (found, counted) in [
            (of(&[&RISING]), 0.1),
            (of(&[&sorted]), 16.0 / 720.0),
            (of(&[&TIED, &RISING]), 0.252_480),
        ] {
            let noise = (counted * (1.0 - counted) / 2_000.0_f64).sqrt();
            assert!((found.p - counted).abs() < 3.0 * noise, "{found:?}: {counted}");
        }
        // No random order of thirty sorted values is as sorted as the measured order.
        let long: Vec<f64> = (0..30).map(f64::from).collect();
        assert_eq!(of(&[&long]).p, 1.0 / 2_001.0);
    }

    #[test]
    fn only_a_positive_correlation_with_a_small_p_is_shown() {
        let shown = |estimate, p| Correlation { estimate, p, series: 1 }.is_shown();
        assert!(shown(0.1, 0.05) && shown(1.0, 0.001));
        assert!(!shown(0.1, 0.051) && !shown(0.0, 0.01) && !shown(-0.5, 0.01));
    }

    #[test]
    fn a_series_with_nan_is_left_out() {
        assert_eq!(successive(&[vec![1.0, 2.0, 3.0, 4.0, 5.0, f64::NAN]]), None);
        let both = [RISING.to_vec(), vec![f64::NAN; 6]];
        assert_eq!(successive(&both).unwrap().series, 1);
    }
}
