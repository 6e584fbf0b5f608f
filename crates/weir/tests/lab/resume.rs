//! `--resume` keeps the finished turns of a killed run unchanged, and measures only the rest.

use crate::support::{World, await_some};
use std::io::Write;

/// Eight turns of about a second.
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
    let Some(world) = World::quiet() else { return };
    world.write("steps.toml", LAB);
    // Later runs that a bare `--resume` must skip: a run of another form, and a finished one.
    let killed = world.start(&["lab", "run", "steps.toml"]);
    let run = await_some("a third finished turn", || {
        let run = only_run(&world)?;
        (world.journal(&run).len() >= 3).then_some(run)
    });
    killed.signal("KILL");
    killed.end();
    assert_eq!(world.leftovers(), [""; 0]);
    let other = world.start(&[
        "lab",
        "run",
        "steps.toml",
        "--smoke",
        "--out",
        "runs/steps-smoke-99991231-000000",
    ]);
    await_some("a finished turn", || {
        (!world.journal("runs/steps-smoke-99991231-000000").is_empty()).then_some(())
    });
    other.signal("KILL");
    other.end();
    let before = world.journal(&run);
    assert!(before.len() < 8, "the run was finished before it was killed");
    // Truncated inside a character of two bytes.
    let mut journal = std::fs::OpenOptions::new()
        .append(true)
        .open(world.path(&run).join("journal.jsonl"))
        .unwrap();
    journal.write_all(b"{\"system\":\"emu\",\"axes\":{\"rate\":\"10 \xc2").unwrap();
    drop(journal);

    let said = world.weir(&["lab", "run", "steps.toml", "--resume"]);
    assert!(said.status.success(), "{said:?}");
    let after = world.journal(&run);
    assert_eq!(after[..before.len()], before, "finished turns were changed");
    assert_eq!(after.len(), 8);
    let mut turns: Vec<String> = after.iter().map(|line| turn_of(line)).collect();
    turns.sort();
    turns.dedup();
    assert_eq!(turns.len(), 8, "a turn was measured twice");
    let results = world.results(&run);
    assert_eq!(results["cells"].as_array().unwrap().len(), 4);
    assert!(!world.path(&run).join(".programs").exists(), "temporary files of programs stay");
    // Nothing is left to continue, in this form.
    let said = world.weir(&["lab", "run", "steps.toml", "--resume"]);
    assert_eq!(said.status.code(), Some(2), "{said:?}");
    assert!(said.stderr.contains("no unfinished run of `steps`"), "{said:?}");
}

#[test]
fn another_lab_file_or_form_is_refused() {
    let Some(world) = World::quiet() else { return };
    world.write("steps.toml", LAB);
    let begun = world.start(&["lab", "run", "steps.toml", "--out", "begun"]);
    await_some("a finished turn", || (!world.journal("begun").is_empty()).then_some(()));
    // A second run in the same directory, while the first continues.
    let said = world.weir(&["lab", "run", "steps.toml", "--out", "begun"]);
    assert_ne!(said.status.code(), Some(0));
    assert!(said.stderr.contains("another weir is running here"), "{said:?}");
    let said = world.weir(&["lab", "run", "steps.toml", "--resume", "begun"]);
    assert!(said.stderr.contains("another weir is running here"), "{said:?}");
    begun.signal("KILL");
    begun.end();
    let before = std::fs::read(world.path("begun/journal.jsonl")).unwrap();

    let said = world.weir(&["lab", "run", "steps.toml", "--smoke", "--resume", "begun"]);
    assert_eq!(said.status.code(), Some(2), "{said:?}");
    assert!(said.stderr.contains("it was begun in its full form, not smoke"), "{said:?}");
    world.write("steps.toml", LAB.replace("20mbit", "30mbit"));
    let said = world.weir(&["lab", "run", "steps.toml", "--resume", "begun"]);
    assert_eq!(said.status.code(), Some(2), "{said:?}");
    assert!(said.stderr.contains("the lab file has changed since"), "{said:?}");
    let said = world.weir(&["lab", "run", "steps.toml", "--out", "begun"]);
    assert_ne!(said.status.code(), Some(0));
    assert!(said.stderr.contains("holds a run already"), "{said:?}");
    for nothing in ["nowhere", "."] {
        let said = world.weir(&["lab", "run", "steps.toml", "--resume", nothing]);
        assert_ne!(said.status.code(), Some(0), "{said:?}");
        assert!(said.stderr.contains("is not a run that can be resumed"), "{said:?}");
    }
    assert_eq!(std::fs::read(world.path("begun/journal.jsonl")).unwrap(), before);
    assert!(!world.path("nowhere").exists());
    assert_eq!(world.leftovers(), [""; 0]);
}

/// Other people's files stay unchanged: a folder that is not empty is refused.
#[test]
fn a_folder_with_something_in_it_is_refused() {
    let Some(world) = World::new() else { return };
    world.write("lab.toml", LAB);
    std::fs::create_dir(world.path("mine")).unwrap();
    world.write("mine/report.md", "my own words");
    for place in [".", "mine", "lab.toml"] {
        let said = world.weir(&["lab", "run", "lab.toml", "--out", place]);
        assert_ne!(said.status.code(), Some(0), "{said:?}");
        assert!(said.stderr.contains(place) && !said.stderr.contains("panic"), "{said:?}");
    }
    assert_eq!(world.read("mine/report.md"), "my own words");
    assert!(!world.path("run.toml").exists() && !world.path("mine/run.toml").exists());
}

fn only_run(world: &World) -> Option<String> {
    let entry = std::fs::read_dir(world.path("runs")).ok()?.next()?.ok()?;
    Some(format!("runs/{}", entry.file_name().to_str()?))
}

fn turn_of(line: &str) -> String {
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    format!("{} {} {}", line["system"], line["axes"], line["block"])
}
