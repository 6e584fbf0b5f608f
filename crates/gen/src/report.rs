//! Reports of a run: TRex's tables, and JSON.

mod json;
mod table;

pub use json::{document, planned};
pub use table::{live_table, summary};
