//! Virtual time: worlds of the simulator, built from the same lab files.

mod bench;
pub(crate) mod carrier;
mod shared;

pub(crate) use bench::{Simulator, SimulatorStep, packet_time};
pub(crate) use carrier::Way;
pub(crate) use shared::Shared;
