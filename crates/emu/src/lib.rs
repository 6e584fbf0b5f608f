//! The real-time link: the model of the `link` crate over real packets and the real clock.
//!
//! An [`Emulator`] is one thread that serves any number of [`Cable`]s. It takes frames from a cable's
//! ports with the kernel's arrival times, lets the model decide what happens to them and when, and
//! hands each to the other port when its time has come. It sleeps until shortly before the next
//! deadline and spins the rest, records how late it was, and never lets its own lateness into the
//! model: departures follow the arrival times, not the moment the thread looked.

mod cable;
pub mod clock;
mod emulator;
mod engine;
mod error;
mod frame;
mod lateness;
mod statistics;
mod trace;

pub use cable::{Cable, Direction};
pub use emulator::{Emulator, Scheduling};
pub use error::EmuError;
pub use lateness::Lateness;
pub use statistics::{CableStatistics, DirectionStatistics, EmulatorStatistics, Quantiles};
pub use trace::{QueueTrace, TracePoint};
