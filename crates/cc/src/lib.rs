//! Congestion control: the interface between a host and an algorithm.
//!
//! The contract ([`Ack`], [`Loss`], [`CongestionControl`]) is the same for every host. The
//! simulator and the tunnel call an algorithm directly; the kernel runs the same C core. An
//! algorithm is one file of this crate and one line in [`Algorithm`].
//!
//! An algorithm decides how many bytes may be in flight and at what rate they leave, and never
//! sends. The host detects losses, sends, and paces, and never decides a rate. Time is an argument,
//! and every size is in bytes.

#![warn(missing_docs)]

mod algorithm;
mod bbr;
mod bbr3;
pub mod caqm;
mod contract;
mod core;
mod cubic;
mod dctcp;
mod gain;
mod hystart;
mod reno;
mod round;
mod tcpa;
mod windowed_max;

#[cfg(test)]
mod tests;

pub use algorithm::{Algorithm, UnknownAlgorithm};
pub use bbr::Bbr;
pub use bbr3::Bbr3;
pub use contract::{Ack, CongestionControl, Loss, Memory, Path, Reduction};
pub use cubic::Cubic;
pub use dctcp::Dctcp;
pub use reno::Reno;
pub use tcpa::{Tcpa, TcpaSettings};
