//! Tests of the peers, certificates and targets that an end accepts or refuses.

#![allow(clippy::unwrap_used)]

#[path = "../ends/mod.rs"]
mod ends;

mod certificates;
mod key_exchange;
mod next_key;
mod reach;
