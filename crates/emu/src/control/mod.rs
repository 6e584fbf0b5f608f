//! How one command speaks to another's running link: through a UNIX socket, one JSON object a line.
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
//! A trace travels as text, as `"rate":"trace:5,10,20"`: the file is that of whoever asks. Messages
//! are bounded in size and clients in time and number, so that none can hurt the link.

mod client;
mod directory;
mod line;
mod protocol;
mod server;

pub use client::Client;
pub use directory::{Claim, Directory, check_name};
pub use protocol::{Reply, Request};
pub use server::Server;
