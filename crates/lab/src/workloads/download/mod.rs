//! HTTP downloads from a web server to clients behind several links at once.

mod account;
mod client;
mod ideal;
mod machine;
mod nginx;
mod real;
mod settings;
mod simulated;

pub(super) use nginx::{NOT_INSTALLED as NGINX_MISSING, find as find_nginx};

use super::{CellWorkload, HostSetup, SystemKey, Workload};
use crate::bench::hosts::Turn;
use crate::bench::machine::{MachineStep, Measured, Testbed};
use crate::bench::simulator::SimulatorStep;
use crate::model::file::{
    Document, Ends, FileError, Key, LinkSettings, Loopback, SystemKind, SystemSpec, TO, VIA,
};
use crate::model::{Failure, Measurement, Plan};
use results::Axes;
use settings::DownloadSettings;
use std::time::Duration;
use units::{Rate, Span};

#[derive(Debug)]
pub(crate) struct Download;

impl Workload for Download {
    fn kind(&self) -> &'static str {
        "download"
    }

    fn systems(&self) -> &'static [SystemKind] {
        &[SystemKind::Tcp]
    }

    fn loopback(&self) -> Loopback {
        Err("a download needs an emulated link with a `rate`, and `loopback` has none")
    }

    fn method(&self) -> Vec<(&'static str, String)> {
        METHOD.iter().map(|(term, text)| (*term, (*text).to_owned())).collect()
    }

    fn at(&self, document: &Document, axes: &Axes) -> Result<Box<dyn CellWorkload>, FileError> {
        Ok(Box::new(DownloadSettings::parse(document, axes)?))
    }

    fn inputs(&self, document: &Document, axes: &Axes) -> Vec<(String, String)> {
        match DownloadSettings::parse(document, axes) {
            Ok(settings) => nginx::inputs(settings.size, document.seed).into(),
            Err(_) => Vec::new(),
        }
    }

    fn keys(&self) -> &'static [Key] {
        &[SIZE]
    }

    fn system_keys(&self) -> &'static [SystemKey] {
        &[SystemKey::Warm, SystemKey::Start]
    }

    /// Returns the hosts of the first link. `via` may name several links.
    fn ends(&self, document: &Document, axes: &Axes) -> Result<Ends, FileError> {
        let table = document.workload.get_ref();
        if table.place(TO).is_some() || table.place(VIA).is_none() {
            return document.ends_at(axes, self.loopback());
        }
        let from = document.sender_at(axes)?;
        let to = settings::ways(document, axes, &from)?.swap_remove(0).to;
        Ok(Ends { from, to, streams: document.streams_at(axes)? })
    }

    fn simulator_time(&self, document: &Document, axes: &Axes, plan: &Plan) -> Duration {
        match DownloadSettings::parse(document, axes) {
            Ok(settings) => simulated::lasting(&settings, plan.duration),
            Err(_) => plan.duration.as_duration(),
        }
    }

    fn host_setup(&self) -> HostSetup {
        HostSetup { only_linked: true, without_ipv6: true, ..HostSetup::default() }
    }

    fn missing_program(&self) -> Option<&'static str> {
        nginx::find().is_none().then_some(nginx::NOT_INSTALLED)
    }

    fn machine_time(
        &self,
        document: &Document,
        system: &SystemSpec,
        axes: &Axes,
        plan: &Plan,
    ) -> Span {
        match DownloadSettings::parse(document, axes) {
            Ok(settings) => machine::lasting(&settings, system, plan.duration),
            Err(_) => plan.duration,
        }
    }
}

impl CellWorkload for DownloadSettings {
    fn links(&self, mut links: Vec<LinkSettings>) -> Vec<LinkSettings> {
        links.retain(|link| self.ways.iter().any(|way| link.joins(&self.server, &way.to)));
        links
    }

    fn measure(&self, step: &MachineStep<'_>, testbed: &Testbed) -> Result<Measured, Failure> {
        machine::measure(self, step, testbed)
    }

    fn between_machines(&self) -> Result<(), &'static str> {
        match self.ways.len() {
            1 => real::fits(self.size),
            _ => Err("a download there has one client; name one link in `via`, or write `to`"),
        }
    }

    fn measure_between(&self, turn: &Turn<'_>) -> Result<Measurement, Failure> {
        real::measure(self.size, turn)
    }

    fn simulate(&self, step: &SimulatorStep<'_>) -> Result<Measurement, Failure> {
        simulated::measure(self, step)
    }
}

/// Returns a multiple of a rate, at least 1 bit/s.
fn scaled(rate: Rate, multiple: f64) -> Rate {
    let bits = rate.bits_per_second() as f64 * multiple;
    Rate::from_bits_per_second((bits.round() as u64).max(1))
}

/// The key with the size of the file.
const SIZE: Key = Key::text("size");

const METHOD: &[(&str, &str)] = &[
    (
        "a download",
        "connect, GET, read to the end, by our client in the path's own network namespace. The client \
         checks the status, the length and a checksum of the body. A path's figure is the mean over \
         its downloads, that of several paths the mean over the paths",
    ),
    (
        "download rate",
        "the file's size over the time from before the connection is opened to its last byte",
    ),
    (
        "availability",
        "the share of started downloads that arrived complete and undamaged. Failed downloads do not \
         count in the rates, but a path without any complete download counts as 0",
    ),
    (
        "retransmitted",
        "share of all bytes the server's connections sent, as its kernel counts them",
    ),
    (
        "queue",
        "the data that waits at the path's bottleneck during a download, as time at the bottleneck's rate",
    ),
    (
        "the algorithm",
        "set on the web server's listening socket, and read back from every connection. `tcpa` is in \
         the kernel only for the turn, under a unique name",
    ),
    (
        "warm",
        "the file is downloaded once on each path before the measurement; with `warmed_at`, the path \
         has that multiple of its rate until then",
    ),
    (
        "first window",
        "`first_window` sets the server's initial window (`initcwnd` of the route to each client)",
    ),
    (
        "ideal",
        "a round trip to connect, one to ask, and the file at the path's rate less its loss and headers. \
         The client's first two windows (64,256 and 80,512 bytes, as observed) let no more through in \
         a round trip each; `path` is the same without these windows",
    ),
    (
        "in virtual time",
        "the server's TCP sends the file over each path by itself, with the same times. No web server \
         and no kernel take part",
    ),
];
