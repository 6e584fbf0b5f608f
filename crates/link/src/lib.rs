//! One direction of a link over logical time, without I/O, a clock or threads.
//!
//! A simulator drives [`Link`] with virtual time, and an emulator drives it with real packets. The
//! simulator and the emulator get the same decisions. A packet passes through these stages:
//!
//! 1. **arrival**: the [queue](QueueConfig) takes the packet or drops it;
//! 2. **serialisation** at the [rate](Capacity): `start = max(free, arrival)`,
//!    `free = start + bits / rate`, so that a caller's lateness never adds up;
//! 3. **departure**, at its logical time: [loss](Loss), corruption, duplication. A lost packet has
//!    used its share of the rate, as on a real medium;
//! 4. **propagation**: delay, [jitter](Jitter), [reordering](Reorder);
//! 5. **delivery**, in the order of delivery times.
//!
//! The time of a call does not matter: each arrival carries its own time, and the link makes every
//! decision at the logical time of its event.

#![warn(missing_docs)]

mod capacity;
mod config;
mod error;
mod flight;
mod histogram;
mod jitter;
mod link;
mod loss;
mod overhead;
mod packet;
mod queue;
mod random;
mod reorder;
mod settings;
mod stats;
mod text;
mod trace;

pub use capacity::Capacity;
pub use config::LinkConfig;
pub use error::{LinkError, TraceError};
pub use histogram::{Occupancy, Sojourns};
pub use jitter::{Jitter, JitterShape};
pub use link::{Delivery, Link};
pub use loss::{GilbertElliott, Loss, LossTrace};
pub use overhead::Overhead;
pub use packet::Packet;
pub use queue::*;
pub use random::{Stream, mix};
pub use reorder::Reorder;
pub use settings::{SettingError, Settings};
pub use stats::{Balance, Count, Drops, LinkStats};
pub use trace::Trace;
