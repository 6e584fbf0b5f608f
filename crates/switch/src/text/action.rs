//! Actions: `ct(commit,table=1,nat(src=48.128.0.10))`, `output:2`.

mod connection;
mod consistency;
mod learn;
mod order;
mod parse;
mod print;
mod select;

pub use consistency::check;
pub use order::Context;
pub use parse::{Parser, parse_actions};
pub use print::{print_actions, print_actions_with, write_actions};
