use std::path::PathBuf;

/// Errors in the conversion of a lab's results to and from JSON.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// The text is not JSON, or its JSON does not have the form of [`crate::Results`].
    #[error(
        "{} is not a lab's results: at {at}: {reason}; run the lab again, or repair the file",
        file.display()
    )]
    Malformed {
        /// The file as the caller named it.
        file: PathBuf,
        /// Path of the wrong value in the document, such as `cells[0].metrics`; `.` for the
        /// document as a whole.
        at: String,
        /// The parser's message with line and column, escaped for a terminal.
        reason: String,
    },
    /// The results do not fit JSON; holds the serialiser's error.
    #[error("the results cannot be written as JSON: {0}")]
    Encode(serde_json::Error),
}
