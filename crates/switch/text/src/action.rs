//! Actions: `ct(commit,table=1,nat(src=48.128.0.10))`, `output:2`.

mod connection;
mod consistency;
mod learn;
mod order;
mod parse;
mod plain;
mod print;
mod select;

pub(crate) use consistency::check;
pub(crate) use order::Context;
pub(crate) use parse::Parser;
pub use parse::parse_actions;
pub use print::{print_actions, print_actions_with};
pub(crate) use print::{write_actions, write_nat};
