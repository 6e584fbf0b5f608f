//! The real-time link: the model of the `link` crate over real packets and the real clock.
//!
//! An [`Emulator`] is one thread that serves any number of [`Cable`]s. It takes frames from a cable's
//! ports with the kernel's arrival times, lets the model decide what happens to them and when, and
//! hands each to the other port when its time has come. It sleeps until shortly before the next
//! deadline and spins the rest, records how late it was, and never lets its own lateness into the
//! model: departures follow the arrival times, not the moment the thread looked.
//!
//! On top of it, a [`RunningLink`] is what `weir link up` makes of [`LinkOptions`]: two
//! [`Endpoint`]s attached to or made, one cable, and a [`control::Server`] through which other
//! commands look at it and change it.

mod breath;
mod cable;
pub mod clock;
pub mod control;
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
mod statistics;
pub mod tags;
mod trace;
mod usage;

pub use cable::{Cable, Direction};
pub use emulator::{Emulator, Handle, Scheduling};
pub use endpoint::{Endpoint, EndpointKind};
pub use ends::{open_own_port, open_port};
pub use error::EmuError;
pub use lateness::Lateness;
pub use options::LinkOptions;
pub use readout::{live, table};
pub use report::{DirectionReport, LatenessSummary, LinkReport};
pub use running::{Inspector, LinkPlan, RunningLink};
pub use settings::Settings;
pub use statistics::{CableStatistics, DirectionStatistics, EmulatorStatistics, Frames, Quantiles};
pub use trace::{QueueTrace, TracePoint};
pub use usage::UsageError;
