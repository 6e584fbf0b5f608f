//! Congestion control of ours in an unchanged Linux kernel: the C cores of `cc`, compiled to BPF.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`kernel`] | what this kernel can, before anything is tried |
//! | [`object`] | compiled programs into the kernel |
//! | [`algorithm`] | `tcpa` among the kernel's congestion controls |
//! | [`rules`], [`cgroup`] | which connections get it, and how it works on them |
//! | [`policy`], [`policy_file`], [`system`] | all of that, and in a file; settings of the whole system |
//! | [`pins`], [`installation`] | what stays when the command has ended; on, off, and in force |
//! | [`open`], [`namespaces`] | connections that are open already, wherever they are |
//! | [`status`], [`core_view`] | what is installed, how its connections fare, and what the core believes of their paths |
//! | [`memory`] | what ended connections knew of their paths |
//! | [`caqm`] | another algorithm, whose ends agree and ask the ports on the way |

pub mod algorithm;
pub mod caqm;
pub mod cgroup;
pub mod core_view;
mod error;
pub mod installation;
mod iterator;
pub mod kernel;
pub mod memory;
pub mod namespaces;
pub mod object;
pub mod open;
pub mod pins;
pub mod policy;
pub mod policy_file;
mod prefix;
pub mod rules;
pub mod status;
pub mod system;
mod table;
mod tell;

pub use error::AccelError;
pub use policy::Policy;
pub use policy_file::PolicyFile;
pub use prefix::Prefix;
pub use rules::{Rule, Tunables};
pub use status::Status;
