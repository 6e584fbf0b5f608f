//! `weir lab` as a user runs it.
#![allow(clippy::unwrap_used, dead_code, unreachable_pub)]

#[path = "../support/mod.rs"]
mod support;
#[path = "../support/terminal.rs"]
mod terminal;

mod cables;
mod ci;
mod commands;
mod endings;
mod failures;
mod files;
mod first_screen;
mod hosts;
mod kernel;
mod lateness;
mod privileges;
mod profile;
mod provenance;
mod record;
mod results;
mod resume;
mod robustness;
mod settings;
mod states;
mod suite;
mod switches;
mod traffic;
mod trust;
mod tunnels;
