//! `--resume` keeps the finished turns of a killed run unchanged, and measures only the other
//! turns.

use crate::support::{Sandbox, await_some};
use std::io::Write;

/// A lab of eight turns of about a second each.
const LAB: &str = r#"
name = "steps"
hosts = ["left", "right"]
[axes]
rate = ["10mbit", "20mbit"]
delay = ["1ms", "2ms"]
[[link]]
between = ["left", "right"]
rate = "{rate}"
delay = "{delay}"
queue = "droptail:8MiB"
[workload]
kind = "link-accuracy"
from = "left"
to = "right"
[[system]]
name = "emu"
kind = "link"
[form.full]
repeats = 2
duration = "300ms"
[form.smoke]
duration = "300ms"
cells = [{ rate = ["10mbit"] }]
"#;

#[test]
fn a_killed_run_resumes_where_it_stopped() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    sandbox.write("steps.toml", LAB);
    // Later runs that a bare `--resume` must skip: a run of another form, and a finished run.
    let killed = sandbox.start(&["lab", "run", "steps.toml"]);
    let run = await_some("a third finished turn", || {
        let run = only_run(&sandbox)?;
        (sandbox.journal(&run).len() >= 3).then_some(run)
    });
    killed.signal("KILL");
    killed.end();
    assert_eq!(sandbox.leftovers(), [""; 0]);
    let other = sandbox.start(&[
        "lab",
        "run",
        "steps.toml",
        "--smoke",
        "--out",
        "runs/steps-smoke-99991231-000000",
    ]);
    await_some("a finished turn", || {
        (!sandbox.journal("runs/steps-smoke-99991231-000000").is_empty()).then_some(())
    });
    other.signal("KILL");
    other.end();
    let before = sandbox.journal(&run);
    assert!(before.len() < 8, "the run was finished before it was killed");
    // Truncates the journal inside a character of two bytes.
    let mut journal = std::fs::OpenOptions::new()
        .append(true)
        .open(sandbox.path(&run).join("journal.jsonl"))
        .unwrap();
    journal.write_all(b"{\"system\":\"emu\",\"axes\":{\"rate\":\"10 \xc2").unwrap();
    drop(journal);

    let output = sandbox.weir(&["lab", "run", "steps.toml", "--resume"]);
    output.assert_measured(&sandbox.results(&run));
    let after = sandbox.journal(&run);
    assert_eq!(after[..before.len()], before, "finished turns were changed");
    assert_eq!(after.len(), 8);
    let mut turns: Vec<String> = after.iter().map(|line| turn_of(line)).collect();
    turns.sort();
    turns.dedup();
    assert_eq!(turns.len(), 8, "a turn was measured twice");
    let results = sandbox.results(&run);
    assert_eq!(results["cells"].as_array().unwrap().len(), 4);
    assert!(!sandbox.path(&run).join(".programs").exists(), "temporary files of programs stay");
    // No run of this form is left to continue.
    let output = sandbox.weir(&["lab", "run", "steps.toml", "--resume"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stderr.contains("no unfinished run of `steps`"), "{output:?}");
    // A run's directory is enough to name the lab and the form.
    let smoke = "runs/steps-smoke-99991231-000000";
    let output = sandbox.weir(&["lab", "run", "--resume", smoke]);
    let results = sandbox.results(smoke);
    output.assert_measured(&results);
    assert_eq!(results["form"], "smoke");
}

#[test]
fn invalid_turns_are_measured_again_on_request_and_count_once() {
    let Some(sandbox) = Sandbox::new() else { return };
    // The emulator is late on purpose, so every turn is invalid.
    let disturbed = "[disturbance]\nstalls = \"10ms every 50ms\"\n[workload]\n";
    let lab = LAB.replace("[workload]\n", disturbed).replace("link-accuracy", "bulk");
    let lab = lab.replace("kind = \"link\"", "kind = \"tcp\"\ncongestion = \"cubic\"");
    sandbox.write("late.toml", lab);
    let output = sandbox.weir(&["lab", "run", "late.toml", "--smoke", "--out", "late"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let before = sandbox.journal("late");
    let resume = ["lab", "run", "late.toml", "--smoke", "--resume", "late"];
    sandbox.weir(&resume);
    assert_eq!(sandbox.journal("late"), before, "an invalid turn was measured again unasked");
    let output = sandbox.weir(&[&resume[..], &["--again"]].concat());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = format!("{} turns that failed or were invalid are measured again", before.len());
    assert!(output.stderr.contains(&said), "{output:?}");
    let after = sandbox.journal("late");
    assert_eq!(after[..before.len()], before, "finished turns were changed");
    assert_eq!(after.len(), 2 * before.len());
    // The newest result of each turn counts.
    let cell = &sandbox.results("late")["cells"][0];
    let again = after[before.len()..].iter().map(|line| serde_json::from_str(line).unwrap());
    let newest = again.into_iter().find(|turn: &serde_json::Value| turn["axes"] == cell["axes"]);
    let newest = &newest.unwrap()["measured"]["metrics"]["lateness_us.max"]["value"];
    assert_eq!(&cell["metrics"]["lateness_us.max"]["median"], newest, "{cell}");
    assert_eq!(sandbox.leftovers(), [""; 0]);
    let output = sandbox.weir(&["lab", "run", "late.toml", "--again"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn a_run_that_has_ended_continues_with_more_repeats() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    sandbox.write("steps.toml", LAB);
    let smoke = ["lab", "run", "steps.toml", "--smoke"];
    let output = sandbox.weir(&[&smoke[..], &["--repeats", "1", "--out", "run"]].concat());
    output.assert_measured(&sandbox.results("run"));
    let before = sandbox.journal("run");
    let output = sandbox.weir(&["lab", "run", "--resume", "run", "--repeats", "3"]);
    let results = sandbox.results("run");
    output.assert_measured(&results);
    let after = sandbox.journal("run");
    assert_eq!(after[..before.len()], before, "finished turns were changed");
    assert_eq!(after.len(), 3 * before.len());
    assert_eq!(results["environment"]["repeats_at_first"], 1);
    let notes = results["notes"].to_string();
    assert!(notes.contains("was continued from 1 to 3 repeats"), "{notes}");
    // After another `--resume` the run must still state its first number of repeats.
    let output = sandbox.weir(&["lab", "run", "--resume", "run"]);
    output.assert_measured(&sandbox.results("run"));
    assert_eq!(sandbox.journal("run"), after);
    assert_eq!(sandbox.results("run")["environment"]["repeats_at_first"], 1);
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

#[test]
fn a_run_is_not_resumed_with_another_lab_file_or_form() {
    let Some(sandbox) = Sandbox::new() else { return };
    // The run has more turns than the commands below need. The test kills the run after the
    // commands.
    let lab = LAB.replace("repeats = 2", "repeats = 100");
    sandbox.write("steps.toml", &lab);
    let begun = sandbox.start(&["lab", "run", "steps.toml", "--out", "begun"]);
    await_some("a finished turn", || (!sandbox.journal("begun").is_empty()).then_some(()));
    // Starts a second run in the same directory while the first continues.
    let output = sandbox.weir(&["lab", "run", "steps.toml", "--out", "begun"]);
    assert_ne!(output.status.code(), Some(0));
    assert!(output.stderr.contains("another weir is running here"), "{output:?}");
    let output = sandbox.weir(&["lab", "run", "steps.toml", "--resume", "begun"]);
    assert!(output.stderr.contains("another weir is running here"), "{output:?}");
    begun.signal("KILL");
    begun.end();
    let before = std::fs::read(sandbox.path("begun/journal.jsonl")).unwrap();

    let output = sandbox.weir(&["lab", "run", "steps.toml", "--smoke", "--resume", "begun"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(
        output.stderr.contains("it was begun in its full form, not smoke: leave out --smoke"),
        "{output:?}"
    );
    sandbox.write("steps.toml", lab.replace("20mbit", "30mbit"));
    let output = sandbox.weir(&["lab", "run", "steps.toml", "--resume", "begun"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stderr.contains("the lab file has changed since: leave out"), "{output:?}");
    let output = sandbox.weir(&["lab", "run", "steps.toml", "--out", "begun"]);
    assert_ne!(output.status.code(), Some(0));
    assert!(output.stderr.contains("holds a run already"), "{output:?}");
    for nothing in ["nowhere", "."] {
        let output = sandbox.weir(&["lab", "run", "steps.toml", "--resume", nothing]);
        assert_ne!(output.status.code(), Some(0), "{output:?}");
        assert!(output.stderr.contains("is not a run that can be resumed"), "{output:?}");
    }
    assert_eq!(std::fs::read(sandbox.path("begun/journal.jsonl")).unwrap(), before);
    assert!(!sandbox.path("nowhere").exists());
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

/// A lab must not change the user's files, and so refuses a folder that is not empty.
#[test]
fn a_folder_that_is_not_empty_is_refused() {
    let Some(sandbox) = Sandbox::new() else { return };
    sandbox.write("lab.toml", LAB);
    std::fs::create_dir(sandbox.path("mine")).unwrap();
    sandbox.write("mine/report.md", "my own words");
    for place in [".", "mine", "lab.toml"] {
        let output = sandbox.weir(&["lab", "run", "lab.toml", "--out", place]);
        assert_ne!(output.status.code(), Some(0), "{output:?}");
        assert!(output.stderr.contains(place) && !output.stderr.contains("panic"), "{output:?}");
    }
    assert_eq!(sandbox.read("mine/report.md"), "my own words");
    assert!(!sandbox.path("run.toml").exists() && !sandbox.path("mine/run.toml").exists());
}

fn only_run(sandbox: &Sandbox) -> Option<String> {
    let entry = std::fs::read_dir(sandbox.path("runs")).ok()?.next()?.ok()?;
    Some(format!("runs/{}", entry.file_name().to_str()?))
}

fn turn_of(line: &str) -> String {
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    format!("{} {} {}", line["system"], line["axes"], line["block"])
}
