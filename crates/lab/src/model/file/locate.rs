//! Turns a position in the text into a message that names the line and the right spelling.

use settings::Mistakes;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An error in a lab file, with its position.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("{file}:{line}: {message}")]
    At { file: String, line: usize, message: String },
    #[error("cannot read {file}: {reason}; check the path and the permissions")]
    Unreadable { file: String, reason: std::io::Error },
    /// All mistakes of a file with more than one mistake.
    #[error("{}", lines(.0))]
    Several(Vec<Self>),
}

impl FileError {
    /// Returns the single mistakes of the error.
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
    fn joined(mut all: Vec<Self>) -> Self {
        all.sort_by_key(Self::line);
        match <[Self; 1]>::try_from(all) {
            Ok([only]) => only,
            Err(all) => Self::Several(all),
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::At { line, message, .. }, Self::At { line: known, message: told, .. }) => {
                line == known && message == told
            }
            _ => false,
        }
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
    /// The mistakes found so far. `None` unless all mistakes are being collected.
    found: Option<Arc<Mutex<Found>>>,
}

#[derive(Debug)]
struct Found {
    grammar: Mistakes,
    errors: Vec<FileError>,
    /// The number of checks that failed, because of their own mistakes or of mistakes in the
    /// grammar.
    count: usize,
}

impl Found {
    /// Adds the error of a check, unless a mistake in the grammar may be its cause.
    fn add(&mut self, error: FileError) {
        self.count += 1;
        if self.errors.len() >= MOST_ERRORS {
            return;
        }
        // Without a mistake in the grammar, `errors` must keep the error: no lab runs with this
        // error.
        let is_consequence = !self.grammar.found().is_empty()
            && error.line().is_some_and(|line| self.grammar.is_doubtful(line));
        // Keep the mistake once, although several cells may have the same mistake.
        if !is_consequence && !self.errors.iter().any(|known| known.is_same(&error)) {
            self.errors.push(error);
        }
    }
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

    /// Makes [`Source::take`] keep mistakes from now on instead of returning them. `grammar`: the
    /// mistakes in the grammar of the file.
    pub(crate) fn collect(&mut self, grammar: Mistakes) {
        let errors = grammar.found().iter().map(|mistake| {
            let (file, message) = (self.file.to_string(), mistake.what.to_string());
            FileError::At { file, line: mistake.line, message }
        });
        let errors = errors.collect();
        self.found = Some(Arc::new(Mutex::new(Found { grammar, errors, count: 0 })));
    }

    /// Ends the collection that [`Source::collect`] began. The error joins all mistakes.
    pub(crate) fn finish<T>(&mut self, checked: Result<T, FileError>) -> Result<T, FileError> {
        let Some(found) = self.found.take() else { return checked };
        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
        match checked {
            Ok(value) if found.errors.is_empty() => return Ok(value),
            Ok(_) => {}
            Err(error) => found.add(error),
        }
        Err(FileError::joined(std::mem::take(&mut found.errors)))
    }

    /// Keeps a mistake if mistakes are being collected, so that the checks go on.
    pub(crate) fn take(&self, checked: Result<(), FileError>) -> Result<(), FileError> {
        match (checked, self.found()) {
            (Err(error), Some(mut found)) => {
                found.add(error);
                Ok(())
            }
            (checked, _) => checked,
        }
    }

    pub(crate) fn has_mistakes(&self) -> bool {
        self.count() > 0
    }

    /// Returns the number of checks that failed since the collection began.
    pub(crate) fn count(&self) -> usize {
        self.found().map_or(0, |found| found.count)
    }

    /// Whether a value could not be read because of a mistake in the grammar.
    pub(crate) fn has_losses(&self) -> bool {
        self.found().is_some_and(|found| found.grammar.has_losses())
    }

    fn found(&self) -> Option<MutexGuard<'_, Found>> {
        let found = self.found.as_ref()?;
        Some(found.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn error(&self, place: Range<usize>, message: impl Into<String>) -> FileError {
        let line = settings::line(&self.text, place.start);
        FileError::At { file: self.file.to_string(), line, message: message.into() }
    }
}

/// Maximum number of errors that are kept. Each of 10,000 cells may have errors of its own.
const MOST_ERRORS: usize = 1000;
