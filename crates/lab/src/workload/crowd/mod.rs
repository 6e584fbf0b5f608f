mod busy;
mod machine;
mod memory;

pub(crate) use machine::{measure, setting_up};
