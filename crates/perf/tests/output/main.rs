//! Tests of the output formats, with invented events.

#![allow(clippy::unwrap_used)]

mod events;
mod iperf3_json;
mod json_stream;
mod text;
