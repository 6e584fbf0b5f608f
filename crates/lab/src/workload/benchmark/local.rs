//! lmbench's tests by `weir perf latency` and `weir perf bandwidth`.

use super::program::{Measuring, number};
use crate::Failure;
use crate::executor::machine::{MachineStep, Measured, Testbed};
use perf::local::Over;
use units::Bytes;

/// Measures between two processes of one host: the host that has the change, or else `from`.
pub(super) fn measure(
    step: &MachineStep<'_>,
    testbed: &Testbed,
    (test, over, size): (&str, Over, Bytes),
    pinned: bool,
) -> Result<Measured, Failure> {
    let inside = testbed.namespace(step.changed_host()?)?;
    let cpus = &step.cpus.workload;
    let weir = step.weir.display().to_string();
    let (size, time) = (size.count().to_string(), format!("{}s", step.duration.secs_f64()));
    let words = ["perf", test, over.word(), "--size", &size, "--time", &time, "--json"];
    let mut argv: Vec<String> =
        [weir.as_str()].iter().chain(&words).map(|word| (*word).to_owned()).collect();
    if let (true, [first, .., last]) = (pinned, cpus.as_slice()) {
        argv.extend(["--affinity".to_owned(), format!("{first},{last}")]);
    }
    let measuring = Measuring { step, server: None };
    measuring.run(argv, &inside, cpus, testbed, |document, result| {
        let of = |name: &str| number(document, &["results", "0", name]);
        result.record("mbyte_s", of("mbyte_s"));
        for part in ["mean", "p50", "p99"] {
            result.record(&format!("latency_us.{part}"), of(&format!("{part}_us")));
        }
        match result.metrics.is_empty() {
            true => Err(Failure::Workload(format!("weir perf {test} printed no figures"))),
            false => Ok(()),
        }
    })
}
