//! A step on this machine: its parameters, and its measurement.

use super::algorithm::OurAlgorithm;
use super::changed::Changed;
use super::links::{self, Emulation};
use super::state::Applied;
use super::{CpuPlan, Kept, Loaded, Pair, Testbed};
use crate::bench::LabFile;
use crate::bench::workload::SystemKey;
use crate::model::file::{ChangedEnd, Ends, FileError, LinkSettings, SystemSpec};
use crate::model::{Cancel, Failure, Measurement};
use emu::{CableStatistics, EmulatorStatistics};
use link::Capacity;
use results::{Axes, Form};
use std::ops::Range;
use units::{Span, Time};

/// The parameters of one step.
#[derive(Debug)]
pub(crate) struct MachineStep<'a> {
    pub lab: &'a LabFile,
    pub system: &'a SystemSpec,
    pub axes: &'a Axes,
    pub ends: &'a Ends,
    pub form: Form,
    pub duration: Span,
    pub omit: Span,
    pub seed: u64,
    pub cpus: &'a CpuPlan,
    /// Path of `weir` itself, which also generates traffic.
    pub weir: &'a std::path::Path,
    /// Folder for the programs' temporary files.
    pub programs: &'a std::path::Path,
    pub kept: &'a Kept,
    pub loaded: &'a Loaded,
    pub cancel: &'a Cancel,
}

impl MachineStep<'_> {
    /// Builds the cell's network, measures, and takes the network down. Meanwhile Weir's own
    /// algorithm is loaded in the kernel if the system uses it.
    pub(crate) fn measure(&self) -> Result<Measurement, Failure> {
        let Some(ours) = OurAlgorithm::of(self.system)? else { return self.measure_here() };
        let step = MachineStep { system: &ours.system, ..*self };
        let mut result = step.measure_here()?;
        // Report the algorithm's name in the lab file: the name that the kernel reported is
        // temporary.
        let asked = self.system.congestion.as_ref().map(|name| name.get_ref().clone());
        result.congestion_control = result.congestion_control.and(asked);
        Ok(result)
    }

    /// Returns the host that has the state of `[state]`: the server's host if only the server has
    /// the state, otherwise the client's host.
    pub(crate) fn changed_host(&self) -> Result<&str, Failure> {
        let wrong = |error: FileError| Failure::Workload(error.to_string());
        Ok(match self.lab.changed_end(self.axes).map_err(wrong)? {
            ChangedEnd::Server => &self.ends.to,
            ChangedEnd::Client | ChangedEnd::Both => &self.ends.from,
        })
    }

    fn measure_here(&self) -> Result<Measurement, Failure> {
        let wrong = |error: FileError| Failure::Workload(error.to_string());
        let cell = self.lab.kind().at(self.lab, self.axes).map_err(wrong)?;
        let mut links = cell.links(self.lab.links_at(self.axes).map_err(wrong)?);
        fit(self.lab, self.system, self.axes, [&self.ends.from, &self.ends.to], &mut links)?;
        let disturbance = self.lab.disturbance_at(self.axes).map_err(wrong)?;
        let settings = self.lab.settings_at(self.axes, Some(self.system)).map_err(wrong)?;
        let (ends, seed, cpus) = (self.ends, self.seed, self.cpus);
        let testbed = Testbed::build(self.lab, ends, links, &settings, disturbance, seed, cpus)?;
        let state = Applied::apply(self, &testbed)?;
        let changed = Changed::apply(self, &testbed)?;
        let measured = cell.measure(self, &testbed);
        // Undo the changes first: no further step may run with the changes or in this state.
        let undone = changed.undo();
        state.map_or(Ok(()), Applied::undo)?;
        let measured = undone.and(measured);
        let died = testbed.is_broken();
        let (started, bound) = (testbed.started(), testbed.lateness_bound());
        let seen = testbed.finish();
        match (measured, seen) {
            // If the emulator died, the workload's own error is only a consequence. Return the
            // emulator's error.
            (Err(Failure::Interrupted), _) => Err(Failure::Interrupted),
            (_, Err(cause)) if died => Err(cause),
            (Err(failure), _) => Err(failure),
            (Ok(_), Err(cause)) => Err(cause),
            (Ok(measured), Ok(None)) => Ok(measured.result),
            (Ok(measured), Ok(Some(statistics))) => {
                let Measured { mut result, queues } = measured;
                links::account(&Emulation::of(&statistics), &bound, &mut result);
                queues(&SeenLinks { started, statistics: &statistics }, &mut result);
                Ok(result)
            }
        }
    }
}

/// Gives the link between the endpoints the system's own queue, and counts CAQM's tags on the link.
pub(crate) fn fit(
    lab: &LabFile,
    system: &SystemSpec,
    axes: &Axes,
    [from, to]: [&str; 2],
    links: &mut [LinkSettings],
) -> Result<(), Failure> {
    let Some(link) = links.iter_mut().find(|link| link.joins(from, to)) else { return Ok(()) };
    let product = link.product_from(from);
    let own = lab.system_at(axes, system, product);
    let own = own.map_err(|error| Failure::Workload(error.to_string()))?;
    if let Some(queue) = own.queue {
        link.set_queue(from, queue);
    }
    if lab.kind().system_keys().contains(&SystemKey::Caqm) {
        link.tpid = Some(own.caqm.tpid);
    }
    Ok(())
}

/// A measurement of a workload, without the figures of its emulated links.
pub(crate) struct Measured {
    pub(crate) result: Measurement,
    pub(crate) queues: Queues,
}

/// A function that records the queues of the emulated links, called once the emulator has ended.
pub(crate) type Queues = Box<dyn FnOnce(&SeenLinks<'_>, &mut Measurement)>;

/// The statistics of a step's emulated links.
#[derive(Debug)]
pub(crate) struct SeenLinks<'a> {
    /// The start of the emulator's own clock.
    pub(crate) started: Time,
    pub(crate) statistics: &'a EmulatorStatistics,
}

impl SeenLinks<'_> {
    /// Returns the statistics of the link between two hosts.
    pub(crate) fn way(&self, from: &str, to: &str) -> Option<&CableStatistics> {
        links::cable(self.statistics, from, to)
    }

    /// Records the use of an incast's port and of the links in front of the port.
    pub(crate) fn account_port(
        &self,
        cable: &CableStatistics,
        window: &Range<Time>,
        rates: [&Capacity; 2],
        result: &mut Measurement,
    ) {
        links::account_port(cable, window, self.started, rates, result);
    }
}

impl Measured {
    /// Records the queue of the link between the step's endpoints during `window`.
    pub(crate) fn between_ends(
        step: &MachineStep<'_>,
        window: Range<Time>,
        result: Measurement,
    ) -> Self {
        let (ends, axes) = (step.ends.clone(), step.axes.clone());
        let system = step.system.name().to_owned();
        let queues = move |seen: &SeenLinks<'_>, result: &mut Measurement| {
            let SeenLinks { started, statistics } = seen;
            links::account_queue(&ends, &system, &axes, &window, *started, statistics, result);
        };
        Self { result, queues: Box::new(queues) }
    }

    /// Replaces the algorithm of the workload's own connection: a pair of programs carries that
    /// connection over the path with another algorithm.
    pub(crate) fn carried_by(mut self, pair: Option<&Pair>) -> Self {
        if let Some(pair) = pair {
            let own = self.result.congestion_control.take();
            self.result.congestion_control = pair.algorithm(own);
        }
        self
    }
}

impl std::fmt::Debug for Measured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Measured").field("result", &self.result).finish_non_exhaustive()
    }
}

/// The port of the workload's server: iperf3's own port, whichever program generates the traffic.
pub(crate) const PORT: u16 = 5201;
