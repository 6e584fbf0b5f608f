//! An OpenFlow switch in Open vSwitch's language: ports, packet threads and control sockets around
//! the crates that hold its rules and forward its packets.
//!
//! The crate is for the command `weir switch`. Begin with [`run::Config`], the settings of a
//! switch, and [`run::run`], a switch from its start to its end.
//!
//! | crate below | for |
//! | --- | --- |
//! | [`flow`] | fields, keys, matches, actions, requests, steps of the datapath |
//! | [`text`] | rules as ovs-ofctl writes them |
//! | [`openflow`] | the protocol's messages, 1.0 to 1.5, and a connection's state |
//! | [`pipeline`] | tables, groups, meters, MAC learning; a packet's way through them |
//! | [`ovsdb`] | the database of Open vSwitch: sessions, rows, the switch that rows describe |
//! | [`datapath`] | the cache of megaflows, connection tracking, changes of packets |
//!
//! The crates below are pure: no I/O, no clock, and randomness only from a seed.
//!
//! ```
//! use switch::run::parse_cpu_mask;
//!
//! assert_eq!(parse_cpu_mask("0x6").unwrap(), [1, 2]);
//! ```

pub mod run;
