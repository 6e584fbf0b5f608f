//! The analysis of outcomes: medians and intervals, comparisons, and bounds. The analysis reads
//! outcomes and results, and measures nothing.

pub mod check;
pub mod compare;
mod overall;
pub mod shortfalls;
mod spread;
pub(crate) mod summary;
