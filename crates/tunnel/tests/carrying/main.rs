//! Tests that tunnels carry data completely and in order, over paths that lose packets, change or
//! break.

#![allow(clippy::unwrap_used)]

#[path = "../ends/mod.rs"]
mod ends;

mod datagrams;
mod failures;
mod integrity;
mod listeners;
mod moved;
mod over_tcp;
mod transfers;
mod unix_sockets;
