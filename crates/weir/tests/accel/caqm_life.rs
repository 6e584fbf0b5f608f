//! CAQM is enabled, changed, replaced and disabled during transfers and at bad moments.

use crate::test_machine::pair::{Pair, RunningTransfer};
use crate::test_machine::transfer::accel;
use crate::test_machine::{TestMachine, available, await_free};
use serde_json::Value;
use std::time::{Duration, Instant};

const ENABLE: [&str; 8] = [
    "enable",
    "caqm",
    "--all",
    "--interface",
    "near:eth0",
    "--interface",
    "far:eth0",
    "--trusts-path",
];

fn sending(machine: &TestMachine) -> usize {
    let status = machine.status();
    let flows = status["caqm"]["flows"].as_array().unwrap();
    flows.iter().filter(|flow| flow["sending"] == true).count()
}

fn segments(machine: &TestMachine) -> u64 {
    machine.status()["caqm"]["totals"]["sent_segments"].as_u64().unwrap()
}

#[test]
fn parameters_can_be_read_and_set_while_caqm_is_on() {
    let Some(machine) = TestMachine::new() else { return };
    let _pair = Pair::lay(&machine);
    accel(&machine, &[&ENABLE[..], &["--alpha", "16", "--rtt-standard", "4ms"]].concat());
    accel(&machine, &["set", "alpha=4", "beta=1024", "min_cwnd=2"]);
    let network = machine.status()["caqm"]["network"].clone();
    for (name, value) in [
        ("alpha", "4"),
        ("beta", "1024"),
        ("min_cwnd", "2"),
        ("mtu_unit", "1024"),
        ("data_hint_unit", "8"),
        ("ack_hint_unit", "64"),
        ("rtt_standard", "4ms"),
        ("cc_type", "0"),
        ("tpid", "0x88a8"),
    ] {
        assert_eq!(network[name], value, "{network}");
    }
    accel(&machine, &["set", "tpid=0x8100"]);
    assert_eq!(machine.status()["caqm"]["network"]["tpid"], "0x8100");
    let going = RunningTransfer::start(&machine, 5840, "50M");
    let output = machine.weir(&["accel", "set", "tpid=0x88a8"]);
    assert_eq!(output.code, Some(2), "{}", output.stderr);
    assert!(output.stderr.contains("open connections"), "{}", output.stderr);
    for (value, message) in
        [("alpha=0", "alpha"), ("tpid=0x0800", "0x8100"), ("rtt_standard=4", "unit")]
    {
        let output = machine.weir(&["accel", "set", value]);
        assert_eq!(output.code, Some(2), "{}", output.stderr);
        assert!(output.stderr.contains(message), "{}", output.stderr);
    }
    assert_eq!(machine.status()["caqm"]["network"]["alpha"], "4");
    going.goes_on(&machine);
}

#[test]
fn open_connections_continue_through_update_disable_and_enable() {
    let Some(machine) = TestMachine::new() else { return };
    let _pair = Pair::lay(&machine);
    let output = machine.weir(&["accel", "update"]);
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    accel(&machine, &ENABLE);
    let going = RunningTransfer::start(&machine, 5841, "50M");
    assert_eq!(sending(&machine), 4);
    accel(&machine, &["update"]);
    let before = segments(&machine);
    going.goes_on(&machine);
    assert_eq!(sending(&machine), 4);
    assert!(segments(&machine) > before, "an update took the tags of open connections");
    accel(&machine, &["disable"]);
    assert_eq!(machine.pinned(), "");
    assert!(!available().contains("caqm"));
    going.goes_on(&machine);
    accel(&machine, &ENABLE);
    going.goes_on(&machine);
    accel(&machine, &["disable", "caqm"]);
    going.goes_on(&machine);
}

#[test]
fn a_removed_interface_is_reported_and_forgotten() {
    let Some(machine) = TestMachine::new() else { return };
    let pair = Pair::lay(&machine);
    accel(&machine, &ENABLE);
    pair.ip("-n far link delete eth0");
    let status = machine.status();
    let places = status["caqm"]["interfaces"].as_array().unwrap();
    assert_eq!(places, &[Value::Null, Value::Null], "{status}");
    assert!(machine.weir(&["accel", "status"]).stdout.contains("has gone"));
    for words in [
        "link add eth0 netns near type veth peer name eth0 netns far",
        "-n near address add 10.0.0.1/24 dev eth0",
        "-n far address add 10.0.0.2/24 dev eth0",
        "-n near link set eth0 up",
        "-n far link set eth0 up",
    ] {
        pair.ip(words);
    }
    assert_ne!(pair.transfer(5842, &[]), "caqm");
    accel(&machine, &ENABLE);
    let status = machine.status();
    assert_eq!(status["caqm"]["interfaces"].as_array().unwrap().len(), 2, "{status}");
    assert_eq!(pair.transfer(5843, &[]), "caqm");
    accel(&machine, &["update"]);
    accel(&machine, &["disable"]);
    assert_eq!(machine.pinned(), "");
}

#[test]
fn a_second_installation_is_refused_and_disturbs_nothing() {
    let Some(machine) = TestMachine::new() else { return };
    let pair = Pair::lay(&machine);
    accel(&machine, &ENABLE);
    let other = machine.second();
    let _theirs = Pair::lay(&other);
    let output = other.weir(&[&["accel"], &ENABLE[..]].concat());
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    assert!(output.stderr.contains("registered already"), "{}", output.stderr);
    assert_eq!(other.pinned(), "");
    assert_eq!(other.weir(&["accel", "disable"]).code, Some(0));
    assert_eq!(pair.transfer(5844, &[]), "caqm");
}

#[test]
fn a_command_killed_at_any_moment_can_be_cleaned_up() {
    let Some(machine) = TestMachine::new() else { return };
    let pair = Pair::lay(&machine);
    let weir = env!("CARGO_BIN_EXE_weir");
    let began = Instant::now();
    accel(&machine, &ENABLE);
    // Kills the command at a random moment, up to slightly longer than it takes.
    let most = began.elapsed().as_millis() as u64 * 5 / 4;
    accel(&machine, &["disable"]);
    let mut seen = [0; 3];
    for number in 0..25 {
        let mut enabling = machine.start(weir, &[&["accel"], &ENABLE[..]].concat());
        let millis = most * number / 25;
        std::thread::sleep(Duration::from_millis(millis));
        let _ = enabling.kill();
        enabling.wait().unwrap();
        let (status, pinned) = (machine.status(), machine.pinned());
        match status["caqm"]["state"].as_str().unwrap() {
            "off" => {
                assert_eq!(pinned, "", "after {millis} ms");
                seen[0] += 1;
            }
            "part" => {
                assert_eq!(pinned, "weir-caqm\n", "after {millis} ms");
                seen[1] += 1;
            }
            state => {
                assert_eq!(state, "on");
                seen[2] += 1;
            }
        }
        if number % 2 == 0 {
            accel(&machine, &["disable"]);
            assert_eq!(machine.pinned(), "");
            await_free("caqm");
        }
    }
    println!(
        "killed when it was off {}, half installed {}, on {} times",
        seen[0], seen[1], seen[2]
    );
    accel(&machine, &ENABLE);
    assert_eq!(pair.transfer(5845, &[]), "caqm");
}

#[test]
fn an_impossible_request_is_refused_and_changes_nothing() {
    let Some(machine) = TestMachine::new() else { return };
    let _pair = Pair::lay(&machine);
    for (words, message) in [
        (&["--all", "--interface", "near:eth7"][..], "no Ethernet interface `near:eth7`"),
        (&["--all", "--interface", "nowhere:eth0"], "nowhere"),
        (&["--all", "--interface", "lo"], "no Ethernet interface `lo`"),
        (&["--all"], "this network namespace has no Ethernet interface"),
        (&["--all", "--interface", "near:eth0", "--alpha", "32768"], "alpha"),
        (&["--all", "--interface", "near:eth0", "--tpid", "0x88b5"], "offloads"),
        (&["--interface", "near:eth0"], "required"),
    ] {
        let output = machine.weir(&[&["accel", "enable", "caqm"], words].concat());
        assert_ne!(output.code, Some(0), "{words:?}");
        assert!(output.stderr.contains(message), "{words:?}: {}", output.stderr);
        assert_eq!(machine.pinned(), "", "{words:?}");
    }
    let weir = env!("CARGO_BIN_EXE_weir");
    let mut words = vec!["--reuid", "65534", "--regid", "65534", "--clear-groups", weir, "accel"];
    words.extend(ENABLE);
    let output = machine.run("setpriv", &words);
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    assert!(output.stderr.contains("as root"), "{}", output.stderr);
    assert!(!available().contains("caqm"));
}

/// If rules of both algorithms match a connection, the connection uses CAQM if both ends agreed on
/// CAQM.
#[test]
fn rules_for_tcpa_and_caqm_can_be_in_force_together() {
    let Some(machine) = TestMachine::new() else { return };
    let pair = Pair::lay(&machine);
    let tcpa = ["enable", "tcpa", "--all", "--keep-wmem"];
    for (number, order) in [[&tcpa[..], &ENABLE[..]], [&ENABLE, &tcpa]].into_iter().enumerate() {
        order.iter().for_each(|words| drop(accel(&machine, words)));
        let port = 5850 + 10 * number as u16;
        assert_eq!(pair.transfer(port, &[]), "caqm");
        assert_eq!(machine.transfer(port + 1, &[]).0, "tcpa");
        accel(&machine, &["disable", "caqm"]);
        assert_eq!(pair.transfer(port + 2, &[]), "tcpa");
        // An end that does not offer CAQM leaves the connection to tcpa.
        accel(&machine, &["enable", "caqm", "--all", "--interface", "near:eth0"]);
        assert_eq!(pair.transfer(port + 3, &[]), "tcpa");
        accel(&machine, &["disable"]);
        assert_eq!(machine.pinned(), "");
    }
}
