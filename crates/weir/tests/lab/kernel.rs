//! Labs that use the kernel's own TCP: files from nginx, and flows beside the simulator's.

use crate::support::{Sandbox, await_some, floor, judge};
use serde_json::Value;
use std::path::Path;
use testing::Attempt;

fn metric(cell: &Value, name: &str) -> f64 {
    let median = &cell["metrics"][name]["median"];
    median.as_f64().unwrap_or_else(|| panic!("no {name}: {cell}"))
}

fn cells(results: &Value) -> Vec<Value> {
    results["cells"].as_array().unwrap().clone()
}

fn has_nginx() -> bool {
    let there = ["/usr/sbin/nginx", "/usr/bin/nginx", "/usr/local/sbin/nginx"];
    let found = there.iter().any(|place| Path::new(place).exists());
    if !found {
        testing::skip(testing::Need::Program("/usr/sbin/nginx"));
    }
    found
}

/// Whether the cell states that it was not measured because the kernel lacks BPF.
fn is_without_bpf(cell: &Value) -> bool {
    let Some(reason) = cell["failed"].as_str() else { return false };
    let of_ours = cell["system"].as_str().unwrap().starts_with("tcpa");
    let is_without = of_ours && reason.contains("tcpa: ");
    if is_without {
        testing::skip_part(testing::Need::StructOps);
    }
    is_without
}

/// Returns a cell that failed although the kernel has BPF: on a stalled machine a turn may fail.
fn failed(results: &Value) -> Option<String> {
    let cells = cells(results);
    let failed = |cell: &&Value| cell["failed"].is_string() && !is_without_bpf(cell);
    cells.iter().find(failed).map(Value::to_string)
}

/// A lab that measures two paths at once: a metric for each path, and a metric for both paths
/// together.
const TWO_PATHS: &str = r#"name = "two"
hosts = ["server", "near", "far"]
[axes]
path = ["both", "near", "far"]
[words]
both = "near,far"
[[link]]
name = "near"
between = ["server", "near"]
rtt = "4ms"
forward = { rate = "20mbit" }
[[link]]
name = "far"
between = ["server", "far"]
rtt = "20ms"
forward = { rate = "10mbit" }
[workload]
kind = "download"
from = "server"
via = "{path}"
size = "100KiB"
[[system]]
name = "cubic"
kind = "tcp"
congestion = "cubic"
[[system]]
name = "bbr"
kind = "tcp"
congestion = "bbr"
[form.full]
repeats = 6
duration = "300ms"
cells = [{ path = ["both"] }]
[[compare]]
baseline = "cubic"
metrics = ["kbyte_s"]
ideal = ["ideal_kbyte_s"]
of_ideal = "95%"
"#;

#[test]
fn the_lab_tcpa_runs_in_its_smoke_form() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    if !has_nginx() {
        return;
    }
    let output = sandbox.weir(&["lab", "run", "tcpa", "--smoke", "--out", "run"]);
    let results = sandbox.results("run");
    assert_eq!(cells(&results).len(), 8, "{output:?}");
    judge(&results);
    for cell in cells(&results) {
        if is_without_bpf(&cell) {
            continue;
        }
        assert_eq!(metric(&cell, "availability_percent"), 100.0);
        let (speed, ideal) = (metric(&cell, "kbyte_s"), metric(&cell, "ideal_kbyte_s"));
        // A late link carries less, and its queue is longer.
        let is_valid = cell["valid"] == true;
        assert!(speed > floor(&cell, 0.3 * ideal) && speed < 1.02 * ideal, "{cell}");
        assert!(metric(&cell, "transfer_kbyte_s") > speed);
        assert!(metric(&cell, "queue_ms.p95") < 35.0 || !is_valid, "{cell}");
        let system = cell["system"].as_str().unwrap();
        let read = &results["environment"]["congestion_control_read_back"][system];
        assert_eq!(read, system.split('-').next().unwrap(), "{results}");
    }
    assert!(!sandbox.path("run/.programs").exists());
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

#[test]
fn concurrently_measured_paths_have_separate_results() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    if !has_nginx() {
        return;
    }
    // Uses one repeat, because over several repeats the mean of medians is not the median of means.
    // Each download takes less than 100 ms; the turn is long enough for two downloads and a stall
    // of the machine.
    let once = TWO_PATHS.replace("repeats = 6", "repeats = 1").replace("300ms", "3s");
    sandbox.write("once.toml", once);
    let output = sandbox.weir(&["lab", "run", "once.toml", "--out", "once"]);
    let results = sandbox.results("once");
    assert_eq!(cells(&results).len(), 6, "{output:?}");
    for system in ["cubic", "bbr"] {
        let of = |path: &str| {
            let all = cells(&results);
            let found = |cell: &&Value| cell["system"] == system && cell["axes"]["path"] == path;
            all.iter().find(found).unwrap_or_else(|| panic!("{system} {path}: {output:?}")).clone()
        };
        let speeds = ["near", "far"].map(|path| metric(&of(path), "kbyte_s"));
        let mean = (speeds[0] + speeds[1]) / 2.0;
        assert!((metric(&of("both"), "kbyte_s") - mean).abs() < 1e-6 * mean);
        assert!(metric(&of("near"), "downloads") >= 2.0);
    }
    sandbox.write("two.toml", TWO_PATHS);
    let output = sandbox.weir(&["lab", "run", "two.toml", "--out", "run"]);
    let results = sandbox.results("run");
    // The lab compares only planned cells: the cell of both paths, and not the cell of each path.
    let comparisons = results["comparisons"].as_array().unwrap();
    assert_eq!(comparisons.len(), 1, "{comparisons:?}");
    let (goal, ratio) = (&comparisons[0]["goal"], &comparisons[0]["ratio"]);
    // Judging a goal needs an interval, and so at least 6 valid pairs of repeats. A busy machine
    // may make some or all repeats invalid.
    let is_whole = |cell: &Value| {
        let left_out = cell["warnings"].to_string().contains("were not valid");
        cell["valid"] == true && cell["failed_repeats"].is_null() && !left_out
    };
    let is_whole = cells(&results).iter().all(is_whole);
    let is_judged = ratio["ci95"].is_array();
    assert!((goal.is_object() && is_judged) || !is_whole, "{comparisons:?}");
    assert_eq!(goal["met"].is_boolean(), is_judged, "{comparisons:?}");
    if goal.is_object() {
        let said = "Compared with the reference and the ideal";
        assert!(output.stdout.contains(said), "{output:?}");
    } else {
        assert!(goal.is_null() && !is_judged, "{comparisons:?}");
    }
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

#[test]
fn a_download_killed_midway_leaves_nothing() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    if !has_nginx() {
        return;
    }
    let before = algorithms();
    sandbox.write("two.toml", TWO_PATHS.replace("300ms", "60s").replace("\"bbr\"", "\"tcpa\""));
    let mut running =
        sandbox.start(&["lab", "run", "two.toml", "--systems", "tcpa", "--out", "run"]);
    let programs = sandbox.path("run/.programs");
    let begun = || {
        let there = std::fs::read_dir(&programs).ok()?.next().is_some();
        (there || running_ended(&sandbox)).then_some(())
    };
    await_some("nginx to be at work", begun);
    let _ = running.child.kill();
    running.end();
    await_some("the algorithm to be gone", || (algorithms() == before).then_some(()));
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

/// Whether the lab has ended, as it does at once without BPF.
fn running_ended(sandbox: &Sandbox) -> bool {
    sandbox.path("run/results.json").exists()
}

/// Lists the algorithms that labs have registered at this moment.
fn algorithms() -> Vec<String> {
    let all = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let all = std::fs::read_to_string(all).unwrap_or_default();
    all.split_whitespace().filter(|name| name.starts_with("weir_")).map(str::to_owned).collect()
}

#[test]
fn cc_kernel_is_compared_with_the_simulator() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    testing::undisturbed("kernel and simulator", |attempt| {
        let name = format!("run-{attempt}");
        let words = ["lab", "run", "cc-kernel", "--smoke", "--systems", "cubic,tcpa"];
        let output = sandbox.weir(&[&words[..], &["--out", &name]].concat());
        let results = sandbox.results(&name);
        assert_eq!(cells(&results).len(), 2, "{output:?}");
        if let Some(cell) = failed(&results) {
            return Attempt::Wrong(cell);
        }
        let mut apart = Vec::new();
        for cell in cells(&results).iter().filter(|cell| !is_without_bpf(cell)) {
            let shares = ["share_of_ideal", "simulated.share_of_ideal"];
            let mut are_possible = shares.iter().all(|name| {
                let share = metric(cell, name);
                share > 0.0 && share < 1.2
            });
            are_possible &= metric(cell, "queue_bdp.p95") < 1.2;
            let parts = [("use", "share_of_ideal", 0.0), ("queue", "queue_bdp.p95", 0.05)];
            let [is_use_within, is_queue_within] = parts.map(|(part, figure, least)| {
                let simulated = metric(cell, &format!("simulated.{figure}"));
                let is_within =
                    (metric(cell, figure) - simulated).abs() <= (0.15 * simulated).max(least);
                assert_eq!(metric(cell, &format!("within.{part}")), number(is_within), "{cell}");
                is_within
            });
            assert_eq!(metric(cell, "within"), number(is_use_within && is_queue_within), "{cell}");
            // CUBIC's rate depends on the few losses of a second, so CUBIC is not compared, nor is
            // an invalid cell.
            let is_apart = cell["system"] != "cubic" && !is_use_within;
            if cell["valid"] == true && (is_apart || !are_possible) {
                apart.push(cell.to_string());
            }
        }
        // The queue within a second varies from repeat to repeat, so the test judges the median of
        // six repeats.
        let name = format!("queue-{attempt}");
        sandbox.weir(&[
            "lab",
            "run",
            "cc-kernel",
            "--smoke",
            "--systems",
            "bbr",
            "--repeats",
            "6",
            "--out",
            &name,
        ]);
        let repeated = sandbox.results(&name);
        assert_eq!(cells(&repeated).len(), 1, "{repeated}");
        if let Some(cell) = failed(&repeated) {
            return Attempt::Wrong(cell);
        }
        for cell in &cells(&repeated) {
            if !cell["failed_repeats"].is_null() {
                return Attempt::Wrong(cell.to_string());
            }
            let figure = &cell["metrics"]["queue_bdp.p95"];
            // Fewer than six valid turns have no interval, only a range.
            let interval = figure["ci95"].as_array();
            let ends = interval.or(figure["range"].as_array());
            let (true, Some(ends)) = (cell["valid"] == true, ends) else {
                return Attempt::Invalid(format!("too few valid turns: {cell}"));
            };
            let [used, model] =
                ["share_of_ideal", "simulated.share_of_ideal"].map(|name| metric(cell, name));
            if (used - model).abs() > 0.15 * model {
                apart.push(cell.to_string());
            }
            let [low, high] = [0, 1].map(|end| ends[end].as_f64().unwrap());
            let simulated = metric(cell, "simulated.queue_bdp.p95");
            let slack = (0.15 * simulated).max(0.05);
            if low > simulated + slack || high < simulated - slack {
                if interval.is_none() {
                    return Attempt::Invalid(format!("too few valid turns: {cell}"));
                }
                apart.push(cell.to_string());
            }
        }
        if apart.is_empty() { Attempt::Right(()) } else { Attempt::Wrong(apart.join("\n")) }
    });
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

/// Each sender of an incast is a separate host. Only CAQM at both ends tags segments.
#[test]
fn two_hosts_share_an_incasts_port_and_reno_sends_no_tags() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    let systems = ["lab", "run", "caqm-hosts", "--smoke", "--systems", "caqm,reno", "--out", "run"];
    let output = sandbox.weir(&systems);
    let results = sandbox.results("run");
    assert_eq!(cells(&results).len(), 2, "{output:?}");
    for cell in cells(&results) {
        let is_caqm = cell["system"] == "caqm";
        if let Some(reason) = cell["failed"].as_str() {
            // Only root may switch RPS on.
            let without_root = reason.contains("steering what");
            assert!(without_root || is_caqm && reason.contains("caqm: "), "{cell}");
            testing::skip_part(match without_root {
                true => testing::Need::Root,
                false => testing::Need::StructOps,
            });
            continue;
        }
        for figure in ["port_use", "ingress_use", "flow_mbit_s.min", "packet_byte.arrived"] {
            assert!(metric(&cell, figure) >= 0.0, "{cell}");
        }
        assert_eq!(metric(&cell, "caqm_wire_segments") > 0.0, is_caqm, "{cell}");
    }
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

fn number(is_true: bool) -> f64 {
    f64::from(u8::from(is_true))
}
