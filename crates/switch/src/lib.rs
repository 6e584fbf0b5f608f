//! An OpenFlow switch: rules in Open vSwitch's language, and a datapath that forwards packets by
//! them.
//!
//! | module | for |
//! | --- | --- |
//! | [`text`] | rules as ovs-ofctl writes them |
//! | [`openflow`] | the protocol's messages, 1.0 to 1.5, and a connection's state |
//! | [`pipeline`] | tables, groups, meters, MAC learning; a packet's way through them |
//! | [`datapath`] | the steps into which the pipeline translates a packet's way |
//! | [`run`] | ports, settings, the control protocol of ovs-appctl |
//!
//! Fields, matches, actions and requests are in the crate `flow`.
//!
//! All but [`run`] is pure: no I/O, no clock, no randomness but from a seed. Begin with
//! [`datapath`] for a packet's way, and with [`run`] for the program.

pub mod datapath;
pub mod pipeline;
pub mod run;
