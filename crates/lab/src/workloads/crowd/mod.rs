//! Many connections: most of them idle, some at full speed.

mod busy;
mod machine;
mod memory;
mod settings;

use super::{CellWorkload, Workload};
use crate::bench::machine::{MachineStep, Measured, Testbed};
use crate::model::file::{Document, FileError, Key, SystemKind, SystemSpec};
use crate::model::{Failure, Plan};
pub(super) use busy::{Arrivals, Busy};
pub(super) use machine::{LANES, PASSING, TALKING, allow_files, inside, serve, stand};
pub(super) use memory::Memory;
use results::Axes;
pub(crate) use settings::CrowdSettings;
use units::Span;

#[derive(Debug)]
pub(crate) struct Crowd;

impl Crowd {
    pub(super) fn settings(
        &self,
        document: &Document,
        axes: &Axes,
    ) -> Result<CrowdSettings, FileError> {
        let busy = self.ends(document, axes)?.streams;
        CrowdSettings::parse(document, axes, busy)
    }
}

impl Workload for Crowd {
    fn kind(&self) -> &'static str {
        "crowd"
    }

    fn systems(&self) -> &'static [SystemKind] {
        &[SystemKind::Tcp, SystemKind::External]
    }

    fn method(&self) -> Vec<(&'static str, String)> {
        METHOD.iter().map(|(term, text)| (*term, (*text).to_owned())).collect()
    }

    fn at(&self, document: &Document, axes: &Axes) -> Result<Box<dyn CellWorkload>, FileError> {
        Ok(Box::new(self.settings(document, axes)?))
    }

    fn keys(&self) -> &'static [Key] {
        &[IDLE]
    }

    fn refused_by_simulator(&self) -> Option<&'static str> {
        Some("this workload runs only on a machine")
    }

    fn machine_time(
        &self,
        document: &Document,
        _system: &SystemSpec,
        axes: &Axes,
        plan: &Plan,
    ) -> Span {
        let idle = self.settings(document, axes).map_or(0, |settings| settings.idle);
        machine::setting_up(idle) + plan.duration
    }
}

impl CellWorkload for CrowdSettings {
    fn between_machines(&self) -> Result<(), &'static str> {
        Err("the lab itself opens the idle connections; use `command` with a load generator")
    }

    fn measure(&self, step: &MachineStep<'_>, testbed: &Testbed) -> Result<Measured, Failure> {
        machine::measure(*self, step, testbed)
    }
}

/// The key with the number of idle connections.
const IDLE: Key = Key::count("idle");

const METHOD: &[(&str, &str)] = &[
    (
        "new connections",
        "rate of opening the idle connections by 32 threads. Each counts once a byte has reached the far end \
         and come back. One connection is opened beforehand",
    ),
    (
        "memory",
        "the RAM of the program at each end once the idle connections are open and before others send. \
         `each` is its growth over their number, `peak` its maximum. The kernel's own memory for sockets \
         is not included",
    ),
    (
        "goodput and fairness",
        "of the data that arrived at the far end over the busy connections, while the idle ones are open. \
         Jain's index over the connections' shares",
    ),
];
