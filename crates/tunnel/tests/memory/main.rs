//! Tests of the memory that peers can make an end hold.

#![allow(clippy::unwrap_used)]

#[path = "../ends/mod.rs"]
mod ends;
#[path = "../processes/mod.rs"]
mod processes;

mod floods;
mod idle;
mod resets;
mod resident;
mod shares;
mod streams;
