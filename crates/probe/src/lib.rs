//! Cheap readings of the statistics that the Linux system provides.
//!
//! | module | source |
//! | --- | --- |
//! | [`cpu`], [`process`] | `/proc/stat`, `/proc/PID/stat` and the process's CPU clock |
//! | [`softirqs`], [`softnet`] | the files of these names |
//! | [`snmp`] | counters of IP, TCP and UDP |
//! | [`interface`], [`qdisc`], [`route`] | rtnetlink |
//! | [`owner`] | the users of sockets, by sock_diag |
//! | [`tcp`] | `TCP_INFO` and sock_diag |
//! | [`cgroup`], [`pressure`] | limits, throttling, stalls |
//! | [`machine`] | the facts a report must name |
//! | [`ethtool`], [`device`], [`cpufreq`] | properties of network devices, their queues and interrupts, and of cores |
//! | [`path`] | the route to an address, neighbours that do not answer |
//! | [`local_addresses`] | the local addresses of another process's network namespace |
//! | [`conntrack`], [`udp`] | the files of these names |
//! | [`profile`] | stacks of all CPUs by perf events |
//! | [`tree`] | the root of `/proc` and `/sys`: this machine's, or a recorded one |
//!
//! A source is read into a snapshot (`read()`, beside a pure `parse()`). `since(&earlier)` returns
//! the difference between two snapshots, where a caller needs the difference:
//!
//! ```
//! use probe::cpu::CpuSnapshot;
//!
//! # fn main() -> Result<(), probe::ProbeError> {
//! let before = CpuSnapshot::read()?;
//! // … what is to be measured …
//! let spent = CpuSnapshot::read()?.since(&before);
//! if let Some((core, shares)) = spent.busiest() {
//!     println!("core {core}: {} busy, {} in softirqs", shares.busy, shares.softirq);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A value that a kernel does not provide is `None` or [`ProbeError::NotSupported`], never zero.
//! All network data is that of the *calling thread's* namespace.

pub mod cgroup;
pub mod clock;
pub mod conntrack;
mod core_table;
pub mod cpu;
pub mod cpufreq;
pub mod device;
mod error;
pub mod ethtool;
pub mod interface;
pub mod local_addresses;
pub mod machine;
mod netlink;
pub mod owner;
pub mod path;
pub mod pressure;
pub mod process;
pub mod profile;
pub mod qdisc;
pub mod route;
pub mod snmp;
pub mod softirqs;
pub mod softnet;
pub mod tcp;
pub mod tree;
pub mod udp;

pub use error::ProbeError;
