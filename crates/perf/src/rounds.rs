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
mod confidence;
mod cpu;
mod crr;
mod greeting;
mod heat;
mod kind;
mod latency;
mod listening;
mod options;
mod outcome;
mod patience;
mod rr;
mod run;
mod serve;
mod session;
mod team;
mod udp_bulk;
mod udp_rr;
pub mod wire;

pub use confidence::{Confidence, Estimate};
pub use cpu::Cpu;
pub use kind::Kind;
pub use latency::{Latencies, LatencySummary};
pub use options::{Repeats, RoundsError, RoundsOptions, Size};
pub use outcome::{ConfidenceOutcome, RoundsOutcome, Run};
pub use run::{Audience, Event, Measured, run};
pub use serve::{Served, serve};
