//! Tests tables of comparisons: errors, coverage and power with a known truth, the rules for single
//! rows, and an independent implementation.

#![allow(clippy::unwrap_used)]

mod independent;
mod noise;
mod rules;
mod simulated;
