//! TCP transfers at full speed.

mod arrived;
mod machine;
mod programs;
mod real;
mod sample;
#[cfg(test)]
mod tests;
mod transfer;

pub(crate) use machine::{Route, measure, measure_over};

use super::flows::{self, FlowsCell};
use super::{CellWorkload, SystemKey, Workload};
use crate::bench::hosts::Turn;
use crate::bench::machine::{MachineStep, Measured, Testbed};
use crate::bench::simulator::SimulatorStep;
use crate::model::file::{Document, FileError, SystemKind, TO, VIA, axes};
use crate::model::{Failure, Measurement};
use link::Capacity;
use results::Axes;

#[derive(Debug)]
pub(crate) struct Bulk;

impl Workload for Bulk {
    fn kind(&self) -> &'static str {
        "bulk"
    }

    fn systems(&self) -> &'static [SystemKind] {
        &[SystemKind::Tcp, SystemKind::External, SystemKind::Tunnel]
    }

    fn method(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    fn at(&self, document: &Document, axes: &Axes) -> Result<Box<dyn CellWorkload>, FileError> {
        let ends = self.ends(document, axes)?;
        Ok(Box::new(Transfers(FlowsCell::of_streams(document, axes, &ends)?)))
    }

    fn system_keys(&self) -> &'static [SystemKey] {
        &[SystemKey::Traffic]
    }

    /// Refuses a lab without a rate limit, because a flow's rate would grow without end.
    fn check_simulated(&self, document: &Document) -> Result<(), FileError> {
        for axes in axes::all_places(document) {
            let ends = self.ends(document, &axes)?;
            let links = document.links_at(&axes)?;
            let link = links.iter().find(|link| link.joins(&ends.from, &ends.to));
            let limited = link
                .and_then(|link| link.way_from(&ends.from))
                .is_some_and(|config| config.rate != Capacity::Unlimited);
            if !limited {
                let message = "a link without a `rate` is as fast as the machine, and virtual \
                               time has no machine: give the link a rate, or use weir lab run";
                return document.refuse(document.place_of_workload(&[VIA, TO]), message);
            }
        }
        Ok(())
    }
}

/// The transfers of a cell, which are flows without end in virtual time.
#[derive(Debug)]
struct Transfers(FlowsCell);

impl CellWorkload for Transfers {
    fn measure(&self, step: &MachineStep<'_>, testbed: &Testbed) -> Result<Measured, Failure> {
        measure(step, testbed)
    }

    fn between_machines(&self) -> Result<(), &'static str> {
        Ok(())
    }

    fn measure_between(&self, turn: &Turn<'_>) -> Result<Measurement, Failure> {
        real::measure(turn)
    }

    fn simulate(&self, step: &SimulatorStep<'_>) -> Result<Measurement, Failure> {
        flows::simulate(&self.0, step)
    }
}
