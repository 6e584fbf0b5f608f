//! Snapshot tests of the whole `results.json` of a lab that has every kind of table.

use crate::analysis::summary;
use crate::bench::LabFile;
use crate::model::plan::{Plan, Step};
use crate::model::{Flaw, Measurement, Outcome, Verdict};
use results::{Axes, Form, Results};

/// Builds a run of all systems. `verdict` invents the verdict of each system, place and block.
pub(super) fn invented(
    lab: &LabFile,
    mut verdict: impl FnMut(&str, &Axes, u32) -> Verdict,
) -> Results {
    let systems: Vec<String> = lab.systems().map(|system| system.name().to_owned()).collect();
    let plan = Plan::new(lab, Form::Full, &systems, None);
    let outcome = |step: &Step| {
        let cell = &plan.cells[step.cell];
        Outcome {
            system: cell.system.clone(),
            axes: cell.axes.clone(),
            block: step.block,
            verdict: verdict(&cell.system, &cell.axes, step.block),
        }
    };
    let outcomes: Vec<Outcome> = plan.steps.iter().map(outcome).collect();
    summary::results(lab, &plan, &outcomes)
}

/// Invents a measurement of a single metric.
pub(super) fn figure(metric: &str, value: f64) -> Verdict {
    let mut measured = Measurement::default();
    measured.record(metric, Some(value));
    Verdict::Measured(Box::new(measured))
}

fn verdict(system: &str, axes: &Axes, block: u32) -> Verdict {
    let (rtt, loss) = (axes["rtt"].as_str(), axes["loss"].as_str());
    if (system, rtt, block) == ("bbr", "80ms", 2) {
        return Verdict::Failed("the server ended".to_owned());
    }
    let base = match system {
        "cubic" => 4.0,
        "bbr" => 8.0,
        _ => 9.0,
    };
    let base = if loss == "1%" && system == "cubic" { base / 4.0 } else { base };
    let base = if rtt == "80ms" { base * 0.9 } else { base };
    let mut measured = Measurement::default();
    measured.record("goodput_mbit_s", Some(base * (1.0 + 0.01 * f64::from(block))));
    measured.record("retransmit_percent", Some(if loss == "1%" { 1.0 } else { 0.0 }));
    measured.record("queue_ms.p95", Some(if rtt == "80ms" { 3.0 } else { 12.0 } / base));
    measured.record("ideal_kbyte_s", Some(9.5));
    if (system, rtt, loss, block) == ("tcpa", "10ms", "0%", 1) {
        measured
            .invalid
            .push(Flaw { what: "the link was late".to_owned(), detail: "2 ms".to_owned() });
    }
    if (system, rtt, loss) == ("tcpa", "80ms", "1%") {
        measured.miss(&["queue_ms.p95"], "no queue stood".to_owned(), false);
        measured.metrics.shift_remove("queue_ms.p95");
    }
    Verdict::Measured(Box::new(measured))
}

#[test]
fn a_lab_with_every_table_has_these_results() {
    let lab = LabFile::parse("whole.toml", LAB).unwrap();
    let mut results = invented(&lab, verdict);
    // Leave the method out of the snapshot, because the method quotes the version of Weir.
    results.method.clear();
    insta::assert_snapshot!(results.to_json().unwrap());
}

/// Parses a lab with two algorithms over one link and four axes.
fn small(loss: &str, more: &str) -> LabFile {
    let text = SMALL.replace("LOSS", loss) + more;
    LabFile::parse("small.toml", &text).unwrap()
}

fn goodput(value: f64) -> Verdict {
    figure("goodput_mbit_s", value)
}

#[test]
fn cells_without_data_are_reported_with_the_likely_cause() {
    let warned = |loss: &str, empty: &[&str]| {
        let lab = small(loss, "");
        let of =
            |system: &str, _: &Axes, _| goodput(if empty.contains(&system) { 0.0 } else { 9.0 });
        invented(&lab, of).warnings
    };
    let at = "at rtt 10ms, loss LOSS, rate 10mbit, streams 2; likely cause: ";
    let told = |loss: &str, empty: &[&str]| {
        let warnings = warned(loss, empty);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        warnings[0].replace(&at.replace("LOSS", loss), "")
    };
    let (start, one) = ("no data arrived (0 Mbit/s) in ", "1 cell, for example bbr ");
    let every = told("100%", &["bbr"]);
    assert_eq!(every, format!("{start}{one}a link of the lab loses every packet (`loss`)"));
    let many = told("20%", &["bbr"]);
    let cause = "a link of the lab loses so many packets (`loss`) that TCP waits for its timeouts";
    assert_eq!(many, format!("{start}{one}{cause}"));
    let other = told("19%", &["cubic", "bbr"]);
    let rest = "2 cells, for example cubic the queue holds less than a packet";
    assert!(other.starts_with(&format!("{start}{rest}")), "{other}");
    assert_eq!(warned("100%", &[]), [""; 0]);
}

#[test]
fn a_heat_map_fixes_unnamed_axes_at_their_usual_values() {
    let heat = "[view]\nmetric = \"goodput_mbit_s\"\n[[heat]]\nmetrics = [\"goodput_mbit_s\"]\n\
                x = \"rtt\"\ny = \"loss\"\nat = { rate = [\"10mbit\"] }\n";
    let run = invented(&small("1%", heat), |_, _, _| goodput(9.0));
    let found = &run.view.as_ref().unwrap().heat;
    assert_eq!(found.len(), 1);
    let usual: Vec<(&str, &str)> =
        found[0].usual.iter().map(|(axis, value)| (axis.as_str(), value.as_str())).collect();
    assert_eq!(usual, [("streams", "2")]);
    let at: Vec<&str> = found[0].at.keys().map(String::as_str).collect();
    assert_eq!(at, ["rate"]);
}

#[test]
fn the_method_names_times_repeats_and_kernel_settings() {
    let run = invented(&small("1%", ""), |_, _, _| goodput(9.0));
    let said = |what: &str| run.method.get(what).map(String::as_str);
    assert_eq!(said("measured for"), Some("1s"));
    assert_eq!(said("repeats"), Some("6, in randomised blocks with every cell once"));
    assert_eq!(said("kernel settings of cubic"), Some("net.ipv4.tcp_sack = 0"));
    assert_eq!(said("kernel settings of bbr"), None);
    assert!(said("left out at the start").is_some(), "{:?}", run.method);
}

/// Goodput over the loopback may exceed the rate of the link.
#[test]
fn loopback_goodput_is_never_marked_as_above_the_link() {
    let text = SMALL
        .replace("LOSS", "1%")
        .replace("between = [\"a\"", "name = \"wire\"\nbetween = [\"a\"")
        .replace("to = \"b\"", "via = \"loopback\"");
    let lab = LabFile::parse("small.toml", &text).unwrap();
    let above = |lab: &LabFile| {
        let run = invented(lab, |_, _, _| goodput(12.0));
        run.cells.iter().filter(|cell| cell.above_link_mbit_s.is_some()).count()
    };
    assert_eq!((above(&lab), above(&small("1%", ""))), (0, 2));
}

const SMALL: &str = r#"name = "small"
hosts = ["a", "b"]
[axes]
rtt = ["10ms"]
loss = ["LOSS"]
rate = ["10mbit"]
streams = ["2"]
[usual]
rtt = "10ms"
loss = "LOSS"
rate = "10mbit"
streams = "2"
[[link]]
between = ["a", "b"]
rate = "{rate}"
rtt = "{rtt}"
loss = "{loss}"
[workload]
kind = "bulk"
from = "a"
to = "b"
streams = "{streams}"
[[system]]
name = "cubic"
kind = "tcp"
congestion = "cubic"
sysctl = { "net.ipv4.tcp_sack" = "0" }
[[system]]
name = "bbr"
kind = "tcp"
congestion = "bbr"
[form.full]
repeats = 6
duration = "1s"
[form.quick]
repeats = 6
duration = "1s"
"#;

const LAB: &str = r#"name = "whole"
title = "Every table"
question = "How much do three algorithms carry?"
answer = "At 80 ms and 1 % loss tcpa carries {tcpa: goodput_mbit_s at rtt=80ms, loss=1%} Mbit/s, {tcpa / cubic: goodput_mbit_s at rtt=80ms, loss=1%} of CUBIC."
hosts = ["a", "b"]
notes = ["A note."]
bounds = [
    "goodput_mbit_s[tcpa] >= 8",
    "goodput_mbit_s[tcpa/cubic, loss=1%] > 20",
    "retransmit_percent <= 1",
    "goodput_mbit_s[tcpa, rtt=10ms, loss=0%] < 9.18",
]
[axes]
rtt = ["10ms", "80ms"]
loss = ["0%", "1%"]
[usual]
rtt = "10ms"
[[link]]
between = ["a", "b"]
rate = "10mbit"
rtt = "{rtt}"
loss = "{loss}"
[workload]
kind = "bulk"
from = "a"
to = "b"
[[system]]
name = "cubic"
kind = "tcp"
congestion = "cubic"
[[system]]
name = "bbr"
kind = "tcp"
congestion = "bbr"
[[system]]
name = "tcpa"
kind = "tcp"
congestion = "tcpa"
[form.full]
repeats = 6
duration = "1s"
[form.quick]
repeats = 6
duration = "1s"
[[primary]]
metric = "goodput_mbit_s"
system = "tcpa"
baseline = "cubic"
at = { rtt = "80ms", loss = "1%" }
[view]
metric = "goodput_mbit_s"
rows = "loss"
system = "tcpa"
against = ["cubic"]
columns = ["goodput_mbit_s", "retransmit_percent"]
rounds = 2
also = ["queue_ms.p95"]
over = ["loss"]
[[heat]]
metrics = ["goodput_mbit_s"]
x = "rtt"
y = "loss"
at = { rtt = ["10ms", "80ms"] }
[[compare]]
baseline = "cubic"
metrics = ["goodput_mbit_s", "queue_ms.p95"]
systems = ["tcpa", "bbr"]
threshold = "2%"
ideal = ["ideal_kbyte_s"]
of_ideal = "95%"
[[spread]]
metric = "goodput_mbit_s"
baseline = "cubic"
systems = ["bbr", "tcpa"]
over = ["rtt"]
[[reference]]
system = "their cubic"
systems = ["cubic"]
axes = { rtt = "80ms", loss = "1%" }
metrics = { goodput_mbit_s = 1.5 }
source = "a report"
[[reference]]
system = "their tcpa"
systems = ["tcpa"]
axes = { rtt = "80ms", loss = "1%" }
metrics = { goodput_mbit_s = 7.5 }
source = "a report"
"#;
