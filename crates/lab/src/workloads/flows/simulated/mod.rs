//! Flows in virtual time. `scene` describes a cell, `network` the topology and its routes, and
//! `world` the simulation made of cell and topology.

mod completion;
mod convergence;
mod curves;
mod memory;
mod metrics;
mod network;
mod scene;
mod world;

pub(crate) use world::simulate;
