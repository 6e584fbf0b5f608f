//! `weir doctor` as a user runs it.
#![allow(clippy::unwrap_used, dead_code, unreachable_pub)]

#[path = "../support/mod.rs"]
mod support;

mod captures;
mod drops;
mod errors;
mod far_end;
mod faults;
mod overhead;
mod peer;
mod recording;
mod saved;
mod serve;
mod waiting;
