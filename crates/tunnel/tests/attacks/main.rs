//! Tests of peers and strangers that attack an end or use up its resources.

#![allow(clippy::unwrap_used)]

#[path = "../ends/mod.rs"]
mod ends;
#[path = "../processes/mod.rs"]
mod processes;

use tokio::sync::RwLock;

mod abuse;
mod applications;
mod floods;
mod tenants;

/// A lock for the tests of this binary, which share a process. A test that measures the process's
/// memory takes the lock for writing; every other test takes the lock for reading.
static PROCESS: RwLock<()> = RwLock::const_new(());
