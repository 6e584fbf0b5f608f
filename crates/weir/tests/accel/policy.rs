//! `weir accel policy` and `set`: files of rules, and the restoration of former settings.

use crate::test_machine::TestMachine;
use crate::test_machine::transfer::accel;

fn sysctl(machine: &TestMachine, name: &str) -> String {
    let path = format!("/proc/sys/{name}");
    machine.run("cat", &[&path]).stdout.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_policy_file_replaces_the_rules_in_force() {
    let Some(machine) = TestMachine::new() else { return };
    assert_eq!(machine.weir(&["accel", "enable", "tcpa", "--all"]).code, Some(0));
    let file = machine.write(
        "policy.toml",
        "[[rule]]\nport = 5401\nalgorithm = \"none\"\n\n\
         [[rule]]\nport = 5402\ninit_cwnd = 90\n\n\
         [system]\nwmem = [4096, 16384, 9000000]\ntimestamps = false\n",
    );
    let before = sysctl(&machine, "net/ipv4/tcp_timestamps");
    let output = machine.weir(&["accel", "policy", &file]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let status = machine.status();
    assert_eq!(status["rules"].as_array().unwrap().len(), 2, "{status}");
    assert_eq!(status["system"]["timestamps"], false);
    assert_eq!(sysctl(&machine, "net/ipv4/tcp_timestamps"), "0");
    assert_eq!(sysctl(&machine, "net/ipv4/tcp_wmem"), "4096 16384 9000000");
    assert_eq!(machine.transfer(5402, &[]).1, "tcpa");
    let (sender, receiver) = machine.transfer(5401, &[]);
    assert!(sender != "tcpa" && receiver != "tcpa", "{sender} {receiver}");
    assert_eq!(machine.weir(&["accel", "disable"]).code, Some(0));
    assert_eq!(sysctl(&machine, "net/ipv4/tcp_timestamps"), before);
}

#[test]
fn a_wrong_policy_file_changes_nothing() {
    let Some(machine) = TestMachine::new() else { return };
    let wmem = sysctl(&machine, "net/ipv4/tcp_wmem");
    assert_eq!(machine.weir(&["accel", "enable", "tcpa", "--port", "1"]).code, Some(0));
    let (status, raised) = (machine.status(), sysctl(&machine, "net/ipv4/tcp_wmem"));
    assert_ne!(wmem, raised);
    for (text, message) in [
        ("[[rule]]\ncgroup = \"/gone\"\n", "policy.toml:1: there is no control group `/gone`"),
        ("[[rule]]\nprot = 1\n", "did you mean `port`?"),
        ("[[rule]]\ninit_cwnd = 1000000\n", "init_cwnd"),
        ("[[rule]]\n\n[[rule]]\nport = 4\nalgorithm = \"none\"\n", "rule 2 never decides"),
        // If one setting of the file cannot be changed here, the command writes no setting at all.
        (
            "[system]\ntimestamps = false\nwmem_max = 3276800\nwmem = [1, 2, 3]\n",
            "net.core.wmem_max cannot be changed in this network namespace",
        ),
    ] {
        let file = machine.write("policy.toml", text);
        let output = machine.weir(&["accel", "policy", &file]);
        assert_ne!(output.code, Some(0), "{text}");
        assert!(output.stderr.contains(message), "{text}: {}", output.stderr);
        assert_eq!(machine.status(), status, "{text}");
        assert_eq!(sysctl(&machine, "net/ipv4/tcp_wmem"), raised, "{text}");
        assert_eq!(sysctl(&machine, "net/ipv4/tcp_timestamps"), "1", "{text}");
    }
    assert_eq!(machine.weir(&["accel", "disable"]).code, Some(0));
    assert_eq!(sysctl(&machine, "net/ipv4/tcp_wmem"), wmem);
}

/// Even root cannot change a setting of the initial network namespace from another network
/// namespace.
#[test]
fn a_setting_of_the_initial_namespace_is_refused_even_by_the_check() {
    let Some(machine) = TestMachine::new() else { return };
    let file = machine.write("policy.toml", "[[rule]]\n[system]\nwmem_max = 3276800\n");
    for words in [&["accel", "policy", "--check", &file][..], &["accel", "policy", &file]] {
        let output = machine.weir(words);
        assert_eq!(output.code, Some(1), "{words:?}: {}", output.stderr);
        assert!(!output.stderr.contains("needs root"), "{words:?}: {}", output.stderr);
        let reason = "the initial namespace has it for all";
        assert!(output.stderr.contains(reason), "{words:?}: {}", output.stderr);
        assert_eq!(machine.pinned(), "", "{words:?}");
    }
    accel(&machine, &["enable", "tcpa", "--all"]);
    let output = machine.weir(&["accel", "set", "wmem_max=3276800"]);
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    assert!(output.stderr.contains("the initial namespace has it"), "{}", output.stderr);
    for value in ["1", "on", "true"] {
        accel(&machine, &["set", &format!("timestamps={value}"), &format!("fack={value}")]);
        assert_eq!(sysctl(&machine, "net/ipv4/tcp_timestamps"), "1", "{value}");
        accel(&machine, &["set", "timestamps=off", "metrics_minrtt=off"]);
        assert_eq!(sysctl(&machine, "net/ipv4/tcp_timestamps"), "0", "{value}");
    }
}

#[test]
fn a_setting_that_cannot_be_restored_is_reported() {
    let Some(machine) = TestMachine::new() else { return };
    let wmem = sysctl(&machine, "net/ipv4/tcp_wmem");
    assert_eq!(machine.weir(&["accel", "enable", "tcpa", "--all"]).code, Some(0));
    let (status, raised) = (machine.status(), sysctl(&machine, "net/ipv4/tcp_wmem"));
    // Freezes the map: from here on nobody can change the rules in force.
    machine.map("weir-accel/active").freeze().unwrap();
    let file = machine
        .write("policy.toml", "[[rule]]\nport = 5403\n[system]\nwmem = [4096, 16384, 9000000]\n");
    let output = machine.weir(&["accel", "policy", &file]);
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    for message in ["not everything could be put back", "weir accel status", "weir accel disable"] {
        assert!(output.stderr.contains(message), "{}", output.stderr);
    }
    assert_eq!(machine.status(), status);
    assert_eq!(sysctl(&machine, "net/ipv4/tcp_wmem"), raised);
    assert_eq!(machine.weir(&["accel", "disable"]).code, Some(0));
    assert_eq!(machine.pinned(), "");
    assert_eq!(sysctl(&machine, "net/ipv4/tcp_wmem"), wmem);
}

#[test]
fn a_setting_that_cannot_be_changed_leaves_nothing_to_restore() {
    let Some(machine) = TestMachine::new() else { return };
    let before = sysctl(&machine, "net/ipv4/tcp_wmem");
    let wmem = "/proc/sys/net/ipv4/tcp_wmem";
    let held = machine.write("held", "1 2 3\n");
    let output = machine.run("mount", &["--bind", &held, wmem]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let output = machine.run("mount", &["-o", "remount,bind,ro", wmem]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let file = machine.write("policy.toml", "[[rule]]\n[system]\nwmem = [4096, 16384, 9000000]\n");
    let output = machine.weir(&["accel", "policy", &file]);
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    assert!(output.stderr.contains("tcp_wmem"), "{}", output.stderr);
    // The command never changed the setting, so it restores nothing.
    assert!(!output.stderr.contains("could be put back"), "{}", output.stderr);
    assert_eq!(machine.status()["state"], "off");
    assert_eq!(machine.run("umount", &[wmem]).code, Some(0));
    assert_eq!(sysctl(&machine, "net/ipv4/tcp_wmem"), before);
    assert_eq!(machine.pinned(), "");
}

#[test]
fn settings_of_one_namespace_are_not_written_in_another() {
    let Some(machine) = TestMachine::new() else { return };
    assert_eq!(machine.run("ip", &["netns", "add", "near"]).code, Some(0));
    let weir = env!("CARGO_BIN_EXE_weir");
    let near = |words: &[&str]| {
        let output = machine.run("nsenter", &[&["--net=/run/netns/near"], words].concat());
        assert_eq!(output.code, Some(0), "{words:?}: {}", output.stderr);
        output.stdout
    };
    let settings = format!("cd /proc/sys/net/ipv4 && {}", TestMachine::kernel_settings());
    near(&["sh", "-c", &settings]);
    let near_wmem = || near(&["cat", "/proc/sys/net/ipv4/tcp_wmem"]);
    let (here, before) = (sysctl(&machine, "net/ipv4/tcp_wmem"), near_wmem());
    near(&[weir, "accel", "enable", "tcpa", "--port", "1"]);
    let (status, raised) = (machine.status(), near_wmem());
    assert_ne!(raised, before);
    let output = machine.weir(&["accel", "enable", "tcpa", "--port", "2"]);
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    assert!(output.stderr.contains("another network namespace"), "{}", output.stderr);
    assert_eq!((machine.status(), near_wmem()), (status, raised));
    assert_eq!(sysctl(&machine, "net/ipv4/tcp_wmem"), here);
    accel(&machine, &["disable"]);
    assert_eq!((sysctl(&machine, "net/ipv4/tcp_wmem"), near_wmem()), (here, before));
}

#[test]
fn an_unreadable_journal_is_named() {
    let Some(machine) = TestMachine::new() else { return };
    assert_eq!(machine.weir(&["accel", "enable", "tcpa", "--all"]).code, Some(0));
    let journal = "/run/weir-accel.json";
    assert_eq!(machine.run("sh", &["-c", &format!("echo torn > {journal}")]).code, Some(0));
    for words in [&["accel", "status"][..], &["accel", "set", "init_cwnd=9"], &["accel", "disable"]]
    {
        let output = machine.weir(words);
        assert_eq!(output.code, Some(1), "{words:?}: {}", output.stderr);
        assert!(output.stderr.contains(journal), "{words:?}: {}", output.stderr);
        assert!(output.stderr.contains("remove it"), "{words:?}: {}", output.stderr);
    }
    // tcpa is off nevertheless.
    assert_eq!(machine.pinned(), "");
    assert_eq!(machine.run("rm", &[journal]).code, Some(0));
    assert_eq!(machine.status()["state"], "off");
}

#[test]
fn a_missing_file_is_reported_and_a_check_changes_nothing() {
    let Some(machine) = TestMachine::new() else { return };
    let output = machine.weir(&["accel", "policy", "/no/such/file"]);
    assert!(output.code != Some(0) && output.stderr.contains("/no/such/file"), "{}", output.stderr);
    let file = machine.write("policy.toml", "[[rule]]\n");
    assert_eq!(machine.weir(&["accel", "policy", "--check", &file]).code, Some(0));
    let file = machine
        .write("gone.toml", "[[rule]]\nalgorithm = \"caqm\"\n[caqm]\ninterface = [\"gone0\"]\n");
    let output = machine.weir(&["accel", "policy", "--check", &file]);
    assert_eq!(output.code, Some(2), "{}", output.stderr);
    assert!(output.stderr.contains("gone0"), "{}", output.stderr);
    assert_eq!(machine.status()["state"], "off");
}

#[test]
fn tunables_change_while_tcpa_is_enabled() {
    let Some(machine) = TestMachine::new() else { return };
    let output = machine.weir(&["accel", "set", "init_cwnd=20"]);
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    assert!(output.stderr.contains("weir accel enable"), "{}", output.stderr);
    assert_eq!(machine.weir(&["accel", "enable", "tcpa", "--all"]).code, Some(0));
    for (words, message) in [
        (&["init_cwnd=0"][..], "init_cwnd"),
        (&["window=9"], "no tunable is called `window`"),
        (&["init_cwnd=9", "--rule", "2"], "no rule 2"),
        (&["rto_min=50ms", "--rule", "own"], "--rule"),
        (&["init_cwnd=ninety"], "expected a number"),
        (&["wmem=5"], "three numbers"),
        (&["timestamps=2"], "on or off"),
    ] {
        let mut all = vec!["accel", "set"];
        all.extend(words);
        let output = machine.weir(&all);
        assert_eq!(output.code, Some(2), "{words:?}: {}", output.stderr);
        assert!(output.stderr.contains(message), "{words:?}: {}", output.stderr);
    }
    let words = ["accel", "set", "init_cwnd=21", "rto_min=40ms", "--rule", "1"];
    assert_eq!(machine.weir(&words).code, Some(0));
    let message = accel(&machine, &["set", "loss_init_cwnd=3"]);
    assert!(message.contains("loss_init_cwnd 3: rule 1 and sockets that choose"), "{message}");
    let words = ["accel", "set", "wmem=4096 16384 20000000", "fack=0", "metrics_minrtt=0"];
    assert_eq!(machine.weir(&words).code, Some(0));
    assert_eq!(sysctl(&machine, "net/ipv4/tcp_wmem"), "4096 16384 20000000");
    let status = machine.status();
    assert_eq!(status["defaults"]["memory_age"], "0s");
    assert_eq!(status["rules"][0]["tunables"]["init_cwnd"], 21);
    assert_eq!(status["rules"][0]["tunables"]["rto_min"], "40ms");
    assert_eq!(status["defaults"]["loss_init_cwnd"], 3);
    assert_eq!(status["rules"][0]["tunables"]["loss_init_cwnd"], 3);
    assert_eq!(status["rules"][0]["tunables"]["memory_age"], "0s");
    assert_eq!(machine.transfer(5411, &[]).0, "tcpa");
}

/// Sets every tunable of the reference report's list, whose lines are like the lines of `sysctl`.
/// This network namespace lacks `wmem_max` and `mem`.
#[test]
fn every_tunable_of_the_report_is_applied_mapped_or_refused_with_the_reason() {
    let Some(machine) = TestMachine::new() else { return };
    accel(&machine, &["enable", "tcpa", "--all"]);
    for (line, says) in [
        ("net.ipv4.tcp_fack = 0", "without effect"),
        ("net.ipv4.tcp_init_cwnd = 10", "init_cwnd 10: rule 1"),
        ("net.ipv4.tcp_loss_init_cwnd = 1", "loss_init_cwnd 1: rule 1"),
        ("net.ipv4.tcp_metrics_minrtt = 0", "metrics_minrtt 0: rule 1"),
        ("net.ipv4.tcp_rto_min = 200", "rto_min 200ms: rule 1"),
        ("net.ipv4.tcp_timestamps = 1", "timestamps 1: of the system"),
        ("net.ipv4.tcp_wmem = 4096       16384   4194304", "of the system"),
    ] {
        let output = accel(&machine, &["set", line]);
        assert!(output.contains(says), "{line}: {output}");
        let name = line.split(' ').next().unwrap();
        assert!(output.starts_with(name) || output.contains(name), "{line}: {output}");
    }
    for (line, code, reason) in [
        ("net.core.wmem_max = 3276800", 1, "the initial namespace has it"),
        ("net.ipv4.tcp_mem = 379479 505972 758958", 1, "net.ipv4.tcp_mem"),
        ("net.ipv4.tcp_rto_min = 500", 2, "ip route change"),
        ("net.ipv4.tcp_rto_max = 500", 2, "1s to 120s"),
        ("net.ipv4.tcp_init_cwnd = 0", 2, "init_cwnd"),
        ("net.ipv4.tcp_wmem = 3 2 1", 2, "wmem"),
        ("net.ipv4.tcp_init_cwmd = 10", 2, "no tunable is called"),
    ] {
        let output = machine.weir(&["accel", "set", line]);
        assert_eq!(output.code, Some(code), "{line}: {}", output.stderr);
        assert!(output.stderr.contains(reason), "{line}: {}", output.stderr);
    }
    let rule = &machine.status()["rules"][0]["tunables"];
    assert_eq!((&rule["init_cwnd"], &rule["rto_min"]), (&10.into(), &"200ms".into()), "{rule}");
    let list = machine.weir(&["accel", "set", "--list", "--json"]);
    let list: serde_json::Value = serde_json::from_str(&list.stdout).unwrap();
    let state = |key: &str| {
        let all = list["tcpa"].as_array().unwrap().iter();
        let found = all.filter(|one| one["key"] == key).collect::<Vec<_>>();
        assert_eq!(found.len(), 1, "{key}");
        found[0]["state"].as_str().unwrap().to_owned()
    };
    let states = ["init_cwnd", "fack", "wmem_max", "wmem", "memory_age", "tlp"].map(state);
    let expected = ["in force", "no effect", "refused", "in force", "in force", "default"];
    assert_eq!(states, expected);
    assert_eq!(list["caqm"].as_array().unwrap().len(), 18);
    let text = machine.weir(&["accel", "set", "--list"]).stdout;
    assert!(text.contains("net.ipv4.tcp_rto_min") && text.contains("caqm_rtt_standard"), "{text}");
    assert_eq!(machine.weir(&["accel", "set"]).code, Some(2));
}

#[test]
fn a_policy_sets_the_tcp_sysctls_and_disable_restores_them() {
    let Some(machine) = TestMachine::new() else { return };
    let switches = ["tcp_early_retrans", "tcp_reordering", "tcp_thin_linear_timeouts", "tcp_dsack"];
    let values = || switches.map(|name| sysctl(&machine, &format!("net/ipv4/{name}")));
    let before = values();
    let file = machine.write(
        "policy.toml",
        "[[rule]]\nmin_window = 4\nprobe = false\nfile_threshold = \"1MB\"\n\
         [system]\ntlp = false\nreordering = 10\nrto_factor = 1\ndsack = \"off\"\n",
    );
    accel(&machine, &["policy", &file]);
    assert_eq!(values(), ["0", "10", "1", "0"]);
    let status = machine.status();
    let tunables = &status["rules"][0]["tunables"];
    assert_eq!((&tunables["min_window"], &tunables["probe"]), (&4.into(), &false.into()));
    assert_eq!(tunables["file_threshold_bytes"], 1_000_000);
    assert_eq!(status["system"]["switches"]["rto_factor"], "1");
    assert_eq!(status["modules"][3]["switches"]["tlp"], "off");
    let (sender, _) = machine.transfer(5407, &[]);
    assert_eq!(sender, "tcpa");
    assert_eq!(machine.status()["modules"][3]["counters"]["pauses"], 0);
    accel(&machine, &["set", "tlp=on", "net.ipv4.tcp_dsack=1"]);
    assert_eq!(values(), ["3", "10", "1", "1"]);
    // Another policy restores the switches that it does not name.
    let file = machine.write("policy.toml", "[[rule]]\n[system]\nreordering = 5\n");
    accel(&machine, &["policy", &file]);
    assert_eq!(values(), [&before[0][..], "5", &before[2], &before[3]]);
    accel(&machine, &["disable"]);
    assert_eq!(values(), before);
    let output = machine.weir(&["accel", "set", "tlp=maybe"]);
    assert_eq!(output.code, Some(2), "{}", output.stderr);
}
