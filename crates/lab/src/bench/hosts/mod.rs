//! Programs and settings on the hosts of a lab, whether a host is a namespace or another machine.
//!
//! A workload uses each host through `LabHost`. A `LocalHost` is a namespace of this machine,
//! or the machine that an agent runs on. A remote host passes each call through a channel to an
//! agent.

mod agent;
mod bench;
mod capture;
mod channel;
mod inventory;
mod local;
mod message;
mod middle;
mod preflight;
mod remote;
mod seam;
mod session;
mod ssh;
mod state;
mod sweep;
mod turn;
mod two_ends;

pub use agent::serve;
pub(crate) use bench::{RealHosts, check_between_machines};
pub(crate) use local::LocalHost;
pub use message::{read_answers, read_asks};
pub use preflight::{Checked, check, clean, clean_machines};
pub(crate) use seam::{Captured, Change, End, LabHost, Order, Stream, Task, last_words};
pub use session::{guard, tidy};
pub use sweep::{Machine, Sweep, SweepProgress, machines, sweep};
pub(crate) use turn::Turn;
pub use two_ends::TwoEnds;
