//! `weir accel` under `ip netns exec`, whose own `/sys` hides the mounts below the machine's
//! `/sys`.

use crate::test_machine::transfer::accel;
use crate::test_machine::{CommandOutput, TestMachine, available};

const WEIR: &str = env!("CARGO_BIN_EXE_weir");
const REMEDY: &str = "`nsenter --net=/run/netns/near weir accel status`";

fn machine() -> Option<TestMachine> {
    let machine = TestMachine::new()?;
    assert_eq!(machine.run("ip", &["netns", "add", "near"]).code, Some(0));
    Some(machine)
}

/// Runs `weir accel` under `ip netns exec` in the namespace. The first process keeps the machine's
/// mounts.
fn inside(machine: &TestMachine, words: &[&str]) -> CommandOutput {
    let script = "timeout 60 ip netns exec near \"$0\" accel \"$@\"; exit $?";
    let first = ["--pid", "--fork", "--mount-proc", "sh", "-c", script, WEIR];
    machine.run("unshare", &[&first[..], words].concat())
}

#[track_caller]
fn refused(machine: &TestMachine, words: &[&str], problem: &str) {
    let output = inside(machine, words);
    assert_eq!(output.code, Some(1), "{words:?}: {output:?}");
    assert!(output.stderr.contains(problem), "{words:?}: {}", output.stderr);
    assert!(output.stderr.contains(REMEDY), "{words:?}: {}", output.stderr);
    assert_eq!(output.stdout, "", "{words:?}");
}

#[test]
fn commands_distinguish_hidden_pins_from_missing_pins() {
    let Some(machine) = machine() else { return };
    let file = machine.write("policy.toml", "[[rule]]\nport = 22\nalgorithm = \"none\"\n");
    let unseen = "cannot tell whether it is on";
    refused(&machine, &["enable", "tcpa", "--all"], unseen);
    assert_eq!((machine.pinned(), available().contains("tcpa")), (String::new(), false));
    accel(&machine, &["enable", "tcpa", "--all"]);
    let before = machine.status();
    for words in [
        &["status"][..],
        &["status", "--json"],
        &["status", "--watch"],
        &["memory"],
        &["memory", "--clear"],
        &["set", "init_cwnd=90"],
        &["set", "alpha=4"],
        &["update"],
        &["enable", "tcpa", "--port", "443"],
        &["enable", "caqm", "--all"],
        &["policy", &file],
        &["policy", "--check", &file],
        &["disable"],
        &["disable", "caqm"],
        &["disable", "--open"],
    ] {
        refused(&machine, words, unseen);
    }
    assert_eq!(machine.status(), before);

    // The remedy, nsenter, keeps the mounts and enters the same namespace.
    let output = machine.run("nsenter", &["--net=/run/netns/near", WEIR, "accel", "disable"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert_eq!((machine.pinned(), available().contains("tcpa")), (String::new(), false));
}

#[test]
fn hidden_control_groups_are_reported_without_the_advice_to_mount_them() {
    let Some(machine) = machine() else { return };
    let unselected = "cannot select connections";
    let file = machine.write("policy.toml", "[[rule]]\ncgroup = \"/inner\"\n");
    refused(&machine, &["enable", "tcpa", "--cgroup", "/inner"], unselected);
    refused(&machine, &["policy", &file], unselected);

    // Repeats the check without a BPF file system.
    let script = "while mountpoint --quiet /sys/fs/bpf; do umount /sys/fs/bpf; done";
    assert_eq!(machine.run("sh", &["-c", script]).code, Some(0));
    let output = inside(&machine, &["enable", "tcpa", "--all"]);
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    for advice in ["mount -t bpf", "run both commands in `nsenter --net=/run/netns/near`"] {
        assert!(output.stderr.contains(advice), "{}", output.stderr);
    }
    assert!(!output.stderr.contains("mount -t cgroup2"), "{}", output.stderr);
}

#[test]
fn without_a_bpf_file_system_accel_is_off() {
    let Some(machine) = machine() else { return };
    let script = "while mountpoint --quiet /sys/fs/bpf; do umount /sys/fs/bpf; done";
    assert_eq!(machine.run("sh", &["-c", script]).code, Some(0));
    let output = inside(&machine, &["status"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(output.stdout.contains("tcpa is off"), "{}", output.stdout);
    let output = inside(&machine, &["disable"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(output.stderr.contains("tcpa was off already"), "{}", output.stderr);
}
