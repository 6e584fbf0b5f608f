//! What the Linux system says about itself, read cheaply.
//!
//! Each module holds one source: a snapshot with `read()`, a pure `parse()` beside it, and
//! `since(&earlier)`, which tells what happened in between. What a kernel does not tell is
//! `None` or [`ProbeError::NotSupported`], never zero. Everything about the network is that of
//! the *calling thread's* namespace.

pub mod cgroup;
pub mod clock;
mod core_table;
pub mod cpu;
mod error;
pub mod interface;
pub mod interrupts;
pub mod machine;
mod netlink;
pub mod pressure;
pub mod process;
pub mod qdisc;
pub mod sampler;
pub mod snmp;
pub mod softirqs;
pub mod softnet;
pub mod tcp;

pub use error::ProbeError;
