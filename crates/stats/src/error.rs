/// The reason why a statistic cannot be computed from a set of samples. The message names the
/// required input.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum StatsError {
    /// No samples, no trials, or no block with a pair.
    #[error("no samples for the {what}: run the cell at least once, or leave it out")]
    Empty {
        /// The statistic that was asked for, such as `median`.
        what: &'static str,
    },
    /// A sample is infinite or NaN.
    #[error(
        "sample {index} is {value}, not a finite number: report the measurement as failed instead"
    )]
    NotFinite {
        /// Index of the sample in its set. In a [`crate::Row`] as in [`StatsError::Negative`]; in
        /// an A/B test, the number of finished turns, warm-up included.
        index: usize,
        /// The first sample that is not finite.
        value: f64,
    },
    /// A sample is zero or negative, but the statistic takes logarithms.
    #[error("sample {index} is {value}: this mean needs values above zero; leave out the others")]
    NotPositive {
        /// Index of the sample in its set; in an A/B test, the number of finished turns, warm-up
        /// included.
        index: usize,
        /// The first sample that is not above zero.
        value: f64,
    },
    /// A sample of a comparison by ratios is below zero.
    #[error(
        "sample {index} is {value}: a ratio of negative values means nothing; compare differences"
    )]
    Negative {
        /// Index among the measured values of the comparison, `a` before `b` in each block. Failed
        /// repeats have no value and do not count.
        index: usize,
        /// The first sample below zero.
        value: f64,
    },
    /// An argument other than a sample lies outside its bounds.
    #[error("{what} is {value}: it must lie {range}")]
    OutOfRange {
        /// Noun for the argument, such as `a confidence`.
        what: &'static str,
        /// The rejected value of the argument.
        value: f64,
        /// The valid values, such as `strictly between 0% and 100%`.
        range: &'static str,
    },
    /// The statistic takes too much time or memory for this number of samples.
    #[error("{given} samples are too many for the {what}: give at most {limit}, or batch them")]
    TooMany {
        /// The statistic that was asked for, such as `Hodges-Lehmann estimate`.
        what: &'static str,
        /// Number of samples in the call.
        given: usize,
        /// Maximum number of samples that the statistic takes.
        limit: usize,
    },
    /// An observation of the state whose turn it was not ([`crate::ab::Decider::observe`]).
    #[error("a {given} observation came while {expected} was running: measure what `next` names")]
    OutOfTurn {
        /// Name of the state whose turn it was: `base` or `change`.
        expected: &'static str,
        /// Name of the state that the caller passed.
        given: &'static str,
    },
    /// An observation after the end of the run ([`crate::ab::Decider::observe`]).
    #[error("the comparison has ended: read its verdict, or plan more pairs")]
    Ended,
}

/// Requires at least one sample, all finite.
pub(crate) fn finite(samples: &[f64], what: &'static str) -> Result<(), StatsError> {
    if samples.is_empty() {
        return Err(StatsError::Empty { what });
    }
    match samples.iter().position(|value| !value.is_finite()) {
        Some(index) => Err(StatsError::NotFinite { index, value: samples[index] }),
        None => Ok(()),
    }
}

/// Requires at least one sample, all finite and above zero.
pub(crate) fn positive(samples: &[f64], what: &'static str) -> Result<(), StatsError> {
    finite(samples, what)?;
    match samples.iter().position(|value| *value <= 0.0) {
        Some(index) => Err(StatsError::NotPositive { index, value: samples[index] }),
        None => Ok(()),
    }
}

/// Requires at least one sample, all finite and none below zero.
pub(crate) fn not_negative(samples: &[f64], what: &'static str) -> Result<(), StatsError> {
    finite(samples, what)?;
    match samples.iter().position(|value| *value < 0.0) {
        Some(index) => Err(StatsError::Negative { index, value: samples[index] }),
        None => Ok(()),
    }
}

/// Requires a confidence strictly between 0 and 1.
pub(crate) fn confidence(level: units::Share) -> Result<f64, StatsError> {
    let value = level.fraction();
    if value > 0.0 && value < 1.0 {
        return Ok(value);
    }
    Err(StatsError::OutOfRange {
        what: "a confidence",
        value,
        range: "strictly between 0% and 100%",
    })
}
