//! Labs without an emulator: a plain cable between two hosts, and a host's own loopback.

use crate::support::{Sandbox, floor};
use serde_json::Value;
use testing::Attempt;

const LAB: &str = r#"
name = "cables"
hosts = ["near", "far"]
[axes]
path = ["loopback", "veth"]
streams = ["1", "3"]
[[link]]
name = "veth"
between = ["near", "far"]
direct = true
[workload]
kind = "bulk"
from = "near"
via = "{path}"
streams = "{streams}"
[[system]]
name = "cubic"
kind = "tcp"
congestion = "cubic"
[form.full]
duration = "1s"
"#;

#[test]
fn loopback_and_cable_are_measured_without_an_emulator() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    sandbox.write("cables.toml", LAB);
    let (output, results) = sandbox.measure(&["cables.toml"], &["goodput_mbit_s", "rtt_us.p50"]);
    output.assert_measured(&results);
    let cells = results["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 4);
    for cell in cells {
        let metrics = &cell["metrics"];
        assert!(
            metrics["goodput_mbit_s"]["median"].as_f64().unwrap() > floor(cell, 1_000.0),
            "{cell}"
        );
        for name in ["cpu_percent.system", "cpu_seconds_per_gbit.system", "rtt_us.p50"] {
            assert!(metrics[name]["median"].as_f64().unwrap() > 0.0, "{name}: {cell}");
        }
        for name in ["lateness_us.p99", "queue_kbyte.p50", "emulator_busy_percent"] {
            assert_eq!(metrics[name], Value::Null, "an emulator's {name}: {cell}");
        }
        let parallel = cell["axes"]["streams"] == "3";
        assert_eq!(metrics["jain"].is_object(), parallel, "{cell}");
    }
    assert_eq!(results["environment"]["emulator_cpu"], Value::Null);
    let cpus = std::thread::available_parallelism().unwrap().get();
    assert_eq!(results["environment"]["workload_cpus"].as_array().unwrap().len(), cpus);
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

#[test]
fn a_lab_with_one_host_needs_no_link() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    let link = "[[link]]\nname = \"veth\"\nbetween = [\"near\", \"far\"]\ndirect = true\n";
    let lab = LAB
        .replace("[\"near\", \"far\"]\n[axes]", "[\"near\"]\n[axes]")
        .replace(link, "")
        .replace("path = [\"loopback\", \"veth\"]\nstreams = [\"1\", \"3\"]", "")
        .replace("{path}", "loopback")
        .replace("\"{streams}\"", "1");
    sandbox.write("alone.toml", lab);
    let (output, results) = sandbox.measure(&["alone.toml"], &["goodput_mbit_s"]);
    output.assert_measured(&results);
    let cell = &results["cells"][0];
    assert!(
        cell["metrics"]["goodput_mbit_s"]["median"].as_f64().unwrap() > floor(cell, 1_000.0),
        "{cell}"
    );
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

/// `weir lab ab` builds its network in another way than `weir lab run`.
#[test]
fn ab_alternates_over_a_cable() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    let systems =
        "[[system]]\nname = \"again\"\nkind = \"tcp\"\ncongestion = \"cubic\"\n[form.full]";
    sandbox.write("cables.toml", LAB.replace("[form.full]", systems));
    for path in ["loopback", "veth"] {
        let at = format!("path={path}");
        let ab = || {
            sandbox.weir(&[
                "lab",
                "ab",
                "cables.toml",
                "--base",
                "cubic",
                "--change",
                "again",
                "--at",
                &at,
                "--pairs",
                "20",
                "--slice",
                "100ms",
                "--json",
            ])
        };
        // If the machine stalls for a whole slice, little or nothing arrives in the slice.
        testing::undisturbed("slices of a comparison", |_| {
            let output = ab();
            if output.status.code() != Some(0) {
                return Attempt::Wrong(format!("{output:?}"));
            }
            let answer: Value = serde_json::from_str(&output.stdout).unwrap();
            let observations = answer["observations"].as_array().unwrap();
            assert!(!observations.is_empty(), "{answer}");
            match observations.iter().all(|one| one["value"].as_f64().unwrap() > 10.0) {
                true => Attempt::Right(()),
                false => Attempt::Wrong(answer.to_string()),
            }
        });
    }
    assert_eq!(sandbox.leftovers(), [""; 0]);
}
