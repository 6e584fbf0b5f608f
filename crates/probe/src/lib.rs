//! What the Linux system says about itself, read cheaply.
//!
//! Each module holds one source: a snapshot with `read()`, a pure `parse()` beside it, and
//! `since(&earlier)`, which tells what happened in between. What a kernel does not tell is
//! `None` or [`ProbeError::NotSupported`], never zero. Everything about the network is that of
//! the *calling thread's* namespace.

pub mod clock;
pub mod cpu;
mod error;
mod netlink;
pub mod process;
pub mod tcp;

pub use error::ProbeError;
