/// A mistake in a request. No action has been taken yet.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    #[error("`{text}` {problem}")]
    Endpoint { text: String, problem: String },
    #[error("there is no setting `{key}`{hint}; the settings are {known}")]
    UnknownKey { key: String, hint: String, known: String },
    #[error("{key}: {problem}")]
    Value { key: String, problem: String },
    #[error("`{text}` is not KEY=VALUE, for example loss=1%")]
    NotAPair { text: String },
    #[error("{file}:{line}: {problem}")]
    File { file: String, line: usize, problem: String },
    #[error("cannot read {file}: {source}; check the path and the permissions")]
    Unreadable { file: String, source: std::io::Error },
    #[error("{0}")]
    Wrong(String),
}

impl UsageError {
    pub(crate) fn value(key: &str, problem: impl std::fmt::Display) -> Self {
        Self::Value { key: key.to_owned(), problem: problem.to_string() }
    }

    pub(crate) fn unknown_key(key: &str, known: &[&str]) -> Self {
        Self::UnknownKey {
            key: key.to_owned(),
            hint: units::did_you_mean(key, known.iter().copied()),
            known: known.join(", "),
        }
    }
}
