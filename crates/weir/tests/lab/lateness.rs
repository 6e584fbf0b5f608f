//! Lateness of the emulated link, made on purpose, and the bounds of a lab file.

use crate::support::{Sandbox, judge};
use testing::Attempt;

/// The emulator sleeps for a tenth of the time, so 99 % of the frames are late by up to nine tenths
/// of a stall.
#[test]
fn lateness_beyond_the_bound_makes_a_cell_invalid_every_time() {
    let Some(sandbox) = Sandbox::new() else { return };
    // The first three stalls make frames late by more than 5 % of a round trip of 1, 20 and 60 ms.
    // The last stall lasts more than 1 % of the turn.
    for (number, (delay, stalls)) in [
        ("500us", "2ms every 20ms"),
        ("10ms", "3ms every 30ms"),
        ("30ms", "9ms every 90ms"),
        ("30ms", "100ms every 400ms"),
    ]
    .into_iter()
    .enumerate()
    {
        sandbox.write("late.toml", LAB.replace("DELAY", delay).replace("STALLS", stalls));
        // A lab with a disturbance repeats no turn, even if a turn failed because the machine
        // stalled all the time.
        let measured = testing::undisturbed("lateness on purpose", |attempt| {
            let out = format!("run{number}-{attempt}");
            let output = sandbox.weir(&["lab", "run", "late.toml", "--out", &out]);
            let failed = |turn: &String| {
                let turn: serde_json::Value = serde_json::from_str(turn).unwrap();
                turn["failed"].is_string()
            };
            match sandbox.journal(&out).iter().any(failed) {
                true => Attempt::Wrong(format!("{output:?}")),
                false => Attempt::Right((out, output)),
            }
        });
        let (out, output) = measured.unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let results = sandbox.results(&out);
        assert_eq!(results["valid"], false, "{stalls}: {results}");
        for turn in sandbox.journal(&out) {
            let turn: serde_json::Value = serde_json::from_str(&turn).unwrap();
            let flaws = turn["measured"]["invalid"].as_array().unwrap();
            let is_late = |what: &str| what.contains("was late") || what.contains("stalled");
            let found = flaws.iter().any(|flaw| is_late(flaw["what"].as_str().unwrap()));
            assert!(found, "{stalls}: {turn}");
        }
        let metrics = &results["cells"][0]["metrics"];
        assert!(metrics["lateness_rtt_percent.p99"]["median"].is_f64(), "{metrics}");
    }
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

#[test]
fn a_bound_of_the_lab_file_decides_the_exit_status() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    let lab = LAB.replace("DELAY", "30ms").replace("STALLS", "none").replace("repeats = 2", "");
    for (bound, holds) in [("goodput_mbit_s < 20", true), ("goodput_mbit_s > 20", false)] {
        sandbox.write("bound.toml", format!("bounds = [\"{bound}\"]\n{lab}"));
        let (output, results) = sandbox.measure(&["bound.toml"], &["goodput_mbit_s"]);
        assert_eq!(results["bounds"][0]["holds"], holds, "{output:?}");
        let fine = holds && judge(&results);
        assert_eq!(output.status.code(), Some(i32::from(!fine)), "{output:?}");
        let said =
            if holds { "1 bound held in every cell" } else { "does not hold in 1 of 1 cells" };
        let text = output.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(said), "{text}");
    }
    sandbox.write("bound.toml", format!("bounds = [\"goodput_mbit_s\"]\n{lab}"));
    let output = sandbox.weir(&["lab", "run", "bound.toml"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stderr.contains("bound.toml:1: `goodput_mbit_s`: no >="), "{output:?}");
}

const LAB: &str = r#"
name = "late"
hosts = ["near", "far"]
[[link]]
between = ["near", "far"]
rate = "20mbit"
delay = "DELAY"
queue = "droptail:256KiB"
[disturbance]
stalls = "STALLS"
[workload]
kind = "bulk"
from = "near"
to = "far"
[[system]]
name = "cubic"
kind = "tcp"
congestion = "cubic"
[form.full]
repeats = 2
duration = "1s"
"#;
