//! Memory that peers can make an end hold.

#![allow(clippy::unwrap_used)]

#[path = "../ends/mod.rs"]
mod ends;

mod idle;
mod resident;
mod shares;
mod streams;
