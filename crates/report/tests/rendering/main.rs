//! Renders the report from invented example data.

// A failing helper panics like the test's own lines.
#![allow(clippy::unwrap_used)]

mod drawings;
mod example_data;
mod measurement;
mod page;
mod text;
