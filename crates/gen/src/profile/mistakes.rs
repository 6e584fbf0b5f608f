use std::fmt;

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

const MOST: usize = 100;
