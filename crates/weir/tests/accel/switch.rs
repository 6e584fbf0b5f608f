//! `weir accel` as a user runs it: enabled, disabled, in force, and failures on the way.

use crate::world::path::Path;
use crate::world::{AccelWorld, available};
use std::time::Duration;

#[test]
fn all_connections_use_tcpa_until_it_is_disabled() {
    let Some(world) = AccelWorld::new() else { return };
    assert_eq!(world.status()["state"], "off");
    let said = world.weir(&["accel", "enable", "tcpa", "--all", "--init-cwnd", "90"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let status = world.status();
    assert_eq!(status["state"], "on");
    assert_eq!(status["rules"][0]["tunables"]["init_cwnd"], 90);
    assert_eq!(world.transfer(5301, &[]), ("tcpa".to_owned(), "tcpa".to_owned()));

    let said = world.weir(&["accel", "disable"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert_eq!(world.status()["state"], "off");
    assert_eq!(world.pinned(), "");
    assert!(!available().contains("tcpa"));
    let (sender, receiver) = world.transfer(5302, &[]);
    assert!(sender != "tcpa" && receiver != "tcpa", "{sender} {receiver}");
    let said = world.weir(&["accel", "disable"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
}

#[test]
fn rules_choose_by_port_destination_and_control_group() {
    let Some(world) = AccelWorld::new() else { return };
    world.run("mkdir", &["/sys/fs/cgroup/inner"]);
    for words in [
        &["--port", "5311"][..],
        &["--to", "127.0.0.9"],
        &["--cgroup", "/inner"],
        &["--port", "5311", "--loss-init-cwnd", "2"],
    ] {
        let mut all = vec!["accel", "enable", "tcpa"];
        all.extend(words);
        let said = world.weir(&all);
        assert_eq!(said.code, Some(0), "{words:?}: {}", said.stderr);
    }
    let status = world.status();
    assert_eq!(status["rules"].as_array().unwrap().len(), 3, "{status}");
    assert_eq!(status["rules"][0]["tunables"]["loss_init_cwnd"], 2);
    assert_eq!(status["rules"][2]["cgroup"], "/sys/fs/cgroup/inner");
    // The client's own port differs.
    let (sender, receiver) = world.transfer(5311, &[]);
    assert!(sender != "tcpa" && receiver == "tcpa", "{sender} {receiver}");
    let (sender, receiver) = world.transfer(5312, &["--bind", "127.0.0.9"]);
    assert!(sender != "tcpa" && receiver == "tcpa", "{sender} {receiver}");
    let (sender, receiver) = world.transfer(5313, &[]);
    assert!(sender != "tcpa" && receiver != "tcpa", "{sender} {receiver}");
}

#[test]
fn an_invalid_request_changes_nothing() {
    let Some(world) = AccelWorld::new() else { return };
    for (words, told) in [
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
        let said = world.weir(&all);
        assert_eq!(said.code, Some(2), "{words:?}: {}", said.stderr);
        assert!(said.stderr.contains(told), "{words:?}: {}", said.stderr);
        assert_eq!(world.pinned(), "", "{words:?}");
    }
}

#[test]
fn a_missing_bpf_file_system_or_missing_root_is_reported() {
    let Some(world) = AccelWorld::new() else { return };
    let weir = env!("CARGO_BIN_EXE_weir");
    let enable = ["accel", "enable", "tcpa", "--all"];
    let mut words = vec!["--reuid", "65534", "--regid", "65534", "--clear-groups", weir];
    words.extend(enable);
    let said = world.run("setpriv", &words);
    assert_eq!(said.code, Some(1), "{}", said.stderr);
    assert!(said.stderr.contains("as root"), "{}", said.stderr);
    assert_eq!(world.pinned(), "");

    assert_eq!(world.run("umount", &["/sys/fs/bpf"]).code, Some(0));
    let said = world.weir(&enable);
    if said.code == Some(0) {
        world.weir(&["accel", "disable"]);
        eprintln!("SKIPPED: this machine has another BPF file system below");
        return;
    }
    assert!(said.stderr.contains("mount -t bpf"), "{}", said.stderr);
    assert!(!available().contains("tcpa"));
}

#[test]
fn a_second_installation_is_refused_and_disturbs_nothing() {
    let Some(world) = AccelWorld::new() else { return };
    assert_eq!(world.weir(&["accel", "enable", "tcpa", "--all"]).code, Some(0));
    let other = world.second();
    let said = other.weir(&["accel", "enable", "tcpa", "--all"]);
    assert_eq!(said.code, Some(1), "{}", said.stderr);
    assert!(said.stderr.contains("registered already"), "{}", said.stderr);
    assert_eq!(other.pinned(), "");
    assert_eq!(other.status()["state"], "off");
    assert_eq!(other.weir(&["accel", "disable"]).code, Some(0));
    assert_eq!(world.status()["state"], "on");
    assert_eq!(world.transfer(5321, &[]).0, "tcpa");
}

#[test]
fn two_commands_at_the_same_time_both_take_effect() {
    let Some(world) = AccelWorld::new() else { return };
    let weir = env!("CARGO_BIN_EXE_weir");
    let ports: Vec<String> = (5331..5337).map(|port| port.to_string()).collect();
    let commands: Vec<_> = ports
        .iter()
        .map(|port| world.start(weir, &["accel", "enable", "tcpa", "--port", port]))
        .collect();
    for mut command in commands {
        assert!(command.wait().unwrap().success());
    }
    assert_eq!(world.status()["rules"].as_array().unwrap().len(), ports.len());
}

#[test]
fn a_command_killed_at_any_moment_can_be_cleaned_up() {
    let Some(world) = AccelWorld::new() else { return };
    let weir = env!("CARGO_BIN_EXE_weir");
    for millis in (0..60).step_by(3) {
        let mut enabling = world.start(weir, &["accel", "enable", "tcpa", "--all"]);
        std::thread::sleep(Duration::from_millis(millis));
        let _ = enabling.kill();
        enabling.wait().unwrap();
        let status = world.status();
        let pinned = world.pinned();
        match status["state"].as_str().unwrap() {
            "off" => assert_eq!(pinned, "", "after {millis} ms"),
            "part" => assert_eq!(pinned, "weir-accel\n", "after {millis} ms"),
            state => assert_eq!((state, status["rules"].as_array().unwrap().len()), ("on", 1)),
        }
        if millis % 2 == 0 {
            assert_eq!(world.weir(&["accel", "disable"]).code, Some(0), "after {millis} ms");
            assert_eq!(world.pinned(), "");
            assert!(!available().contains("tcpa"), "after {millis} ms");
        }
    }
    assert_eq!(world.weir(&["accel", "enable", "tcpa", "--all"]).code, Some(0));
    assert_eq!(world.transfer(5341, &[]).0, "tcpa");
}

#[test]
fn open_connections_survive_off_and_on_again() {
    let Some(world) = AccelWorld::new() else { return };
    let weir = env!("CARGO_BIN_EXE_weir");
    assert_eq!(world.weir(&["accel", "enable", "tcpa", "--all"]).code, Some(0));
    let mut server = world.start(weir, &["perf", "server", "--port", "5351", "--one-off"]);
    world.await_listener(5351);
    let words = ["perf", "client", "127.0.0.1", "--port", "5351", "--time", "2", "--json"];
    let client = world.start(weir, &words);
    let flows = || world.status()["flows"].as_array().unwrap().len();
    // Both ends of the control connection and of the transfer.
    while flows() < 4 {
        std::thread::sleep(Duration::from_millis(5));
    }
    for words in [&["update"][..], &["disable"], &["enable", "tcpa", "--port", "1"], &["disable"]] {
        let mut all = vec!["accel"];
        all.extend(words);
        assert_eq!(world.weir(&all).code, Some(0));
    }
    let output = client.wait_with_output().unwrap();
    assert!(output.status.success());
    let end: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(end["end"]["sender_tcp_congestion"], "tcpa");
    server.wait().unwrap();
}

#[test]
fn an_update_keeps_rules_and_memory() {
    let Some(world) = AccelWorld::new() else { return };
    let said = world.weir(&["accel", "update"]);
    assert_eq!(said.code, Some(1), "{}", said.stderr);
    assert_eq!(
        world.weir(&["accel", "enable", "tcpa", "--all", "--init-cwnd", "33"]).code,
        Some(0)
    );
    let path = Path::lay(&world);
    assert_eq!(path.transfer(5361), "tcpa");
    let before = world.status();
    let said = world.weir(&["accel", "update"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert_eq!(world.pinned(), "weir-accel\n");
    assert_eq!(world.status()["rules"], before["rules"]);
    assert!(world.weir(&["accel", "memory"]).stdout.contains("10.0.0.0/24"));
    assert_eq!(world.transfer(5362, &[]).0, "tcpa");
    // The changed rules are those in force.
    let file = world.write("none.toml", "[[rule]]\nalgorithm = \"none\"\n");
    assert_eq!(world.weir(&["accel", "policy", &file]).code, Some(0));
    assert_ne!(world.transfer(5363, &[]).0, "tcpa");
    assert_eq!(world.weir(&["accel", "disable"]).code, Some(0));
    assert!(!available().contains("tcpa"));
}

#[test]
fn an_update_that_is_killed_can_be_cleaned_up() {
    let Some(world) = AccelWorld::new() else { return };
    let weir = env!("CARGO_BIN_EXE_weir");
    for millis in (0..45).step_by(5) {
        assert_eq!(world.weir(&["accel", "enable", "tcpa", "--all"]).code, Some(0));
        let mut updating = world.start(weir, &["accel", "update"]);
        std::thread::sleep(Duration::from_millis(millis));
        let _ = updating.kill();
        updating.wait().unwrap();
        let state = world.status()["state"].clone();
        let whole = world.pinned() == "weir-accel\n";
        assert_eq!(state, if whole { "on" } else { "part" }, "after {millis} ms");
        if millis % 2 == 0 {
            assert_eq!(world.weir(&["accel", "disable"]).code, Some(0), "after {millis} ms");
            assert_eq!(world.pinned(), "");
        }
    }
}

/// The world's network is not the machine's first namespace: programs there may choose the
/// algorithm too.
#[test]
fn a_program_in_a_namespace_chooses_tcpa_and_status_shows_it() {
    let Some(world) = AccelWorld::new() else { return };
    let weir = env!("CARGO_BIN_EXE_weir");
    let said = world.weir(&["accel", "enable", "tcpa", "--port", "1"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let mut server = world.start(weir, &["perf", "server", "--port", "5371", "--one-off"]);
    world.await_listener(5371);
    let mut words = vec!["perf", "client", "127.0.0.1", "--port", "5371", "--time", "2", "--json"];
    words.extend(["--congestion", "tcpa"]);
    let client = world.start(weir, &words);
    let seen = || {
        let said = world.run("unshare", &["--net", weir, "accel", "status", "--json"]);
        let status: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
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
fn a_read_only_file_system_leaves_nothing_half_done() {
    let Some(world) = AccelWorld::new() else { return };
    let turned = |place: &str, how: &str| {
        let said = world.run("mount", &["-o", &format!("remount,{how}"), place]);
        assert_eq!(said.code, Some(0), "{}", said.stderr);
    };
    for place in ["/sys/fs/bpf", "/run"] {
        turned(place, "ro");
        let said = world.weir(&["accel", "enable", "tcpa", "--all"]);
        assert_eq!(said.code, Some(1), "{place}: {}", said.stderr);
        assert!(said.stderr.contains("Read-only file system"), "{place}: {}", said.stderr);
        assert!(!said.stderr.contains("put back"), "{place}: {}", said.stderr);
        assert_eq!(world.status()["state"], "off", "{place}");
        let said = world.weir(&["accel", "disable"]);
        assert_eq!(said.code, Some(0), "{place}: {}", said.stderr);
        turned(place, "rw");
    }
    assert_eq!(world.pinned(), "");
    assert_eq!(world.weir(&["accel", "enable", "tcpa", "--all"]).code, Some(0));
    assert_eq!(world.weir(&["accel", "disable"]).code, Some(0));
}

#[test]
fn an_ipv4_connection_through_an_ipv6_socket_is_one_of_ipv4() {
    let Some(world) = AccelWorld::new() else { return };
    let said = world.weir(&["accel", "enable", "tcpa", "--to", "::/0"]);
    assert_eq!(said.code, Some(2), "{}", said.stderr);
    assert!(said.stderr.contains("2000::/3"), "{}", said.stderr);
    assert_eq!(world.weir(&["accel", "enable", "tcpa", "--to", "127.0.0.0/8"]).code, Some(0));
    // The server listens on both address families.
    assert_eq!(world.transfer(5403, &[]), ("tcpa".to_owned(), "tcpa".to_owned()));
}
