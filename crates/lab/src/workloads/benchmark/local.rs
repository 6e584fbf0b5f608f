//! Runs the tests of lmbench with `weir perf latency` and `weir perf bandwidth`.

use super::program::{Measuring, number};
use crate::bench::hosts::Turn;
use crate::bench::machine::{MachineStep, Measured, Testbed};
use crate::model::{Failure, Measurement};
use crate::workloads::between::{Client, Exchange};
use perf::local::Over;
use serde_json::Value;
use units::{Bytes, Span};

/// A test between two processes: its name, its carrier (such as a pipe or TCP) and the size of its
/// messages.
pub(super) type Local = (&'static str, Over, Bytes);

/// Measures between two processes of one host: the host whose state changes, or else the host
/// `from`.
pub(super) fn measure(
    step: &MachineStep<'_>,
    testbed: &Testbed,
    test: Local,
    pinned: bool,
) -> Result<Measured, Failure> {
    let inside = testbed.namespace(step.changed_host()?)?;
    let cpus = &step.cpus.workload;
    let mut argv = line(&step.weir.display().to_string(), test, step.duration);
    if let (true, [first, .., last]) = (pinned, cpus.as_slice()) {
        argv.extend(["--affinity".to_owned(), format!("{first},{last}")]);
    }
    let measuring = Measuring { step, server: None };
    measuring.run(argv, &inside, cpus, testbed, |document, result| account(test, document, result))
}

/// Measures between two processes of the real machine `from`.
pub(super) fn on_host(turn: &Turn<'_>, test: Local) -> Result<Measurement, Failure> {
    let client = Client {
        name: "weir perf",
        host: turn.near,
        argv: line(turn.near.weir(), test, turn.duration),
        lasting: turn.duration,
    };
    Exchange::new(turn).run(client, |document, result| account(test, document, result))
}

fn line(weir: &str, (test, over, size): Local, duration: Span) -> Vec<String> {
    let (size, time) = (size.count().to_string(), format!("{}s", duration.secs_f64()));
    let words = [weir, "perf", test, over.word(), "--size", &size, "--time", &time, "--json"];
    words.map(str::to_owned).into()
}

fn account(test: Local, document: &Value, result: &mut Measurement) -> Result<(), Failure> {
    let of = |name: &str| number(document, &["results", "0", name]);
    result.record("mbyte_s", of("mbyte_s"));
    for part in ["mean", "p50", "p99"] {
        result.record(&format!("latency_us.{part}"), of(&format!("{part}_us")));
    }
    match result.metrics.is_empty() {
        true => Err(Failure::Workload(format!("weir perf {} printed no figures", test.0))),
        false => Ok(()),
    }
}
