//! The switch in place of ovs-vswitchd: an Open vSwitch database holds its settings.
//!
//! The crate `ovsdb` parses the rows. `settings` derives the switch's settings from the rows,
//! `status` makes the columns that the switch writes, and `thread` does the I/O.

mod machine;
mod settings;
mod status;
mod thread;

pub(super) use self::thread::OvsdbThread;
