//! Tests of the OpenFlow session with Debian's ovs-ofctl, and with a bridge that only stores rules.

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
