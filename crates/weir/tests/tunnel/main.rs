//! `weir tunnel` as a user runs it.
#![allow(clippy::unwrap_used, dead_code, unreachable_pub)]

#[path = "../support/mod.rs"]
mod support;

mod carrier;
mod certificates;
mod command;
mod confined;
mod ends;
mod git;
mod key_change;
mod killed;
mod kinds;
mod operation;
mod proxies;
mod quic_tun;
mod reload;
mod services;
mod sockets;
mod unit;
mod upgrade;
