//! Continuous integration: the script of docs/guides/ci.md, JUnit and summaries.

use crate::support::{CommandOutput, Sandbox};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// A script in place of curl: prints the rate of a download through the old proxy, or through a new
/// proxy that is slower by a share, with 1 % of noise. A file counts the turns, so that the values
/// are the same each time.
const CURL: &str = r#"#!/bin/sh
turn=$(cat turn 2>/dev/null || echo 0)
echo $((turn + 1)) > turn
case "$*" in *127.0.0.1:3129*) share=$(cat share) ;; *) share=1 ;; esac
awk "BEGIN { printf \"%.0f\", 1e8 * $share * (1 + 0.01 * sin(12.9898 * $turn)) }"
"#;

/// Runs the script. A script stands in for every program but `weir`, so no result depends on the
/// clock.
fn compared(sandbox: &Sandbox, share: &str) -> CommandOutput {
    sandbox.write("share", share);
    let _ = std::fs::remove_file(sandbox.path("turn"));
    let weir = Path::new(env!("CARGO_BIN_EXE_weir")).parent().unwrap().display().to_string();
    let path = std::env::var("PATH").unwrap();
    let mut command = Command::new("sh");
    command.args(["./throughput.sh", "./old", "./new"]);
    command.env("PATH", format!("{}:{weir}:{path}", sandbox.path("bin").display()));
    command.env("GITHUB_STEP_SUMMARY", sandbox.path("summary.md"));
    sandbox.start_command(command).end()
}

#[test]
fn the_guides_script_fails_if_the_rate_falls_by_6_percent_and_passes_at_2_percent() {
    let Some(sandbox) = Sandbox::new() else { return };
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides/ci.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let script = guide.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    sandbox.write("throughput.sh", script);
    std::fs::create_dir(sandbox.path("bin")).unwrap();
    let program = |name: &str, text: &str| {
        sandbox.write(name, text);
        std::fs::set_permissions(sandbox.path(name), PermissionsExt::from_mode(0o755)).unwrap();
    };
    program("bin/curl", CURL);
    for name in ["bin/python3", "old", "new"] {
        program(name, "#!/bin/sh\nexec sleep 1000\n");
    }

    let fell = compared(&sandbox, "0.94");
    assert_eq!(fell.status.code(), Some(1), "{fell:?}");
    assert!(fell.stdout.contains("worse: -"), "{fell:?}");
    let xml = sandbox.read("throughput.xml");
    assert!(xml.contains(r#"tests="1" failures="1" errors="0""#), "{xml}");
    assert!(xml.contains(r#"<failure message="expected not-worse: "#), "{xml}");

    let held = compared(&sandbox, "0.98");
    assert_eq!(held.status.code(), Some(0), "{held:?}");
    let xml = sandbox.read("throughput.xml");
    assert!(xml.contains(r#"failures="0""#) && xml.contains("the same within 5 %"), "{xml}");

    program("bin/curl", "#!/bin/sh\nexit 7\n");
    let broken = compared(&sandbox, "1");
    assert_eq!(broken.status.code(), Some(1), "{broken:?}");
    let xml = sandbox.read("throughput.xml");
    assert!(xml.contains(r#"errors="1""#) && xml.contains("exit status: 7"), "{xml}");

    let summary = sandbox.read("summary.md");
    let titles: Vec<&str> = summary.lines().filter(|line| line.starts_with('#')).collect();
    let expected =
        ["failed", "passed", "not measured"].map(|word| format!("### weir lab ab: {word}"));
    assert_eq!(titles, expected, "{summary}");
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

#[test]
fn the_bounds_of_a_run_become_junit_cases_and_summary_rows() {
    let Some(sandbox) = Sandbox::new() else { return };
    let output = sandbox.weir(&["sim", "run", "incast", "--smoke", "--out", "run"]);
    assert!(output.status.success(), "{output:?}");
    let words = ["lab", "check", "run", "--bound", "port_use >= 0", "--bound", "port_use < 0"];
    let files = ["--junit", "lab.xml", "--summary", "lab.md"];
    let output = sandbox.weir(&[&words[..], &files[..]].concat());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let cells = sandbox.results("run")["cells"].as_array().unwrap().len();
    let (xml, summary) = (sandbox.read("lab.xml"), sandbox.read("lab.md"));
    let counts = format!(r#"tests="{}" failures="{cells}" errors="0""#, 2 * cells + 1);
    assert!(xml.contains(&counts), "{xml}");
    assert_eq!(summary.matches("**does not hold**").count(), cells, "{summary}");
    let output = sandbox.weir(&[&words[..], &["--junit", "none/lab.xml"]].concat());
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stderr.contains("name another with --junit"), "{output:?}");
}
