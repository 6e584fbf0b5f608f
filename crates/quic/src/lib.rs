//! QUIC endpoints without I/O: quinn-proto's state machine under the project's congestion control.
//!
//! | module | holds |
//! | --- | --- |
//! | `endpoint` | all connections of one socket |
//! | `connection`, `stream` | one connection, one stream |
//! | `credit` | the credit that a peer may use |
//! | `control` | congestion control, pacing, loss detection |
//! | `session`, `ack` | information from packet keys and ACK frames |
//! | `flight`, `reordering`, `pacer` | packets in flight, late packets, departures |
//! | `thinning` | when a receiver acknowledges |
//! | `turns` | which stream writes next |
//! | `window` | the receive and send windows that a path needs |
//! | `reassembly` | chunks that arrived in any order |
//! | `plain` | endpoints without encryption, for simulations |
//!
//! The driver of an endpoint passes datagrams and the time to the endpoint. The tunnel passes real
//! datagrams and the real time. The simulator passes simulated datagrams and virtual time.

#![warn(missing_docs)]

mod ack;
mod choice;
mod connection;
mod control;
mod credit;
mod endpoint;
mod fixed;
mod flight;
mod lag;
mod lost;
mod meter;
mod pacer;
#[cfg(test)]
mod pair;
pub mod plain;
mod ranges;
mod reading;
mod reassembly;
mod reordering;
mod session;
mod stream;
mod thinning;
mod turns;
mod window;

pub use choice::{Congestion, CongestionError};
pub use connection::{Connection, DatagramRefused, Event, Statistics};
pub use credit::{Allowed, FIRST_CREDIT, Granted};
pub use endpoint::{Endpoint, Key, RefusedError, Settings};
pub use lost::Lost;
pub use meter::{Charge, Meter};
pub use quinn_proto::{
    ConnectionId, ConnectionIdGenerator, EcnCodepoint, EndpointConfig, Incoming, ServerConfig,
    StreamId, Transmit, crypto,
};
pub use reading::{Reading, Readings};
pub use reassembly::Reassembly;
pub use stream::{Readable, StreamError};
pub use window::{PathWindow, send_window};
