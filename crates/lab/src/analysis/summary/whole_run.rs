//! The whole `results.json` of a lab that has every kind of table.

use crate::analysis::summary;
use crate::bench::LabFile;
use crate::model::plan::{Plan, Step};
use crate::model::{Flaw, Measurement, Outcome, Verdict};
use results::{Axes, Form, Results};

/// A run of all systems whose repeats `verdict` invents, by system, place and block.
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
    // The method quotes the version of Weir.
    results.method.clear();
    insta::assert_snapshot!(results.to_json().unwrap());
}

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
