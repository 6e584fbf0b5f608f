//! Connections whose program named an algorithm keep it.

use crate::test_machine::TestMachine;
use crate::test_machine::transfer::{accel, algorithms};
use std::process::Child;
use std::time::{Duration, Instant};

const NAMED: [&str; 2] = ["--congestion", "cubic"];

#[test]
fn a_named_algorithm_is_kept_unless_the_rule_says_otherwise() {
    let Some(machine) = TestMachine::new() else { return };
    accel(&machine, &["enable", "tcpa", "--all"]);
    assert_eq!(machine.transfer(5951, &NAMED).0, "cubic");
    assert_eq!(machine.transfer(5952, &[]).0, "tcpa");

    accel(&machine, &["enable", "tcpa", "--all", "--named-too"]);
    assert_eq!(machine.status()["rules"][0]["named_too"], true);
    let text = machine.weir(&["accel", "status"]).stdout;
    assert!(text.contains("also where a program named another"), "{text}");
    // The perf test must fail, because its results belong to another algorithm than the user
    // requested.
    let output = named_transfer(&machine, 5953);
    assert_eq!(output.code, Some(1), "{}{}", output.stderr, output.stdout);
    assert!(output.stderr.contains("cubic was asked for, and tcpa was used"), "{}", output.stderr);

    let file = machine.write("policy.toml", "[[rule]]\n");
    accel(&machine, &["policy", &file]);
    assert_eq!(machine.transfer(5954, &NAMED).0, "cubic");
    let file = machine.write("policy.toml", "[[rule]]\nnamed_too = true\n");
    accel(&machine, &["policy", &file]);
    assert_eq!(machine.status()["rules"][0]["named_too"], true);
}

fn named_transfer(machine: &TestMachine, port: u16) -> crate::test_machine::CommandOutput {
    let (weir, text) = (env!("CARGO_BIN_EXE_weir"), port.to_string());
    let mut server = machine.start(weir, &["perf", "server", "--port", &text, "--one-off"]);
    machine.await_listener(port);
    let words = ["perf", "client", "127.0.0.1", "--port", &text, "--time", "1"];
    let output = machine.weir(&[&words[..], &NAMED].concat());
    server.wait().unwrap();
    output
}

#[test]
fn an_open_connection_with_a_named_algorithm_keeps_it() {
    let Some(machine) = TestMachine::new() else { return };
    let words = ["-w", "net.ipv4.tcp_congestion_control=reno"];
    assert_eq!(machine.run("sysctl", &words).code, Some(0));
    let weir = env!("CARGO_BIN_EXE_weir");
    let server = machine.start(weir, &["perf", "server", "--port", "5955", "--one-off"]);
    machine.await_listener(5955);
    let mut words = vec!["perf", "client", "127.0.0.1", "--port", "5955", "--time", "600"];
    words.extend(["--bitrate", "10M", "--congestion", "cubic"]);
    let client = machine.start(weir, &words);
    let deadline = Instant::now() + Duration::from_secs(60);
    while algorithms(&machine).len() < 4 {
        assert!(Instant::now() < deadline, "no transfer");
        std::thread::sleep(Duration::from_millis(10));
    }
    let message = accel(&machine, &["enable", "tcpa", "--all", "--open"]);
    assert!(message.contains("keep the algorithm that their program named"), "{message}");
    assert!(algorithms(&machine).contains(&"cubic".to_owned()));
    let message = accel(&machine, &["enable", "tcpa", "--all", "--named-too", "--open"]);
    assert!(message.contains("now use it"), "{message}");
    assert!(!algorithms(&machine).contains(&"cubic".to_owned()));
    end([client, server]);
}

fn end(children: [Child; 2]) {
    for mut child in children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn status_names_excluded_connections_and_works_without_a_bpf_file_system() {
    let Some(machine) = TestMachine::new() else { return };
    let pair = crate::test_machine::pair::Pair::lay(&machine);
    let text = "[[rule]]\nport = 22\nalgorithm = \"none\"\n[[rule]]\nalgorithm = \"caqm\"\n\
                [caqm]\ninterface = [\"near:eth0\", \"far:eth0\"]\n";
    let file = machine.write("policy.toml", text);
    accel(&machine, &["policy", &file]);
    let shown = machine.weir(&["accel", "status"]).stdout;
    assert!(shown.contains("port 22  without caqm"), "{shown}");
    accel(&machine, &["disable"]);
    drop(pair);
    assert_eq!(machine.run("umount", &["/sys/fs/bpf"]).code, Some(0));
    let output = machine.weir(&["accel", "status"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(output.stdout.contains("tcpa is off"), "{}", output.stdout);
}
