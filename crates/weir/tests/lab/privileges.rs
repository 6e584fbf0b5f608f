//! Without root a lab runs in a user namespace and names the restrictions. If user namespaces are
//! forbidden, it names what is missing and creates nothing.

use crate::support::{World, is_installed};
use std::process::Command;

const NOBODY: &[&str] = &["--reuid", "65534", "--regid", "65534", "--clear-groups"];
const SMOKE: &[&str] = &["lab", "run", "link-accuracy", "--smoke", "--out", "run"];

/// A world that an unprivileged user may write to, with a copy of the program that this user may
/// read.
fn world() -> Option<World> {
    let world = World::quiet()?;
    if !["setpriv", "unshare"].iter().all(|program| is_installed(program)) {
        eprintln!("SKIPPED: setpriv and unshare are needed");
        return None;
    }
    std::fs::copy(env!("CARGO_BIN_EXE_weir"), world.path("weir")).unwrap();
    for folder in [world.home().to_owned(), world.path("tmp")] {
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(folder, all).unwrap();
    }
    Some(world)
}

fn setpriv(options: &[&str], words: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.args(options).args(words);
    command
}

#[test]
fn without_root_a_lab_runs_and_names_the_restrictions() {
    let Some(world) = world() else { return };
    let mut tried = setpriv(NOBODY, &["unshare", "--user", "--net", "true"]);
    if !tried.output().unwrap().status.success() {
        eprintln!("SKIPPED: this kernel gives user namespaces to root alone");
        return;
    }
    let said = world.start_command(setpriv(NOBODY, &[&["./weir"], SMOKE].concat())).end();
    assert!(world.path("run/results.json").exists(), "{said:?}");
    assert!(said.stderr.contains("running without root, in a user namespace"), "{said:?}");
    // The note appears once, and not again for every cell.
    assert_eq!(said.stderr.matches("real-time").count(), 1, "{said:?}");
    let results = world.results("run");
    assert_eq!(results["environment"]["privilege"], "user namespace");
    assert!(results["warnings"].to_string().contains("running without root"), "{results}");
    assert_eq!(results["cells"][0]["failed"], serde_json::Value::Null, "{results}");
    assert!(world.read("run/report.md").contains("running without root"));
    assert_eq!(world.leftovers(), [""; 0]);
}

#[test]
fn forbidden_user_namespaces_are_reported_in_one_sentence() {
    let Some(world) = world() else { return };
    // Forbidden inside a user namespace only, not on the machine.
    let line = format!(
        "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all ./weir {}",
        SMOKE.join(" ")
    );
    let nested = setpriv(NOBODY, &["unshare", "--user", "--map-root-user", "sh", "-c", &line]);
    let said = world.start_command(nested).end();
    if said.stderr.contains("unshare") {
        eprintln!("SKIPPED: this kernel gives user namespaces to root alone");
        return;
    }
    assert_eq!(said.status.code(), Some(1), "{said:?}");
    assert_eq!(said.stderr.lines().count(), 1, "{said:?}");
    assert!(
        said.stderr.contains("needs privileges that are missing here: run as root"),
        "{said:?}"
    );
    assert!(!world.path("run").exists() && !world.path("runs").exists(), "{said:?}");
    assert_eq!(world.leftovers(), [""; 0]);
}

/// As in a container: user id 0 without some of root's capabilities.
#[test]
fn root_without_a_capability_uses_a_user_namespace_too() {
    let Some(world) = world() else { return };
    for missing in ["-net_raw", "-net_admin", "-sys_admin"] {
        let said = world
            .start_command(setpriv(&["--bounding-set", missing], &[&["./weir"], SMOKE].concat()))
            .end();
        // In a chroot the kernel grants none (kernel/user_namespace.c, create_user_ns).
        if said.stderr.contains("allow unprivileged user namespaces") {
            eprintln!("SKIPPED: {}", said.stderr.trim());
            return;
        }
        assert!(said.stderr.contains("in a user namespace"), "{missing}: {said:?}");
        let results = world.results("run");
        assert_eq!(results["cells"][0]["failed"], serde_json::Value::Null, "{missing}: {results}");
        std::fs::remove_dir_all(world.path("run")).unwrap();
    }
    assert_eq!(world.leftovers(), [""; 0]);
}
