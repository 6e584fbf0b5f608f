//! Where steps are measured: in namespaces on this machine, or in virtual time.

mod job;
pub(crate) mod machine;
pub(crate) mod simulator;

pub(crate) use job::{Bench, Job};

use crate::LabError;
use crate::file::{LabFile, WorkloadKind};
use host::Privilege;
use machine::Machine;
use simulator::Simulator;
use std::path::PathBuf;

/// The world that a lab runs in.
#[derive(Debug, Clone)]
pub enum Executor {
    /// Network namespaces and the machine's own clock, one step at a time.
    Machine {
        privilege: Privilege,
        /// Path of `weir` itself, which generates the traffic.
        weir: PathBuf,
    },
    /// The simulator, with this many steps in parallel.
    Simulator { threads: usize },
}

impl Executor {
    /// Prepares the executor for `lab`, or returns the reason why it cannot run that lab.
    pub(crate) fn bench<'a>(&'a self, lab: &'a LabFile) -> Result<Box<dyn Bench + 'a>, LabError> {
        let refuse =
            |message: String| Err(LabError::File(lab.source.error(lab.workload.span(), message)));
        let name = lab.asked_for();
        if let (Self::Machine { .. }, Some((key, place))) = (self, lab.only_in_virtual_time()) {
            let message = format!("`{key}` exists only in virtual time: weir sim run {name}");
            return Err(LabError::File(lab.source.error(place, message)));
        }
        if let (Self::Machine { .. }, Some(system)) = (self, lab.first_tunnel()) {
            let message = format!(
                "`kind = \"tunnel\"` exists only in virtual time: weir sim run {name}; or make `{}` a system of \
                 `kind = \"external\"` that runs weir tunnel, as quic-tun has one",
                system.get_ref()
            );
            return Err(LabError::File(lab.source.error(system.span(), message)));
        }
        match (self, lab.workload.get_ref().kind) {
            (Self::Machine { .. }, WorkloadKind::Validate) => {
                refuse(format!("this workload exists only in virtual time: weir sim run {name}"))
            }
            (Self::Simulator { .. }, WorkloadKind::Download) => {
                refuse(format!("a web server cannot run in virtual time: weir lab run {name}"))
            }
            (Self::Simulator { .. }, WorkloadKind::Messages | WorkloadKind::Crowd) => {
                refuse(format!("this workload runs only on a machine: weir lab run {name}"))
            }
            (Self::Simulator { .. }, WorkloadKind::LinkAccuracy) => refuse(format!(
                "the emulated link is judged by the machine's clock, and virtual time has none: \
                 weir lab run {name}"
            )),
            (Self::Machine { privilege, weir }, _) => {
                Ok(Box::new(Machine::new(lab, *privilege, weir)?))
            }
            (Self::Simulator { threads }, _) => Ok(Box::new(Simulator::new(lab, *threads)?)),
        }
    }
}
