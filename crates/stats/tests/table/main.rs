//! Tables of comparisons: errors, coverage and power where the truth is known, the rules for single
//! rows, and an independent implementation.

#![allow(clippy::unwrap_used)]

mod independent;
mod noise;
mod rules;
mod simulated;
