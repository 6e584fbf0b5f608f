use units::UnitError;

/// Why the description of a link is invalid. The message says how to write it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum LinkError {
    #[error(transparent)]
    Unit(#[from] UnitError),
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error("`{found}`: write a number before `bdp`, for example 1bdp")]
    NoFactor { found: String },
    #[error("`{found}` needs a fixed rate: the bandwidth-delay product of this link is unknown")]
    NoProduct { found: String },
    #[error("`max(` in `{found}` is never closed by `)`")]
    OpenMax { found: String },
    #[error("`{found}` is not a {what}{hint}: write {known}")]
    UnknownForm {
        what: &'static str,
        found: String,
        /// From [`units::did_you_mean`].
        hint: String,
        known: &'static str,
    },
    #[error("`{found}` is not a setting of {of}{hint}: it takes {known}")]
    UnknownSetting { of: &'static str, found: String, hint: String, known: String },
    #[error("{setting} {problem}")]
    Invalid { setting: &'static str, problem: String },
}

impl LinkError {
    pub(crate) fn invalid(setting: &'static str, problem: impl Into<String>) -> Self {
        Self::Invalid { setting, problem: problem.into() }
    }
}

/// Why a text is not a valid trace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    #[error(
        "the trace is empty: write one line per delivery opportunity, each a time in milliseconds"
    )]
    Empty,
    #[error("line {line} of the trace, `{found}`, is not a whole number of milliseconds")]
    NotANumber { line: usize, found: String },
    #[error(
        "line {line} of the trace says {found} ms after {before} ms: times must not go backwards"
    )]
    Backwards { line: usize, found: u64, before: u64 },
    #[error("line {line} of the trace says {found} ms: at most a year of trace can be replayed")]
    TooLate { line: usize, found: u64 },
    #[error("the trace ends at 0 ms: its last line is its length and must be later")]
    NoLength,
    #[error("these rates carry no packet: set one of them above 0 for at least a millisecond")]
    NothingSent,
    #[error("these rates exceed a trace's limits: at most a year and eight million packets")]
    TooLong,
    #[error("the loss trace is empty: write a 0 for each packet kept and a 1 for each one lost")]
    NoLosses,
    #[error(
        "line {line} of the loss trace has `{found}`: only 0 (kept) and 1 (lost) are valid here"
    )]
    NotALoss { line: usize, found: char },
}
