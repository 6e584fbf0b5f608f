//! A measurement that fails must give a failed cell with its reason, never a number or a substitute
//! algorithm, and other cells continue.

use crate::support::{Sandbox, await_some, floor, judge, relay};
use serde_json::Value;

/// Returns a lab with one cell per system, each measured once for a second.
fn lab(link: &str, seconds: u32, systems: &str) -> String {
    let systems = systems.replace("RELAY", &relay());
    format!(
        r#"
name = "failures"
hosts = ["near", "far"]
[[link]]
between = ["near", "far"]
{link}
[workload]
kind = "bulk"
from = "near"
to = "far"
[form.full]
duration = "{seconds}s"
{systems}"#
    )
}

const LINK: &str = "rate = \"50mbit\"\ndelay = \"1ms\"\nqueue = \"droptail:1bdp\"";

const CUBIC: &str = r#"
[[system]]
name = "cubic"
kind = "tcp"
congestion = "cubic"
"#;

fn external(name: &str, server: &str, client: &str) -> String {
    format!(
        r#"
[[system]]
name = "{name}"
kind = "external"
congestion = "cubic"
server = "{server}"
client = "{client}"
connect = "127.0.0.1:7001"
"#
    )
}

const SERVER: &str = "RELAY {server}:7000 127.0.0.1:{port}";
const CLIENT: &str = "RELAY 127.0.0.1:7001 {server}:7000";

fn cell<'a>(results: &'a Value, system: &str) -> &'a Value {
    let cells = results["cells"].as_array().unwrap();
    cells.iter().find(|cell| cell["system"] == system).unwrap_or_else(|| panic!("no {system}"))
}

fn assert_failed(results: &Value, system: &str, reason: &[&str]) {
    let cell = cell(results, system);
    let output = cell["failed"].as_str().unwrap_or_else(|| panic!("{system} did not fail: {cell}"));
    assert!(reason.iter().all(|part| output.contains(part)), "{system}: {output}");
    assert_eq!(cell["metrics"], serde_json::json!({}), "{system} failed and has figures");
}

fn assert_measured(results: &Value, system: &str, least: f64) {
    let cell = cell(results, system);
    assert_eq!(cell["failed"], Value::Null, "{cell}");
    let goodput = cell["metrics"]["goodput_mbit_s"]["median"].as_f64().unwrap();
    // If the hypervisor takes CPU time away, the link is slower, and the cell is invalid.
    assert!((floor(cell, least)..60.0).contains(&goodput), "{system}: {goodput} Mbit/s");
}

#[test]
fn predictable_failures_are_found_before_measuring() {
    let Some(sandbox) = Sandbox::new() else { return };
    let systems = [
        CUBIC.to_owned(),
        external("not-there", "no-such-server --port {port}", "no-such-client"),
        CUBIC.replace("\"cubic\"", "\"cubik\""),
    ];
    sandbox.write("failures.toml", lab(LINK, 1, &systems.concat()));
    let output = sandbox.weir(&["lab", "run", "failures.toml", "--trust", "--out", "run"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    for message in [
        "nothing was measured",
        "not-there: `no-such-server` and `no-such-client` are not installed",
        "cubik: this machine has no congestion control `cubik` (did you mean `cubic`?)",
    ] {
        assert!(output.stderr.contains(message), "{message}: {output:?}");
    }
    assert!(!sandbox.path("run").exists(), "{output:?}");
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

/// Tests relays that fail in every way, between two relays that work.
#[test]
fn programs_that_fail_are_failed_cells() {
    let Some(sandbox) = Sandbox::new() else { return };
    let systems = [
        CUBIC.to_owned(),
        external("dies-at-once", SERVER, "sh -c 'echo no licence >&2; exit 3'"),
        external("server-dies", "sh -c 'echo no luck >&2; exit 4'", CLIENT),
        external("daemonises", SERVER, "sh -c 'setsid sleep 1000 & exit 0'"),
        external("never-listens", SERVER, "sleep 1000"),
        external("never-answers", SERVER, "RELAY 127.0.0.1:7001 hold"),
        external("dies-later", SERVER, "RELAY 127.0.0.1:7001 {server}:7000 die-after 1000000"),
        external("works", SERVER, CLIENT),
        CUBIC.replace("name = \"cubic\"", "name = \"last\""),
    ];
    sandbox.write("failures.toml", lab(LINK, 1, &systems.concat()));
    let output = sandbox.weir(&["lab", "run", "failures.toml", "--trust", "--out", "run"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let results = sandbox.results("run");
    assert_failed(&results, "dies-at-once", &["sh ended early", "exit status: 3", "no licence"]);
    assert_failed(&results, "server-dies", &["sh ended early", "exit status: 4", "no luck"]);
    assert_failed(&results, "daemonises", &["sh ended early", "must stay in the foreground"]);
    assert_failed(&results, "never-listens", &["sleep did not listen on port 7001"]);
    assert_failed(&results, "never-answers", &["127.0.0.1:7001 said nothing for 10 s"]);
    assert_failed(
        &results,
        "dies-later",
        &["relay ended early", "exit status: 3", "enough is enough"],
    );
    for system in ["cubic", "works", "last"] {
        assert_measured(&results, system, 20.0);
    }
    // The CPU time of a pair of programs is separate from the workload's.
    let metrics = &cell(&results, "works")["metrics"];
    for name in ["cpu_percent.client", "cpu_percent.server"] {
        assert!(metrics[name]["median"].as_f64().unwrap() > 0.0, "{name} of the relays: {metrics}");
    }
    // Every report of the run shows the failures.
    assert!(output.stdout.contains("failed"), "{}", output.stdout);
    for report in ["report.md", "report.html"] {
        assert!(sandbox.read(&format!("run/{report}")).contains("no licence"), "{report}");
    }
    let again = "weir lab run failures.toml --trust --resume run --again";
    assert!(output.stderr.contains(again), "{output:?}");
    let output = sandbox.weir(&["lab", "validate", "run"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    for message in ["dies-at-once: failed: sh ended early", "weir lab run --resume run --again"] {
        assert!(output.stderr.contains(message), "{message}: {output:?}");
    }
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

#[test]
fn a_missing_program_is_skipped_only_if_allowed() {
    let Some(sandbox) = Sandbox::new() else { return };
    let missing = external("missing", "no-such-server {port}", CLIENT) + "optional = true\n";
    sandbox.write("failures.toml", lab(LINK, 1, &(CUBIC.to_owned() + &missing)));
    let output = sandbox.weir(&["lab", "run", "failures.toml", "--trust", "--out", "run"]);
    assert!(
        output.stderr.contains("missing is left out: no-such-server is not installed"),
        "{output:?}"
    );
    let results = sandbox.results("run");
    // Other tests may disturb the link; the run is then marked invalid.
    assert_eq!(output.status.code(), Some(i32::from(!judge(&results))), "{output:?}");
    assert_eq!(results["cells"].as_array().unwrap().len(), 1);
    assert_measured(&results, "cubic", 20.0);
    assert!(results["notes"].to_string().contains("no-such-server is not installed"), "{results}");
    // A system that is named explicitly is not skipped silently.
    let output = sandbox.weir(&[
        "lab",
        "run",
        "failures.toml",
        "--trust",
        "--out",
        "asked",
        "--systems",
        "missing",
    ]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stderr.contains("missing: `no-such-server` is not installed"), "{output:?}");
}

#[test]
fn an_algorithm_missing_from_the_kernel_has_no_substitute() {
    let Some(sandbox) = Sandbox::new() else { return };
    let nosuch = CUBIC.replace("\"cubic\"", "\"nosuch\"");
    sandbox.write("failures.toml", lab(LINK, 1, &(nosuch + CUBIC)));
    let run =
        |more: &[&str]| sandbox.weir(&[&["lab", "run", "failures.toml", "--trust"], more].concat());
    let output = run(&[]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let message = "nosuch: this machine has no congestion control `nosuch`; it has";
    assert!(output.stderr.contains(message), "{output:?}");
    run(&["--systems", "cubic", "--out", "run"]);
    assert_measured(&sandbox.results("run"), "cubic", 20.0);
}

#[test]
fn a_link_that_carries_nothing_is_a_failed_cell() {
    let Some(sandbox) = Sandbox::new() else { return };
    let slow = "rate = \"1kbit\"\ndelay = \"1ms\"\nqueue = \"droptail:100p\"";
    sandbox.write("failures.toml", lab(slow, 1, CUBIC));
    let output = sandbox.weir(&["lab", "run", "failures.toml", "--trust", "--out", "run"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_failed(&sandbox.results("run"), "cubic", &[""]);
    assert!(output.stderr.contains("cubic failed: "), "{output:?}");
}

/// Another process kills the workload's programs.
#[test]
fn a_workload_killed_in_mid_run_is_a_failed_cell() {
    let Some(sandbox) = Sandbox::new() else { return };
    for role in ["client", "server"] {
        sandbox.write("failures.toml", lab(LINK, 30, CUBIC));
        let running = sandbox.start(&["lab", "run", "failures.toml", "--trust", "--out", role]);
        let program = |role| sandbox.running(&["perf", role]).first().copied();
        await_some("a client", || program("client"));
        crate::support::signal(await_some("a program", || program(role)), "KILL");
        let output = running.end();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_failed(&sandbox.results(role), "cubic", &["weir perf"]);
        assert_eq!(sandbox.leftovers(), [""; 0]);
    }
}
