//! Output of the audiences, from events made by hand.

#![allow(clippy::unwrap_used)]

mod events;
mod iperf3_json;
mod json_stream;
mod text;
