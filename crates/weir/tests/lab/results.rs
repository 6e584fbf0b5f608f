//! The files that a finished run leaves for users and programs; two concurrent runs.

use crate::support::{Sandbox, await_some, floor, judge};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use testing::Attempt;

/// Runs the file and the script of the guides, with shorter turns.
#[test]
fn the_script_of_the_guides_runs_in_ci_and_keeps_the_run() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    let fragment = |guide: &str, open: &str| {
        let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides").join(guide);
        let guide = std::fs::read_to_string(guide).unwrap();
        let (_, rest) = guide.split_once(open).unwrap_or_else(|| panic!("no {open}"));
        rest.split_once("\n```").unwrap().0.to_owned()
    };
    let lab = fragment("lab.md", "```toml\nname = \"send-buffer\"");
    let lab = lab.replace("repeats = 6", "repeats = 1").replace("\"4s\"", "\"2s\"");
    sandbox.write("send-buffer.toml", format!("name = \"send-buffer\"{lab}"));
    let script = fragment("ci.md", "```sh\nset -eu\n");
    for (bound, holds) in [(">= 1.1", true), (">= 100", false)] {
        sandbox.write("ci.sh", format!("set -eu\n{}", script.replace(">= 1.1", bound)));
        let mut command = Command::new("sh");
        let weir = Path::new(env!("CARGO_BIN_EXE_weir")).parent().unwrap();
        let path = format!("{}:{}", weir.display(), std::env::var("PATH").unwrap());
        command.arg("ci.sh").env("PATH", path);
        let output = sandbox.start_command(command).end();
        // If the machine is busy in both attempts, no run is valid.
        let holds = holds && judge(&sandbox.results("run"));
        assert_eq!(output.status.code(), Some(i32::from(!holds)), "{bound}: {output:?}");
        assert!(sandbox.path("run/report.html").exists(), "{output:?}");
    }
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

#[test]
fn a_run_directory_has_all_files_and_json_prints_its_results() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    let (output, results) = sandbox.measure(&["quic-tun", "--smoke", "--json"], &[]);
    let printed: Value =
        serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    assert_eq!(printed, results);
    // The exit status matches the document.
    let cells = results["cells"].as_array().unwrap();
    let fine = judge(&results) && cells.iter().all(|cell| cell["failed"].is_null());
    assert_eq!(output.status.code(), Some(i32::from(!fine)), "{output:?}");

    for key in ["lab", "quick", "valid", "environment", "reference", "cells", "comparisons"] {
        assert!(!results[key].is_null(), "no {key} in {results}");
    }
    assert_eq!((&results["lab"], &results["quick"]), (&"quic-tun".into(), &false.into()));
    let systems: Vec<&str> = cells.iter().map(|cell| cell["system"].as_str().unwrap()).collect();
    assert_eq!(systems[..3], ["tcp-cubic", "tcp-bbr", "tcp-reno"]);
    for cell in cells {
        let axes = serde_json::json!(
            {"loss": "1%", "rtt": "1ms", "rate": "600mbit", "interrupts": "100us"}
        );
        assert_eq!(cell["axes"], axes, "{cell}");
        // Round trips and retransmissions belong to the tunnel's connections, for which the kernel
        // has no results. Tunnels of other projects take part if they are installed.
        let tunnelled = !cell["system"].as_str().unwrap().starts_with("tcp-");
        let known =
            |name: &str| !(tunnelled && (name.starts_with("rtt") || name.starts_with("retr")));
        for name in METRICS.iter().filter(|name| known(name)) {
            let metric = &cell["metrics"][name];
            let keys: Vec<&String> =
                metric.as_object().unwrap_or_else(|| panic!("no {name}: {cell}")).keys().collect();
            assert_eq!(keys, ["median", "ci95", "n", "unit"], "{name}");
            assert!(metric["median"].is_f64() && metric["n"] == 1, "{name}: {metric}");
        }
    }
    for comparison in results["comparisons"].as_array().unwrap() {
        for key in ["metric", "axes", "a", "b", "ratio", "verdict"] {
            assert!(!comparison[key].is_null(), "no {key} in {comparison}");
        }
        assert!(comparison["ratio"].as_object().unwrap().contains_key("median"), "{comparison}");
    }

    assert!(sandbox.read("run/run.toml").contains("form = \"smoke\""));
    let shown = sandbox.weir(&["lab", "show", "quic-tun"]);
    assert_eq!(sandbox.read("run/lab.toml"), shown.stdout);
    assert_eq!(sandbox.journal("run").len(), cells.len());
    assert!(sandbox.read("run/report.md").contains("tcp-bbr"));
    let html = sandbox.read("run/report.html");
    assert!(html.trim_end().ends_with("</html>") && html.contains("tcp-bbr"));
    let parquet = std::fs::read(sandbox.path("run/samples.parquet")).unwrap();
    assert!(parquet.starts_with(b"PAR1") && parquet.ends_with(b"PAR1"));
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

const METRICS: &[&str] = &[
    "goodput_mbit_s",
    "sender_mbit_s",
    "idle_percent",
    "cpu_percent.ksoftirqd",
    "cpu_percent.client",
    "cpu_percent.server",
    "cpu_percent.system",
    "cpu_softirq_percent",
    "cpu_seconds_per_gbit.client",
    "cpu_seconds_per_gbit.server",
    "retransmit_percent",
    "rtt_us.p50",
    "rtt_us.p99",
    "queue_kbyte.p50",
    "queue_kbyte.p95",
    "queue_kbyte.p99",
    "queue_kbyte.max",
];

/// A lab with a rate so low that two concurrent labs get the CPU time that they need.
const SLOW: &str = r#"
name = "slow"
hosts = ["near", "far"]
[[link]]
between = ["near", "far"]
rate = "10mbit"
delay = "5ms"
queue = "droptail:2bdp"
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
duration = "2s"
"#;

/// Both labs use the same addresses and ports in their namespaces, at the same time.
#[test]
fn two_concurrent_labs_do_not_interfere() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    sandbox.write("slow.toml", SLOW);
    let runs = ["one", "two"].map(|out| sandbox.start(&["lab", "run", "slow.toml", "--out", out]));
    for (output, out) in runs.map(|run| run.end()).iter().zip(["one", "two"]) {
        let results = sandbox.results(out);
        let cell = &results["cells"][0];
        assert_eq!(cell["failed"], Value::Null, "{output:?}");
        let goodput = cell["metrics"]["goodput_mbit_s"]["median"].as_f64().unwrap();
        // On a busy machine the link is late and carries less, and the cell is invalid.
        judge(&results);
        assert!((floor(cell, 8.0)..10.0).contains(&goodput), "{goodput} Mbit/s of 10: {cell}");
    }
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

/// After many turns the process must have no more descriptors and memory than after a few.
#[test]
fn many_turns_use_no_more_memory_and_descriptors_than_few_turns() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    let lab = SLOW
        .replace("kind = \"bulk\"", "kind = \"link-accuracy\"")
        .replace("kind = \"tcp\"\ncongestion = \"cubic\"", "kind = \"link\"")
        .replace("2bdp", "8MiB")
        // The turns are so many that some turns are left when the last memory use is read, even on
        // a slow machine. The run is then killed.
        .replace("repeats = 2\nduration = \"2s\"", "repeats = 100\nduration = \"300ms\"");
    sandbox.write("many.toml", lab);
    // On a stalled machine the test may read the memory use in the middle of a turn.
    testing::undisturbed("figures of a process after many turns", |attempt| {
        let run = format!("run-{attempt}");
        let (early, late) = early_and_late(&sandbox, &run);
        let is_right = late.0 <= early.0 + 2 && late.1 <= early.1 + 1 && late.2 <= early.2 + 2_048;
        match is_right {
            true => Attempt::Right(()),
            false => Attempt::Wrong(format!(
                "descriptors, threads and kB of memory grew from {early:?} to {late:?}"
            )),
        }
    });
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

/// Reads the lowest numbers of descriptors and threads, and the lowest memory in kB: after some
/// turns of a run, and after more turns.
fn early_and_late(sandbox: &Sandbox, run: &str) -> ((u64, u64, u64), (u64, u64, u64)) {
    // Makes the C library return freed memory at once. Otherwise the C library may keep the memory
    // of a turn's frames for the next turn.
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command
        .args(["lab", "run", "many.toml", "--out", run])
        .env("MALLOC_ARENA_MAX", "1")
        .env("MALLOC_MMAP_THRESHOLD_", "65536")
        .env("MALLOC_TRIM_THRESHOLD_", "65536");
    let running = sandbox.start_command(command);
    let pid = running.pid();
    let figures = || {
        let count = |of: &str| std::fs::read_dir(format!("/proc/{pid}/{of}")).unwrap().count();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let field = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let memory: u64 = field.split_whitespace().next().unwrap().parse().unwrap();
        (count("fd") as u64, count("task") as u64, memory)
    };
    // The lowest figures are the figures between two turns, when no network exists.
    let least = |turns: std::ops::Range<usize>| {
        let has = |turns| (sandbox.journal(run).len() >= turns).then_some(());
        await_some("a finished turn", || has(turns.start));
        let mut least = figures();
        await_some("more finished turns", || {
            // The time between two turns may be shorter than the pause between two looks at the
            // journal.
            for _ in 0..100 {
                let now = figures();
                least = (least.0.min(now.0), least.1.min(now.1), least.2.min(now.2));
                std::thread::sleep(Duration::from_millis(1));
            }
            has(turns.end)
        });
        least
    };
    let both = (least(4..8), least(14..18));
    running.signal("KILL");
    running.end();
    both
}
