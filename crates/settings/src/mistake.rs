use serde::de::{Error, Expected, Unexpected};
use std::fmt::{self, Display, Formatter};
use std::ops::{Range, RangeInclusive};

/// A mistake in a file, with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The bytes of the file's text.
    pub place: Range<usize>,
    /// The line, from 1 on.
    pub line: usize,
    pub what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// The text is not TOML. The reason is the TOML parser's.
    Syntax(String),
    MissingKey(String),
    UnknownKey {
        word: String,
        known: Vec<String>,
    },
    /// A text that is none of the words which its key permits.
    UnknownWord {
        word: String,
        known: &'static [&'static str],
    },
    /// A value of another type or range.
    Unfit {
        found: String,
        expected: String,
    },
    /// A value that its own type refuses, with the type's reason.
    Refused(String),
}

impl Display for What {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::MissingKey(key) => write!(f, "`{key}` is missing here"),
            Self::UnknownKey { word, known } => unknown(f, "key", word, known),
            Self::UnknownWord { word, known } => unknown(f, "value", word, known),
            Self::Unfit { found, expected } => write!(f, "found {found}, expected {expected}"),
            Self::Syntax(reason) | Self::Refused(reason) => {
                f.write_str(&reason.trim().replace('\n', ", "))
            }
        }
    }
}

fn unknown(
    f: &mut Formatter<'_>,
    what: &str,
    word: &str,
    known: &[impl AsRef<str>],
) -> fmt::Result {
    let known: Vec<&str> = known.iter().map(AsRef::as_ref).collect();
    let hint = units::did_you_mean(word, known.iter().copied());
    match hint.is_empty() {
        true => write!(f, "unknown {what} `{word}`: one of {} is meant here", known.join(", ")),
        false => write!(f, "unknown {what} `{word}`{hint}"),
    }
}

impl std::error::Error for What {}

impl Error for What {
    fn custom<T: Display>(reason: T) -> Self {
        Self::Refused(reason.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::Unfit { found: found.to_string(), expected: expected.to_string() }
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn unknown_variant(word: &str, known: &'static [&'static str]) -> Self {
        Self::UnknownWord { word: word.to_owned(), known }
    }
}

/// The mistakes of a file, and the lines on which stand-ins took the place of lost values.
#[derive(Debug, Clone, Default)]
pub struct Mistakes {
    /// The position of the first byte of each line.
    lines: Vec<usize>,
    found: Vec<Mistake>,
    doubtful: Vec<RangeInclusive<usize>>,
    /// The place of the table that is being read, with all its values.
    pub(crate) table: Range<usize>,
}

impl Mistakes {
    pub(crate) fn new(text: &str) -> Self {
        let later = text.match_indices('\n').map(|(end, _)| end + 1);
        Self { lines: std::iter::once(0).chain(later).collect(), ..Self::default() }
    }

    /// Adds a mistake. A second mistake in the values of a line may be a consequence of the first
    /// mistake, and is left out.
    pub fn add(&mut self, place: Range<usize>, what: What) {
        if self.is_full() {
            return;
        }
        let line = self.line(place.start);
        let is_value = |what: &What| !matches!(what, What::MissingKey(_));
        let mut same_line = self.found.iter().filter(|known| known.line == line);
        let is_known =
            same_line.any(|known| known.what == what || (is_value(&what) && is_value(&known.what)));
        if !is_known {
            self.found.push(Mistake { place, line, what });
        }
    }

    /// Whether the mistakes so far are so many that further mistakes are left out.
    pub(crate) fn is_full(&self) -> bool {
        self.found.len() >= MOST_FOUND
    }

    /// Marks a place whose value is lost, so that everything wrong there may be a consequence.
    pub fn doubt(&mut self, place: &Range<usize>) {
        let last = place.end.saturating_sub(1).max(place.start);
        let lines = self.line(place.start)..=self.line(last);
        match self.doubtful.len() < MOST_DOUBTFUL {
            true => self.doubtful.push(lines),
            // After this number of losses, every mistake may be a consequence of a loss.
            false => {
                self.doubtful.clear();
                self.doubtful.push(0..=usize::MAX);
            }
        }
    }

    /// Whether a mistake on this line may be the consequence of another mistake.
    pub fn is_doubtful(&self, line: usize) -> bool {
        self.doubtful.iter().any(|lines| lines.contains(&line))
    }

    /// Whether a value of the file is lost.
    pub fn has_losses(&self) -> bool {
        !self.doubtful.is_empty()
    }

    pub fn found(&self) -> &[Mistake] {
        &self.found
    }

    /// Returns the mistakes in the order of their lines.
    pub fn into_found(mut self) -> Vec<Mistake> {
        self.found.sort_by_key(|mistake| mistake.line);
        self.found
    }

    fn line(&self, place: usize) -> usize {
        self.lines.partition_point(|start| *start <= place)
    }
}

/// Maximum number of mistakes that are kept. A file of 1 MiB may have a mistake on each of its
/// lines.
const MOST_FOUND: usize = 200;
/// Maximum number of places that are marked as doubtful individually.
const MOST_DOUBTFUL: usize = 1000;
