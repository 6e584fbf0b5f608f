//! Tests `weir doctor`: a load between two hosts, a fault, and the verdict of a `weir doctor` that
//! runs in one of the hosts.

mod case;
mod composition;
mod disk;
mod expected;
mod figures;
pub(crate) mod library;
pub mod load;
mod machine;
mod needs;
mod quota;
mod scene;
mod verdict;

pub(crate) use case::{COMMANDS, variable_of};

use super::{CellWorkload, HostSetup, Workload};
use crate::bench::machine::{MachineStep, Measured, Testbed};
use crate::model::file::{Document, FileError, Key, LinkSettings, SystemKind, SystemSpec};
use crate::model::{Failure, Plan};
use case::Case;
use results::Axes;
use units::Span;

#[derive(Debug)]
pub(crate) struct Diagnose;

impl Workload for Diagnose {
    fn kind(&self) -> &'static str {
        "diagnose"
    }

    fn systems(&self) -> &'static [SystemKind] {
        &[SystemKind::Doctor]
    }

    fn method(&self) -> Vec<(&'static str, String)> {
        METHOD.iter().map(|(term, text)| (*term, (*text).to_owned())).collect()
    }

    fn at(&self, document: &Document, axes: &Axes) -> Result<Box<dyn CellWorkload>, FileError> {
        self.ends(document, axes)?;
        Ok(Box::new(Case::parse(document, axes)?))
    }

    /// Returns the built-in fault or the composition that the cell names.
    fn inputs(&self, document: &Document, axes: &Axes) -> Vec<(String, String)> {
        let fault = case::fault(document, axes).ok().flatten();
        let named = fault.and_then(|name| {
            let text = library::text(&name)?;
            Some((format!("fault file labs/faults/{name}.toml"), text.to_owned()))
        });
        let drawn = case::composition(document, axes).ok().flatten();
        let drawn = drawn.map(|one| (format!("composition {}", one.drawn.words), one.text));
        named.into_iter().chain(drawn).collect()
    }

    fn lacking(&self, document: &Document, axes: &Axes) -> Vec<String> {
        Case::parse(document, axes).map(|case| needs::lacking(&case)).unwrap_or_default()
    }

    /// Returns all built-in faults, if the file takes its fault from the axis `fault` and does not
    /// list this axis.
    fn own_axis(&self, document: &Document) -> Option<(&'static str, Vec<&'static str>)> {
        let is_open = case::names_each_fault(document) && !document.axes.contains_key(FAULT_AXIS);
        is_open.then(|| (FAULT_AXIS, library::FAULTS.iter().map(|(name, _)| *name).collect()))
    }

    fn keys(&self) -> &'static [Key] {
        case::KEYS
    }

    fn refused_by_simulator(&self) -> Option<&'static str> {
        Some("`weir doctor` reads a kernel, and virtual time has none")
    }

    fn host_setup(&self) -> HostSetup {
        HostSetup { shared_cpus: true, ..HostSetup::default() }
    }

    fn machine_time(
        &self,
        _document: &Document,
        _system: &SystemSpec,
        _axes: &Axes,
        plan: &Plan,
    ) -> Span {
        plan.duration + AROUND
    }
}

impl CellWorkload for Case {
    fn links(&self, links: Vec<LinkSettings>) -> Vec<LinkSettings> {
        self.own_links.clone().unwrap_or(links)
    }

    fn measure(&self, step: &MachineStep<'_>, testbed: &Testbed) -> Result<Measured, Failure> {
        machine::measure(self, step, testbed)
    }
}

/// The name of the axis whose values are all built-in faults.
const FAULT_AXIS: &str = "fault";
/// Estimated time to start the load and to read the verdict.
const AROUND: Span = Span::from_millis(800);

const METHOD: &[(&str, &str)] = &[
    (
        "fault",
        "each fault is a lab file of its own in labs/faults, which names its load, its fault and the verdicts \
         that are right. The load runs first, then `weir doctor` observes one of the hosts",
    ),
    (
        "first verdict",
        "`first_verdict_right` is 1 if the first cause is a right one. A healthy case is right if nothing is \
         wrong. `among_first_two` is the share of the expected causes among the first two",
    ),
    (
        "compositions",
        "a number draws the case, its place, the traffic, other traffic and the path. A turn is invalid unless \
         the emulator's counts and the receiver's interface show that the fault limited the traffic",
    ),
    (
        "stolen CPU time",
        "a turn in which the hypervisor took more than 2 % of the CPUs is measured again, and counted in the \
         notes. That is decided before its verdict is read. `stolen-cpu` is a right verdict in such a turn",
    ),
];
