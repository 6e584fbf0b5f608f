//! Weir's congestion control in an unchanged Linux kernel: the C cores of `cc`, compiled to BPF.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`kernel`] | the abilities of this kernel, before Weir changes anything |
//! | [`object`] | loads compiled programs into the kernel |
//! | [`algorithm`], [`KernelAlgorithm`] | `tcpa`, and the kernel's own congestion controls |
//! | [`rules`], [`cgroup`] | selects the connections that get an algorithm, and their tunables |
//! | [`policy`], [`policy_file`], [`system`] | all rules and system settings, and their file |
//! | [`switches`], [`names`] | switches of the kernel's TCP, and the names of all tunables |
//! | [`pins`], [`installation`] | objects that outlive the command; switches tcpa on and off |
//! | [`open`], [`namespaces`] | connections that are already open, in all network namespaces |
//! | [`status`], [`core_view`] | the installation, its connections, and the core's estimates |
//! | [`memory`] | the estimates that ended connections left |
//! | [`drops`] | counts the packets that the kernel drops, by its reasons |
//! | [`caqm`] | another algorithm: both ends agree and send requests to the ports on the path |

pub mod algorithm;
pub mod caqm;
pub mod cgroup;
pub mod core_view;
mod counters;
mod display;
pub mod drops;
mod error;
mod file_bytes;
pub mod installation;
mod iterator;
pub mod kernel;
mod kernel_algorithm;
pub mod memory;
mod modules;
mod mounts;
pub mod names;
pub mod namespaces;
pub mod object;
pub mod open;
pub mod pins;
pub mod policy;
pub mod policy_file;
mod prefix;
pub mod rules;
pub mod status;
pub mod switches;
pub mod system;
mod table;
mod types;
mod work;

pub use error::AccelError;
pub use kernel_algorithm::KernelAlgorithm;
pub use modules::{Counter, Module};
pub use policy::Policy;
pub use policy_file::PolicyFile;
pub use prefix::Prefix;
pub use rules::{Rule, Tunables};
pub use status::Status;
pub use work::Work;
