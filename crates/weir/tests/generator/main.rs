//! `weir gen` as a user runs it.
#![allow(clippy::unwrap_used, dead_code, unreachable_pub)]

#[path = "../support/mod.rs"]
mod support;

mod device;
mod misbehaving;
mod ndr;
mod profile;
mod usage;
