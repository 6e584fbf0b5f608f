//! Renders the report from invented example data.

// A helper may panic, like the test itself.
#![allow(clippy::unwrap_used)]

mod drawings;
mod example_data;
mod measurement;
mod page;
mod text;
