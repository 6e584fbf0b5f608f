//! `weir accel` as a user runs it: enable, disable, rules in force, and failures in between.

use crate::support::await_some;
use crate::test_machine::path::TestPath;
use crate::test_machine::{TestMachine, available, await_free};
use std::time::Duration;

#[test]
fn all_connections_use_tcpa_until_it_is_disabled() {
    let Some(machine) = TestMachine::new() else { return };
    assert_eq!(machine.status()["state"], "off");
    let output = machine.weir(&["accel", "enable", "tcpa", "--all", "--init-cwnd", "90"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let status = machine.status();
    assert_eq!(status["state"], "on");
    assert_eq!(status["rules"][0]["tunables"]["init_cwnd"], 90);
    assert_eq!(machine.transfer(5301, &[]), ("tcpa".to_owned(), "tcpa".to_owned()));

    let output = machine.weir(&["accel", "disable"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert_eq!(machine.status()["state"], "off");
    assert_eq!(machine.pinned(), "");
    assert!(!available().contains("tcpa"));
    let (sender, receiver) = machine.transfer(5302, &[]);
    assert!(sender != "tcpa" && receiver != "tcpa", "{sender} {receiver}");
    let output = machine.weir(&["accel", "disable"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
}

#[test]
fn rules_choose_by_port_destination_and_control_group() {
    let Some(machine) = TestMachine::new() else { return };
    machine.run("mkdir", &["/sys/fs/cgroup/inner"]);
    for words in [
        &["--port", "5311"][..],
        &["--to", "127.0.0.9"],
        &["--cgroup", "/inner"],
        &["--port", "5311", "--loss-init-cwnd", "2"],
    ] {
        let mut all = vec!["accel", "enable", "tcpa"];
        all.extend(words);
        let output = machine.weir(&all);
        assert_eq!(output.code, Some(0), "{words:?}: {}", output.stderr);
    }
    let status = machine.status();
    assert_eq!(status["rules"].as_array().unwrap().len(), 3, "{status}");
    assert_eq!(status["rules"][0]["tunables"]["loss_init_cwnd"], 2);
    assert_eq!(status["rules"][2]["cgroup"], "/sys/fs/cgroup/inner");
    // The client's own port is not the port of the rule, so the rule does not match the client's
    // end.
    let (sender, receiver) = machine.transfer(5311, &[]);
    assert!(sender != "tcpa" && receiver == "tcpa", "{sender} {receiver}");
    let (sender, receiver) = machine.transfer(5312, &["--bind", "127.0.0.9"]);
    assert!(sender != "tcpa" && receiver == "tcpa", "{sender} {receiver}");
    let (sender, receiver) = machine.transfer(5313, &[]);
    assert!(sender != "tcpa" && receiver != "tcpa", "{sender} {receiver}");
}

#[test]
fn an_invalid_request_changes_nothing() {
    let Some(machine) = TestMachine::new() else { return };
    for (words, message) in [
        (&["--cgroup", "/no-such-group"][..], "no control group `/no-such-group`"),
        (&["--to", "10.0.0.1/8"], "behind the prefix"),
        (&["--all", "--init-cwnd", "0"], "init_cwnd"),
        (&["--all", "--rto-min", "1s"], "rto_min"),
        (&["--all", "--rto-max", "5"], "unit"),
        (&["--all", "--port", "80"], "cannot be used with"),
        (&[], "required"),
    ] {
        let mut all = vec!["accel", "enable", "tcpa"];
        all.extend(words);
        let output = machine.weir(&all);
        assert_eq!(output.code, Some(2), "{words:?}: {}", output.stderr);
        assert!(output.stderr.contains(message), "{words:?}: {}", output.stderr);
        assert_eq!(machine.pinned(), "", "{words:?}");
    }
}

#[test]
fn a_missing_bpf_file_system_or_missing_root_is_reported() {
    let Some(machine) = TestMachine::new() else { return };
    let weir = env!("CARGO_BIN_EXE_weir");
    let enable = ["accel", "enable", "tcpa", "--all"];
    let mut words = vec!["--reuid", "65534", "--regid", "65534", "--clear-groups", weir];
    words.extend(enable);
    let output = machine.run("setpriv", &words);
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    assert!(output.stderr.contains("as root"), "{}", output.stderr);
    assert_eq!(machine.pinned(), "");

    // The machine's own BPF file system may be mounted below the test's.
    while machine.run("umount", &["/sys/fs/bpf"]).code == Some(0) {}
    let output = machine.weir(&enable);
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    assert!(output.stderr.contains("mount -t bpf"), "{}", output.stderr);
    let output = machine.weir(&["accel", "disable", "--open"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(output.stderr.contains("tcpa was off already"), "{}", output.stderr);
    let output = machine.weir(&["accel", "memory"]);
    assert!(output.stdout.contains("no path is remembered"), "{output:?}");
    assert!(!available().contains("tcpa"));
}

#[test]
fn a_second_installation_is_refused_and_disturbs_nothing() {
    let Some(machine) = TestMachine::new() else { return };
    assert_eq!(machine.weir(&["accel", "enable", "tcpa", "--all"]).code, Some(0));
    let other = machine.second();
    let output = other.weir(&["accel", "enable", "tcpa", "--all"]);
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    assert!(output.stderr.contains("registered already"), "{}", output.stderr);
    assert_eq!(other.pinned(), "");
    assert_eq!(other.status()["state"], "off");
    assert_eq!(other.weir(&["accel", "disable"]).code, Some(0));
    assert_eq!(machine.status()["state"], "on");
    assert_eq!(machine.transfer(5321, &[]).0, "tcpa");
}

#[test]
fn two_commands_at_the_same_time_both_take_effect() {
    let Some(machine) = TestMachine::new() else { return };
    let weir = env!("CARGO_BIN_EXE_weir");
    let ports: Vec<String> = (5331..5337).map(|port| port.to_string()).collect();
    let commands: Vec<_> = ports
        .iter()
        .map(|port| machine.start(weir, &["accel", "enable", "tcpa", "--port", port]))
        .collect();
    for mut command in commands {
        assert!(command.wait().unwrap().success());
    }
    assert_eq!(machine.status()["rules"].as_array().unwrap().len(), ports.len());
}

#[test]
fn a_command_killed_at_any_moment_can_be_cleaned_up() {
    let Some(machine) = TestMachine::new() else { return };
    let weir = env!("CARGO_BIN_EXE_weir");
    for millis in (0..60).step_by(3) {
        let mut enabling = machine.start(weir, &["accel", "enable", "tcpa", "--all"]);
        std::thread::sleep(Duration::from_millis(millis));
        let _ = enabling.kill();
        enabling.wait().unwrap();
        let status = machine.status();
        let pinned = machine.pinned();
        match status["state"].as_str().unwrap() {
            "off" => assert_eq!(pinned, "", "after {millis} ms"),
            "part" => assert_eq!(pinned, "weir-accel\n", "after {millis} ms"),
            state => assert_eq!((state, status["rules"].as_array().unwrap().len()), ("on", 1)),
        }
        if millis % 2 == 0 {
            assert_eq!(machine.weir(&["accel", "disable"]).code, Some(0), "after {millis} ms");
            assert_eq!(machine.pinned(), "");
            await_free("tcpa");
        }
    }
    assert_eq!(machine.weir(&["accel", "enable", "tcpa", "--all"]).code, Some(0));
    assert_eq!(machine.transfer(5341, &[]).0, "tcpa");
}

#[test]
fn open_connections_continue_through_disable_and_enable() {
    let Some(machine) = TestMachine::new() else { return };
    let weir = env!("CARGO_BIN_EXE_weir");
    assert_eq!(machine.weir(&["accel", "enable", "tcpa", "--all"]).code, Some(0));
    let mut server = machine.start(weir, &["perf", "server", "--port", "5351", "--one-off"]);
    machine.await_listener(5351);
    let words = ["perf", "client", "127.0.0.1", "--port", "5351", "--time", "5", "--json"];
    let client = machine.start(weir, &words);
    let flows = || machine.status()["flows"].as_array().unwrap().len();
    // Four sockets: both ends of the control connection and of the transfer.
    await_some("four connections", || (flows() >= 4).then_some(()));
    for words in [&["update"][..], &["disable"], &["enable", "tcpa", "--port", "1"], &["disable"]] {
        let mut all = vec!["accel"];
        all.extend(words);
        assert_eq!(machine.weir(&all).code, Some(0));
    }
    let output = client.wait_with_output().unwrap();
    assert!(output.status.success());
    let end: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(end["end"]["sender_tcp_congestion"], "tcpa");
    server.wait().unwrap();
}

#[test]
fn an_update_keeps_rules_and_memory() {
    let Some(machine) = TestMachine::new() else { return };
    let output = machine.weir(&["accel", "update"]);
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    assert_eq!(
        machine.weir(&["accel", "enable", "tcpa", "--all", "--init-cwnd", "33"]).code,
        Some(0)
    );
    let path = TestPath::lay(&machine);
    assert_eq!(path.transfer(5361), "tcpa");
    let is_remembered =
        || machine.weir(&["accel", "memory"]).stdout.contains("10.0.0.0/24").then_some(());
    await_some("a record", is_remembered);
    let before = machine.status();
    let output = machine.weir(&["accel", "update"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert_eq!(machine.pinned(), "weir-accel\n");
    assert_eq!(machine.status()["rules"], before["rules"]);
    assert!(machine.weir(&["accel", "memory"]).stdout.contains("10.0.0.0/24"));
    assert_eq!(machine.transfer(5362, &[]).0, "tcpa");
    // A policy that is set after the update takes effect.
    let file = machine.write("none.toml", "[[rule]]\nalgorithm = \"none\"\n");
    assert_eq!(machine.weir(&["accel", "policy", &file]).code, Some(0));
    assert_ne!(machine.transfer(5363, &[]).0, "tcpa");
    assert_eq!(machine.weir(&["accel", "disable"]).code, Some(0));
    assert!(!available().contains("tcpa"));
}

#[test]
fn an_update_that_is_killed_can_be_cleaned_up() {
    let Some(machine) = TestMachine::new() else { return };
    let weir = env!("CARGO_BIN_EXE_weir");
    for millis in (0..45).step_by(5) {
        assert_eq!(machine.weir(&["accel", "enable", "tcpa", "--all"]).code, Some(0));
        let mut updating = machine.start(weir, &["accel", "update"]);
        std::thread::sleep(Duration::from_millis(millis));
        let _ = updating.kill();
        updating.wait().unwrap();
        let state = machine.status()["state"].clone();
        let whole = machine.pinned() == "weir-accel\n";
        assert_eq!(state, if whole { "on" } else { "part" }, "after {millis} ms");
        if millis % 2 == 0 {
            assert_eq!(machine.weir(&["accel", "disable"]).code, Some(0), "after {millis} ms");
            assert_eq!(machine.pinned(), "");
        }
    }
}

/// The test machine's network is not this machine's first namespace: programs there may choose the
/// algorithm too.
#[test]
fn a_program_in_a_namespace_chooses_tcpa_and_status_shows_it() {
    let Some(machine) = TestMachine::new() else { return };
    let weir = env!("CARGO_BIN_EXE_weir");
    let output = machine.weir(&["accel", "enable", "tcpa", "--port", "1", "--json"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let status: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    assert!(status["flows"].is_array(), "{status}");
    let mut server = machine.start(weir, &["perf", "server", "--port", "5371", "--one-off"]);
    machine.await_listener(5371);
    let mut words = vec!["perf", "client", "127.0.0.1", "--port", "5371", "--time", "5", "--json"];
    words.extend(["--congestion", "tcpa"]);
    let client = machine.start(weir, &words);
    let seen = || {
        let output = machine.run("unshare", &["--net", weir, "accel", "status", "--json"]);
        let status: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
        status["flows"].as_array().unwrap().iter().any(|flow| flow["namespace_of_pid"].is_u64())
    };
    let mut looks = 0;
    while !seen() {
        looks += 1;
        assert!(looks < 1000, "the connection is never seen");
    }
    let output = client.wait_with_output().unwrap();
    let end: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(end["end"]["sender_tcp_congestion"], "tcpa");
    server.wait().unwrap();
}

#[test]
fn an_enable_that_fails_on_a_read_only_file_system_leaves_tcpa_off() {
    let Some(machine) = TestMachine::new() else { return };
    let turned = |place: &str, how: &str| {
        let output = machine.run("mount", &["-o", &format!("remount,{how}"), place]);
        assert_eq!(output.code, Some(0), "{}", output.stderr);
    };
    for place in ["/sys/fs/bpf", "/run"] {
        turned(place, "ro");
        let output = machine.weir(&["accel", "enable", "tcpa", "--all"]);
        assert_eq!(output.code, Some(1), "{place}: {}", output.stderr);
        assert!(output.stderr.contains("Read-only file system"), "{place}: {}", output.stderr);
        assert!(!output.stderr.contains("put back"), "{place}: {}", output.stderr);
        assert_eq!(machine.status()["state"], "off", "{place}");
        let output = machine.weir(&["accel", "disable"]);
        assert_eq!(output.code, Some(0), "{place}: {}", output.stderr);
        turned(place, "rw");
    }
    assert_eq!(machine.pinned(), "");
    assert_eq!(machine.weir(&["accel", "enable", "tcpa", "--all"]).code, Some(0));
    assert_eq!(machine.weir(&["accel", "disable"]).code, Some(0));
}

#[test]
fn an_ipv4_connection_of_an_ipv6_socket_matches_ipv4_rules() {
    let Some(machine) = TestMachine::new() else { return };
    let output = machine.weir(&["accel", "enable", "tcpa", "--to", "::/0"]);
    assert_eq!(output.code, Some(2), "{}", output.stderr);
    assert!(output.stderr.contains("2000::/3"), "{}", output.stderr);
    if !testing::Need::Ipv6.is_met() {
        return testing::skip_part(testing::Need::Ipv6);
    }
    assert_eq!(machine.weir(&["accel", "enable", "tcpa", "--to", "127.0.0.0/8"]).code, Some(0));
    // The server listens on both address families.
    assert_eq!(machine.transfer(5403, &[]), ("tcpa".to_owned(), "tcpa".to_owned()));
}
