//! The switch in ovs-vswitchd's place: a database of Open vSwitch holds the switch's settings.
//!
//! The crate `ovsdb` reads the rows. `settings` makes the switch's settings from the rows, `status`
//! makes the columns that are written back, and `thread` moves the bytes.

mod machine;
mod settings;
mod status;
mod thread;

pub(super) use self::thread::OvsdbThread;
