//! One run step on this machine: its parameters, and its measurement.

use super::algorithm::OurAlgorithm;
use super::links;
use super::{CpuPlan, Testbed};
use crate::file::{LabFile, SystemSpec, WorkloadKind, WorkloadSettings};
use crate::run::Measurement;
use crate::workload::{bulk, crowd, download, flows, link_accuracy, messages};
use crate::{Cancel, Failure};
use emu::EmulatorStatistics;
use results::{Axes, Form};
use units::{Span, Time};

/// The parameters of one step.
#[derive(Debug)]
pub(crate) struct MachineStep<'a> {
    pub lab: &'a LabFile,
    pub system: &'a SystemSpec,
    pub axes: &'a Axes,
    pub ends: &'a WorkloadSettings,
    pub form: Form,
    pub duration: Span,
    pub omit: Span,
    pub seed: u64,
    pub cpus: &'a CpuPlan,
    /// Path of `weir` itself, which also generates traffic.
    pub weir: &'a std::path::Path,
    /// Folder for the programs' temporary files.
    pub programs: &'a std::path::Path,
    pub cancel: &'a Cancel,
}

impl MachineStep<'_> {
    /// Builds the cell's network, measures, and takes the network down. Meanwhile Weir's own
    /// algorithm is loaded in the kernel if the system uses it.
    pub(crate) fn measure(&self) -> Result<Measurement, Failure> {
        let Some(ours) = OurAlgorithm::of(self.system)? else { return self.measure_here() };
        let step = MachineStep { system: &ours.system, ..*self };
        let mut result = step.measure_here()?;
        // Report the lab's name for the algorithm. The read-back name was temporary.
        let asked = self.system.congestion.as_ref().map(|name| name.get_ref().clone());
        result.congestion_control = result.congestion_control.and(asked);
        Ok(result)
    }

    fn measure_here(&self) -> Result<Measurement, Failure> {
        let wrong = |error: crate::FileError| Failure::Workload(error.to_string());
        let mut cables = self.lab.links_at(self.axes).map_err(wrong)?;
        if self.lab.workload.get_ref().kind == WorkloadKind::Download {
            let used = self.lab.download_at(self.axes).map_err(wrong)?;
            cables.retain(|cable| used.ways.iter().any(|way| cable.joins(&used.server, &way.to)));
        }
        let WorkloadSettings { from, to, .. } = self.ends;
        let expected = cables.iter().find(|cable| cable.joins(from, to));
        let back = expected.and_then(|cable| cable.way_from(to)).map(|config| config.delay);
        let expected = expected.and_then(|cable| cable.way_from(from)).cloned();
        let bottleneck = expected.clone().zip(back);
        let testbed = Testbed::build(self.lab, cables, self.seed, self.cpus)?;
        let kind = self.lab.workload.get_ref().kind;
        let measured = match (kind, expected) {
            (WorkloadKind::Bulk, _) => bulk::measure(self, &testbed),
            (WorkloadKind::Download, _) => download::measure(self, &testbed),
            (WorkloadKind::LinkAccuracy, Some(expected)) => {
                link_accuracy::measure(self, &testbed, &expected)
            }
            (WorkloadKind::Flows, _) => flows::measure(self, &testbed),
            (WorkloadKind::Messages, _) => messages::measure(self, &testbed),
            (WorkloadKind::Crowd, _) => crowd::measure(self, &testbed),
            (WorkloadKind::Validate, _) => {
                Err(Failure::Workload("only virtual time has such a workload".to_owned()))
            }
            (WorkloadKind::LinkAccuracy, None) => {
                Err(Failure::Workload("the lab has no link to judge".to_owned()))
            }
        };
        let died = testbed.is_broken();
        let started = testbed.started();
        let seen = testbed.finish();
        match (measured, seen) {
            // If the emulator died, the workload's own error is only a consequence. Return the
            // cause.
            (Err(Failure::Interrupted), _) => Err(Failure::Interrupted),
            (_, Err(cause)) if died => Err(cause),
            (Err(failure), _) => Err(failure),
            (Ok(_), Err(cause)) => Err(cause),
            (Ok(measured), Ok(seen)) => {
                if let Some(seen) = &seen {
                    let mut result = self.with_links(measured, started, seen);
                    if let (WorkloadKind::Flows, Some((link, back))) = (kind, &bottleneck) {
                        flows::account_queue(link, link.delay + *back, &mut result);
                    }
                    return Ok(result);
                }
                Ok(measured.result)
            }
        }
    }

    /// Adds the statistics of the emulated links to the measurement.
    fn with_links(
        &self,
        measured: Windowed,
        started: Time,
        seen: &EmulatorStatistics,
    ) -> Measurement {
        let Windowed { window, mut result, ways } = measured;
        links::account(seen, &mut result);
        let system = self.system.name();
        match ways.is_empty() {
            true => links::account_queue(
                self.ends,
                system,
                self.axes,
                &window,
                started,
                seen,
                &mut result,
            ),
            false => download::account_queues(&ways, started, seen, &mut result),
        }
        result
    }

    /// Runs one transfer over an existing network, which stays up.
    pub(crate) fn transfer(&self, testbed: &Testbed) -> Result<Measurement, Failure> {
        bulk::measure(self, testbed).map(|measured| measured.result)
    }
}

/// A result and the time that it covers.
#[derive(Debug)]
pub(crate) struct Windowed {
    pub(crate) window: std::ops::Range<Time>,
    pub(crate) result: Measurement,
    /// Each of the ways where several were used at once.
    pub(crate) ways: Vec<download::WayUsed>,
}

/// The workload's server listens at iperf3's own port, whichever program generates the traffic.
pub(crate) const PORT: u16 = 5201;
