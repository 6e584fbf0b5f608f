//! Peers and strangers that demand too much.

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

/// The tests of this binary share a process. A test that measures its memory locks this for
/// writing, each other test for reading.
static PROCESS: RwLock<()> = RwLock::const_new(());
