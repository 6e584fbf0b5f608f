//! The OpenFlow protocol: messages, and the state of a connection.

mod action;
mod match_entry;
mod octets;
mod oxm_match;
mod plain_match;
mod version;

pub use version::Version;
