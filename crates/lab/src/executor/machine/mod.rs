//! This machine: network namespaces and its own clock, one step at a time.

mod algorithm;
mod bench;
mod caller;
mod carried_by;
mod changed;
mod cpu_limit;
mod kept;
pub(crate) mod links;
mod listener;
mod loaded;
mod pair;
mod preflight;
mod profiling;
mod program;
mod state;
mod step;
mod stream;
mod testbed;
mod thief;
mod tunnel_keys;
pub(crate) mod validity;
mod watch;

pub(crate) use bench::Machine;
pub(crate) use caller::Caller;
pub(crate) use kept::Kept;
pub(crate) use listener::Listener;
pub(crate) use loaded::Loaded;
pub(crate) use pair::{Pair, await_listener, is_installed, missing_programs};
pub(crate) use preflight::{missing_right, problem_of};
pub(crate) use profiling::{Profiling, cost as cost_of_profile};
pub(crate) use program::Started;
pub(crate) use step::{MachineStep, Measured, PORT, SeenLinks};
pub(crate) use stream::Stream;
pub(crate) use testbed::{CpuPlan, Testbed};
pub(crate) use watch::{Roles, Watch};
