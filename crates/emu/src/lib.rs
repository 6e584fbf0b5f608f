//! The real-time link: the model of the `link` crate over real packets and the real clock.
//!
//! An [`Emulator`] is one thread that serves any number of [`Cable`]s. The emulator receives frames
//! from a cable's ports with the kernel's arrival times, lets the model decide on drops and
//! departure times, and sends each frame to the other port when it is due. The thread sleeps until
//! shortly before the next deadline and spins for the rest. The thread records its own lateness,
//! which never enters the model: departures follow from the arrival times, not from the time of the
//! poll.
//!
//! `weir link up` makes a [`RunningLink`] from [`LinkOptions`]: two existing or created
//! [`Endpoint`]s, one cable, and a [`control::Server`] through which other commands show and change
//! the link.

mod access;
mod cable;
pub mod clock;
pub mod control;
mod cpu_yield;
mod emulator;
mod endpoint;
mod ends;
mod engine;
mod error;
mod frame;
mod lateness;
mod options;
mod pause;
mod readout;
mod report;
mod running;
mod settings;
mod stalls;
mod statistics;
pub mod tags;
mod trace;
mod usage;

pub use access::Access;
pub use cable::{Cable, Direction};
pub use emulator::{Emulator, Handle, Scheduling};
pub use endpoint::{Endpoint, EndpointKind};
pub use ends::{open_own_port, open_port};
pub use error::EmuError;
pub use lateness::Lateness;
pub use link::{QueueConfig, Settings};
pub use options::LinkOptions;
pub use readout::{cost, live, table};
pub use report::{DirectionReport, LatenessSummary, LinkReport};
pub use running::{Inspector, LinkPlan, RunningLink};
pub use settings::set_pair;
pub use stalls::Stalls;
pub use statistics::{CableStatistics, DirectionStatistics, EmulatorStatistics, Frames, Quantiles};
pub use trace::{QueueTrace, TracePoint};
pub use usage::UsageError;
