//! What is done over the network of a cell, and how it is measured.

mod bulk;
mod caller;
mod caqm;
mod crowd;
mod door;
mod download;
mod external;
mod flows;
mod link_accuracy;
mod loaded;
mod messages;
mod started;
mod stream;
mod traffic;
mod tunnel_keys;
mod udp;

pub(crate) use crowd::setting_up;
pub(crate) use download::lasting as download_lasting;
pub(crate) use download::{NOT_INSTALLED as NO_WEB_SERVER, find_server as web_server};
pub(crate) use external::words as command_words;
pub(crate) use external::{is_installed, missing_programs, open_quote};
pub(crate) use stream::Stream;
pub(crate) use traffic::IPERF3;

use crate::file::{LabFile, SystemSpec, WorkloadKind, WorkloadSettings};
use crate::outcome::Measurement;
use crate::testbed::{CpuPlan, Testbed};
use crate::{Cancel, Failure, links};
use emu::EmulatorStatistics;
use loaded::OurAlgorithm;
use report::{Axes, Form};
use units::{Span, Time};

/// Everything one turn needs to know.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    pub lab: &'a LabFile,
    pub system: &'a SystemSpec,
    pub axes: &'a Axes,
    pub ends: &'a WorkloadSettings,
    pub form: Form,
    pub duration: Span,
    pub omit: Span,
    pub seed: u64,
    pub cpus: &'a CpuPlan,
    /// Where `weir` itself is, which makes traffic too.
    pub weir: &'a std::path::Path,
    /// For the programs' own temporary files.
    pub programs: &'a std::path::Path,
    pub cancel: &'a Cancel,
}

impl Turn<'_> {
    /// Builds the cell's network, measures, and takes the network down; an algorithm of ours is in the
    /// kernel meanwhile.
    pub(crate) fn measure(&self) -> Result<Measurement, Failure> {
        let Some(ours) = OurAlgorithm::of(self.system)? else { return self.measure_here() };
        let turn = Turn { system: &ours.system, ..*self };
        let mut result = turn.measure_here()?;
        // As the lab calls it, once it is read back under the name it had meanwhile.
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
            // Without its link a workload fails in ways of its own; the cause says more.
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

    /// What was measured, and what the emulated links tell of it.
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

    /// One transfer over a network that stands, and goes on standing.
    pub(crate) fn transfer(&self, testbed: &Testbed) -> Result<Measurement, Failure> {
        bulk::measure(self, testbed).map(|measured| measured.result)
    }
}

/// A result, and the stretch of time it speaks of.
#[derive(Debug)]
pub(crate) struct Windowed {
    pub(crate) window: std::ops::Range<Time>,
    pub(crate) result: Measurement,
    /// Where several ways were used at once, each of them.
    pub(crate) ways: Vec<download::WayUsed>,
}

/// Where the workload's server listens, whoever makes the traffic: iperf3's own.
const PORT: u16 = 5201;
