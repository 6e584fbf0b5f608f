//! Converts a position in the text into a message that names the line.

use settings::Mistake;
use std::path::{Path, PathBuf};

/// An error in a tunnel's configuration, and its origin.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{file}:{line}: {message}")]
    At { file: String, line: usize, message: String },
    #[error("{flag}: {message}")]
    Flag { flag: &'static str, message: String },
    #[error("cannot read {file}: {reason}; check the path and the permissions")]
    Unreadable { file: String, reason: std::io::Error },
    #[error(
        "{0} is in none of the directories that this process could open at its start: restart weir \
         tunnel"
    )]
    OutOfReach(PathBuf),
    #[error("{0}")]
    Incomplete(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    Byte(usize),
    Flag(&'static str),
    /// The default, because the user configured no value.
    Default,
}

/// A file's text and name.
#[derive(Debug, Clone, Default)]
pub(super) struct Source {
    file: String,
    text: String,
}

impl Source {
    pub(super) fn new(file: &Path, text: &str) -> Self {
        Self { file: file.display().to_string(), text: text.to_owned() }
    }

    pub(super) fn error(&self, origin: Origin, message: impl Into<String>) -> ConfigError {
        let message = message.into();
        match origin {
            Origin::Flag(flag) => ConfigError::Flag { flag, message },
            Origin::Default => ConfigError::Incomplete(message),
            Origin::Byte(byte) => {
                let line = settings::line(&self.text, byte);
                ConfigError::At { file: self.file.clone(), line, message }
            }
        }
    }

    pub(super) fn malformed(&self, mistake: &Mistake) -> ConfigError {
        self.error(Origin::Byte(mistake.place.start), mistake.what.to_string())
    }
}
