//! CPU time of processes and threads.
//!
//! `/proc/PID/stat` separates user from system time but counts in ticks of 10 ms. The process's CPU
//! clock (`clock_getcpuclockid`(3)) and a thread's `schedstat` count nanoseconds of the sum.
//! [`CpuTime`] has the separate times and the sum.

mod holders;
mod ksoftirqd;
mod memory;
mod pinned;
mod pipeline;
mod set;
mod stat;
mod task;
mod thread;

pub use holders::Holders;
pub use ksoftirqd::{KsoftirqdSnapshot, KsoftirqdUse};
pub use memory::Resident;
pub use pinned::pinned;
pub use pipeline::pipelines;
pub use set::{ProcessUse, Processes, ProcessesUse};
pub(crate) use stat::ended;
pub use stat::{CpuTime, Process};
pub use task::Task;
pub use thread::{Thread, ThreadUse};
