/// Why a statistic cannot be computed from a set of samples. The message names the required input.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum StatsError {
    #[error("no samples for the {what}: run the cell at least once, or leave it out")]
    Empty { what: &'static str },
    #[error(
        "sample {index} is {value}, not a finite number: report the measurement as failed instead"
    )]
    NotFinite { index: usize, value: f64 },
    #[error("sample {index} is {value}: this mean needs values above zero; leave out the others")]
    NotPositive { index: usize, value: f64 },
    #[error(
        "sample {index} is {value}: a ratio of negative values means nothing; compare differences"
    )]
    Negative { index: usize, value: f64 },
    #[error("{what} is {value}: it must lie {range}")]
    OutOfRange { what: &'static str, value: f64, range: &'static str },
    #[error("{given} samples are too many for the {what}: give at most {limit}, or batch them")]
    TooMany { what: &'static str, given: usize, limit: usize },
    #[error("a {given} observation came while {expected} was running: measure what `next` names")]
    OutOfTurn { expected: &'static str, given: &'static str },
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
