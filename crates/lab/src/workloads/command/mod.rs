//! Any command as a workload: a client that ends by itself, and a server if the client needs one.

mod measure;
mod settings;

use measure::between;
pub(crate) use settings::{CommandSettings, LINES, READY_KEY, Ready};

use super::{CellWorkload, SystemKey, Workload};
use crate::bench::hosts::Turn;
use crate::bench::machine::{MachineStep, Measured, Testbed};
use crate::bench::workload::AROUND_A_TURN;
use crate::model::file::{Document, FileError, Key, SystemKind, SystemSpec};
use crate::model::{Failure, Measurement, Plan};
use results::Axes;
use std::time::Duration;
use units::Span;

#[derive(Debug)]
pub(crate) struct Commands;

impl Workload for Commands {
    fn kind(&self) -> &'static str {
        "command"
    }

    fn systems(&self) -> &'static [SystemKind] {
        &[SystemKind::Tcp]
    }

    fn method(&self) -> Vec<(&'static str, String)> {
        vec![(
            "a repeat",
            "one run of the client's command, from its start to its end; the server is started before and ended \
             after it"
                .to_owned(),
        )]
    }

    fn at(&self, document: &Document, axes: &Axes) -> Result<Box<dyn CellWorkload>, FileError> {
        self.ends(document, axes)?;
        for system in document.systems() {
            CommandSettings::of(document, system, axes)?;
        }
        Ok(Box::new(OneCommand))
    }

    fn keys(&self) -> &'static [Key] {
        &settings::KEYS
    }

    fn system_keys(&self) -> &'static [SystemKey] {
        &[SystemKey::Commands]
    }

    fn machine_time(
        &self,
        _document: &Document,
        _system: &SystemSpec,
        _axes: &Axes,
        plan: &Plan,
    ) -> Span {
        plan.duration
    }

    fn refused_by_simulator(&self) -> Option<&'static str> {
        Some("a command runs by the machine's clock, and virtual time has none")
    }

    fn port_on(&self, document: &Document, host: &str) -> Option<u16> {
        settings::port_on(document, host)
    }

    fn programs_of(&self, document: &Document, system: &SystemSpec) -> Vec<String> {
        settings::programs(document, system)
    }
}

#[derive(Debug)]
struct OneCommand;

impl CellWorkload for OneCommand {
    fn measure(&self, step: &MachineStep<'_>, testbed: &Testbed) -> Result<Measured, Failure> {
        measure::in_testbed(step, testbed)
    }

    fn between_machines(&self) -> Result<(), &'static str> {
        Ok(())
    }

    fn longest_between(&self, turn: &Turn<'_>) -> Result<Duration, Failure> {
        let settings = CommandSettings::of(turn.lab, turn.system, turn.axes);
        let settings = settings.map_err(|error| Failure::Workload(error.to_string()))?;
        // The timeout counts twice: for the server's start and for the client.
        Ok(settings.timeout * 2 + AROUND_A_TURN)
    }

    fn measure_between(&self, turn: &Turn<'_>) -> Result<Measurement, Failure> {
        between(turn)
    }
}
