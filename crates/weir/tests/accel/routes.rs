//! Route attributes beside rules: the kernel must behave as the README of crates/accel documents.

use crate::test_machine::TestMachine;
use crate::test_machine::transfer::accel;

/// Opens a connection to another namespace, and returns the kernel's data about it: algorithm,
/// timeout and window.
fn connection(machine: &TestMachine) -> Vec<String> {
    let look = "exec 3<>/dev/tcp/10.0.0.2/5901 && ss -tniH state established dport = :5901";
    let output = machine.run("ip", &["netns", "exec", "near", "bash", "-c", look]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    output.stdout.split_whitespace().map(str::to_owned).collect()
}

/// Returns the data of [`connection`]. A stall during the handshake lengthens the timeout, so there
/// are three attempts.
fn prompt_connection(machine: &TestMachine) -> Vec<String> {
    let mut words = connection(machine);
    for _ in 0..2 {
        if waits(&words) {
            break;
        }
        words = connection(machine);
    }
    words
}

/// Whether the retransmission timeout is 400 ms, within the granularity of the kernel's timers.
fn waits(words: &[String]) -> bool {
    words.iter().any(|word| word.starts_with("rto:4"))
}

fn ip(machine: &TestMachine, words: &str) {
    let words: Vec<_> = words.split(' ').collect();
    let output = machine.run("ip", &words);
    assert_eq!(output.code, Some(0), "{words:?}: {}", output.stderr);
}

#[test]
fn route_metrics_and_rules_combine_as_documented() {
    let Some(machine) = TestMachine::new() else { return };
    for words in [
        "netns add near",
        "netns add far",
        "link add eth0 netns near type veth peer name eth0 netns far",
        "-n near address add 10.0.0.1/24 dev eth0",
        "-n far address add 10.0.0.2/24 dev eth0",
        "-n near link set eth0 up",
        "-n far link set eth0 up",
    ] {
        ip(&machine, words);
    }
    let weir = env!("CARGO_BIN_EXE_weir");
    let mut server =
        machine.start("ip", &["netns", "exec", "far", weir, "perf", "server", "--port", "5901"]);
    let listening = ["netns", "exec", "far", "ss", "-tlnH"];
    while !machine.run("ip", &listening).stdout.contains(":5901 ") {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let has = |output: &[String], word: &str| output.iter().any(|found| found == word);

    ip(&machine, "-n near route change 10.0.0.0/24 dev eth0 congctl reno initcwnd 5 rto_min 400ms");
    let plain = prompt_connection(&machine);
    assert!(has(&plain, "reno") && waits(&plain) && has(&plain, "cwnd:5"), "{plain:?}");
    // The connection gets its algorithm and window from the rule, and its timeout from the route.
    accel(&machine, &["enable", "tcpa", "--all", "--init-cwnd", "33", "--rto-min", "50ms"]);
    let both = prompt_connection(&machine);
    assert!(has(&both, "tcpa") && waits(&both) && has(&both, "cwnd:33"), "{both:?}");

    // A route may name the algorithm while tcpa is installed, and works without tcpa afterwards.
    accel(&machine, &["disable"]);
    accel(&machine, &["enable", "tcpa", "--port", "1"]);
    ip(&machine, "-n near route change 10.0.0.0/24 dev eth0 congctl tcpa");
    assert!(has(&connection(&machine), "tcpa"));
    accel(&machine, &["disable"]);
    assert!(!has(&connection(&machine), "tcpa"));
    server.kill().unwrap();
    server.wait().unwrap();
}
