//! Virtual time: worlds of the simulator, built from the same lab files.

mod bench;
pub(crate) mod carrier;
pub(crate) mod shared;

pub(crate) use bench::Simulator;
