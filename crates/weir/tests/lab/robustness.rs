//! The lab `robustness`: each target in a short cell, and a program with a deliberate defect.

use crate::support::{Sandbox, example};

fn lab(targets: &str, program: &str) -> String {
    LAB.replace("TARGETS", targets).replace("PROGRAM", program)
}

const LAB: &str = r#"
name = "robust"
hosts = ["client", "server", "attacker"]
seed = 46
[axes]
target = [TARGETS]
[[link]]
between = ["client", "server"]
direct = true
[[link]]
between = ["attacker", "server"]
direct = true
[workload]
kind = "robustness"
from = "client"
to = "server"
attacker = "attacker"
target = "{target}"
program = "PROGRAM"
rate = "20mbit"
frames_s = 20000
omit = "200ms"
[[system]]
name = "malformed"
kind = "tcp"
congestion = "cubic"
[form.full]
repeats = 1
duration = "1s"
"#;

#[test]
fn no_target_fails_because_of_malformed_frames() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    let targets = r#""host", "link", "switch", "tunnel", "program""#;
    sandbox.write("robust.toml", lab(targets, &example("bridge")));
    let words = ["./robust.toml", "--trust", "--quick"];
    let (output, results) = sandbox.measure(&words, &["goodput_mbit_s", "frames_refused"]);
    let cells = results["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 5, "{output:?}");
    for cell in cells {
        assert!(cell["failed"].is_null(), "{cell}");
        let figure = |metric: &str| cell["metrics"][metric]["median"].as_f64().unwrap_or(0.0);
        assert!(figure("goodput_mbit_s") > 0.0, "{cell}");
        for kind in ["cut", "tpid", "vlan", "flags", "fragment", "checksum", "noise"] {
            assert!(figure(&format!("frames.{kind}")) > 10.0, "{kind}: {cell}");
        }
        // The kernel does not send frames without a MAC header.
        assert!(figure("frames_refused") > 0.0, "{cell}");
    }
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

#[test]
fn a_deliberate_defect_is_found_and_reported_with_the_seed() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    let program = format!("{} with-a-bug", example("bridge"));
    sandbox.write("robust.toml", lab(r#""program""#, &program));
    let words = ["lab", "run", "./robust.toml", "--trust", "--quick", "--out", "run"];
    let output = sandbox.weir(&words);
    let results = sandbox.results("run");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let failed = results["cells"][0]["failed"].as_str().unwrap_or_default();
    assert!(failed.contains("bridge ended early") && failed.contains("of seed"), "{failed}");
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

#[test]
fn a_program_of_a_lab_file_is_shown_before_it_runs() {
    let Some(sandbox) = Sandbox::new() else { return };
    sandbox.write("robust.toml", lab(r#""program""#, "my-bridge --fast"));
    let output = sandbox.weir(&["lab", "run", "./robust.toml", "--quick", "--out", "run"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = output.stdout + &output.stderr;
    assert!(said.contains("workload (program): my-bridge --fast"), "{said}");
}
