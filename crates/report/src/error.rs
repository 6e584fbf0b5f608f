use results::ResultsError;
use std::path::PathBuf;

/// Errors between a lab's results and their files.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A file of a run cannot be read.
    #[error("cannot read {}: {source}; name the directory of a lab's run", file.display())]
    Read {
        /// The path of the file.
        file: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The text of a `results.json` is invalid, or results cannot be written as JSON.
    #[error(transparent)]
    Results(#[from] ResultsError),
    /// A file or a directory cannot be written.
    #[error("cannot write {}: {source}; check the directory's permissions and space", file.display())]
    Write {
        /// The path of the file or directory.
        file: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The samples do not fit Parquet's types; the value is the encoder's reason.
    #[error("the samples cannot be written as Parquet: {0}")]
    EncodeSamples(String),
    /// A file is no Parquet file of a lab's samples.
    #[error("{} is not a lab's samples: {reason}; run the lab again", file.display())]
    MalformedSamples {
        /// The path of the file.
        file: PathBuf,
        /// The first mistake.
        reason: String,
    },
}
