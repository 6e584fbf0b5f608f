//! Connection tracking: the rate of new connections, the number of tracked connections, and the
//! memory of each connection.

mod filling;
mod kernel;
mod machine;

use super::switches::{self, Product};
use super::{CellWorkload, Workload};
use crate::bench::machine::{MachineStep, Measured, Testbed};
use crate::model::file::{Document, Ends, FileError, Key, Loopback, SystemKind, SystemSpec};
use crate::model::{Failure, Plan};
use results::Axes;
use units::Span;

#[derive(Debug)]
pub(crate) struct Tracking;

/// The number of connections with which one cell fills the tracker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Connections(u32);

impl Workload for Tracking {
    fn kind(&self) -> &'static str {
        "conntrack"
    }

    fn systems(&self) -> &'static [SystemKind] {
        &[SystemKind::Switch]
    }

    fn loopback(&self) -> Loopback {
        Err("connections are tracked between ports, and not over `loopback`")
    }

    fn method(&self) -> Vec<(&'static str, String)> {
        METHOD.iter().map(|(term, text)| (*term, (*text).to_owned())).collect()
    }

    fn at(&self, document: &Document, axes: &Axes) -> Result<Box<dyn CellWorkload>, FileError> {
        let count = document.workload_count(axes, CONNECTIONS, 1024..=MOST)?;
        let missing = || {
            let message = "`connections` is missing here: how many stand at once?";
            document.source.error(document.workload.span(), message)
        };
        Ok(Box::new(Connections(count.ok_or_else(missing)?)))
    }

    fn keys(&self) -> &'static [Key] {
        &[CONNECTIONS]
    }

    fn has_hosts(&self) -> bool {
        false
    }

    fn ends(&self, _document: &Document, _axes: &Axes) -> Result<Ends, FileError> {
        Ok(Ends { from: String::new(), to: String::new(), streams: 1 })
    }

    fn check(&self, document: &Document) -> Result<(), FileError> {
        switches::check_systems(document, &[KERNEL])
    }

    fn refused_by_simulator(&self) -> Option<&'static str> {
        Some("packet switches are programs, and virtual time has none")
    }

    fn programs(&self, system: &SystemSpec) -> &'static [&'static str] {
        match Product::of(system.name()) {
            Some(product) => product.programs(),
            None => kernel::PROGRAMS,
        }
    }

    fn machine_time(
        &self,
        _document: &Document,
        system: &SystemSpec,
        _axes: &Axes,
        _plan: &Plan,
    ) -> Span {
        match Product::of(system.name()) {
            Some(Product::OvsDpdk(_)) => Span::from_secs(8),
            _ => Span::from_secs(4),
        }
    }
}

impl CellWorkload for Connections {
    fn measure(&self, step: &MachineStep<'_>, _testbed: &Testbed) -> Result<Measured, Failure> {
        machine::measure(self.0, step)
    }
}

const CONNECTIONS: Key = Key::count("connections");
/// Maximum number of connections: the switches refuse more than three million.
const MOST: u32 = 2_000_000;
/// The name of the system that tests the kernel's own tracker.
const KERNEL: &str = "nf-conntrack";

const METHOD: &[(&str, &str)] = &[
    (
        "connections",
        "UDP with a new five-tuple in each packet. A switch takes them from a capture in memory \
         of at most 262,144 frames; for more connections, a change of its rule tracks the same frames in further \
         zones",
    ),
    (
        "new connections",
        "`setups_s` is the slope of the tracker's own count between the tenth and the ninetieth percent of each \
         filling. The kernel's tracker sits in a namespace that forwards between two veth pairs; a generator \
         pushes its packets, so that the way there is a part of its figure",
    ),
    (
        "memory each",
        "the growth of the switch's resident memory by the connections; of the kernel the size of its objects \
         (/proc/slabinfo). Tables that exist before the first connection are not in it",
    ),
    (
        "the kernel's limit",
        "cells beyond net.netfilter.nf_conntrack_max are not run, and the lab does not change it",
    ),
];
