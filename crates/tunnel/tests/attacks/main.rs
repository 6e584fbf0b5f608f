//! Peers and strangers that demand too much.

#![allow(clippy::unwrap_used)]

#[path = "../ends/mod.rs"]
mod ends;

mod abuse;
mod floods;
