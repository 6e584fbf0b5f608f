//! `--open`: established connections change their algorithm and continue.

use crate::test_machine::transfer::{Transfer, accel, algorithms, goes_on, with_tcpa};
use crate::test_machine::{TestMachine, available};

#[test]
fn open_connections_change_on_request_and_change_back() {
    let Some(machine) = TestMachine::new() else { return };
    let _transfer = Transfer::start(&machine, 5601);
    let before = algorithms(&machine);
    assert!(!before.contains(&"tcpa".to_owned()), "{before:?}");

    accel(&machine, &["enable", "tcpa", "--port", "5601"]);
    assert_eq!(algorithms(&machine), before, "nobody asked for open ones");
    let message = accel(&machine, &["enable", "tcpa", "--port", "5601", "--open"]);
    assert!(message.contains("2 now use it"), "{message}");
    assert_eq!(with_tcpa(&machine), 2);
    goes_on(&machine);
    let message = accel(&machine, &["enable", "tcpa", "--all", "--open"]);
    assert!(message.contains("2 now use it"), "{message}");
    assert_eq!(with_tcpa(&machine), 4);
    goes_on(&machine);

    let file =
        machine.write("leave.toml", "[[rule]]\nport = 5601\nalgorithm = \"none\"\n[[rule]]\n");
    accel(&machine, &["policy", &file]);
    assert_eq!(with_tcpa(&machine), 4, "nobody asked for open ones");
    let message = accel(&machine, &["policy", &file, "--open"]);
    assert!(message.contains("2 use their former algorithm again"), "{message}");
    assert_eq!(with_tcpa(&machine), 2);
    let message = accel(&machine, &["disable", "--open"]);
    assert!(message.contains("2 use their former algorithm again"), "{message}");
    assert_eq!(algorithms(&machine), before);
    assert!(!available().contains("tcpa"));
    goes_on(&machine);
}

#[test]
fn connections_that_kept_tcpa_are_found_after_disable() {
    let Some(machine) = TestMachine::new() else { return };
    let _transfer = Transfer::start(&machine, 5611);
    accel(&machine, &["enable", "tcpa", "--all", "--open"]);
    accel(&machine, &["update"]);
    accel(&machine, &["disable"]);
    assert_eq!(with_tcpa(&machine), 4);
    goes_on(&machine);
    // A new installation takes the open connections over.
    let message = accel(&machine, &["enable", "tcpa", "--port", "5611", "--open"]);
    assert!(message.contains("2 now use it"), "{message}");
    assert_eq!(with_tcpa(&machine), 4);
    accel(&machine, &["disable"]);
    let message = accel(&machine, &["disable", "--open"]);
    assert!(message.contains("off already"), "{message}");
    assert!(message.contains("4 use their former algorithm again"), "{message}");
    assert_eq!(with_tcpa(&machine), 0);
    goes_on(&machine);
}

/// Rules and `--open` apply to the control groups of this machine.
#[test]
fn open_connections_of_another_machine_are_left_alone() {
    let Some(machine) = TestMachine::new() else { return };
    let other = machine.second();
    let _transfer = Transfer::start(&other, 5621);
    let before = algorithms(&other);
    let message = accel(&machine, &["enable", "tcpa", "--all", "--open"]);
    assert!(message.contains("0 now use it"), "{message}");
    assert_eq!(algorithms(&other), before);
}

/// `--open` applies to connections of this machine in any network namespace.
#[test]
fn open_connections_of_other_namespaces_change_too() {
    let Some(machine) = TestMachine::new() else { return };
    let transfer = "ip link set lo up; $0 perf server --port 5631 --one-off & \
                    until ss -tlnH | grep -q 5631; do sleep 0.01; done; \
                    $0 perf client 127.0.0.1 --port 5631 --time 600 --bitrate 50M & \
                    until [ $(ss -tnH state established | wc -l) = 4 ]; do sleep 0.01; done; \
                    echo ready; read word; ss -tniH state established | grep -o tcpa; kill %1 %2; exit";
    let words = ["--net", "bash", "-c", transfer, env!("CARGO_BIN_EXE_weir")];
    let mut inner = machine.start_with_input("unshare", &words);
    let mut line = String::new();
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    let mut output = BufReader::new(inner.stdout.take().unwrap());
    while line.trim() != "ready" {
        line.clear();
        assert_ne!(output.read_line(&mut line).unwrap(), 0, "it ended");
    }
    let message = accel(&machine, &["enable", "tcpa", "--all", "--open"]);
    inner.stdin.take().unwrap().write_all(b"\n").unwrap();
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    inner.wait().unwrap();
    assert!(message.contains("4 now use it"), "{message}");
    assert_eq!(rest.matches("tcpa").count(), 4, "{rest}");
}

#[test]
fn an_update_changes_open_connections_on_request() {
    let Some(machine) = TestMachine::new() else { return };
    let _transfer = Transfer::start(&machine, 5621);
    accel(&machine, &["enable", "tcpa", "--all", "--open"]);
    let known = || {
        let flows = machine.status()["flows"].as_array().unwrap().clone();
        flows.iter().filter(|flow| !flow["core"].is_null()).count()
    };
    assert_eq!(known(), 4);
    accel(&machine, &["update"]);
    assert_eq!(known(), 0, "nobody asked for open ones");
    let message = accel(&machine, &["update", "--open"]);
    assert!(message.contains("4 now use it"), "{message}");
    assert_eq!((known(), with_tcpa(&machine)), (4, 4));
    goes_on(&machine);
}

/// Instructions for removing Weir begin with `weir accel disable`, which must also succeed on a
/// machine where accel never ran.
#[test]
fn disable_without_an_installation_needs_no_mounts() {
    let Some(machine) = TestMachine::new() else { return };
    let script = "umount --lazy /sys/fs/cgroup && exec \"$0\" accel disable --open";
    let words = ["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_weir")];
    let output = machine.run("unshare", &words);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(output.stderr.contains("tcpa was off already"), "{}", output.stderr);
}

#[test]
fn one_error_names_all_missing_mounts() {
    let Some(machine) = TestMachine::new() else { return };
    // The script mounts a file system below /sys, because `accel` takes a /sys without mounts for a
    // /sys that hides the first process's mounts.
    let script = "for at in $(tac /proc/self/mountinfo | awk '/ - (bpf|cgroup2) / {print $5}'); do \
                  umount --lazy $at; done; mount -t tmpfs none /sys/fs/cgroup; \
                  exec \"$0\" accel enable tcpa --all";
    let words = ["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_weir")];
    let output = machine.run("unshare", &words);
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    for mount in ["mount -t bpf -o mode=0700 bpf /sys/fs/bpf;", "mount -t cgroup2 none"] {
        assert!(output.stderr.contains(mount), "{}", output.stderr);
    }
}
