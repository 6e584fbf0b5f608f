//! Every topology and every kind of traffic of a lab in virtual time, and the mistakes in such a
//! lab file, reported with their place.

use crate::support::Sandbox;
use serde_json::Value;
use std::fmt::Write;

const LAB: &str = r#"name = "worlds"
hosts = ["left", "right"]
[axes]
loss = ["none", "lossy"]
[words]
lossy = "0.1%"
[[link]]
between = ["left", "right"]
rate = "20mbit"
rtt = "20ms"
queue = "droptail:1bdp"
forward = { loss = "{loss}" }
[workload]
kind = "flows"
from = "left"
to = "right"
[[system]]
name = "cubic"
kind = "tcp"
congestion = "cubic"
[[system]]
name = "bbr"
kind = "tcp"
congestion = "bbr"
[form.full]
duration = "3s"
omit = "1s"
cells = [{ loss = ["none"] }]
"#;

/// The name of the world, the texts of the file to replace with their replacements, and the metrics
/// that the cells must have.
type Kind = (&'static str, &'static [(&'static str, &'static str)], &'static [&'static str]);

const FLOWS: &str = "to = \"right\"";
const TOPOLOGY: &str = "[workload]";
const FORWARD: &str = "forward = { loss = \"{loss}\" }";

const KINDS: &[Kind] = &[
    (
        "round trips of one to ten",
        &[
            (TOPOLOGY, "[topology]\nrtts = \"1:10\"\n[workload]"),
            (FLOWS, "to = \"right\"\nflows = 2"),
        ],
        &["jain", "share_of_ideal", "convergence_rtts", "rtt_us.p50"],
    ),
    (
        "a parking lot",
        &[
            (TOPOLOGY, "[topology]\nshape = \"parking-lot\"\nhops = 3\n[workload]"),
            (FLOWS, "to = \"right\"\nbeside = \"cubic\""),
        ],
        &["share_of_ideal", "fair_share", "harm"],
    ),
    (
        "an incast",
        &[
            (TOPOLOGY, "[topology]\nshape = \"incast\"\naccess = \"100mbit\"\n[workload]"),
            (FLOWS, "to = \"right\"\nflows = 16\nsize = \"64KB\""),
        ],
        &["fct_ms.p99", "port_use", "drops", "slowdown.p99"],
    ),
    (
        "a fat tree",
        &[
            (TOPOLOGY, "[topology]\nshape = \"fat-tree\"\nports = 4\n[workload]"),
            ("rtt = \"20ms\"", "rtt = \"1ms\""),
            (FLOWS, "to = \"right\"\nflows = 16"),
        ],
        &["share_of_ideal", "jain", "queue_ms.p99"],
    ),
    (
        "many of ours beside one",
        &[(FLOWS, "to = \"right\"\nflows = 4\nbeside = \"cubic\"\nstagger = \"100ms\"")],
        &["harm", "fair_share", "jain", "convergence_rtts"],
    ),
    (
        "a rate that changes",
        &[(FORWARD, "forward = { loss = \"{loss}\", steps = \"50% at 1s, 20mbit at 2s\" }")],
        &["step_rtts", "share_of_ideal", "startup_queue_ms"],
    ),
    (
        "a policer",
        &[(FORWARD, "forward = { loss = \"{loss}\", policer = \"50%,burst=1bdp\" }")],
        &["share_of_ideal", "retransmit_percent"],
    ),
    (
        "acknowledgements in lumps",
        &[(FORWARD, "forward = { loss = \"{loss}\" }\nbackward = { aggregate = \"10ms\" }")],
        &["share_of_ideal", "queue_ms.p50"],
    ),
    (
        "applications that are on and off",
        &[(FLOWS, "to = \"right\"\nflows = 2\ndemand = \"8mbit,on=300ms,off=200ms,random\"")],
        &["goodput_mbit_s", "queue_ms.p95"],
    ),
    (
        "applications that have little to say",
        &[(FLOWS, "to = \"right\"\ndemand = \"64KB every 100ms\"")],
        &["share_of_ideal", "goodput_mbit_s"],
    ),
    (
        "flows of all sizes",
        &[(FLOWS, "to = \"right\"\narrivals = \"60%\"\nsize = \"10KB 50%, 500KB 90%, 2MB 100%\"")],
        &["fct_ms.p50", "fct_small_ms.p99", "fct_medium_ms.p50", "slowdown.p50"],
    ),
    (
        "hosts that are not as usual, on a path that is remembered wrongly",
        &[
            (TOPOLOGY, "[tcp]\ncoalesce = \"200us\"\nreceive_window = \"1MB\"\n[workload]"),
            (FLOWS, "to = \"right\"\nmemory = \"wrong\""),
            ("congestion = \"cubic\"", "congestion = \"tcpa\""),
            ("congestion = \"bbr\"", "congestion = \"tcpa\"\nwarm = true"),
        ],
        &["memory_queue_rtts", "startup_queue_ms", "share_of_ideal"],
    ),
    (
        "cross traffic",
        &[(FLOWS, "to = \"right\"\ncross = \"30%,poisson\"")],
        &["share_of_ideal", "queue_ms.p95"],
    ),
];

#[test]
fn every_topology_and_traffic_pattern_runs_from_its_file() {
    let Some(sandbox) = Sandbox::new() else { return };
    for (number, (what, changes, metrics)) in KINDS.iter().enumerate() {
        sandbox.write("lab.toml", changed(LAB, changes, what));
        let out = format!("run-{number}");
        let output = sandbox.weir(&["sim", "run", "lab.toml", "--out", &out]);
        assert!(output.status.success(), "{what}: {output:?}");
        let results = sandbox.results(&out);
        let cells = results["cells"].as_array().unwrap();
        assert_eq!(cells.len(), 2, "{what}");
        for cell in cells {
            assert_eq!(cell["failed"], Value::Null, "{what}: {cell}");
            for metric in *metrics {
                let value = cell["metrics"][metric]["median"].as_f64();
                assert!(value.is_some_and(f64::is_finite), "{what}: {metric} of {cell}");
            }
            if let Some(share) = cell["metrics"]["share_of_ideal"]["median"].as_f64() {
                assert!((0.2..1.1).contains(&share), "{what}: {share}");
            }
        }
    }
}

/// Mistakes, each with the text of the valid file to replace, and the text's replacement.
const NONSENSE: &[(&str, &str, &str)] = &[
    ("a shape that is none", TOPOLOGY, "[topology]\nshape = \"dumbell\"\n[workload]"),
    ("a key of the topology", TOPOLOGY, "[topology]\nshap = \"incast\"\n[workload]"),
    ("hops of a dumbbell", TOPOLOGY, "[topology]\nhops = 3\n[workload]"),
    ("ports of an incast", TOPOLOGY, "[topology]\nshape = \"incast\"\nports = 4\n[workload]"),
    ("odd ports", TOPOLOGY, "[topology]\nshape = \"fat-tree\"\nports = 5\n[workload]"),
    ("round trips that are none", TOPOLOGY, "[topology]\nrtts = \"1:0\"\n[workload]"),
    ("round trips without a unit", TOPOLOGY, "[topology]\nrtts = \"20\"\n[workload]"),
    ("access at nothing", TOPOLOGY, "[topology]\naccess = \"0mbit\"\n[workload]"),
    (
        "arrivals at an incast",
        "[workload]\nkind = \"flows\"",
        "[topology]\nshape = \"incast\"\n[workload]\narrivals = \"50%\"\nsize = \"1KB\"\nkind = \"flows\"",
    ),
    ("a step without its time", FORWARD, "forward = { loss = \"{loss}\", steps = \"50%\" }"),
    ("a step at the beginning", FORWARD, "forward = { loss = \"{loss}\", steps = \"50% at 0s\" }"),
    (
        "steps out of order",
        FORWARD,
        "forward = { loss = \"{loss}\", steps = \"50% at 2s, 9mbit at 1s\" }",
    ),
    ("a policer's key", FORWARD, "forward = { loss = \"{loss}\", polcer = \"50%\" }"),
    ("a policer's setting", FORWARD, "forward = { loss = \"{loss}\", policer = \"50%,bust=1KB\" }"),
    (
        "a policer that lets no frame through",
        FORWARD,
        "forward = { loss = \"{loss}\", policer = \"50%,burst=1KB\" }",
    ),
    ("overhead beyond a frame's own", FORWARD, "overhead = \"-1000\""),
    ("a queue of no number", "1bdp", "NaNbdp"),
    ("a trace without end", "rate = \"20mbit\"", "trace = \"/dev/zero\""),
    ("lumps without end", FORWARD, "forward = { loss = \"{loss}\", aggregate = \"1h\" }"),
    ("a link without a rate", "rate = \"20mbit\"\n", ""),
    ("arrivals without a size", FLOWS, "to = \"right\"\narrivals = \"50%\""),
    ("arrivals by a word", FLOWS, "to = \"right\"\narrivals = \"often\"\nsize = \"1KB\""),
    (
        "arrivals and a count",
        FLOWS,
        "to = \"right\"\narrivals = \"5/s\"\nsize = \"1KB\"\nflows = 3",
    ),
    (
        "more arrivals than a world has",
        FLOWS,
        "to = \"right\"\narrivals = \"1000000/s\"\nsize = \"1KB\"",
    ),
    ("a size of a strange name", FLOWS, "to = \"right\"\nsize = \"websearch\""),
    ("sizes that do not rise", FLOWS, "to = \"right\"\nsize = \"10KB 50%, 1KB 100%\""),
    ("sizes without their end", FLOWS, "to = \"right\"\nsize = \"10KB 50%\""),
    ("a demand and a size", FLOWS, "to = \"right\"\nsize = \"10KB\"\ndemand = \"50%\""),
    ("a demand's setting", FLOWS, "to = \"right\"\ndemand = \"50%,onn=1s\""),
    ("a demand half on", FLOWS, "to = \"right\"\ndemand = \"50%,on=1s\""),
    ("a demand that is none", FLOWS, "to = \"right\"\ndemand = \"bluk\""),
    ("cross traffic of nothing", FLOWS, "to = \"right\"\ncross = \"0%\""),
    ("cross traffic's setting", FLOWS, "to = \"right\"\ncross = \"10%,poison\""),
    ("a memory of another kind", FLOWS, "to = \"right\"\nmemory = \"wam\""),
    ("a memory of nothing", FLOWS, "to = \"right\"\nmemory = \"0x\""),
    ("hosts' key", TOPOLOGY, "[tcp]\ncoalese = \"1ms\"\n[workload]"),
    ("hosts' switch", TOPOLOGY, "[tcp]\noffload = \"of\"\n[workload]"),
    ("a delay without its unit", TOPOLOGY, "[tcp]\ndelayed_ack = \"40\"\n[workload]"),
    ("a window of less than a segment", TOPOLOGY, "[tcp]\nreceive_window = \"1KB\"\n[workload]"),
    ("a first window of nothing", TOPOLOGY, "[tcp]\ninitial_window = 0\n[workload]"),
    ("a word for no value", "lossy = ", "losssy = "),
    ("a word of a strange axis", "lossy = \"0.1%\"", "lossy = \"{los}\""),
    ("a usual value of no axis", "[[link]]", "[usual]\nlos = \"none\"\n[[link]]"),
    ("a usual value that is none", "[[link]]", "[usual]\nloss = \"2%\"\n[[link]]"),
    ("a trace of no cell", "[form.full]", "[[trace]]\nat = { loss = [\"2%\"] }\n[form.full]"),
    (
        "a trace of a stranger",
        "[form.full]",
        "[[trace]]\nat = { loss = [\"none\"] }\nsystems = [\"cubik\"]\n[form.full]",
    ),
    (
        "numbers of others that are none",
        "[form.full]",
        "[[reference]]\nsystem = \"other\"\nmetrics = { jain = nan }\n[form.full]",
    ),
    (
        "numbers of others by a strange name",
        "[form.full]",
        "[[reference]]\nsystem = \"other\"\nmetrics = { jian = 1.0 }\n[form.full]",
    ),
    (
        "a view of a stranger",
        "[form.full]",
        "[view]\nmetric = \"jain\"\nsystem = \"cubik\"\n[form.full]",
    ),
    (
        "a view against whom",
        "[form.full]",
        "[view]\nmetric = \"jain\"\nagainst = [\"cubic\"]\n[form.full]",
    ),
    ("keys of flows for a transfer", "kind = \"flows\"", "kind = \"bulk\"\ncross = \"10%\""),
    (
        "hosts of virtual time for a transfer",
        "[workload]\nkind = \"flows\"",
        "[tcp]\noffload = \"off\"\n[workload]\nkind = \"bulk\"",
    ),
    (
        "a topology for a transfer",
        "[workload]\nkind = \"flows\"",
        "[topology]\nrtts = \"1:2\"\n[workload]\nkind = \"bulk\"",
    ),
];

#[test]
fn mistakes_in_a_world_are_refused_with_file_and_line() {
    let Some(sandbox) = Sandbox::new() else { return };
    let (mut messages, mut wrong) = (String::new(), Vec::new());
    for (what, old, new) in NONSENSE {
        sandbox.write("lab.toml", changed(LAB, &[(old, new)], what));
        let output = sandbox.weir(&["sim", "run", "lab.toml"]);
        writeln!(messages, "{what}:\n  {}", output.stderr.trim_end().replace('\n', "\n  "))
            .unwrap();
        let refused = output.status.code() == Some(2) && !sandbox.path("runs").exists();
        if !refused || !output.stderr.starts_with("weir: lab.toml:") {
            wrong.push((what, output));
            let _ = std::fs::remove_dir_all(sandbox.path("runs"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    insta::assert_snapshot!("sim_nonsense", messages);
}

#[test]
fn features_of_virtual_time_are_refused_elsewhere() {
    let Some(sandbox) = Sandbox::new() else { return };
    let bulk = LAB.replace("\"flows\"", "\"bulk\"");
    for (key, text) in [("steps", "50% at 1s"), ("policer", "50%"), ("aggregate", "4ms")] {
        let link = format!("forward = {{ loss = \"{{loss}}\", {key} = \"{text}\" }}");
        sandbox.write("lab.toml", bulk.replace(FORWARD, &link));
        let output = sandbox.weir(&["lab", "run", "lab.toml"]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let expected = format!(
            "lab.toml:12: `forward.{key}` exists only in virtual time: weir sim run lab.toml"
        );
        assert!(output.stderr.contains(&expected), "{output:?}");
        let output = sandbox.weir(&["sim", "run", "lab.toml", "--out", key]);
        assert!(output.status.success(), "{output:?}");
    }
}

/// Checks that axis values are written as in the file, that usual values select cells, and that
/// means are grouped by the unusual property. The run keeps curves if the file asks for them.
#[test]
fn results_with_many_axes_are_grouped_by_unusual_values() {
    let Some(sandbox) = Sandbox::new() else { return };
    let lab = changed(
        LAB,
        &[
            ("[axes]\n", "[axes]\nrtt = [\"10ms\", \"20ms\"]\n"),
            ("[words]", "[usual]\nloss = \"none\"\nrtt = \"20ms\"\n[words]"),
            ("rtt = \"20ms\"\nqueue", "rtt = \"{rtt}\"\nqueue"),
            (
                "cells = [{ loss = [\"none\"] }]",
                "cells = [{ rtt = [\"10ms\", \"20ms\"] }, { loss = [\"lossy\"] }]",
            ),
            (
                "[form.full]",
                "[view]\nmetric = \"share_of_ideal\"\nsystem = \"bbr\"\nagainst = [\"cubic\"]\n\
                 over = [\"rtt\"]\n[[trace]]\nat = { loss = [\"lossy\"] }\n[form.full]",
            ),
        ],
        "planes",
    );
    sandbox.write("lab.toml", lab);
    let output = sandbox.weir(&["sim", "run", "lab.toml", "--out", "run"]);
    assert!(output.status.success(), "{output:?}");
    let results = sandbox.results("run");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let places: Vec<(String, String)> = results["cells"]
        .as_array()
        .unwrap()
        .iter()
        .map(|cell| (text(&cell["axes"]["rtt"]), text(&cell["axes"]["loss"])))
        .collect();
    let expected = [("10ms", "none"), ("20ms", "none"), ("20ms", "lossy")]
        .map(|(rtt, loss)| [(rtt.to_owned(), loss.to_owned()), (rtt.to_owned(), loss.to_owned())]);
    assert_eq!(places, expected.concat());
    let groups = results["groups"].as_array().unwrap();
    let groups: Vec<String> = groups.iter().map(|group| text(&group["name"])).collect();
    assert_eq!(groups, ["", "loss"]);
    assert!(output.stdout.contains("bbr against cubic, by its means over all cells"), "{output:?}");
    assert!(output.stdout.contains("by the unusual axes of a cell"), "{output:?}");
    for line in sandbox.journal("run") {
        let turn: Value = serde_json::from_str(&line).unwrap();
        let series = turn["measured"]["series"].as_array().unwrap();
        let names: Vec<String> = series.iter().map(|one| text(&one["name"])).collect();
        let expected: &[&str] = match turn["axes"]["loss"].as_str() {
            Some("lossy") => &["queue", "window", "rtt", "goodput"],
            _ => &[],
        };
        assert!(expected.iter().all(|name| names.iter().any(|n| n == name)), "{names:?}");
        assert_eq!(expected.is_empty(), names.is_empty(), "{names:?}");
    }
    assert!(sandbox.read("run/report.html").contains("Over time"));
}

/// Flows that cannot finish must end only their own cell, with a reason.
#[test]
fn a_cell_whose_flows_cannot_finish_has_a_reason() {
    let Some(sandbox) = Sandbox::new() else { return };
    let lab = changed(
        LAB,
        &[("lossy = \"0.1%\"", "lossy = \"100%\""), (FLOWS, "to = \"right\"\nsize = \"100KB\"")],
        "a dead link",
    );
    sandbox.write("lab.toml", lab.replace("[\"none\"]", "[\"none\", \"lossy\"]"));
    let output = sandbox.weir(&["sim", "run", "lab.toml", "--out", "run"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let results = sandbox.results("run");
    for cell in results["cells"].as_array().unwrap() {
        let failed = cell["failed"].as_str();
        match cell["axes"]["loss"].as_str() {
            Some("none") => assert_eq!(failed, None),
            _ => assert!(failed.unwrap().contains("1 flow was not done after"), "{cell}"),
        }
    }
}

/// The demand exceeds the link's capacity. Data still queued at the end of the measured time is no
/// goodput, and a cell without any arrival in the measured time must state the reason.
#[test]
fn late_data_does_not_count_as_goodput_and_a_cell_without_arrivals_has_no_result() {
    let Some(sandbox) = Sandbox::new() else { return };
    let lab = |flows: &str| changed(LAB, &[(FLOWS, flows)], "arrivals");
    sandbox.write("lab.toml", lab("to = \"right\"\narrivals = \"100%\"\nsize = \"1MB\""));
    let output = sandbox.weir(&["sim", "run", "lab.toml", "--out", "run"]);
    assert!(output.status.success(), "{output:?}");
    let results = sandbox.results("run");
    for cell in results["cells"].as_array().unwrap() {
        let goodput = cell["metrics"]["goodput_mbit_s"]["median"].as_f64().unwrap();
        assert!((5.0..20.0).contains(&goodput), "{goodput} of 20 Mbit/s: {cell}");
    }
    sandbox.write("lab.toml", lab("to = \"right\"\narrivals = \"every 1h\"\nsize = \"1MB\""));
    let output = sandbox.weir(&["sim", "run", "lab.toml", "--out", "nobody"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let results = sandbox.results("nobody");
    let failed = results["cells"][0]["failed"].as_str().unwrap();
    assert!(failed.contains("no flow arrived in the measured time"), "{failed}");
}

fn changed(lab: &str, changes: &[(&str, &str)], what: &str) -> String {
    changes.iter().fold(lab.to_owned(), |lab, (old, new)| {
        assert!(lab.contains(old), "{what}: the sound file has no {old}");
        lab.replacen(old, new, 1)
    })
}
