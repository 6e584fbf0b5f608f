//! Audiences that write: text for people, iperf3's JSON, a line of JSON for each event.

mod figures;
mod json;
mod json_stream;
pub mod limits;
pub mod outcome;
mod sink;
mod text;

pub use figures::RateUnit;
pub use json::{Document, Json};
pub use json_stream::JsonStream;
pub use text::{Look, Text};
