//! Rules that give an algorithm of the kernel.

use crate::test_machine::transfer::{Transfer, accel, algorithms, goes_on};
use crate::test_machine::{TestMachine, available};

/// Returns an algorithm of this kernel other than reno, the default of the tests' networks.
fn other() -> Option<&'static str> {
    let found = ["bbr", "cubic"].into_iter().find(|name| available().contains(name));
    if found.is_none() {
        testing::skip(testing::Need::Congestion("cubic"));
    }
    found
}

fn reno_by_default(machine: &TestMachine) {
    let words = ["-w", "net.ipv4.tcp_congestion_control=reno"];
    assert_eq!(machine.run("sysctl", &words).code, Some(0));
}

#[test]
fn connections_of_a_rule_use_the_kernel_algorithm_of_the_rule() {
    let (Some(machine), Some(name)) = (TestMachine::new(), other()) else { return };
    reno_by_default(&machine);
    let wmem = machine.run("sysctl", &["net.ipv4.tcp_wmem"]).stdout;
    let message = accel(&machine, &["enable", name, "--port", "5971"]);
    assert!(message.contains(&format!("{name} is on (port 5971)")), "{message}");
    let (_, receiver) = machine.transfer(5971, &[]);
    assert_eq!(receiver, name);
    assert_eq!(machine.transfer(5972, &[]), ("reno".to_owned(), "reno".to_owned()));
    // Only a rule for tcpa raises the limit of send buffers.
    assert_eq!(machine.run("sysctl", &["net.ipv4.tcp_wmem"]).stdout, wmem);
    let shown = machine.weir(&["accel", "status"]).stdout;
    assert!(shown.starts_with(&format!("{name} is on: ")), "{shown}");
    assert!(shown.contains("port 5971"), "{shown}");
    assert_eq!(machine.status()["rules"][0]["algorithm"], name);

    accel(&machine, &["enable", "tcpa", "--port", "5973"]);
    let shown = machine.weir(&["accel", "status"]).stdout;
    assert!(shown.starts_with(&format!("tcpa and {name} are on: ")), "{shown}");
    assert_eq!(machine.transfer(5973, &[]).1, "tcpa");
    accel(&machine, &["set", "init_cwnd=90"]);
    let rules = machine.status()["rules"].clone();
    let of = |algorithm: &str| {
        rules.as_array().unwrap().iter().find(|rule| rule["algorithm"] == algorithm).unwrap()
    };
    assert_eq!(of("tcpa")["tunables"]["init_cwnd"], 90, "{rules}");
    assert!(of(name)["tunables"]["init_cwnd"].is_null(), "{rules}");

    // Each algorithm can be disabled separately; disabling the last algorithm ends the
    // installation.
    let message = accel(&machine, &["disable", "tcpa"]);
    assert!(message.contains("tcpa is off"), "{message}");
    assert_eq!(machine.transfer(5973, &[]).1, "reno");
    assert_eq!(machine.transfer(5971, &[]).1, name);
    assert_eq!(machine.run("sysctl", &["net.ipv4.tcp_wmem"]).stdout, wmem);
    let message = accel(&machine, &["disable", name]);
    assert!(message.contains(&format!("{name} is off")), "{message}");
    assert_eq!(machine.pinned(), "");
    let message = accel(&machine, &["disable", name]);
    assert!(message.contains(&format!("{name} was off already")), "{message}");
}

#[test]
fn open_connections_get_a_kernel_algorithm_and_their_former_algorithm_back() {
    let (Some(machine), Some(name)) = (TestMachine::new(), other()) else { return };
    let _transfer = Transfer::start(&machine, 5975);
    let all = |algorithm: &str| {
        let found = algorithms(&machine);
        assert!(found.iter().all(|one| one == algorithm), "{algorithm}: {found:?}");
    };
    all("reno");
    let message = accel(&machine, &["enable", name, "--all", "--open"]);
    // At least four sockets: both ends of two connections. Probes that have just begun count too.
    assert!(counted(&message, "now use it") >= 4, "{message}");
    all(name);
    let flows = machine.status()["flows"].clone();
    assert!(flows.as_array().unwrap().len() >= 4, "{flows}");
    assert_eq!(flows[0]["algorithm"], name, "{flows}");
    // A second `enable` changes nothing, and another algorithm replaces the first algorithm.
    let message = accel(&machine, &["enable", name, "--all", "--open"]);
    assert_eq!(counted(&message, "now use it"), 0, "{message}");
    accel(&machine, &["enable", "tcpa", "--all", "--open"]);
    all("tcpa");
    accel(&machine, &["enable", name, "--all", "--open"]);
    all(name);
    goes_on(&machine);
    // The connections get back the algorithm that they had before the first rule.
    let message = accel(&machine, &["disable", name, "--open"]);
    assert!(counted(&message, "use their former algorithm") >= 4, "{message}");
    all("reno");
    goes_on(&machine);
}

/// Returns the number before `words` in the message.
fn counted(message: &str, words: &str) -> u64 {
    let before = message.split(words).next().unwrap().trim_end();
    before.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn a_policy_may_name_kernel_algorithms() {
    let (Some(machine), Some(name)) = (TestMachine::new(), other()) else { return };
    reno_by_default(&machine);
    let text = format!("[[rule]]\nport = 5977\nalgorithm = \"{name}\"\n\n[[rule]]\nport = 5978\n");
    let file = machine.write("policy.toml", &text);
    accel(&machine, &["policy", "--check", &file]);
    assert_eq!(machine.pinned(), "");
    accel(&machine, &["policy", &file]);
    assert_eq!(machine.transfer(5977, &[]).1, name);
    assert_eq!(machine.transfer(5978, &[]).1, "tcpa");
    accel(&machine, &["update"]);
    assert_eq!(machine.transfer(5977, &[]).1, name);
    let message = accel(&machine, &["disable"]);
    assert!(message.contains(&format!("{name} is off")), "{message}");
    assert_eq!(machine.pinned(), "");
}

#[test]
fn an_unavailable_algorithm_is_refused_with_the_available_algorithms() {
    let Some(machine) = TestMachine::new() else { return };
    let file = machine.write("policy.toml", "[[rule]]\nalgorithm = \"bbrr\"\n");
    for words in [
        &["accel", "enable", "bbrr", "--all"][..],
        &["accel", "disable", "bbrr"],
        &["accel", "policy", &file],
        &["accel", "policy", "--check", &file],
    ] {
        let output = machine.weir(words);
        assert_eq!(output.code, Some(2), "{words:?}: {}", output.stderr);
        for part in ["no congestion control `bbrr`", "reno", "tcpa"] {
            assert!(output.stderr.contains(part), "{words:?}: {}", output.stderr);
        }
    }
    let output = machine.weir(&["accel", "enable", "reno"]);
    assert_eq!(output.code, Some(2), "{}", output.stderr);
    assert!(output.stderr.contains("--all"), "{}", output.stderr);
    let help = machine.weir(&["accel", "enable", "reno", "--help"]);
    assert_eq!(help.code, Some(0));
    assert!(help.stdout.contains("weir accel enable reno"), "{}", help.stdout);
    assert_eq!(machine.pinned(), "");
}
