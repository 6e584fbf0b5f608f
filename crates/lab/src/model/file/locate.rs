//! Turns a position in the text into a message that names the line and the right spelling.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// An error in a lab file, with its position.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("{file}:{line}: {message}")]
    At { file: String, line: usize, message: String },
    #[error("cannot read {file}: {reason}; check the path and the permissions")]
    Unreadable { file: String, reason: std::io::Error },
    /// All mistakes of a file that has more than one.
    #[error("{}", lines(.0))]
    Several(Vec<Self>),
}

impl FileError {
    /// Returns the mistakes one by one.
    pub fn each(&self) -> &[Self] {
        match self {
            Self::Several(all) => all,
            one => std::slice::from_ref(one),
        }
    }

    /// Whether the file could not be read at all.
    pub fn is_unreadable(&self) -> bool {
        matches!(self, Self::Unreadable { .. })
    }

    /// Returns the line in the file, if the error is about a line.
    pub(crate) fn line(&self) -> Option<usize> {
        match self {
            Self::At { line, .. } => Some(*line),
            _ => None,
        }
    }

    /// Joins all mistakes into one error, in the order of their lines.
    pub(crate) fn joined(mut all: Vec<Self>) -> Option<Self> {
        let line = |error: &Self| match error {
            Self::At { line, .. } => *line,
            _ => 0,
        };
        all.sort_by_key(line);
        // Several cells may have the same mistake.
        all.dedup_by_key(|error| error.to_string());
        if all.len() > 1 { Some(Self::Several(all)) } else { all.pop() }
    }
}

fn lines(all: &[FileError]) -> String {
    all.iter().map(FileError::to_string).collect::<Vec<_>>().join("\n")
}

/// The text of a lab file, and its name for messages.
#[derive(Debug, Clone, Default)]
pub(crate) struct Source {
    file: Arc<str>,
    text: Arc<str>,
    /// The mistakes so far, while all of them are being collected.
    found: Option<Arc<Mutex<Vec<FileError>>>>,
}

impl Source {
    pub(super) fn new(file: &str, text: &str) -> Self {
        Self { file: file.into(), text: text.into(), found: None }
    }

    pub(super) fn file(&self) -> &str {
        &self.file
    }

    pub(super) fn text(&self) -> Arc<str> {
        Arc::clone(&self.text)
    }

    /// Makes [`Source::take`] keep mistakes from now on instead of returning them.
    pub(crate) fn collect(&mut self) {
        self.found = Some(Arc::default());
    }

    /// Keeps a mistake if mistakes are being collected, so that the checks go on.
    pub(crate) fn take(&self, checked: Result<(), FileError>) -> Result<(), FileError> {
        match (checked, &self.found) {
            (Err(error), Some(found)) => {
                found.lock().unwrap_or_else(PoisonError::into_inner).push(error);
                Ok(())
            }
            (checked, _) => checked,
        }
    }

    pub(crate) fn has_mistakes(&self) -> bool {
        self.count() > 0
    }

    /// Returns the number of mistakes that were kept.
    pub(crate) fn count(&self) -> usize {
        let found = self.found.as_ref();
        found.map_or(0, |found| found.lock().unwrap_or_else(PoisonError::into_inner).len())
    }

    pub(crate) fn mistakes(&self) -> Vec<FileError> {
        let found = self.found.as_ref();
        found.map_or_else(Vec::new, |found| {
            std::mem::take(&mut *found.lock().unwrap_or_else(PoisonError::into_inner))
        })
    }

    pub(crate) fn error(&self, place: Range<usize>, message: impl Into<String>) -> FileError {
        let before = &self.text.as_bytes()[..place.start.min(self.text.len())];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        FileError::At { file: self.file.to_string(), line, message: message.into() }
    }

    pub(super) fn malformed(&self, error: &toml::de::Error) -> FileError {
        let place = error.span().unwrap_or(0..0);
        let message = error.message().trim();
        let better = spelling_of(message).or_else(|| in_words(message));
        self.error(place, better.unwrap_or_else(|| message.replace('\n', ", ")))
    }
}

/// Returns ` (did you mean `x`?)` for the nearest candidate, or an empty string if none is near. A
/// candidate is near if few letters differ or if the word is its prefix.
pub(crate) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    units::did_you_mean(word, candidates)
}

/// Returns the nearest candidate, if one is near. Among candidates at the same distance, a
/// candidate that begins with the word goes first, then the first of the list.
pub(super) fn nearest_of<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    units::nearest(word, candidates)
}

/// Shortens serde's message. serde lists all allowed words, and the user wants only the likely one.
fn spelling_of(message: &str) -> Option<String> {
    let (what, rest) = [("key", "unknown field `"), ("value", "unknown variant `")]
        .iter()
        .find_map(|(what, start)| Some((what, message.strip_prefix(start)?)))?;
    let (word, rest) = rest.split_once('`')?;
    let known: Vec<&str> = rest.split('`').skip(1).step_by(2).collect();
    let hint = nearest(word, known.iter().copied());
    if hint.is_empty() {
        return Some(format!("unknown {what} `{word}`: one of {} is meant here", known.join(", ")));
    }
    Some(format!("unknown {what} `{word}`{hint}"))
}

/// Translates serde's message to TOML's terms, because serde names its own types.
fn in_words(message: &str) -> Option<String> {
    if let Some(key) = message.strip_prefix("missing field ") {
        return Some(format!("{key} is missing here"));
    }
    let rest = ["invalid type: ", "invalid value: "]
        .iter()
        .find_map(|start| message.strip_prefix(start))?;
    let (found, expected) = rest.rsplit_once(", expected ")?;
    let expected = match expected {
        "a string" => "a text in quotes",
        "a sequence" => "a list in brackets",
        "a boolean" => "true or false",
        "u32" | "u64" => "a whole number, 0 or above",
        "f64" => "a number",
        other => other,
    };
    Some(format!("found {found}, expected {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_similar_spelling_is_suggested() {
        assert_eq!(nearest("rat", ["rate", "delay"]), " (did you mean `rate`?)");
        assert_eq!(nearest("colour", ["rate", "delay"]), "");
        assert_eq!(
            spelling_of("unknown field `los`, expected one of `rate`, `loss`").unwrap(),
            "unknown key `los` (did you mean `loss`?)"
        );
        assert_eq!(
            spelling_of("unknown field `zzz`, expected `rate` or `loss`").unwrap(),
            "unknown key `zzz`: one of rate, loss is meant here"
        );
    }
}
