//! Where turns are measured: in namespaces on this machine, or in virtual time.

use crate::LabError;
use crate::bench::Bench;
use crate::file::{LabFile, WorkloadKind};
use crate::namespaces::Namespaces;
use crate::virtual_time::Simulator;
use host::Privilege;
use std::path::PathBuf;

/// The world that a lab runs in.
#[derive(Debug, Clone)]
pub enum Executor {
    /// Network namespaces and the machine's own clock, one turn at a time.
    Namespaces {
        privilege: Privilege,
        /// Path of `weir` itself, which generates the traffic.
        weir: PathBuf,
    },
    /// The simulator, with this many turns in parallel.
    VirtualTime { threads: usize },
}

impl Executor {
    /// Prepares the executor for `lab`, or returns the reason why it cannot run that lab.
    pub(crate) fn bench<'a>(&'a self, lab: &'a LabFile) -> Result<Box<dyn Bench + 'a>, LabError> {
        let refuse =
            |message: String| Err(LabError::File(lab.source.error(lab.workload.span(), message)));
        let name = lab.asked_for();
        if let (Self::Namespaces { .. }, Some((key, place))) = (self, lab.only_in_virtual_time()) {
            let message = format!("`{key}` exists only in virtual time: weir sim run {name}");
            return Err(LabError::File(lab.source.error(place, message)));
        }
        if let (Self::Namespaces { .. }, Some(system)) = (self, lab.first_tunnel()) {
            let message = format!(
                "`kind = \"tunnel\"` exists only in virtual time: weir sim run {name}; or make `{}` a system of \
                 `kind = \"external\"` that runs weir tunnel, as quic-tun has one",
                system.get_ref()
            );
            return Err(LabError::File(lab.source.error(system.span(), message)));
        }
        match (self, lab.workload.get_ref().kind) {
            (Self::Namespaces { .. }, WorkloadKind::Validate) => {
                refuse(format!("this workload exists only in virtual time: weir sim run {name}"))
            }
            (Self::VirtualTime { .. }, WorkloadKind::Download) => {
                refuse(format!("a web server cannot run in virtual time: weir lab run {name}"))
            }
            (Self::VirtualTime { .. }, WorkloadKind::Messages | WorkloadKind::Crowd) => {
                refuse(format!("this workload runs only on a machine: weir lab run {name}"))
            }
            (Self::VirtualTime { .. }, WorkloadKind::LinkAccuracy) => refuse(format!(
                "the emulated link is judged by the machine's clock, and virtual time has none: \
                 weir lab run {name}"
            )),
            (Self::Namespaces { privilege, weir }, _) => {
                Ok(Box::new(Namespaces::new(lab, *privilege, weir)?))
            }
            (Self::VirtualTime { threads }, _) => Ok(Box::new(Simulator::new(lab, *threads)?)),
        }
    }
}
