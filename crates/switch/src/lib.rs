//! An OpenFlow switch in software, driven in Open vSwitch's language.
//!
//! | module | for |
//! | --- | --- |
//! | [`flow`] | the fields of packets, and matches on them |
//! | [`action`] | what rules do |
//! | [`request`] | changes of tables, and what they hold |
//! | [`text`] | rules as ovs-ofctl writes them |
//! | [`openflow`] | the protocol's messages, 1.0 to 1.5, and a connection's state |
//! | [`pipeline`] | tables, groups, meters, MAC learning; a packet's way through them |
//! | [`datapath`] | frames in, frames out: parser, flow cache, connection tracking, actions |
//! | [`run`] | ports, threads, control sockets |
//!
//! All but [`run`] is pure: no I/O, no clock, no randomness but from a seed.

pub mod action;
pub mod datapath;
pub mod flow;
pub mod openflow;
pub mod pipeline;
pub mod port_number;
pub mod request;
pub mod run;
pub mod text;
