//! `weir accel` as a user runs it, each test in a separate test machine.
#![allow(clippy::unwrap_used, dead_code, unreachable_pub)]

#[path = "../support/mod.rs"]
mod support;

mod caqm;
mod caqm_forged;
mod caqm_frames;
mod caqm_life;
mod caqm_wire;
mod hidden;
mod kernel_algorithms;
mod killed;
mod memory;
mod named;
mod open;
mod others;
mod policy;
mod policy_caqm;
mod routes;
mod status;
mod switch;
mod test_machine;
mod unit;
