//! `weir perf` as a user runs it.
#![allow(clippy::unwrap_used, dead_code, unreachable_pub)]

#[path = "../support/mod.rs"]
mod support;
#[path = "../support/terminal.rs"]
mod terminal;

mod accounts;
mod client;
mod errors;
mod interop;
mod link;
mod report;
mod server;
mod web;
