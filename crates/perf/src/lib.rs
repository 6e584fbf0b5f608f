//! Measures a path with iperf3's protocol; client or server may be a stock iperf3 3.12 or later.
//!
//! | module | holds |
//! | --- | --- |
//! | [`options`] | options: the test, the client's and the server's settings |
//! | [`control`] | the control connection: cookie, states, parameters and results as JSON |
//! | [`stream`] | data streams, a thread each: TCP and UDP, pacing, zero copy |
//! | [`udp`] | datagram headers, the opening exchange, exact counting of arrivals |
//! | [`client`], [`server`] | the two roles |
//! | [`accounts`] | iperf3's user names and passwords, at both ends |
//! | [`observe`] | measurements beside the streams: TCP_INFO, CPU, latency under load |
//! | [`rounds`] | request/response tests after netperf, with confidence intervals |
//! | [`download`] | files over http, timed |
//! | [`web`] | requests over http and https: rates, latencies, errors by kind |
//! | [`local`] | round trips and bandwidth between two processes of this machine |
//! | [`plain`] | a minimal transfer, as a baseline |
//! | [`event`] | events of both roles; [`output`] writes them |
//!
//! A role reports [`event::Event`]s to an [`event::Audience`]. Text, `-J`, `--json-stream`, the
//! report and the lab are audiences; no other code prints.

pub mod accounts;
pub mod client;
pub mod control;
pub mod download;
mod error;
pub mod event;
pub mod local;
pub mod observe;
pub mod options;
pub mod output;
pub mod plain;
pub mod rounds;
pub mod server;
mod session;
pub mod stream;
pub mod udp;
pub mod web;

pub use error::PerfError;
