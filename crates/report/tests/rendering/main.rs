//! What the report looks like, from example data that no machine measured.

// Helpers of tests stop a test as its own lines do.
#![allow(clippy::unwrap_used)]

mod drawings;
mod example_data;
mod measurement;
mod page;
mod text;
