//! `weir sim` as a user runs it.
#![allow(clippy::unwrap_used, dead_code, unreachable_pub)]

#[path = "../support/mod.rs"]
mod support;

mod labs;
mod shards;
mod worlds;
