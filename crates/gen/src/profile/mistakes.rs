use std::fmt;

/// All mistakes in a file, in the order of its lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistakes {
    file: String,
    found: Vec<(usize, String)>,
    suppressed: usize,
}

impl Mistakes {
    pub(super) fn of(file: &str) -> Self {
        Self { file: file.to_owned(), found: Vec::new(), suppressed: 0 }
    }

    pub(super) fn add(&mut self, line: usize, message: impl Into<String>) {
        if self.found.len() < MOST {
            self.found.push((line, message.into()));
        } else {
            self.suppressed += 1;
        }
    }

    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Line and message of each mistake.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &str)> {
        self.found.iter().map(|(line, message)| (*line, message.as_str()))
    }

    pub(super) fn sorted(mut self) -> Self {
        self.found.sort_by_key(|(line, _)| *line);
        self
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (line, message)) in self.found.iter().enumerate() {
            let newline = if number == 0 { "" } else { "\n" };
            write!(f, "{newline}{}:{line}: {message}", self.file)?;
        }
        if self.suppressed > 0 {
            write!(f, "\n{}: and {} more mistakes", self.file, self.suppressed)?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}

/// ` (did you mean `x`?)` for the nearest candidate, or an empty text if none is near.
pub(crate) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    if word.len() > LONGEST_WORD {
        return String::new();
    }
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate))
        .filter(|(distance, candidate)| {
            let begins = word.len() > 2 && candidate.starts_with(word);
            begins || *distance <= 1 + candidate.len().max(word.len()) / 3
        })
        .min()
        .map(|(_, candidate)| format!(" (did you mean `{candidate}`?)"))
        .unwrap_or_default()
}

const MOST: usize = 100;
/// Longest word that is compared: the distance takes quadratic time, and no key is as long.
const LONGEST_WORD: usize = 100;
