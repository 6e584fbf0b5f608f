//! Sends requests to a web server as fast as the server responds, or at a given rate: HTTP/1.1 (RFC
//! 9112) over TCP or TLS. Connections stay open, or end with each response.
//!
//! | module | holds |
//! | --- | --- |
//! | `address`, `header`, `options` | the URL, header fields, and what to measure |
//! | `response` | the parser of responses, without I/O |
//! | `connection` | one connection: opening, TLS, a request, its response |
//! | `engine` | the event loop of a thread |
//! | `schedule` | the times of requests in an open loop |
//! | `tally`, `outcome` | counts, latencies and errors by kind |
//! | `document`, `text` | the results for machines and for people |
//! | [`serve`] | a small server, for machines without another |
//!
//! **Closed loop**: each connection sends a request once the response to the previous request is
//! complete, and latency counts from the time of sending. **Open loop** (`rate`): requests are sent
//! on a fixed schedule. Latency counts from the scheduled time, even if the request had to wait for
//! a connection. The results therefore show every pause of the server (no coordinated omission).

mod address;
mod connection;
mod document;
mod engine;
mod fault;
mod header;
mod options;
mod outcome;
mod response;
mod run;
mod schedule;
pub mod serve;
mod tally;
mod text;
mod tls;

pub use address::Address;
pub use document::document;
pub use fault::Fault;
pub use header::Header;
pub use options::{Trust, WebOptions};
pub use outcome::WebOutcome;
pub use response::{Progress, Response};
pub use run::run;
pub use text::text;
