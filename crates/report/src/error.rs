use results::ResultsError;
use std::path::PathBuf;

/// Errors between a lab's results and their files.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error("cannot read {}: {source}; is this a run directory?", file.display())]
    Read { file: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Results(#[from] ResultsError),
    #[error("cannot write {}: {source}; check the directory's permissions and space", file.display())]
    Write { file: PathBuf, source: std::io::Error },
    #[error("the samples cannot be written as Parquet: {0}")]
    EncodeSamples(String),
    #[error("{} is not a lab's samples: {reason}; run the lab again", file.display())]
    MalformedSamples { file: PathBuf, reason: String },
}
