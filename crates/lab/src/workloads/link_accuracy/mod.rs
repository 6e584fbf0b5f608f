//! Judges the emulated link itself by a flood, paced datagrams and time-stamped probes.

mod datagrams;
mod machine;

use super::{CellWorkload, HostSetup, Workload};
use crate::bench::machine::{MachineStep, Measured, Testbed};
use crate::model::Failure;
use crate::model::file::{Document, FileError, Loopback, SystemKind, TO, VIA};
use link::LinkConfig;
use results::Axes;
use units::Span;

#[derive(Debug)]
pub(crate) struct LinkAccuracy;

impl Workload for LinkAccuracy {
    fn kind(&self) -> &'static str {
        "link-accuracy"
    }

    fn systems(&self) -> &'static [SystemKind] {
        &[SystemKind::Link]
    }

    fn loopback(&self) -> Loopback {
        Err(
            "the workload judges an emulated link, and `loopback` is none: name a link with a `rate`",
        )
    }

    fn method(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    fn at(&self, document: &Document, axes: &Axes) -> Result<Box<dyn CellWorkload>, FileError> {
        let ends = self.ends(document, axes)?;
        let links = document.links_at(axes)?;
        let link = links.iter().find(|link| link.joins(&ends.from, &ends.to));
        let judged = link.and_then(|link| Some((link.way_from(&ends.from)?, link.interrupts)));
        let Some((link, interrupts)) = judged else {
            let message = "only an emulated link can be judged, and this way is a plain cable";
            return Err(document.source.error(document.place_of_workload(&[VIA, TO]), message));
        };
        Ok(Box::new(JudgedLink { link: link.clone(), interrupts }))
    }

    fn refused_by_simulator(&self) -> Option<&'static str> {
        Some("the emulated link is judged by the machine's clock, and virtual time has none")
    }

    fn host_setup(&self) -> HostSetup {
        HostSetup { without_steering: true, ..HostSetup::default() }
    }
}

/// The emulated link that one cell judges.
#[derive(Debug)]
struct JudgedLink {
    link: LinkConfig,
    /// The maximum wait for an interrupt, which is no error of the link.
    interrupts: Span,
}

impl CellWorkload for JudgedLink {
    fn measure(&self, step: &MachineStep<'_>, testbed: &Testbed) -> Result<Measured, Failure> {
        machine::measure(&self.link, self.interrupts, step, testbed)
    }
}
