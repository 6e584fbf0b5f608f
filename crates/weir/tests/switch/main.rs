//! `weir switch` as a user runs it, with Debian's ovs-ofctl and ovs-appctl.
#![allow(clippy::unwrap_used, dead_code, unreachable_pub)]

#[path = "../support/mod.rs"]
mod support;

mod bonds;
mod captures;
mod changes;
mod commands;
mod confined;
mod control;
mod controllers;
mod database;
mod endings;
mod folder;
mod guide;
mod interfaces;
mod loads;
mod metrics;
mod peers;
mod report;
mod test_switch;
mod tls;
