//! The usual benchmarks of a network stack, one in each cell: netperf's streams and transactions,
//! lmbench's latencies and bandwidths, requests to a web server.

mod local;
mod netperf;
mod program;
mod test;

use super::web::{self, WebSettings};
use super::{CellWorkload, Workload};
use crate::bench::hosts::Turn;
use crate::bench::machine::{MachineStep, Measured, Testbed};
use crate::model::file::{Document, FileError, Key, SystemKind, SystemSpec};
use crate::model::{Failure, Measurement, Plan};
use perf::local::Over;
pub(super) use program::{Measuring, cpus_of, number};
use results::Axes;
use test::Test;
use units::{Bytes, Span};

/// The workload that runs one benchmark, named by `test`.
#[derive(Debug)]
pub(super) struct Benchmark;

/// The workload that measures round trips between two processes of a host.
#[derive(Debug)]
pub(super) struct Latency;

/// The workload that measures bandwidth between two processes of a host.
#[derive(Debug)]
pub(super) struct Bandwidth;

#[derive(Debug)]
struct Cell {
    test: Test,
    pinned: bool,
}

impl Workload for Benchmark {
    fn kind(&self) -> &'static str {
        "benchmark"
    }

    fn systems(&self) -> &'static [SystemKind] {
        &[SystemKind::Tcp]
    }

    fn method(&self) -> Vec<(&'static str, String)> {
        let all = METHOD.iter().chain(LOCAL_METHOD).chain(web::METHOD);
        all.map(|(term, text)| (*term, (*text).to_owned())).collect()
    }

    fn at(&self, document: &Document, axes: &Axes) -> Result<Box<dyn CellWorkload>, FileError> {
        let Some(name) = document.workload_key(axes, TEST, |text| Ok(text.to_owned()))? else {
            let place = document.place_of_workload(&[]);
            let message = format!("`test` is missing here: {}", Test::names().join(", "));
            return Err(document.source.error(place, message));
        };
        let size = document.workload_key(axes, SIZE, |text| match text {
            "-" => Ok(None),
            text => size(text).map(Some),
        })?;
        let wrong = |message| document.source.error(document.place_of_workload(&[TEST]), message);
        let test = Test::read(&name, size.flatten()).map_err(wrong)?;
        Ok(Box::new(Cell { test, pinned: pinned(document, axes)? }))
    }

    fn keys(&self) -> &'static [Key] {
        &[TEST, SIZE, PINNED]
    }

    fn refused_by_simulator(&self) -> Option<&'static str> {
        Some("this workload runs only on a machine")
    }

    fn machine_time(&self, _: &Document, _: &SystemSpec, _: &Axes, plan: &Plan) -> Span {
        plan.duration + AROUND
    }
}

impl Workload for Latency {
    fn kind(&self) -> &'static str {
        "latency"
    }

    fn systems(&self) -> &'static [SystemKind] {
        &[SystemKind::Tcp]
    }

    fn method(&self) -> Vec<(&'static str, String)> {
        LOCAL_METHOD.iter().map(|(term, text)| (*term, (*text).to_owned())).collect()
    }

    fn at(&self, document: &Document, axes: &Axes) -> Result<Box<dyn CellWorkload>, FileError> {
        let over = over(document, axes)?;
        let size = document.workload_key(axes, SIZE, size)?.unwrap_or(Over::MESSAGE);
        Ok(Box::new(Cell { test: Test::Latency { over, size }, pinned: pinned(document, axes)? }))
    }

    fn keys(&self) -> &'static [Key] {
        &[OVER, SIZE, PINNED]
    }

    fn refused_by_simulator(&self) -> Option<&'static str> {
        Some("this workload runs only on a machine")
    }
}

impl Workload for Bandwidth {
    fn kind(&self) -> &'static str {
        "bandwidth"
    }

    fn systems(&self) -> &'static [SystemKind] {
        &[SystemKind::Tcp]
    }

    fn method(&self) -> Vec<(&'static str, String)> {
        Latency.method()
    }

    fn at(&self, document: &Document, axes: &Axes) -> Result<Box<dyn CellWorkload>, FileError> {
        let over = over(document, axes)?;
        let size = document.workload_key(axes, SIZE, size)?.unwrap_or(Over::BLOCK);
        Ok(Box::new(Cell { test: Test::Bandwidth { over, size }, pinned: pinned(document, axes)? }))
    }

    fn keys(&self) -> &'static [Key] {
        Latency.keys()
    }

    fn refused_by_simulator(&self) -> Option<&'static str> {
        Latency.refused_by_simulator()
    }
}

impl CellWorkload for Cell {
    fn measure(&self, step: &MachineStep<'_>, testbed: &Testbed) -> Result<Measured, Failure> {
        match self.test {
            Test::Latency { over, size } => {
                local::measure(step, testbed, ("latency", over, size), self.pinned)
            }
            Test::Bandwidth { over, size } => {
                local::measure(step, testbed, ("bandwidth", over, size), self.pinned)
            }
            Test::Web { is_tls, keep_alive } => {
                WebSettings::usual(is_tls, keep_alive, self.pinned).measure(step, testbed)
            }
            test => netperf::measure(step, testbed, test, self.pinned),
        }
    }

    fn between_machines(&self) -> Result<(), &'static str> {
        match self {
            Self { pinned: true, .. } => Err(NOT_PINNED),
            Self { test: Test::Web { is_tls, keep_alive }, .. } => {
                WebSettings::usual(*is_tls, *keep_alive, false).between_machines()
            }
            _ => Ok(()),
        }
    }

    fn measure_between(&self, turn: &Turn<'_>) -> Result<Measurement, Failure> {
        match self.test {
            Test::Latency { over, size } => local::on_host(turn, ("latency", over, size)),
            Test::Bandwidth { over, size } => local::on_host(turn, ("bandwidth", over, size)),
            Test::Web { is_tls, keep_alive } => {
                WebSettings::usual(is_tls, keep_alive, false).measure_between(turn)
            }
            test => netperf::between(turn, test),
        }
    }
}

fn over(document: &Document, axes: &Axes) -> Result<Over, FileError> {
    let missing = "`over` is missing here: unix, pipe or tcp";
    let place = || document.place_of_workload(&[]);
    document
        .workload_key(axes, OVER, str::parse)?
        .ok_or_else(|| document.source.error(place(), missing))
}

fn size(text: &str) -> Result<Bytes, String> {
    // A size without a unit is in bytes, as in netperf.
    let read = text.parse::<u64>().map(Bytes::new).or_else(|_| text.parse::<Bytes>());
    let size = read.map_err(|error| format!("{error}"))?;
    match size == Bytes::ZERO || size > Over::LARGEST {
        true => Err(format!("a message has from 1 byte to {}", Over::LARGEST)),
        false => Ok(size),
    }
}

pub(super) fn pinned(document: &Document, axes: &Axes) -> Result<bool, FileError> {
    let read = |text: &str| match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        other => Err(format!("`pinned` is `yes` or `no`, not `{other}`")),
    };
    Ok(document.workload_key(axes, PINNED, read)?.unwrap_or(false))
}

const TEST: Key = Key::text("test");
const SIZE: Key = Key::text("size");
const OVER: Key = Key::text("over");
/// The key with `yes` if the client and the server have a CPU each.
pub(super) const PINNED: Key = Key::text("pinned");
pub(super) const NOT_PINNED: &str =
    "`pinned` chooses CPUs of this machine only: leave out `pinned`";
/// Estimated time in which servers start and connections open.
const AROUND: Span = Span::from_millis(150);

const METHOD: &[(&str, &str)] = &[
    (
        "streams and transactions",
        "`weir perf stream`, `rr`, `crr` and `udp-rr` over one connection: netperf's TCP_STREAM, UDP_STREAM, \
         TCP_RR, TCP_CRR and UDP_RR. Goodput is the data that arrived. A request and its response have one byte",
    ),
    (
        "pinned",
        "each end has one CPU, the first and the last of the workload. Otherwise both ends may use all CPUs",
    ),
];

const LOCAL_METHOD: &[(&str, &str)] = &[
    (
        "latency",
        "`weir perf latency`: the mean time in which a byte goes to a second process of the same host and back \
         (lmbench's lat_unix, lat_pipe, lat_tcp), over the loopback in case of TCP",
    ),
    (
        "bandwidth",
        "`weir perf bandwidth`: the rate at which a process reads data that a second process of the same host writes, \
         64 KiB at a time (lmbench's bw_unix, bw_pipe, bw_tcp). MB are 10^6 bytes",
    ),
];
