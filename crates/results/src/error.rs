use std::path::PathBuf;

/// Errors between a lab's results and their JSON.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    #[error(
        "{} is not a lab's results: at {at}: {reason}; run the lab again, or repair the file",
        file.display()
    )]
    Malformed { file: PathBuf, at: String, reason: String },
    #[error("the results cannot be written as JSON: {0}")]
    Encode(serde_json::Error),
}
