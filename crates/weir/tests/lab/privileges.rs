//! Without root a lab runs in a user namespace and names the restrictions. If user namespaces are
//! forbidden, it names what is missing and creates nothing.

use crate::support::{Sandbox, is_installed};
use std::process::Command;

const NOBODY: &[&str] = &["--reuid", "65534", "--regid", "65534", "--clear-groups"];
const SMOKE: &[&str] = &["lab", "run", "link-accuracy", "--smoke", "--out", "run"];

/// A sandbox that an unprivileged user may write to, with a copy of the program that this user may
/// read.
fn sandbox() -> Option<Sandbox> {
    let sandbox = Sandbox::quiet()?;
    for program in ["setpriv", "unshare"] {
        if !is_installed(program) {
            testing::skip(testing::Need::Program(program));
            return None;
        }
    }
    std::fs::copy(env!("CARGO_BIN_EXE_weir"), sandbox.path("weir")).unwrap();
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

#[test]
fn without_root_a_lab_runs_and_names_the_restrictions() {
    let Some(sandbox) = sandbox() else { return };
    let mut tried = setpriv(NOBODY, &["unshare", "--user", "--net", "true"]);
    if !tried.output().unwrap().status.success() {
        return testing::skip(testing::Need::UserNamespaces);
    }
    let output = sandbox.start_command(setpriv(NOBODY, &[&["./weir"], SMOKE].concat())).end();
    assert!(sandbox.path("run/results.json").exists(), "{output:?}");
    assert!(output.stderr.contains("running without root, in a user namespace"), "{output:?}");
    // The note appears once, and not again for every cell.
    assert_eq!(output.stderr.matches("real-time").count(), 1, "{output:?}");
    let results = sandbox.results("run");
    assert_eq!(results["environment"]["privilege"], "user namespace");
    assert!(results["warnings"].to_string().contains("running without root"), "{results}");
    assert_eq!(results["cells"][0]["failed"], serde_json::Value::Null, "{results}");
    assert!(sandbox.read("run/report.md").contains("running without root"));
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

#[test]
fn forbidden_user_namespaces_are_reported_in_one_sentence() {
    let Some(sandbox) = sandbox() else { return };
    // Forbidden inside a user namespace only, not on the machine.
    let line = format!(
        "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all ./weir {}",
        SMOKE.join(" ")
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

/// As in a container: user id 0 without some of root's capabilities.
#[test]
fn root_without_a_capability_uses_a_user_namespace_too() {
    let Some(sandbox) = sandbox() else { return };
    for missing in ["-net_raw", "-net_admin", "-sys_admin"] {
        let output = sandbox
            .start_command(setpriv(&["--bounding-set", missing], &[&["./weir"], SMOKE].concat()))
            .end();
        // In a chroot the kernel grants none (kernel/user_namespace.c, create_user_ns).
        if output.stderr.contains("allow unprivileged user namespaces") {
            return testing::skip_because(testing::Need::UserNamespaces, output.stderr.trim());
        }
        assert!(output.stderr.contains("in a user namespace"), "{missing}: {output:?}");
        let results = sandbox.results("run");
        assert_eq!(results["cells"][0]["failed"], serde_json::Value::Null, "{missing}: {results}");
        std::fs::remove_dir_all(sandbox.path("run")).unwrap();
    }
    assert_eq!(sandbox.leftovers(), [""; 0]);
}
