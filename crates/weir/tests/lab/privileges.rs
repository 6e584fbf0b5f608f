//! Without root a lab runs in a user namespace and names the restrictions. If user namespaces are
//! forbidden, the lab names the missing feature and creates nothing.

use crate::support::{CommandOutput, Sandbox, is_installed};
use serde_json::Value;
use std::process::Command;
use testing::Attempt;

const NOBODY: &[&str] = &["--reuid", "65534", "--regid", "65534", "--clear-groups"];
const RUN: &[&str] = &["lab", "run", "easy.toml", "--out", "run"];

/// Without root a socket's buffer is small. At this rate the buffer holds the datagrams of a tenth
/// of a second.
const LAB: &str = r#"
name = "easy"
hosts = ["left", "right"]
[[link]]
between = ["left", "right"]
rate = "10mbit"
delay = "1ms"
queue = "droptail:8MiB"
[workload]
kind = "link-accuracy"
from = "left"
to = "right"
[[system]]
name = "emu"
kind = "link"
[form.full]
duration = "300ms"
"#;

/// Makes a sandbox that an unprivileged user may write to, with a copy of the program that this
/// user may read.
fn sandbox() -> Option<Sandbox> {
    let sandbox = Sandbox::quiet()?;
    for program in ["setpriv", "unshare"] {
        if !is_installed(program) {
            testing::skip(testing::Need::Program(program));
            return None;
        }
    }
    std::fs::copy(env!("CARGO_BIN_EXE_weir"), sandbox.path("weir")).unwrap();
    sandbox.write("easy.toml", LAB);
    for folder in [sandbox.home().to_owned(), sandbox.path("tmp")] {
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(folder, all).unwrap();
    }
    Some(sandbox)
}

fn setpriv(options: &[&str], words: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.args(options).args(words);
    command
}

/// Runs the lab with these options of setpriv. A run whose cell failed on a disturbed machine is
/// repeated.
fn run(sandbox: &Sandbox, options: &[&str]) -> CommandOutput {
    let measured = testing::undisturbed("lab without root", |_| {
        let _ = std::fs::remove_dir_all(sandbox.path("run"));
        let output = sandbox.start_command(setpriv(options, &[&["./weir"], RUN].concat())).end();
        let has_results = sandbox.path("run/results.json").exists();
        match has_results && !sandbox.results("run")["cells"][0]["failed"].is_null() {
            true => Attempt::Wrong(format!("{output:?}")),
            false => Attempt::Right(output),
        }
    });
    measured.unwrap()
}

#[test]
fn without_root_a_lab_runs_and_names_the_restrictions() {
    let Some(sandbox) = sandbox() else { return };
    let mut tried = setpriv(NOBODY, &["unshare", "--user", "--net", "true"]);
    if !tried.output().unwrap().status.success() {
        return testing::skip(testing::Need::UserNamespaces);
    }
    let output = run(&sandbox, NOBODY);
    assert!(sandbox.path("run/results.json").exists(), "{output:?}");
    assert!(output.stderr.contains("running without root, in a user namespace"), "{output:?}");
    // The note appears once, and not again for every cell.
    assert_eq!(output.stderr.matches("real-time").count(), 1, "{output:?}");
    let results = sandbox.results("run");
    assert_eq!(results["environment"]["privilege"], "user namespace");
    assert!(results["warnings"].to_string().contains("running without root"), "{results}");
    assert_eq!(results["cells"][0]["failed"], Value::Null, "{results}");
    assert!(sandbox.read("run/report.md").contains("running without root"));
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

#[test]
fn forbidden_user_namespaces_are_reported_in_one_sentence() {
    let Some(sandbox) = sandbox() else { return };
    // The command forbids user namespaces only inside a user namespace, not on the machine.
    let line = format!(
        "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all ./weir {}",
        RUN.join(" ")
    );
    let nested = setpriv(NOBODY, &["unshare", "--user", "--map-root-user", "sh", "-c", &line]);
    let output = sandbox.start_command(nested).end();
    if output.stderr.contains("unshare") {
        return testing::skip(testing::Need::UserNamespaces);
    }
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(output.stderr.lines().count(), 1, "{output:?}");
    assert!(
        output.stderr.contains("needs privileges that are missing here: run as root"),
        "{output:?}"
    );
    assert!(!sandbox.path("run").exists() && !sandbox.path("runs").exists(), "{output:?}");
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

/// Runs the lab with user id 0 and without some of root's capabilities, as in a container.
#[test]
fn root_without_a_capability_uses_a_user_namespace_too() {
    let Some(sandbox) = sandbox() else { return };
    for missing in ["-net_raw", "-net_admin", "-sys_admin"] {
        let output = run(&sandbox, &["--bounding-set", missing]);
        // In a chroot the kernel grants no user namespace (kernel/user_namespace.c,
        // create_user_ns).
        if output.stderr.contains("allow unprivileged user namespaces") {
            return testing::skip_because(testing::Need::UserNamespaces, output.stderr.trim());
        }
        assert!(output.stderr.contains("in a user namespace"), "{missing}: {output:?}");
        let results = sandbox.results("run");
        assert_eq!(results["cells"][0]["failed"], Value::Null, "{missing}: {results}");
        std::fs::remove_dir_all(sandbox.path("run")).unwrap();
    }
    assert_eq!(sandbox.leftovers(), [""; 0]);
}
