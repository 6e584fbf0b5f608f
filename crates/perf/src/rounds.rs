//! netperf's tests: requests and responses, and messages of every size, repeated until they are sure.
//!
//! | module | holds |
//! | --- | --- |
//! | [`wire`] | what client and server say to each other about these tests |
//! | `serve` | the server's session |
//! | `rr`, `crr`, `udp_rr`, `bulk`, `udp_bulk` | both ends of each test |
//!
//! The far end is our own server: iperf3 knows no such tests.

mod bulk;
mod cpu;
mod crr;
mod greeting;
mod kind;
mod listening;
mod patience;
mod rr;
mod serve;
mod udp_bulk;
mod udp_rr;
pub mod wire;

pub use kind::Kind;
pub use serve::{Served, serve};
