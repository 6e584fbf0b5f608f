//! Lets the switch take the place of ovs-vswitchd: the settings come from an Open vSwitch database.
//!
//! The crate `ovsdb` parses the rows. `settings` derives the switch's settings from the rows,
//! `status` computes the columns that the switch writes, and `thread` does the I/O.

mod machine;
mod settings;
mod status;
mod thread;

pub(super) use self::thread::OvsdbThread;
