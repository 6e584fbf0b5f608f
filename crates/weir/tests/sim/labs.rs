//! Labs in virtual time: the same results on any number of threads, errors with their place, and
//! runs that resume.

use crate::support::{Sandbox, await_some};
use serde_json::Value;

/// A lab of 24 turns.
pub const GRID: &str = r#"name = "grid"
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

/// A lab with two flows through a port whose period is set in the file, or follows the round trip.
const PERIODS: &str = r#"name = "periods"
hosts = ["senders", "receiver"]
[[link]]
between = ["senders", "receiver"]
rate = "500mbit"
rtt = "20ms"
queue = "droptail:1MB"
[topology]
shape = "incast"
[tcp]
pacing = "on"
[workload]
kind = "flows"
from = "senders"
to = "receiver"
flows = 2
omit = "1s"
[[system]]
name = "follows"
kind = "tcp"
congestion = "caqm"
caqm = "rtt_standard=20ms"
queue = "caqm:143KB,limit=2MB"
[[system]]
name = "short"
kind = "tcp"
congestion = "caqm"
caqm = "rtt_standard=20ms"
queue = "caqm:143KB,limit=2MB,period=200us"
[form.full]
repeats = 1
duration = "1s"
"#;

#[test]
fn a_caqm_port_follows_the_round_trip_and_a_period_far_from_it_gives_a_warning() {
    let Some(sandbox) = Sandbox::new() else { return };
    sandbox.write("periods.toml", PERIODS);
    let output = sandbox.weir(&["sim", "run", "periods.toml", "--out", "run"]);
    assert!(output.status.success(), "{output:?}");
    let warnings: Vec<&str> =
        output.stderr.lines().filter(|line| line.starts_with("warning: ")).collect();
    let warning = "the period 200us of the caqm queue is far from the round trip 20ms";
    assert!(warnings.len() == 1 && warnings[0].contains(warning), "{warnings:?}");
    assert!(warnings[0].contains("periods.toml:29: "), "{warnings:?}");
    let validated = sandbox.weir(&["lab", "validate", "periods.toml"]);
    assert!(validated.stderr.contains(warning), "{validated:?}");

    let results = sandbox.results("run");
    let of = |system: &str, metric: &str| {
        let cells = results["cells"].as_array().unwrap();
        let cell = cells.iter().position(|cell| cell["system"] == system).unwrap();
        number(&results, cell, metric)
    };
    assert!(of("follows", "share_of_ideal") > 0.93, "{results}");
    assert!(of("short", "share_of_ideal") < 0.9, "{results}");
    assert!(of("follows", "queue_ms.p95") < of("short", "queue_ms.p95"), "{results}");
    // The answer names queue delay and fairness, too.
    for part in ["Queue delay p95: follows", "Jain fairness: "] {
        assert!(output.stdout.contains(part), "{part}: {}", output.stdout);
    }
}

/// The main metric of this lab differs from the reference report's.
#[test]
fn published_values_are_on_the_terminal_and_in_the_report() {
    let Some(sandbox) = Sandbox::new() else { return };
    let output = sandbox.weir(&["sim", "run", "caqm-fabric", "--smoke", "--out", "run"]);
    assert!(output.status.success(), "{output:?}");
    let head = output.stdout.lines().find(|line| line.contains("Port use"));
    assert!(head.is_some_and(|head| head.contains("reference")), "{}", output.stdout);
    for (system, text) in [("caqm ", "0.9"), ("caqm ", "(ref 200)"), ("bbr ", "(ref 500)")] {
        let row = output.stdout.lines().find(|line| line.starts_with(system));
        assert!(row.is_some_and(|row| row.contains(text)), "{text}: {}", output.stdout);
    }
    let page = sandbox.read("run/report.md");
    for text in ["(ref 0.900, ", "(ref 4,500)", "(ref 200)", "(ref 500)"] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert!(sandbox.read("run/report.html").contains("ref 4,500"));
    // With CAQM at only one end, or at a port without CAQM, no packet has a tag.
    let results = sandbox.results("run");
    let cells = results["cells"].as_array().unwrap();
    for (system, is_plain) in [
        ("caqm", false),
        ("caqm-client-only", true),
        ("caqm-server-only", true),
        ("caqm-plain-port", true),
    ] {
        let cell = cells.iter().find(|cell| cell["system"] == system).unwrap();
        let tagged = cell["metrics"]["caqm_tagged_segments"]["median"].as_f64().unwrap();
        assert_eq!(tagged == 0.0, is_plain, "{system}: {tagged}");
    }
}

#[test]
fn the_results_are_the_same_on_any_number_of_threads() {
    let Some(sandbox) = Sandbox::new() else { return };
    sandbox.write("grid.toml", GRID);
    let on = |threads: &str| {
        let out = format!("on-{threads}");
        let output =
            sandbox.weir(&["sim", "run", "grid.toml", "--threads", threads, "--out", &out]);
        assert!(output.status.success(), "{output:?}");
        assert!(output.stderr.contains("vegas is left out"), "{output:?}");
        let mut results = sandbox.results(&out);
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
    // A flow does no harm to flows of the same algorithm.
    assert_eq!(number(&alone, 0, "harm"), 0.0);
    assert_eq!(on("2"), alone);
    assert_eq!(on("8"), alone);
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

/// The measurement is valid, and the command must state why its exit status is 1.
#[test]
fn a_valid_run_that_misses_a_bound_prints_the_reason_for_exit_status_1() {
    let Some(sandbox) = Sandbox::new() else { return };
    let bound = "goodput_mbit_s >= 1000";
    sandbox.write("grid.toml", format!("bounds = [\"{bound}\"]\n{GRID}"));
    let words = ["sim", "run", "grid.toml", "--systems", "cubic", "--repeats", "1", "--out", "run"];
    let output = sandbox.weir(&words);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let last = output.stderr.trim_end().lines().last().unwrap();
    assert!(last.starts_with("exit status 1: ") && last.contains(bound), "{output:?}");
    let checked = sandbox.weir(&["lab", "validate", "run"]);
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
    assert!(checked.stdout.contains("ended with status 1 nevertheless"), "{checked:?}");
    assert!(checked.stderr.contains(bound), "{checked:?}");
    let document = sandbox.weir(&["lab", "validate", "run", "--json"]).stdout;
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["valid"], true);
    assert!(document["warnings"].to_string().contains(bound), "{document}");
}

/// Each run draws a fresh seed, and names it in the command that repeats the run.
#[test]
fn two_runs_have_the_same_result_hash_only_with_the_same_seed() {
    let Some(sandbox) = Sandbox::new() else { return };
    sandbox.write("grid.toml", GRID);
    let with = |out: &str, seed: &[&str]| {
        let words = ["sim", "run", "grid.toml", "--systems", "cubic", "--repeats", "1"];
        let output = sandbox.weir(&[&words[..], seed, &["--out", out]].concat());
        assert!(output.status.success(), "{output:?}");
        let results = sandbox.results(out);
        let facts = &results["environment"];
        let hash = facts["result_hash"].as_str().unwrap().to_owned();
        (hash, facts["seed"].as_u64().unwrap(), results["command"].as_str().unwrap().to_owned())
    };
    let own = with("own", &[]);
    assert_eq!(own.1, 0);
    let one = with("one", &["--seed", "1"]);
    assert_ne!(one.0, own.0);
    assert_eq!(with("again", &["--seed=1"]).0, one.0);
    let fresh = ["x", "y"].map(|out| with(out, &["--seed", "fresh"]));
    assert_ne!(fresh[0].1, fresh[1].1);
    for (_, seed, command) in &fresh {
        assert!(command.contains(&format!("--seed {seed} ")), "{command}");
    }
    let repeated = with("repeated", &["--seed", &fresh[0].1.to_string()]);
    assert_eq!(repeated.0, fresh[0].0);
    for wrong in ["-1", "new", "9007199254740993"] {
        let output = sandbox.weir(&["sim", "run", "grid.toml", &format!("--seed={wrong}")]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
}

#[test]
fn the_built_in_labs_run_in_their_smoke_forms() {
    let Some(sandbox) = Sandbox::new() else { return };
    let labs = [
        "cc-grid",
        "validate",
        "quic-tun",
        "tunnel-paths",
        "tcpa",
        "tcpa-paths",
        "tcpa-hard",
        "hard-paths",
    ];
    for lab in labs {
        let out = format!("run-{lab}");
        let output = sandbox.weir(&["sim", "run", lab, "--smoke", "--out", &out]);
        assert!(output.status.success(), "{lab}: {output:?}");
        let results = sandbox.results(&out);
        assert_eq!(results["valid"], true);
        assert!(!results["cells"].as_array().unwrap().is_empty());
    }
}

#[test]
fn each_executor_names_the_other_executor_for_missing_features() {
    let Some(sandbox) = Sandbox::new() else { return };
    sandbox.write("grid.toml", GRID);
    let cable = "name = \"cable\"\nhosts = [\"a\", \"b\"]\n[[link]]\nbetween = [\"a\", \"b\"]\ndirect = true\n\
                 [workload]\nkind = \"bulk\"\nfrom = \"a\"\nto = \"b\"\n[[system]]\nname = \"c\"\nkind = \"tcp\"\n\
                 congestion = \"cubic\"\n[form.full]\nduration = \"1s\"\n";
    sandbox.write("cable.toml", cable);
    sandbox.write(
        "cross.toml",
        GRID.replace(
            "[[system]]\nname = \"cubic\"",
            "cross = \"30%\"\n[[system]]\nname = \"cubic\"",
        ),
    );
    sandbox.write("stranger.toml", GRID.replace("\"cubic\"\nstagger", "\"cubik\"\nstagger"));
    sandbox.write("streams.toml", GRID.replace("flows = 2", "streams = 2"));
    let setting = "kind = \"tcp\"\nsysctl = { \"net.ipv4.tcp_wmem\" = \"4096 16384 262144\" }";
    sandbox.write("settings.toml", GRID.replace("kind = \"tcp\"", setting));
    let late = "[disturbance]\nstalls = \"2ms every 20ms\"\n[workload]";
    sandbox.write("late.toml", GRID.replace("[workload]", late));
    sandbox.write("bulk.toml", GRID.replace("\"flows\"", "\"bulk\""));
    let output = |words: &[&str]| {
        let output = sandbox.weir(words);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(!sandbox.path("runs").exists(), "{words:?} left something");
        output.stderr
    };
    for (words, expected) in [
        (
            ["lab", "run", "cross.toml"],
            "cross.toml:19: `cross` exists only in virtual time: weir sim run cross.toml",
        ),
        (
            ["lab", "run", "validate"],
            "labs/validate.toml:16: this workload exists only in virtual time",
        ),
        (["sim", "run", "link-accuracy"], "virtual time has none: weir lab run link-accuracy"),
        (["sim", "run", "cable.toml"], "cable.toml:9: a link without a `rate`"),
        (["sim", "run", "stranger.toml"], "stranger.toml:17: "),
        (["sim", "run", "streams.toml"], "streams.toml:16: a workload `flows` counts `flows`"),
        (
            ["sim", "run", "bulk.toml"],
            "bulk.toml:16: `flows` is for workloads of `kind = \"flows\"`",
        ),
        (
            ["sim", "run", "late.toml"],
            "late.toml:12: `[disturbance]` delays the emulator and takes CPU time away",
        ),
        (["sim", "run", "late.toml"], "or run weir lab run late.toml"),
        (["sim", "run", "settings.toml"], "its `sysctl` does not exist in virtual time"),
        (["sim", "run", "cc-gird"], "did you mean `cc-grid`?"),
    ] {
        let message = output(&words);
        assert!(message.contains(expected), "{words:?}: {message}");
    }
}

#[test]
fn an_interrupted_run_resumes_with_the_same_result() {
    let Some(sandbox) = Sandbox::new() else { return };
    // The run has so many repeats that the test can interrupt the run midway.
    sandbox.write("grid.toml", GRID.replace("repeats = 3", "repeats = 60"));
    let running = sandbox.start(&["sim", "run", "grid.toml", "--threads", "2", "--out", "cut"]);
    await_some("a few finished turns", || (sandbox.journal("cut").len() >= 5).then_some(()));
    running.signal("INT");
    let output = running.end();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stderr.contains("weir sim run grid.toml --resume cut"), "{output:?}");
    let before = sandbox.journal("cut");
    assert!(before.len() < 480, "it was finished before it was interrupted");
    let output = sandbox.weir(&["sim", "run", "grid.toml", "--resume", "cut"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(sandbox.journal("cut")[..before.len()], before, "finished turns were changed");
    let whole = sandbox.weir(&["sim", "run", "grid.toml", "--out", "whole"]);
    assert!(whole.status.success(), "{whole:?}");
    let hash = |run: &str| sandbox.results(run)["environment"]["result_hash"].clone();
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
    let Some(sandbox) = Sandbox::new() else { return };
    sandbox.write("tunnels.toml", TUNNELS);
    sandbox.write("other.toml", TUNNELS.replace("seed = 3", "seed = 4"));
    let hash = |lab: &str, threads: &str, out: &str| {
        let output = sandbox.weir(&["sim", "run", lab, "--threads", threads, "--out", out]);
        assert!(output.status.success(), "{output:?}");
        let message = output.stdout.lines().find_map(|line| line.strip_prefix("hash: "));
        let message = message.unwrap().to_owned();
        assert_eq!(sandbox.results(out)["environment"]["result_hash"], message.as_str());
        message
    };
    let one = hash("tunnels.toml", "1", "one");
    assert_eq!(hash("tunnels.toml", "2", "two"), one);
    assert_eq!(hash("tunnels.toml", "8", "three"), one);
    assert_ne!(hash("other.toml", "2", "other"), one);
    let results = sandbox.results("one");
    assert_eq!(results["cells"].as_array().unwrap().len(), 6);
    for cell in 0..6 {
        assert!(number(&results, cell, "goodput_mbit_s") > 2.0, "{cell}");
        assert!(number(&results, cell, "retransmit_percent") >= 0.0, "{cell}");
        assert!(number(&results, cell, "harm").is_finite(), "{cell}");
    }
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

#[test]
fn an_impossible_tunnel_in_a_lab_file_is_refused() {
    let Some(sandbox) = Sandbox::new() else { return };
    let bbr = "kind = \"tunnel\"\ncongestion = \"bbr\"";
    for (verb, instead, expected) in [
        ("lab", bbr.to_owned(), "tunnels.toml:24: `kind = \"tunnel\"` exists only in virtual time"),
        ("lab", bbr.to_owned(), "a system of `kind = \"external\"` that runs weir tunnel"),
        ("sim", bbr.replace("bbr", "vegas"), "choose one of cubic, bbr, tcpa and 'fixed RATE'"),
        ("sim", bbr.replace("congestion", "note"), "add `congestion = \"tcpa\"`"),
        ("sim", format!("{bbr}\nwarm = true"), "`warm` is for systems of `kind = \"tcp\"`"),
        ("sim", format!("{bbr}\nclient = \"weir\""), "`kind = \"external\"` run commands"),
        ("sim", format!("{bbr}\nneeds = [\"weir\"]"), "`kind = \"external\"` have `needs`"),
    ] {
        sandbox.write("tunnels.toml", TUNNELS.replace(bbr, &instead));
        let output = sandbox.weir(&[verb, "run", "tunnels.toml"]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(output.stderr.contains(expected), "{output:?}");
    }
}
