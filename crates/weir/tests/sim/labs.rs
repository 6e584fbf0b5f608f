//! Labs in virtual time: the same results on any number of threads, errors with their place, and
//! runs that resume.

use crate::support::{World, await_some};
use serde_json::Value;

/// 24 turns.
const GRID: &str = r#"name = "grid"
hosts = ["left", "right"]
[axes]
loss = ["0%", "1%"]
buffer = ["0.5bdp", "2bdp"]
[[link]]
between = ["left", "right"]
rate = "20mbit"
rtt = "20ms"
queue = "droptail:{buffer}"
forward = { loss = "{loss}" }
[workload]
kind = "flows"
from = "left"
to = "right"
flows = 2
beside = "cubic"
stagger = "100ms"
[[system]]
name = "cubic"
kind = "tcp"
congestion = "cubic"
[[system]]
name = "bbr"
kind = "tcp"
congestion = "bbr"
[[system]]
name = "vegas"
kind = "tcp"
congestion = "vegas"
[form.full]
repeats = 3
duration = "2s"
"#;

#[test]
fn the_results_are_the_same_on_any_number_of_threads() {
    let Some(world) = World::new() else { return };
    world.write("grid.toml", GRID);
    let on = |threads: &str| {
        let out = format!("on-{threads}");
        let said = world.weir(&["sim", "run", "grid.toml", "--threads", threads, "--out", &out]);
        assert!(said.status.success(), "{said:?}");
        assert!(said.stderr.contains("vegas is left out"), "{said:?}");
        let mut results = world.results(&out);
        let environment = results["environment"].as_object_mut().unwrap();
        environment.retain(|name, _| name == "result_hash");
        assert_eq!(environment.len(), 1);
        for of_this_run in ["started", "duration_s", "command"] {
            results.as_object_mut().unwrap().remove(of_this_run);
        }
        results
    };
    let alone = on("1");
    assert_eq!(alone["cells"].as_array().unwrap().len(), 8);
    for name in ["share_of_ideal", "harm", "jain", "fair_share", "queue_bdp.p95"] {
        assert!(number(&alone, 1, name).is_finite(), "{name}");
    }
    // A flow beside flows of the same algorithm does no harm.
    assert_eq!(number(&alone, 0, "harm"), 0.0);
    assert_eq!(on("2"), alone);
    assert_eq!(on("8"), alone);
    assert_eq!(world.leftovers(), [""; 0]);
}

#[test]
fn the_built_in_labs_run_in_their_smoke_forms() {
    let Some(world) = World::new() else { return };
    for lab in ["cc-grid", "validate", "quic-tun", "tunnel-paths"] {
        let out = format!("run-{lab}");
        let said = world.weir(&["sim", "run", lab, "--smoke", "--out", &out]);
        assert!(said.status.success(), "{lab}: {said:?}");
        let results = world.results(&out);
        assert_eq!(results["valid"], true);
        assert!(!results["cells"].as_array().unwrap().is_empty());
    }
}

#[test]
fn each_executor_names_the_other_for_what_it_cannot_do() {
    let Some(world) = World::new() else { return };
    world.write("grid.toml", GRID);
    let cable = "name = \"cable\"\nhosts = [\"a\", \"b\"]\n[[link]]\nbetween = [\"a\", \"b\"]\ndirect = true\n\
                 [workload]\nkind = \"bulk\"\nfrom = \"a\"\nto = \"b\"\n[[system]]\nname = \"c\"\nkind = \"tcp\"\n\
                 congestion = \"cubic\"\n[form.full]\nduration = \"1s\"\n";
    world.write("cable.toml", cable);
    world.write(
        "cross.toml",
        GRID.replace(
            "[[system]]\nname = \"cubic\"",
            "cross = \"30%\"\n[[system]]\nname = \"cubic\"",
        ),
    );
    world.write("stranger.toml", GRID.replace("\"cubic\"\nstagger", "\"cubik\"\nstagger"));
    world.write("streams.toml", GRID.replace("flows = 2", "streams = 2"));
    world.write("bulk.toml", GRID.replace("\"flows\"", "\"bulk\""));
    let said = |words: &[&str]| {
        let said = world.weir(words);
        assert_eq!(said.status.code(), Some(2), "{said:?}");
        assert!(!world.path("runs").exists(), "{words:?} left something");
        said.stderr
    };
    for (words, expected) in [
        (
            ["lab", "run", "cross.toml"],
            "cross.toml:19: `cross` exists only in virtual time: weir sim run cross.toml",
        ),
        (
            ["lab", "run", "validate"],
            "labs/validate.toml:14: this workload exists only in virtual time",
        ),
        (["sim", "run", "link-accuracy"], "virtual time has none: weir lab run link-accuracy"),
        (["sim", "run", "cable.toml"], "cable.toml:9: a link without a `rate`"),
        (["sim", "run", "stranger.toml"], "stranger.toml:17: "),
        (["sim", "run", "streams.toml"], "streams.toml:16: a workload `flows` counts `flows`"),
        (
            ["sim", "run", "bulk.toml"],
            "bulk.toml:16: `flows` is for workloads of `kind = \"flows\"`",
        ),
        (["sim", "run", "cc-gird"], "did you mean `cc-grid`?"),
    ] {
        let told = said(&words);
        assert!(told.contains(expected), "{words:?}: {told}");
    }
}

#[test]
fn an_interrupted_run_resumes_with_the_same_result() {
    let Some(world) = World::new() else { return };
    // Long enough to be interrupted midway.
    world.write("grid.toml", GRID.replace("repeats = 3", "repeats = 60"));
    let running = world.start(&["sim", "run", "grid.toml", "--threads", "2", "--out", "cut"]);
    await_some("a few finished turns", || (world.journal("cut").len() >= 5).then_some(()));
    running.signal("INT");
    let said = running.end();
    assert_eq!(said.status.code(), Some(1), "{said:?}");
    assert!(said.stderr.contains("weir sim run grid.toml --resume cut"), "{said:?}");
    let before = world.journal("cut");
    assert!(before.len() < 480, "it was finished before it was interrupted");
    let said = world.weir(&["sim", "run", "grid.toml", "--resume", "cut"]);
    assert!(said.status.success(), "{said:?}");
    assert_eq!(world.journal("cut")[..before.len()], before, "finished turns were changed");
    let whole = world.weir(&["sim", "run", "grid.toml", "--out", "whole"]);
    assert!(whole.status.success(), "{whole:?}");
    let hash = |run: &str| world.results(run)["environment"]["result_hash"].clone();
    assert_eq!(hash("cut"), hash("whole"));
}

fn number(results: &Value, cell: usize, metric: &str) -> f64 {
    results["cells"][cell]["metrics"][metric]["median"].as_f64().unwrap_or(f64::NAN)
}

const TUNNELS: &str = r#"name = "tunnels"
seed = 3
hosts = ["left", "right"]
[axes]
loss = ["0%", "1%"]
[[link]]
between = ["left", "right"]
rate = "20mbit"
rtt = "20ms"
queue = "droptail:1bdp"
loss = "{loss}"
[workload]
kind = "flows"
from = "left"
to = "right"
flows = 2
beside = "cubic"
omit = "1s"
[[system]]
name = "tcp-tcpa"
kind = "tcp"
congestion = "tcpa"
[[system]]
name = "tunnel-tcpa"
kind = "tunnel"
congestion = "tcpa"
[[system]]
name = "tunnel-bbr"
kind = "tunnel"
congestion = "bbr"
[form.full]
repeats = 2
duration = "2s"
"#;

#[test]
fn tunnels_run_in_virtual_time_and_one_seed_gives_one_hash() {
    let Some(world) = World::new() else { return };
    world.write("tunnels.toml", TUNNELS);
    world.write("other.toml", TUNNELS.replace("seed = 3", "seed = 4"));
    let hash = |lab: &str, threads: &str, out: &str| {
        let said = world.weir(&["sim", "run", lab, "--threads", threads, "--out", out]);
        assert!(said.status.success(), "{said:?}");
        let told = said.stdout.lines().find_map(|line| line.strip_prefix("hash: "));
        let told = told.unwrap().to_owned();
        assert_eq!(world.results(out)["environment"]["result_hash"], told.as_str());
        told
    };
    let one = hash("tunnels.toml", "1", "one");
    assert_eq!(hash("tunnels.toml", "2", "two"), one);
    assert_eq!(hash("tunnels.toml", "8", "three"), one);
    assert_ne!(hash("other.toml", "2", "other"), one);
    let results = world.results("one");
    assert_eq!(results["cells"].as_array().unwrap().len(), 6);
    for cell in 0..6 {
        assert!(number(&results, cell, "goodput_mbit_s") > 2.0, "{cell}");
        assert!(number(&results, cell, "retransmit_percent") >= 0.0, "{cell}");
        assert!(number(&results, cell, "harm").is_finite(), "{cell}");
    }
    assert_eq!(world.leftovers(), [""; 0]);
}

#[test]
fn an_impossible_tunnel_in_a_lab_file_is_refused() {
    let Some(world) = World::new() else { return };
    let bbr = "kind = \"tunnel\"\ncongestion = \"bbr\"";
    for (verb, instead, expected) in [
        ("lab", bbr.to_owned(), "tunnels.toml:24: `kind = \"tunnel\"` exists only in virtual time"),
        ("lab", bbr.to_owned(), "a system of `kind = \"external\"` that runs weir tunnel"),
        ("sim", bbr.replace("bbr", "vegas"), "choose one of tcpa, bbr, cubic and 'fixed RATE'"),
        ("sim", bbr.replace("congestion", "note"), "add `congestion = \"tcpa\"`"),
        ("sim", format!("{bbr}\nwarm = true"), "`warm` is for systems of `kind = \"tcp\"`"),
        ("sim", format!("{bbr}\nclient = \"weir\""), "`kind = \"external\"` run commands"),
    ] {
        world.write("tunnels.toml", TUNNELS.replace(bbr, &instead));
        let said = world.weir(&[verb, "run", "tunnels.toml"]);
        assert_eq!(said.status.code(), Some(2), "{said:?}");
        assert!(said.stderr.contains(expected), "{said:?}");
    }
}
