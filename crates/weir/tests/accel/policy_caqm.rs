//! `weir accel policy` with rules for CAQM among other rules.

use crate::test_machine::TestMachine;
use crate::test_machine::pair::Pair;
use crate::test_machine::transfer::accel;

const AT: &str = "[caqm]\ninterface = [\"near:eth0\", \"far:eth0\"]\ntrusts_path = true\n";

fn put(machine: &TestMachine, text: &str) {
    let file = machine.write("policy.toml", text);
    let output = machine.weir(&["accel", "policy", &file]);
    assert_eq!(output.code, Some(0), "{text}: {}", output.stderr);
}

#[test]
fn a_policy_file_chooses_between_tcpa_and_caqm() {
    let Some(machine) = TestMachine::new() else { return };
    let pair = Pair::lay(&machine);
    put(
        &machine,
        &format!(
            "[[rule]]\nport = 5861\nalgorithm = \"none\"\n\n[[rule]]\nalgorithm = \"caqm\"\n\n[[rule]]\n\n{AT}"
        ),
    );
    assert_eq!(pair.transfer(5860, &[]), "caqm");
    assert_ne!(pair.transfer(5861, &[]), "caqm");
    // CAQM does not run on the loopback interface, so the next rule applies.
    assert_eq!(machine.transfer(5862, &[]).0, "tcpa");
    let status = machine.status();
    assert_eq!(status["rules"].as_array().unwrap().len(), 2, "{status}");
    assert_eq!(status["caqm"]["rules"].as_array().unwrap().len(), 2, "{status}");
    // The next file has no rules for CAQM.
    put(&machine, "[[rule]]\n");
    assert_eq!(pair.transfer(5863, &[]), "tcpa");
    assert_eq!(machine.status()["caqm"]["rules"].as_array().unwrap().len(), 0);
    accel(&machine, &["disable"]);
    assert_eq!(machine.pinned(), "");
}

#[test]
fn a_policy_file_for_caqm_alone_leaves_tcpa_off() {
    let Some(machine) = TestMachine::new() else { return };
    let pair = Pair::lay(&machine);
    put(&machine, &format!("[[rule]]\nalgorithm = \"caqm\"\n\n{AT}"));
    assert_eq!(pair.transfer(5865, &[]), "caqm");
    assert_eq!(machine.status()["state"], "off");
    accel(&machine, &["disable"]);
    assert_eq!(machine.pinned(), "");
}

#[test]
fn an_impossible_policy_changes_neither_tcpa_nor_caqm() {
    let Some(machine) = TestMachine::new() else { return };
    let _pair = Pair::lay(&machine);
    put(&machine, &format!("[[rule]]\nalgorithm = \"caqm\"\n\n[[rule]]\n\n{AT}alpha = 16\n"));
    let status = machine.status();
    for (text, message) in [
        ("[[rule]]\nalgorithm = \"caqm\"\n[caqm]\ninterface = [\"gone0\"]\n", "gone0"),
        ("[[rule]]\nalgorithm = \"caqm\"\nrto_min = \"50ms\"\n", "[caqm]"),
        // The command applies CAQM's rules first, and then fails to set `tcp_mem`, which this
        // network namespace lacks.
        (
            "[[rule]]\nport = 5866\nalgorithm = \"caqm\"\n\n[system]\nmem = [1000, 2000, 3000]\n",
            "tcp_mem",
        ),
    ] {
        let file = machine.write("policy.toml", text);
        let output = machine.weir(&["accel", "policy", &file]);
        assert_ne!(output.code, Some(0), "{text}");
        assert!(output.stderr.contains(message), "{text}: {}", output.stderr);
        let now = machine.status();
        for part in ["rules", "interfaces", "network"] {
            assert_eq!(now["caqm"][part], status["caqm"][part], "{text}");
        }
        assert_eq!(now["rules"], status["rules"], "{text}");
    }
    accel(&machine, &["disable"]);
    assert_eq!(machine.pinned(), "");
}

#[test]
fn the_unit_waits_for_the_interfaces() {
    let Some(machine) = TestMachine::new() else { return };
    let file = machine.write(
        "policy.toml",
        "[[rule]]\nalgorithm = \"caqm\"\n[caqm]\ninterface = [\"eth-0\", \"left:eth1\"]\n",
    );
    let unit = machine.weir(&["accel", "unit", &file]).stdout;
    assert!(unit.contains("After=sys-subsystem-net-devices-eth\\x2d0.device\n"), "{unit}");
    assert!(!unit.contains("eth1"), "{unit}");
}
