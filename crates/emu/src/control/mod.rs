//! The protocol between a command and another process's running link: a UNIX socket, one JSON
//! object a line.
//!
//! ```text
//! → {"do":"show"}
//! ← {"link":{"name":"wan","pid":4711,…}}
//! → {"do":"set","both":{"loss":"1%"},"ab":{},"ba":{"rate":"20mbit"}}
//! ← {"done":"changed"}     or     {"error":"loss: `140%` is out of range …"}
//! → {"do":"down"}
//! ← {"done":"ending"}
//! ```
//!
//! A trace is sent as text, as `"rate":"trace:5,10,20"`, because only the client can read its file.
//! Messages are bounded in size and clients in time and number, so that no client can harm the
//! link.

mod client;
mod directory;
mod line;
mod protocol;
mod server;

pub use client::Client;
pub use directory::{Claim, Directory, check_name};
pub use protocol::{Reply, Request};
pub use server::Server;
