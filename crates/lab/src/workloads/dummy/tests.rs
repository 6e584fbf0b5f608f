//! Tests that a lab file with a new workload is parsed, planned and simulated.

use crate::bench::{Executor, LabFile};
use crate::model::{Cancel, Outcome, Plan, PlannedCell};
use crate::runs::{Ended, Progress, run};
use crate::workloads::tests::simulated;
use std::time::Duration;

#[test]
fn a_registered_workload_is_planned_and_simulated() {
    let lab = LabFile::parse("dummy.toml", LAB).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let request = simulated(lab, folder.path(), 2);
    let mut seen = Seen::default();
    let Ended::Run(finished) = run(request, &Cancel::default(), &mut seen).unwrap() else {
        panic!()
    };
    assert_eq!((seen.cells, seen.steps, seen.done), (2, 4, 4));
    let cells: Vec<(&str, f64, &str)> = finished
        .results
        .cells
        .iter()
        .map(|cell| {
            let drops = &cell.metrics["drops"];
            (cell.axes["many"].as_str(), drops.median, drops.unit.as_str())
        })
        .collect();
    assert_eq!(cells, [("3", 3.0, "packets"), ("5", 5.0, "packets")]);
    assert_eq!(finished.results.method["drops"], "as many as the file asks for");
    assert!(finished.directory.join("results.json").exists());
}

#[test]
fn the_keys_of_a_registered_workload_are_checked() {
    let refused = |from: &str, to: &str| {
        let text = LAB.replace(from, to);
        LabFile::parse("dummy.toml", &text).unwrap_err().to_string()
    };
    let wrong = refused("packets = \"{many}\"", "packets = \"{many}\"\nidle = 1");
    let kinds = "`idle` is for workloads of `kind = \"crowd\"` or `\"tunnelled\"`";
    assert!(wrong.ends_with(kinds), "{wrong}");
    let wrong = refused("\"5\"", "\"5000\"");
    assert_eq!(wrong, "dummy.toml:10: `packets` is from 1 to 1000");
    let wrong = refused("kind = \"dummy\"", "kind = \"bulk\"");
    assert_eq!(wrong, "dummy.toml:10: `packets` is for workloads of `kind = \"dummy\"`");
    let wrong = refused("packets =", "pakets =");
    assert_eq!(wrong, "dummy.toml:10: unknown key `pakets` (did you mean `packets`?)");
}

#[test]
fn a_machine_refuses_a_workload_of_the_simulator_with_a_reason() {
    let lab = LabFile::parse("dummy.toml", LAB).unwrap();
    let weir = std::path::PathBuf::from("weir");
    let machine = Executor::Machine { privilege: host::Privilege::Root, weir, profile: false };
    let error = machine.bench(&lab).err().unwrap().to_string();
    let expected = "this workload exists only in tests: weir sim run dummy.toml";
    assert!(error.ends_with(expected), "{error}");
}

#[derive(Debug, Default)]
struct Seen {
    cells: usize,
    steps: usize,
    done: usize,
}

impl Progress for Seen {
    fn plan(&mut self, plan: &Plan, _finished: usize, _estimate: Duration) {
        (self.cells, self.steps) = (plan.cells.len(), plan.steps.len());
    }

    fn step(&mut self, _number: usize, _cell: &PlannedCell, _estimate: Duration) {}

    fn done(&mut self, _number: usize, _outcome: &Outcome) {
        self.done += 1;
    }

    fn note(&mut self, _text: &str) {}
}

const LAB: &str = r#"name = "dummy"
hosts = ["a", "b"]
[axes]
many = ["3", "5"]
[[link]]
between = ["a", "b"]
rate = "10mbit"
[workload]
kind = "dummy"
packets = "{many}"
from = "a"
to = "b"
[[system]]
name = "cubic"
kind = "tcp"
congestion = "cubic"
[form.full]
repeats = 2
duration = "1s"
"#;
