use units::UnitError;

/// The reason why the description of a link is invalid. The message says how to write the
/// description.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum LinkError {
    /// A rate, time, size or share inside the description is invalid.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// A rate trace or a loss trace is invalid.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A queue size that ends in `bdp` has no valid factor: a finite number of at least 0.
    #[error("`{found}`: write a number before `bdp`, for example 1bdp")]
    NoFactor {
        /// The part of the description that ends with this size.
        found: String,
    },
    /// A queue size is a multiple of the bandwidth-delay product, but the link has no fixed rate.
    #[error("`{found}` needs a fixed rate: the bandwidth-delay product of this link is unknown")]
    NoProduct {
        /// The part of the description that ends with this size.
        found: String,
    },
    /// A `max(` in a queue's sizes has no closing parenthesis.
    #[error("`max(` in `{found}` is never closed by `)`")]
    OpenMax {
        /// The queue's description, with each earlier `max(...)` already replaced by its size.
        found: String,
    },
    /// The text is in no syntax that its component accepts.
    #[error("`{found}` is not a {what}{hint}: write {known}")]
    UnknownForm {
        /// The component: "rate", "loss", "queue" and so on.
        what: &'static str,
        /// The text as written.
        found: String,
        /// The nearest valid text, from [`units::did_you_mean`]; empty if none is near.
        hint: String,
        /// The valid syntaxes, as a list for the message.
        known: &'static str,
    },
    /// A component's description has a setting that the component does not know.
    #[error("`{found}` is not a setting of {of}{hint}: it takes {known}")]
    UnknownSetting {
        /// The component: "gilbert", "jitter", the name of a queueing discipline.
        of: &'static str,
        /// The setting's name as written, without its value.
        found: String,
        /// The nearest known setting, from [`units::did_you_mean`]; empty if none is near.
        hint: String,
        /// The settings that the component takes, as a list for the message.
        known: String,
    },
    /// The value of a setting is not possible for a link.
    #[error("{setting} {problem}")]
    Invalid {
        /// The setting, as the subject of the message's sentence.
        setting: &'static str,
        /// The predicate of the message's sentence, with a valid value.
        problem: String,
    },
}

impl LinkError {
    pub(crate) fn invalid(setting: &'static str, problem: impl Into<String>) -> Self {
        Self::Invalid { setting, problem: problem.into() }
    }
}

/// The reason why a text is not a valid trace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// The text has no time: the text is empty, or has only comments and empty lines.
    #[error(
        "the trace is empty: write one line per delivery opportunity, each a time in milliseconds"
    )]
    Empty,
    /// A line is not a whole number of milliseconds.
    #[error("line {line} of the trace, `{found}`, is not a whole number of milliseconds")]
    NotANumber {
        /// The line's number, counted from 1.
        line: usize,
        /// The first 40 characters of the line.
        found: String,
    },
    /// A time is before the time of the previous line.
    #[error(
        "line {line} of the trace says {found} ms after {before} ms: times must not go backwards"
    )]
    Backwards {
        /// The line's number, counted from 1.
        line: usize,
        /// The time in this line, in milliseconds.
        found: u64,
        /// The time in the previous line, in milliseconds.
        before: u64,
    },
    /// A time is later than a year after the start.
    #[error("line {line} of the trace says {found} ms: at most a year of trace can be replayed")]
    TooLate {
        /// The line's number, counted from 1.
        line: usize,
        /// The time in this line, in milliseconds.
        found: u64,
    },
    /// All times are 0, so the trace has no length after which it repeats.
    #[error("the trace ends at 0 ms: its last line is its length and must be later")]
    NoLength,
    /// A list of rates carries less than 1504 bytes in all its time, and so has no opportunity.
    #[error("these rates carry no packet: set one of them above 0 for at least a millisecond")]
    NothingSent,
    /// A list of rates lasts longer than a year or has more than eight million opportunities.
    #[error("these rates exceed a trace's limits: at most a year and eight million packets")]
    TooLong,
    /// A loss trace has neither a 0 nor a 1.
    #[error("the loss trace is empty: write 0 for each packet kept and 1 for each packet lost")]
    NoLosses,
    /// A loss trace has a character other than 0, 1, comma and white space.
    #[error(
        "line {line} of the loss trace has `{found}`: only 0 (kept) and 1 (lost) are valid here"
    )]
    NotALoss {
        /// The line's number, counted from 1.
        line: usize,
        /// The invalid character.
        found: char,
    },
}
