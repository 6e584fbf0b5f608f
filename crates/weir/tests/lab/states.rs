//! `[state]`: a state is in force at one end during a turn, and undone however the lab ends.

use crate::support::{Sandbox, await_some};

/// A lab that measures round trips within one host. `WORDS` stands for more keys of the state, and
/// `DIR` for the sandbox.
const LAB: &str = r#"
name = "states"
hosts = ["client"]
[workload]
kind = "latency"
over = "unix"
from = "client"
via = "loopback"
[state]
[state.after]
sysctl = { "net.ipv4.tcp_sack" = "0" }
command = "sh -c 'cat /proc/sys/net/ipv4/tcp_sack >> DIR/seen; COMMAND'"
undo = "sh -c 'echo undone >> DIR/seen; UNDO'"
run_in = "host"
[form.full]
repeats = REPEATS
duration = "DURATION"
[compare]
baseline = "before"
metrics = ["latency_us.mean"]
"#;

fn lab(sandbox: &Sandbox, command: &str, undo: &str, (repeats, duration): (&str, &str)) -> String {
    let directory = sandbox.path(".").display().to_string();
    let text = LAB.replace("DIR", &directory).replace("COMMAND", command).replace("UNDO", undo);
    text.replace("REPEATS", repeats).replace("DURATION", duration)
}

fn seen(sandbox: &Sandbox) -> Vec<String> {
    let text = std::fs::read_to_string(sandbox.path("seen")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_state_is_in_force_during_its_turn_and_undone_after_the_turn() {
    let Some(sandbox) = Sandbox::new() else { return };
    sandbox.write("states.toml", lab(&sandbox, "true", "true", ("2", "100ms")));
    let output = sandbox.weir(&["lab", "run", "states.toml", "--trust", "--out", "run"]);
    assert!(output.stdout.contains("Before and after"), "{output:?}");
    // On a busy machine the lab may measure a turn again.
    let seen = seen(&sandbox);
    assert!(seen.len() >= 4 && seen.chunks(2).all(|pair| pair == ["0", "undone"]), "{seen:?}");
    let results = sandbox.results("run");
    let after = results["states"]["after"].as_str().unwrap();
    assert!(after.starts_with("net.ipv4.tcp_sack=0; command: "), "{after}");
    assert_eq!(results["states"]["before"], "the machine as it is");
    assert_eq!(results["comparisons"][0]["a"], "after");
    // The order of the turns is ABBA or BAAB.
    let systems: Vec<String> = sandbox
        .journal("run")
        .iter()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter_map(|line| Some(line["system"].as_str()?.to_owned()))
        .collect();
    assert_eq!(systems.len(), 4, "{systems:?}");
    assert!(systems[0] == systems[3] && systems[1] == systems[2] && systems[0] != systems[1]);
    assert_eq!(sandbox.leftovers_once(), [""; 0]);
}

#[test]
fn a_killed_or_interrupted_lab_undoes_its_state() {
    for signal in ["KILL", "INT", "TERM"] {
        let Some(sandbox) = Sandbox::new() else { return };
        sandbox.write("states.toml", lab(&sandbox, "true", "true", ("2", "100s")));
        let words = ["lab", "run", "states.toml", "--trust", "--systems", "after", "--out", "run"];
        let running = sandbox.start(&words);
        await_some("the state", || (!seen(&sandbox).is_empty()).then_some(()));
        running.signal(signal);
        running.end();
        await_some("its undo", || (seen(&sandbox) == ["0", "undone"]).then_some(()));
        assert_eq!(sandbox.leftovers_once(), [""; 0], "{signal}");
    }
}

#[test]
fn a_state_that_cannot_be_undone_ends_the_lab() {
    let Some(sandbox) = Sandbox::new() else { return };
    let undo = "echo no right >&2; exit 3";
    sandbox.write("states.toml", lab(&sandbox, "true", undo, ("20", "100ms")));
    let output = sandbox.weir(&["lab", "run", "states.toml", "--trust", "--out", "run"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stderr.contains("the state of the lab is still in force"), "{output:?}");
    assert!(output.stderr.contains("no right; run it yourself"), "{output:?}");
    assert_eq!(seen(&sandbox), ["0", "undone"], "no further turn");
}

#[test]
fn a_failed_command_of_a_state_fails_its_turn_with_its_output_and_is_undone() {
    let Some(sandbox) = Sandbox::new() else { return };
    let command = "echo no such device >&2; exit 4";
    sandbox.write("states.toml", lab(&sandbox, command, "true", ("1", "100ms")));
    let output = sandbox.weir(&["lab", "run", "states.toml", "--trust", "--out", "run"]);
    let results = sandbox.results("run");
    let cells = results["cells"].as_array().unwrap();
    let failed = |system: &str| {
        let cell = cells.iter().find(|cell| cell["system"] == system).unwrap();
        cell["failed"].as_str().map(str::to_owned)
    };
    assert!(failed("after").unwrap().contains("no such device"), "{output:?}");
    assert_eq!(failed("before"), None);
    assert_eq!(seen(&sandbox), ["0", "undone"]);
}
