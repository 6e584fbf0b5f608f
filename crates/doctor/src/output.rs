//! A diagnosis for a terminal and as JSON.

mod series;
mod text;

pub use series::series;
pub use text::text;

use crate::Diagnosis;

/// The document on one line.
pub fn json_line(diagnosis: &Diagnosis) -> String {
    serde_json::to_string(diagnosis).unwrap_or_default() + "\n"
}

/// One document, `docs/reference/doctor.md` describes it.
pub fn json(diagnosis: &Diagnosis) -> String {
    serde_json::to_string_pretty(diagnosis).unwrap_or_default() + "\n"
}
