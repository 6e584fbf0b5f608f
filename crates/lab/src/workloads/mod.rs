//! The workloads, and the reading of lab files, whose keys depend on their workload.
//!
//! Each workload is a folder here: its keys in a lab file, their parsing and checks, and how it
//! runs on a machine and in the simulator. [`WORKLOADS`] has one line for each workload.

mod benchmark;
mod between;
pub mod builtin;
mod bulk;
mod check;
mod command;
mod commands;
mod conntrack;
mod crowd;
mod diagnose;
mod download;
#[cfg(test)]
mod dummy;
mod flow_rules;
mod flows;
mod link_accuracy;
mod messages;
mod read;
mod robustness;
mod switches;
#[cfg(test)]
mod tests;
mod tunnelled;
mod validate;
mod web;

pub(crate) use bulk::measure as measure_bulk;
pub use commands::CommandLine;
pub use diagnose::load;

pub(crate) use crate::bench::workload::{CellWorkload, HostSetup, SystemKey, Workload};

/// The registry of workloads. Messages list the workloads in this order.
pub(crate) const WORKLOADS: &[&dyn Workload] = &[
    &bulk::Bulk,
    &link_accuracy::LinkAccuracy,
    &download::Download,
    &messages::Messages,
    &crowd::Crowd,
    &tunnelled::Tunnelled,
    &flows::Flows,
    &validate::Validate,
    &diagnose::Diagnose,
    &flow_rules::FlowRules,
    &conntrack::Tracking,
    &benchmark::Benchmark,
    &benchmark::Latency,
    &benchmark::Bandwidth,
    &web::Web,
    &robustness::Robustness,
    &command::Commands,
    #[cfg(test)]
    &dummy::Dummy,
];
