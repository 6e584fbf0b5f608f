//! Converts a position in the text into a message that names the line and suggests the right
//! spelling.

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
    #[error("{0} is outside the directories that this process kept when it started: restart it")]
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
                let before = &self.text.as_bytes()[..byte.min(self.text.len())];
                let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
                ConfigError::At { file: self.file.clone(), line, message }
            }
        }
    }

    pub(super) fn malformed(&self, error: &toml::de::Error) -> ConfigError {
        let origin = Origin::Byte(error.span().map_or(0, |span| span.start));
        let message = error.message().trim();
        self.error(origin, in_words(message).unwrap_or_else(|| message.replace('\n', ", ")))
    }
}

/// Shortens serde's message, which lists all permitted keys although a user needs only the likely
/// one.
fn in_words(message: &str) -> Option<String> {
    if let Some(key) = message.strip_prefix("missing field ") {
        return Some(format!("{key} is missing here"));
    }
    if message.starts_with("data did not match any variant of untagged enum OneOrMore") {
        return Some("a text in quotes belongs here, or a list of them in brackets".to_owned());
    }
    let (word, rest) = message.strip_prefix("unknown field `")?.split_once('`')?;
    let known: Vec<&str> = rest.split('`').skip(1).step_by(2).collect();
    let hint = units::did_you_mean(word, known.iter().copied());
    Some(match hint.is_empty() {
        false => format!("unknown key `{word}`{hint}"),
        true => format!("unknown key `{word}`: one of {} is meant here", known.join(", ")),
    })
}
