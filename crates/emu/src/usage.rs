use link::SettingError;

#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    #[error("`{text}` {problem}")]
    Endpoint { text: String, problem: String },
    #[error(transparent)]
    Setting(#[from] SettingError),
    #[error("{file}:{line}: {problem}")]
    File { file: String, line: usize, problem: String },
    #[error("cannot read {file}: {source}; check the path and the permissions")]
    Unreadable { file: String, source: std::io::Error },
    #[error("{0}")]
    Wrong(String),
}

impl UsageError {
    pub(crate) fn value(key: &str, problem: impl std::fmt::Display) -> Self {
        SettingError::value(key, problem).into()
    }

    pub(crate) fn unknown_key(key: &str, known: &[&str]) -> Self {
        SettingError::unknown_key(key, known).into()
    }
}
