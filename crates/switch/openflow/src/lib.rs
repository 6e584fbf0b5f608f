//! The OpenFlow protocol, 1.0 to 1.5 with Nicira's extensions: messages, and the state of a
//! connection.
//!
//! The crate is for a switch that controllers or ovs-ofctl connect to. Begin with [`Session`]: a
//! session takes the bytes that the peer sends, passes the requests in them to a
//! [`flow::request::Bridge`], and writes the replies. The crate does no I/O.
//!
//! ```
//! use openflow::{Kind, Session, Version};
//!
//! let mut session = Session::with_versions(Kind::Service, &[Version::V13]);
//! let mut hello = Vec::new();
//! session.start(&mut hello);
//! assert_eq!(hello[..4], [4, 0, 0, 16]);
//! ```

mod action;
mod any;
mod asynchronous;
mod bundle;
mod check;
mod connection_flush;
mod event_masks;
mod flow_mod;
mod flow_statistics;
mod footprint;
mod forward;
mod group;
mod hello;
mod masked_match;
mod match_entry;
mod message;
mod meter;
mod monitor;
mod multipart;
mod octets;
mod oxm_match;
mod packet;
mod parts;
mod plain_match;
mod port;
mod port_status;
mod queue;
mod refusal_code;
mod reply;
mod session;
mod statistics;
mod table_features;
mod table_mod;
mod version;

pub use any::decode_any;
pub use asynchronous::FlowRemovedReason;
pub use bundle::BundleMemory;
pub use forward::Forward;
pub use monitor::{FlowChange, FlowUpdate};
pub use port_status::{PortChange, PortStatus};
pub use reply::PIECE_RULES;
pub use session::{Kind, ProtocolError, Session};
pub use version::Version;
