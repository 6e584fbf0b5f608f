use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The kernel (or its configuration, or this mount) lacks the feature: the caller should do
    /// without it.
    #[error("this kernel does not offer {feature}: {hint}")]
    NotSupported { feature: &'static str, hint: &'static str },
    #[error("cannot read {path}: {source}; check that /proc is mounted and that you may read it")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{origin} has an unexpected form: {what}; please report it with the file")]
    Malformed { origin: String, what: String },
    #[error("process {pid} has ended")]
    Ended { pid: u32 },
    #[error("no {what}: {hint}")]
    NotFound { what: String, hint: &'static str },
    #[error("asking the kernel for {what} failed: {source}")]
    Kernel {
        what: &'static str,
        #[source]
        source: io::Error,
    },
}

impl ProbeError {
    /// Whether the requested feature or object is missing, rather than broken.
    pub fn is_not_supported(&self) -> bool {
        matches!(self, Self::NotSupported { .. })
    }

    pub(crate) fn malformed(origin: &str, what: impl Into<String>) -> Self {
        Self::Malformed { origin: origin.to_owned(), what: what.into() }
    }
}

pub(crate) fn read_text(path: impl AsRef<Path>) -> Result<String, ProbeError> {
    let path = path.as_ref();
    let bytes =
        std::fs::read(path).map_err(|source| ProbeError::Read { path: path.to_owned(), source })?;
    // Process names may contain any bytes.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
