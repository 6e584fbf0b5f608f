//! The benches, which measure steps in namespaces on this machine, between real machines, or in
//! virtual time.
//!
//! An [`Executor`] prepares a [`Bench`] for a [`LabFile`], and the bench measures one [`Job`] after
//! another. [`workload`] is the interface to the workloads.

mod agreement;
pub(crate) mod environment;
pub mod go_build;
pub mod hosts;
mod job;
pub(crate) mod lab_file;
pub(crate) mod machine;
pub(crate) mod programs;
pub(crate) mod simulator;
pub(crate) mod workload;

pub(crate) use job::{Bench, Job};
pub use lab_file::LabFile;

use crate::model::{Cancel, LabError};
use host::Privilege;
use hosts::RealHosts;
use machine::Machine;
use simulator::Simulator;
use std::path::PathBuf;

/// The world in which a lab runs: this machine, real machines or the simulator.
#[derive(Debug, Clone)]
pub enum Executor {
    /// Network namespaces of this machine, in real time, one step at a time.
    Machine {
        privilege: Privilege,
        /// Path of `weir` itself, which generates the traffic.
        weir: PathBuf,
        /// Whether to sample the stacks of the whole machine.
        profile: bool,
    },
    /// The real machines that the lab file names, one step at a time.
    Hosts {
        /// Path of `weir` itself, which is copied to the machines.
        weir: PathBuf,
        /// The cancellation that ends the wait for the connection to a host.
        cancel: Cancel,
    },
    /// The simulator, with `threads` steps in parallel.
    Simulator { threads: usize },
}

impl Executor {
    /// Prepares the executor for `lab`. The error is the reason why the executor cannot run the
    /// lab.
    pub(crate) fn bench<'a>(&'a self, lab: &'a LabFile) -> Result<Box<dyn Bench + 'a>, LabError> {
        let refuse =
            |message: String| Err(LabError::File(lab.source.error(lab.workload.span(), message)));
        let name = lab.asked_for();
        let workload = lab.kind();
        let only_simulated = || {
            let of_link = lab.link_only_in_virtual_time();
            let own = || workload.only_simulated(lab);
            of_link.or_else(|| own().map(|(key, place)| (key.to_owned(), place)))
        };
        let by_clock = !matches!(self, Self::Simulator { .. });
        if let (true, Some((key, place))) = (by_clock, only_simulated()) {
            let message = format!("`{key}` exists only in virtual time: weir sim run {name}");
            return Err(LabError::File(lab.source.error(place, message)));
        }
        if let (true, Some(system)) = (by_clock, lab.first_tunnel()) {
            let message = format!(
                "`kind = \"tunnel\"` exists only in virtual time: weir sim run {name}; or make `{}` a system of \
                 `kind = \"external\"` that runs weir tunnel, as quic-tun has one",
                system.get_ref()
            );
            return Err(LabError::File(lab.source.error(system.span(), message)));
        }
        if let (false, Some(disturbance)) = (by_clock, &lab.disturbance) {
            let message = format!(
                "`[disturbance]` delays the emulator and takes CPU time away, and virtual time has neither: remove the \
                 table, or run weir lab run {name}"
            );
            return Err(LabError::File(lab.source.error(disturbance.span(), message)));
        }
        match self {
            Self::Machine { privilege, weir, profile } => match workload.refused_by_machine() {
                Some(reason) => refuse(format!("{reason}: weir sim run {name}")),
                None => Ok(Box::new(Machine::new(lab, *privilege, weir, *profile)?)),
            },
            Self::Hosts { weir, cancel } => match workload.refused_by_machine() {
                Some(reason) => refuse(format!("{reason}: weir sim run {name}")),
                None => Ok(Box::new(RealHosts::new(lab, weir, cancel)?)),
            },
            Self::Simulator { threads } => match workload.refused_by_simulator() {
                Some(reason) => refuse(format!("{reason}: weir lab run {name}")),
                None => Ok(Box::new(Simulator::new(lab, *threads)?)),
            },
        }
    }
}
