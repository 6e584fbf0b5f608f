//! Audiences that write: text for people, iperf3's JSON, a line of JSON for each event.

mod direction;
mod figures;
mod json;
mod json_stream;
mod limited_by;
mod sink;
mod text;

pub use figures::RateUnit;
pub use json::{Document, Json};
pub use json_stream::JsonStream;
pub use limited_by::LimitedBy;
pub use text::{Look, Text};
