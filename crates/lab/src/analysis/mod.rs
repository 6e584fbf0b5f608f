//! The analysis of outcomes: medians and intervals, comparisons, bounds, and A/B decisions.

pub mod ab;
pub(crate) mod agreement;
pub mod check;
pub mod ci;
pub mod compare;
mod overall;
pub mod shortfalls;
mod spread;
pub(crate) mod summary;
