//! A file for each verb. A file has the verb's arguments, and the call into the crate that does the
//! work.

pub(crate) mod ab;
pub(crate) mod accel;
pub(crate) mod agent;
pub(crate) mod ci;
pub(crate) mod doctor;
pub(crate) mod r#gen;
pub(crate) mod lab;
pub(crate) mod link;
pub(crate) mod perf;
pub(crate) mod sim;
pub(crate) mod suite;
pub(crate) mod switch;
pub(crate) mod tunnel;
