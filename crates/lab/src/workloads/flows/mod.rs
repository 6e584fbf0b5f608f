//! Flows that share a link, in the kernel or in virtual time.

mod caqm;
mod cell;
mod demand;
mod machine;
mod method;
mod settings;
mod simulated;

pub(super) use cell::FlowsCell;
pub(super) use simulated::simulate;

use super::{CellWorkload, SystemKey, Workload};
use crate::bench::machine::{MachineStep, Measured, Testbed};
use crate::bench::simulator::SimulatorStep;
use crate::model::file::{
    Document, FileError, FormSpec, Key, LinkSettings, Loopback, STREAMS, SystemKind, TopologySpec,
};
use crate::model::{Failure, Measurement};
use results::Axes;
use std::ops::Range;
use toml::Spanned;

#[derive(Debug)]
pub(crate) struct Flows;

impl Flows {
    fn cell(&self, document: &Document, axes: &Axes) -> Result<FlowsCell, FileError> {
        FlowsCell::parse(document, axes, &self.ends(document, axes)?)
    }
}

impl Workload for Flows {
    fn kind(&self) -> &'static str {
        "flows"
    }

    fn systems(&self) -> &'static [SystemKind] {
        &[SystemKind::Tcp, SystemKind::Tunnel]
    }

    fn loopback(&self) -> Loopback {
        Err("flows share an emulated link: `loopback` is none")
    }

    fn method(&self) -> Vec<(&'static str, String)> {
        method::METHOD.iter().map(|(term, text)| (*term, (*text).to_owned())).collect()
    }

    fn at(&self, document: &Document, axes: &Axes) -> Result<Box<dyn CellWorkload>, FileError> {
        Ok(Box::new(self.cell(document, axes)?))
    }

    fn keys(&self) -> &'static [Key] {
        &[FLOWS, BESIDE, FIRST, STAGGER, SIZE, ARRIVALS, DEMAND, CROSS, MEMORY, RPS]
    }

    fn system_keys(&self) -> &'static [SystemKey] {
        &[SystemKey::Warm, SystemKey::Queue, SystemKey::Caqm]
    }

    fn has_network(&self) -> bool {
        true
    }

    fn check(&self, document: &Document) -> Result<(), FileError> {
        match document.workload.get_ref().place(STREAMS) {
            Some(place) => {
                document.refuse(place, "a workload `flows` counts `flows`, not `streams`")
            }
            None => Ok(()),
        }
    }

    fn check_form(
        &self,
        document: &Document,
        form: &FormSpec,
        axes: &Axes,
    ) -> Result<(), FileError> {
        let cell = self.cell(document, axes)?;
        let link = cell.link.as_ref().and_then(|(link, _)| link.way_from(&cell.from));
        let rate = link.and_then(|link| link.rate.mean_rate()).unwrap_or_default();
        cell.flows.check_arrivals(document, form, rate)
    }

    /// Returns a key that has no meaning for the kernel's flows, or is not implemented for the
    /// kernel's flows.
    fn only_simulated(&self, document: &Document) -> Option<(&'static str, Range<usize>)> {
        let own = [FIRST, SIZE, ARRIVALS, DEMAND, CROSS, MEMORY];
        let own = own.map(|key| (key.name, document.workload.get_ref().place(key)));
        let tables = [
            ("[topology]", document.topology.as_ref().filter(is_virtual).map(Spanned::span)),
            ("[tcp]", document.tcp.as_ref().map(Spanned::span)),
        ];
        own.into_iter().chain(tables).find_map(|(key, place)| Some((key, place?)))
    }

    fn is_simulated_too(&self) -> bool {
        true
    }

    fn has_means(&self) -> bool {
        true
    }
}

/// Whether only virtual time supports the topology. A machine has the two hosts of a link, or the
/// senders of an incast.
fn is_virtual(topology: &&Spanned<TopologySpec>) -> bool {
    let TopologySpec { shape, rtts, hops, ports, access: _ } = topology.get_ref();
    let is_incast = shape.as_ref().is_some_and(|shape| shape.get_ref() == "incast");
    !is_incast || rtts.is_some() || hops.is_some() || ports.is_some()
}

impl CellWorkload for FlowsCell {
    fn links(&self, links: Vec<LinkSettings>) -> Vec<LinkSettings> {
        self.machine_links(links)
    }

    fn between_machines(&self) -> Result<(), &'static str> {
        Err("the flows share an emulated link; use `bulk` with `streams`")
    }

    fn measure(&self, step: &MachineStep<'_>, testbed: &Testbed) -> Result<Measured, Failure> {
        machine::measure(self, step, testbed)
    }

    fn simulate(&self, step: &SimulatorStep<'_>) -> Result<Measurement, Failure> {
        simulate(self, step)
    }
}

/// The key with the number of flows of the system under test.
const FLOWS: Key = Key::count("flows");
/// The key with the competing flows: `none`, an algorithm, `own`, or several: `4xcubic`.
const BESIDE: Key = Key::text("beside");
/// The key with the flows that start first: `beside` or `own`.
const FIRST: Key = Key::text("first");
/// The key with the time between two flow starts.
const STAGGER: Key = Key::text("stagger");
/// The key with the size of each flow. By default flows have no end.
const SIZE: Key = Key::text("size");
/// The key with the arrivals of flows of the system under test: `60%`, `20/s`, `every 50ms`.
const ARRIVALS: Key = Key::text("arrivals");
/// The key with the demand of the applications: `50%`, `5mbit,on=1s,off=1s`, `64KB every 100ms`.
const DEMAND: Key = Key::text("demand");
/// The key with UDP traffic on the same link: `30%`, `5mbit,poisson`.
const CROSS: Key = Key::text("cross");
/// The key with the path memory of flows of the system under test: `none`, `warm`, `wrong`, `3x`.
const MEMORY: Key = Key::text("memory");
/// The key with RPS: `on` if the workload's CPUs process the packets of the receiving host, or
/// `off`.
const RPS: Key = Key::text("rps");
