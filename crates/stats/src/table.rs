//! A table of comparisons, judged together. A run measures every cell once in each block, so a
//! block gives one ratio `a / b` for each comparison, a row of the table.
//!
//! **Why together.** At a level of 5 % for each comparison, one of 20 comparisons of equal systems
//! shows a difference by chance. The intervals of this module are valid together: in at least 95 %
//! of tables every interval contains its ratio. The interval decides the verdict ([`Verdict::of`]).
//!
//! **Why not Holm's procedure.** A rank test of six blocks has no p-value below 2/64, and Holm
//! multiplies this by the number of rows: six blocks then decide no row in a table of two rows.
//! Blocks are independent and contain every cell, so the sign of all rows of a block can be flipped
//! together (Westfall & Young, "Resampling-Based Multiple Testing", 1993): the largest statistic of
//! the table over these flips is the bound for each row, and dependent rows do not raise it.
//!
//! **The interval of a row** is the hull of two intervals. The first is the exact interval of the
//! row's median ([`median_interval()`]), which for six blocks is their range. The second is the
//! row's location plus and minus the bound of the table times the row's scale (`fit.rs`,
//! `joint.rs`). A table with a single row needs only the first. Fewer than six blocks have a range
//! and no verdict, because five blocks agree by chance in 6.25 % of cases.
//!
//! **Failures.** Every repeat counts. A repeat that failed, or in which no byte arrived, ranks
//! worst: leaving it out would favour the system that failed. The ratio of such a repeat is 0 or
//! infinite. The location and the scale replace such a ratio by the largest ratio of the table.
//!
//! The tests in `tests/table` measure errors, coverage and power.

mod fit;
mod joint;
mod more;

use units::Share;

use crate::StatsError;
use crate::error::not_negative;
use crate::median_interval::{FEWEST, median_interval};
use crate::quantile::median_in_place;
use crate::ratio::quotient;
use crate::summary::Estimate;
use crate::verdict::{Direction, Verdict};
use fit::Fit;

/// The values of `a` and `b` in a block. `None` is a repeat that failed.
pub type Pair = (Option<f64>, Option<f64>);

/// A comparison of two systems.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The ratio in each block of the run. `None` if the block has no pair.
    ratios: Vec<Option<f64>>,
    direction: Direction,
    threshold: Share,
    kind: usize,
}

/// A row as judged together with the other rows of its table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Judged {
    /// `a / b`: the median over the blocks, its interval, and the number of blocks with a pair.
    pub ratio: Estimate,
    /// The verdict on `a`, from the interval of the ratio. Undecided for fewer than six blocks with
    /// a pair.
    pub verdict: Verdict,
    /// For an undecided row: the number of further blocks that would decide the row if these blocks
    /// were like the present blocks. `None` for more than [`MOST_MORE`] blocks.
    pub more_blocks: Option<usize>,
}

impl Row {
    /// Creates a row. `blocks` has one entry for each block of the run, in the same order for all
    /// rows. An entry is `None` if a disturbance of the machine invalidated the pair. Rows of the
    /// same `kind`, such as a metric, should have similar spreads.
    pub fn new(
        blocks: &[Option<Pair>],
        direction: Direction,
        threshold: Share,
        kind: usize,
    ) -> Result<Self, StatsError> {
        if blocks.iter().all(Option::is_none) {
            return Err(StatsError::Empty { what: "comparison" });
        }
        let measured: Vec<f64> =
            blocks.iter().flatten().flat_map(|(a, b)| [*a, *b]).flatten().collect();
        if !measured.is_empty() {
            not_negative(&measured, "comparison")?;
        }
        let failed = match direction {
            Direction::HigherIsBetter => 0.0,
            Direction::LowerIsBetter => f64::INFINITY,
        };
        let ratio = |(a, b): &Pair| quotient(a.unwrap_or(failed), b.unwrap_or(failed));
        let ratios = blocks.iter().map(|pair| pair.as_ref().map(ratio)).collect();
        Ok(Self { ratios, direction, threshold, kind })
    }

    /// Returns the median of the ratios.
    pub fn median(&self) -> f64 {
        median_in_place(&mut self.known())
    }

    /// Returns the ratios of the blocks that have a pair.
    fn known(&self) -> Vec<f64> {
        self.ratios.iter().flatten().copied().collect()
    }

    /// Returns the logarithms of the ratios with their blocks. `worst` replaces infinite
    /// logarithms. `None` for a row that does not count in the bound of the table, because it has
    /// too few blocks or no finite ratio.
    fn logarithms(&self, worst: f64) -> Option<Vec<(usize, f64)>> {
        let log = |ratio: f64| ratio.ln().clamp(-worst, worst);
        let found = self.ratios.iter().enumerate();
        let found: Vec<(usize, f64)> =
            found.filter_map(|(block, ratio)| Some((block, log((*ratio)?)))).collect();
        let has_figures = self.ratios.iter().flatten().any(|ratio| ratio.ln().is_finite());
        (found.len() >= FEWEST && has_figures).then_some(found)
    }
}

/// Judges all rows of a table. Returns the rows in the order of the table.
pub fn judged(table: &[Row]) -> Result<Vec<Judged>, StatsError> {
    let worst = worst(table);
    let logarithms: Vec<_> = table.iter().map(|row| row.logarithms(worst)).collect();
    let spreads = spreads(table, &logarithms);
    let fitted: Vec<Option<Fit>> = logarithms
        .iter()
        .zip(spreads)
        .map(|(row, spread)| Some(Fit::of(row.as_ref()?, spread)))
        .collect();
    let bound = joint::bound(&fitted.iter().flatten().collect::<Vec<_>>());
    table.iter().zip(&fitted).map(|(row, fit)| row.judged(fit.as_ref(), bound)).collect()
}

impl Row {
    /// Judges this row. `bound` is `None` if the table has no other row.
    fn judged(&self, fit: Option<&Fit>, bound: Option<f64>) -> Result<Judged, StatsError> {
        let known = self.known();
        let mut ratio = Estimate::of(&known)?;
        if let Some((exact, (fit, bound))) = median_interval(&known)?.zip(fit.zip(bound)) {
            let half = bound * fit.error();
            let [low, high] = [fit.location - half, fit.location + half].map(f64::exp);
            ratio.ci95 = Some((lower(exact.low, low), higher(exact.high, high)));
            ratio.coverage = Some(COVERAGE);
        }
        let verdict = Verdict::of(ratio.median, ratio.ci95, self.direction, self.threshold);
        let more_blocks = match verdict {
            Verdict::Undecided => more::blocks(&known, &ratio, fit, bound, self.threshold),
            _ => None,
        };
        Ok(Judged { ratio, verdict, more_blocks })
    }
}

/// Returns the largest absolute value of a finite logarithm of the table. This value replaces
/// infinite logarithms.
fn worst(table: &[Row]) -> f64 {
    let logarithms = table.iter().flat_map(|row| row.ratios.iter().flatten()).map(|r| r.ln().abs());
    logarithms.filter(|log| log.is_finite()).fold(LEAST_WORST, f64::max)
}

/// Returns the spread that each row borrows from the table: the median variance of the rows of its
/// kind, or of all rows if its kind has few.
fn spreads(table: &[Row], logarithms: &[Option<Vec<(usize, f64)>>]) -> Vec<f64> {
    let variances: Vec<(usize, f64)> = table
        .iter()
        .zip(logarithms)
        .filter_map(|(row, logs)| {
            let values: Vec<f64> = logs.as_ref()?.iter().map(|(_, log)| *log).collect();
            Some((row.kind, fit::robust_variance(&values)))
        })
        .collect();
    let median = |kind: Option<usize>| {
        let of_kind = variances.iter().filter(|(own, _)| kind.is_none_or(|kind| kind == *own));
        let mut of_kind: Vec<f64> = of_kind.map(|(_, variance)| *variance).collect();
        let enough = kind.is_none() || of_kind.len() >= FEWEST_OF_KIND;
        (enough && !of_kind.is_empty()).then(|| median_in_place(&mut of_kind))
    };
    let all = median(None).unwrap_or(0.0);
    table.iter().map(|row| median(Some(row.kind)).unwrap_or(all)).collect()
}

/// Returns the lower of two lower bounds. Treats bounds that differ only by the rounding of a
/// logarithm as equal.
fn lower(exact: f64, other: f64) -> f64 {
    if other < exact * (1.0 - ROUNDING) { other } else { exact }
}

fn higher(exact: f64, other: f64) -> f64 {
    if other > exact * (1.0 + ROUNDING) { other } else { exact }
}

/// Returns 5 %, the default of the smallest difference that matters.
pub fn default_threshold() -> Share {
    Share::from_percent(5.0).unwrap_or_default()
}

/// Minimum share of tables whose intervals all contain their true ratios.
pub const COVERAGE: f64 = 0.95;

/// Maximum number of further blocks that a row reports.
pub const MOST_MORE: usize = 200;

/// Minimum number of rows of a kind. Fewer rows estimate the spread of the kind worse than all rows
/// of the table.
const FEWEST_OF_KIND: usize = 4;
/// Minimum ratio that replaces a failure: a factor of two, as a logarithm.
const LEAST_WORST: f64 = std::f64::consts::LN_2;
const ROUNDING: f64 = 1e-12;
