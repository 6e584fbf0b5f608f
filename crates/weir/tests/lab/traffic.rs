//! The programs that make the traffic of a lab: weir perf, weir perf without its probes, iperf3,
//! and a plain loop.

use crate::support::{Sandbox, floor, is_installed};
use serde_json::Value;
use std::process::Command;
use std::time::Duration;
use testing::Attempt;

const MAKERS: [&str; 4] = ["perf", "perf-bare", "iperf3", "sockets"];

fn lab(makers: &[&str], link: &str, duration: &str) -> String {
    let systems: String = makers
        .iter()
        .map(|maker| {
            format!(
                "[[system]]\nname = \"{maker}\"\nkind = \"tcp\"\ncongestion = \"cubic\"\ntraffic = \"{maker}\"\n"
            )
        })
        .collect();
    format!(
        "name = \"traffic\"\nhosts = [\"near\", \"far\"]\n[[link]]\nbetween = [\"near\", \"far\"]\n{link}\n\
         [workload]\nkind = \"bulk\"\nfrom = \"near\"\nto = \"far\"\npin = \"apart\"\n{systems}\
         [form.full]\nduration = \"{duration}\"\n"
    )
}

fn cell<'a>(results: &'a Value, system: &str) -> &'a Value {
    let cells = results["cells"].as_array().unwrap();
    cells.iter().find(|cell| cell["system"] == system).unwrap_or_else(|| panic!("no {system}"))
}

fn goodput(cell: &Value) -> f64 {
    let goodput = &cell["metrics"]["goodput_mbit_s"]["median"];
    goodput.as_f64().unwrap_or_else(|| panic!("no goodput: {cell}"))
}

#[test]
fn perf_overhead_compares_all_programs() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    let metrics = ["goodput_mbit_s", "cpu_seconds_per_gbit.client", "cpu_seconds_per_gbit.system"];
    let (output, results) = sandbox.measure(&["perf-overhead", "--smoke"], &metrics);
    output.assert_measured(&results);
    let mut systems = vec!["weir-perf", "weir-perf-bare", "weir-perf-blocks", "iperf3", "sockets"];
    if !is_installed("iperf3") {
        testing::skip_part(testing::Need::Program("iperf3"));
        systems.retain(|system| *system != "iperf3");
    }
    let compared = |a: &str, b: &str, metric: &str| {
        let all = results["comparisons"].as_array().unwrap();
        all.iter().any(|one| one["a"] == a && one["b"] == b && one["metric"] == metric)
    };
    for system in &systems {
        let cell = cell(&results, system);
        assert!(goodput(cell) > floor(cell, 1_000.0), "{cell}");
        for metric in metrics {
            assert!(cell["metrics"][metric]["median"].as_f64().unwrap() > 0.0, "{metric}: {cell}");
            if systems.contains(&"iperf3") && *system != "iperf3" {
                assert!(compared(system, "iperf3", metric), "{system} by {metric}: {results}");
            }
        }
        assert_eq!(results["environment"]["congestion_control_read_back"][system], "cubic");
    }
    assert!(compared("weir-perf", "weir-perf-bare", "goodput_mbit_s"), "{results}");
    assert!(!compared("sockets", "weir-perf-bare", "goodput_mbit_s"), "{results}");
    if std::thread::available_parallelism().unwrap().get() > 1 {
        let cpus = |end: &str| results["environment"][end].as_array().unwrap().clone();
        assert_eq!((cpus("from_cpus").len(), cpus("to_cpus").len()), (1, 1));
        assert_ne!(cpus("from_cpus"), cpus("to_cpus"));
    }
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

/// Over a link that is the bottleneck all programs must report the same rate.
#[test]
fn all_four_programs_report_the_same_rate_on_a_slow_link() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    // A round trip of 10 ms permits the lateness of a link that shares its CPU with the programs.
    let link = "rate = \"20mbit\"\ndelay = \"5ms\"\nqueue = \"droptail:2bdp\"";
    sandbox.write("traffic.toml", lab(&MAKERS, link, "2s"));
    // A stalled machine sends less for a while.
    testing::undisturbed("programs over a slow link", |attempt| {
        let run = format!("run-{attempt}");
        let output = sandbox.weir(&["lab", "run", "traffic.toml", "--out", &run]);
        let results = sandbox.results(&run);
        let wrong: Vec<_> = MAKERS.iter().filter_map(|system| wrong_of(&results, system)).collect();
        if !wrong.is_empty() {
            return Attempt::Wrong(format!("of 20 Mbit/s: {wrong:?}"));
        }
        output.assert_measured(&results);
        // The figures of all programs with valid cells are alike; at least one cell must be valid.
        match MAKERS.iter().any(|system| is_valid(&results, system)) {
            true => Attempt::Right(()),
            false => Attempt::Invalid(results["invalid_reasons"].to_string()),
        }
    });
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

fn is_valid(results: &Value, system: &str) -> bool {
    let cells = results["cells"].as_array().unwrap();
    cells.iter().any(|cell| cell["system"] == system && cell["valid"] == true)
}

/// Returns the rate that a system reported on a link of 20 Mbit/s, if the reported rate is not near
/// 20 Mbit/s.
fn wrong_of(results: &Value, system: &str) -> Option<String> {
    if system == "iperf3" && !is_installed("iperf3") {
        testing::skip_part(testing::Need::Program("iperf3"));
        return None;
    }
    let cell = cell(results, system);
    if !cell["failed"].is_null() {
        return Some(cell.to_string());
    }
    let goodput = goodput(cell);
    // A late link carries less.
    (!(floor(cell, 16.0)..20.0).contains(&goodput)).then(|| format!("{system}: {goodput}"))
}

/// Only iperf3 needs turns of whole seconds.
#[test]
fn a_turn_may_last_a_fraction_of_a_second() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    sandbox.write("traffic.toml", lab(&["perf", "perf-bare", "sockets"], "direct = true", "300ms"));
    // On a stalled machine the lab reads the connection late, or nothing arrives within the turn.
    testing::undisturbed("turns of 300 ms", |attempt| {
        let run = format!("run-{attempt}");
        let output = sandbox.weir(&["lab", "run", "traffic.toml", "--out", &run]);
        let results = sandbox.results(&run);
        let cells = results["cells"].as_array().unwrap();
        let turns: Vec<Value> =
            sandbox.journal(&run).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        let is_right = cells.iter().all(|cell| cell["failed"].is_null())
            && turns.iter().all(|turn| looked_at(turn) < 0.3);
        if !is_right {
            return Attempt::Wrong(format!("{output:?} {turns:?}"));
        }
        output.assert_measured(&results);
        Attempt::Right(())
    });
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

/// Returns the seconds from the first data to the last reading of the connection.
fn looked_at(turn: &Value) -> f64 {
    let series = turn["measured"]["series"].as_array().unwrap();
    let limited = series.iter().find(|one| one["name"] == "limited_by").unwrap();
    assert_eq!(
        (&limited["shape"], limited["lines"].as_array().unwrap().len()),
        (&"Stacked".into(), 4)
    );
    let throughput = series.iter().find(|one| one["name"] == "throughput").unwrap();
    throughput["time_s"].as_array().unwrap().last().unwrap().as_f64().unwrap()
}

#[test]
fn without_iperf3_its_system_is_skipped_with_a_note() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    sandbox.write("traffic.toml", lab(&["perf-bare", "iperf3"], "direct = true", "1s"));
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(["lab", "run", "traffic.toml", "--out"]).args(words);
        command.env("PATH", sandbox.path("tmp"));
        sandbox.start_command(command).end()
    };
    let output = run(&["run"]);
    assert!(output.stderr.contains("iperf3 is left out: iperf3 is not installed"), "{output:?}");
    let results = sandbox.results("run");
    output.assert_measured(&results);
    assert_eq!(results["cells"].as_array().unwrap().len(), 1);
    assert!(results["notes"].to_string().contains("iperf3 is left out"), "{results}");
    // A system that is named explicitly is not skipped silently.
    let output = run(&["asked", "--systems", "iperf3"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stderr.contains("iperf3: `iperf3` is not installed"), "{output:?}");
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

#[test]
fn a_slice_out_of_range_is_refused() {
    let Some(sandbox) = Sandbox::new() else { return };
    sandbox.write("traffic.toml", lab(&MAKERS, "direct = true", "1s"));
    let systems = ["--base", "perf-bare", "--change", "sockets"];
    for slice in ["0s", "1us", "9ms", "2h"] {
        let line = ["lab", "ab", "traffic.toml", "--slice", slice];
        let output = sandbox.weir(&[&line[..], &systems].concat());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(output.stderr.contains("--slice is from 10ms to 3600s"), "{output:?}");
    }
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

#[test]
fn ends_that_share_one_cpu_are_reported() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    if !is_installed("taskset") {
        return testing::skip(testing::Need::Program("taskset"));
    }
    sandbox.write("traffic.toml", lab(&["sockets"], "direct = true", "1s"));
    let mut command = Command::new("taskset");
    command.args(["1", env!("CARGO_BIN_EXE_weir"), "lab", "run", "traffic.toml", "--out", "run"]);
    let output = sandbox.start_command(command).end();
    assert!(output.stderr.contains("both ends share one CPU"), "{output:?}");
    let results = sandbox.results("run");
    output.assert_measured(&results);
    assert!(results["notes"].to_string().contains("share one CPU"));
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

/// If the systems differ only in the program that makes the traffic, `weir lab ab` uses these
/// programs.
#[test]
fn ab_alternates_programs_that_make_traffic() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    sandbox.write("traffic.toml", lab(&MAKERS, "direct = true", "1s"));
    let ab = |words: &[&str]| {
        let line = ["lab", "ab", "traffic.toml", "--pairs", "20", "--slice", "250ms", "--json"];
        sandbox.weir(&[&line, words].concat())
    };
    // If the machine stalls for a whole slice, little or nothing arrives in the slice.
    let measured = |words: &[&str], is_right: fn(f64) -> bool| {
        testing::undisturbed("slices of programs", |_| {
            let output = ab(words);
            if output.status.code() != Some(0) {
                return Attempt::Wrong(format!("{output:?}"));
            }
            let answer: Value = serde_json::from_str(&output.stdout).unwrap();
            let observations = answer["observations"].as_array().unwrap();
            match observations.iter().all(|one| is_right(one["value"].as_f64().unwrap())) {
                true => Attempt::Right(()),
                false => Attempt::Wrong(answer.to_string()),
            }
        });
    };
    measured(&["--base", "perf-bare", "--change", "sockets"], |rate| rate > 10.0);
    let metric = "cpu_seconds_per_gbit.system";
    let words = ["--base", "sockets", "--change", "sockets", "--metric", metric];
    measured(&words, |seconds| seconds < 1.0);
    for (words, wrong) in [
        (["--base", "iperf3", "--change", "perf"].as_slice(), "whole seconds: add --slice 1s"),
        (
            &["--base", "perf", "--change", "perf", "--metric", "goodput"],
            "did you mean `goodput_mbit_s`?",
        ),
        (
            &["--base", "perf", "--change", "perf", "--metric", "rate_mbit_s"],
            "neither more nor less",
        ),
    ] {
        let output = ab(words);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(output.stderr.contains(wrong), "{output:?}");
    }
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

/// A lab that reads the client's connections too late finds no data connection, and at most the
/// control connection.
#[test]
fn ab_measures_a_turn_again_that_the_lab_read_too_late() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    sandbox.write("traffic.toml", lab(&MAKERS, "direct = true", "1s"));
    let outcome = testing::undisturbed("slices of a lab that is stopped", |_| {
        let line = ["lab", "ab", "traffic.toml", "--pairs", "20", "--slice", "250ms"];
        let systems = ["--base", "perf-bare", "--change", "sockets"];
        let mut running = sandbox.start(&[&line[..], &systems].concat());
        // A slice lasts less than half of the time between two stops, so the next attempt is in
        // time. A stop covers one or two whole slices.
        let (runs, stops) = (Duration::from_millis(1_000), Duration::from_millis(700));
        while !running.has_ended() {
            std::thread::sleep(runs);
            running.signal("STOP");
            std::thread::sleep(stops);
            running.signal("CONT");
        }
        let output = running.end();
        let told = "measured again, because the lab read the transfer too late: ";
        match output.status.code() {
            Some(0) if output.stdout.contains(told) || output.stderr.contains(told) => {
                Attempt::Right(())
            }
            // A stop between two readings of a turn does not make the turn late.
            Some(0) => Attempt::Invalid(format!("no stop covered a turn: {output:?}")),
            _ => Attempt::Wrong(format!("{output:?}")),
        }
    });
    outcome.unwrap();
    assert_eq!(sandbox.leftovers(), [""; 0]);
}
