//! Debian's ovs-ofctl against the OpenFlow session, with a bridge that only remembers.

#![allow(clippy::unwrap_used)]

#[path = "openflow/bridge.rs"]
mod bridge;
#[path = "openflow/corpus.rs"]
mod corpus;
#[path = "openflow/monitors.rs"]
mod monitors;
#[path = "openflow/pieces.rs"]
mod pieces;
#[path = "openflow/server.rs"]
mod server;
#[path = "openflow/verbs.rs"]
mod verbs;
