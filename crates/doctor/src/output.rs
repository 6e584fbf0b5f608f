//! A diagnosis for a terminal and as JSON.

mod brief;
mod full;
mod page;
mod series;

pub use series::series;

/// Writes the diagnosis for a terminal of `wide` columns: the verdict, its evidence and advice in
/// at most twelve lines, or everything that is known.
pub fn text(diagnosis: &Diagnosis, wide: usize, all: bool) -> String {
    let wide = wide.max(NARROWEST);
    if all { full::full(diagnosis, wide) } else { brief::brief(diagnosis, wide) }
}

use crate::Diagnosis;

/// Returns the document on one line.
pub fn json_line(diagnosis: &Diagnosis) -> String {
    serde_json::to_string(diagnosis).unwrap_or_default() + "\n"
}

/// Returns the document over several lines. `docs/reference/doctor.md` describes the document.
pub fn json(diagnosis: &Diagnosis) -> String {
    serde_json::to_string_pretty(diagnosis).unwrap_or_default() + "\n"
}

const NARROWEST: usize = 40;
