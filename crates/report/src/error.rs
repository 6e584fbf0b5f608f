use std::path::PathBuf;

/// Errors between a lab's results and its files.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error("cannot read {}: {source}; is this a run directory?", file.display())]
    Read { file: PathBuf, source: std::io::Error },
    #[error(
        "{} is not a lab's results: at {at}: {reason}; run the lab again, or repair the file",
        file.display()
    )]
    Malformed { file: PathBuf, at: String, reason: String },
    #[error("cannot write {}: {source}; check the directory's permissions and space", file.display())]
    Write { file: PathBuf, source: std::io::Error },
    #[error("the samples cannot be written as Parquet: {0}")]
    EncodeSamples(String),
    #[error("{} is not a lab's samples: {reason}; run the lab again", file.display())]
    MalformedSamples { file: PathBuf, reason: String },
    #[error("the results cannot be written as JSON: {0}")]
    Encode(serde_json::Error),
}
