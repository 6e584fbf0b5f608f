//! netperf's tests (request/response, and messages of any size), repeated until the result is
//! reliable.
//!
//! | module | holds |
//! | --- | --- |
//! | [`wire`] | the protocol between client and server for these tests |
//! | `run`, `session`, `client_threads` | the client: a series of repeats, its control connection, its threads |
//! | `serve`, `ports` | the server's session, and the ports that the server opens |
//! | `start_barrier`, `timeouts` | the common start of all threads, and the end of a thread that waits |
//! | `rr`, `crr`, `udp_rr`, `bulk`, `udp_bulk` | both ends of each test |
//! | `confidence`, `latency`, `cpu`, `outcome` | the parts of the results |
//! | `table`, `columns`, `document` | the results for people and for machines |
//!
//! The peer must be a weir server, because iperf3 has no such tests. All connections send small
//! segments at once (TCP_NODELAY); netperf does so only with an option.

mod bulk;
mod client_threads;
mod columns;
mod confidence;
mod cpu;
mod crr;
mod document;
mod kind;
mod latency;
mod options;
mod outcome;
mod ports;
mod rr;
mod run;
mod serve;
mod session;
mod start_barrier;
mod table;
mod timeouts;
mod udp_bulk;
mod udp_hello;
mod udp_rr;
pub mod wire;

pub use confidence::Confidence;
pub use cpu::Cpu;
pub use document::document;
pub use kind::Kind;
pub use latency::{Latencies, LatencySummary};
pub use options::{Repeats, RoundsError, RoundsOptions, Size};
pub use outcome::{ConfidenceOutcome, RoundsOutcome, Run};
pub use run::{Audience, Event, Measured, run};
pub use serve::Served;
pub(crate) use serve::serve;
pub use table::table;
