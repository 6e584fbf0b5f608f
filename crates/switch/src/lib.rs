//! An OpenFlow switch with the commands and formats of Open vSwitch: ports, packet threads and
//! control sockets around the crates that hold its rules and forward its packets.
//!
//! The crate implements the command `weir switch`. Begin with [`run::Config`], the settings of a
//! switch, and [`run::run`], which runs a switch from start to end.
//!
//! | crate below | for |
//! | --- | --- |
//! | [`flow`] | fields, keys, matches, actions, requests, datapath steps |
//! | [`text`] | rules in the syntax of ovs-ofctl |
//! | [`openflow`] | the protocol's messages, 1.0 to 1.5, and a connection's state |
//! | [`pipeline`] | tables, groups, meters, MAC learning; the translation of packets |
//! | [`ovsdb`] | Open vSwitch's database: sessions, rows, and the switch that the rows describe |
//! | [`datapath`] | the megaflow cache, connection tracking, changes of packets |
//!
//! The crates in this table do no I/O, read no clock, and take randomness only from a seed.
//!
//! ```
//! use switch::run::parse_cpu_mask;
//!
//! assert_eq!(parse_cpu_mask("0x6").unwrap(), [1, 2]);
//! ```

pub mod run;
