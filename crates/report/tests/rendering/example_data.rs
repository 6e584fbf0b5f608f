//! Invented example data for tests and for the `demo_report` example.

use std::path::Path;

use results::{Axes, Line, Results, Sample, Samples, Series, Shape};

/// Returns a run with three systems, two round-trip times, a failed, an invalid and a CPU-limited
/// cell.
pub(crate) fn results() -> Results {
    Results::from_json(include_str!("example-results.json"), Path::new("example-results.json"))
        .expect("the example is well formed")
}

/// Returns a run in which every text tries to escape from its context.
pub(crate) fn hostile() -> Results {
    let mut results = results();
    results.cells.truncate(3);
    results.comparisons.truncate(1);
    results.question = format!("Is `{HOSTILE}` | safe?\u{1b}[31m");
    results.cells[0].system = HOSTILE.to_owned();
    results.cells[1].failed = Some(format!("exit status 1: {HOSTILE}\u{1b}[2J\n| a | b |"));
    results.comparisons[0].a = HOSTILE.to_owned();
    results.environment.insert("hostname".to_owned(), HOSTILE.into());
    results.warnings.push(HOSTILE.to_owned());
    results.notes.push(HOSTILE.to_owned());
    results.lab = "x\x1b]0;x\x07\u{9b}2J\u{202e}".to_owned();
    results.method.insert(HOSTILE.to_owned(), HOSTILE.to_owned());
    results.reference.truncate(1);
    results.reference[0].source = HOSTILE.to_owned();
    results
}

pub(crate) fn samples() -> Samples {
    let mut samples = Samples::new("example");
    let results = results();
    for (index, cell) in results.cells.iter().enumerate() {
        let Some(metric) = cell.metrics.get("goodput_mbit_s") else {
            continue;
        };
        for repeat in 0..5 {
            let wobble = 1.0 + 0.03 * (index as f64 * 1.7 + f64::from(repeat) * 2.1).sin();
            samples.rows.push(Sample {
                system: cell.system.clone(),
                axes: cell.axes.clone(),
                repeat,
                block: repeat,
                time_s: None,
                metric: "goodput_mbit_s".to_owned(),
                value: metric.median * wobble,
                unit: metric.unit.clone(),
                valid: cell.valid,
            });
        }
    }
    samples
}

pub(crate) fn series() -> Vec<Series> {
    let results = results();
    let measured = results.cells.iter().filter(|cell| cell.failed.is_none());
    measured
        .flat_map(|cell| {
            let goodput = cell.metrics["goodput_mbit_s"].median;
            [
                one(cell, "throughput", Shape::Lines, &[("goodput", "Mbit/s", goodput, 0.1)]),
                one(
                    cell,
                    "rtt and cwnd",
                    Shape::Lines,
                    &[("rtt", "ms", 4.0, 0.5), ("cwnd", "kB", goodput, 0.4)],
                ),
                one(cell, "queue", Shape::Lines, &[("backlog", "kB", 90.0, 0.8)]),
                one(
                    cell,
                    "cpu",
                    Shape::Lines,
                    &[("cpu0", "%", 60.0, 0.2), ("cpu1", "%", 35.0, 0.3)],
                ),
                one(
                    cell,
                    "limited by",
                    Shape::Stacked,
                    &[
                        ("cwnd", "%", 55.0, 0.3),
                        ("receiver", "%", 15.0, 0.3),
                        ("sender", "%", 30.0, 0.3),
                    ],
                ),
            ]
        })
        .collect()
}

pub(crate) const LAB_FILE: &str = "\
# Example data, not a measurement.
[lab]
name = \"example\"
question = \"How much goodput does a tunnel keep on a lossy path?\"

[link]
rate = \"600mbit\"
queue = \"256KiB\"

[sweep]
loss = [\"0%\", \"0.1%\", \"0.5%\", \"1%\", \"5%\"]
rtt = [\"1ms\", \"20ms\"]
";

pub(crate) const HOSTILE: &str =
    "</script><script>alert(1)</script><!-- \"'&\x1b]0;x\x07\u{9b}2J\u{202e}";
/// Characters that a terminal interprets or that mislead a reader.
pub(crate) const OBEYED: [char; 4] = ['\x1b', '\x07', '\u{9b}', '\u{202e}'];

fn one(cell: &results::Cell, name: &str, shape: Shape, lines: &[(&str, &str, f64, f64)]) -> Series {
    let time_s: Vec<f64> = (0..90).map(|step| f64::from(step) * 0.2).collect();
    let axes: Axes = cell.axes.clone();
    Series {
        name: name.to_owned(),
        system: cell.system.clone(),
        axes,
        repeat: 0,
        block: 0,
        valid: true,
        shape,
        lines: lines
            .iter()
            .enumerate()
            .map(|(index, (name, unit, level, swing))| Line {
                name: (*name).to_owned(),
                unit: (*unit).to_owned(),
                values: time_s
                    .iter()
                    .map(|t| {
                        let phase = t * (1.1 + index as f64 * 0.7);
                        let ramp = (t / 1.5).min(1.0);
                        // Leaves a gap, as after a missed reading.
                        (*t != 9.0).then(|| level * ramp * (1.0 + swing * phase.sin()))
                    })
                    .collect(),
            })
            .collect(),
        time_s,
    }
}
