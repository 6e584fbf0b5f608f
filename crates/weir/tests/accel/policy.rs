//! `weir accel policy` and `set`: files of rules, and the restoration of former settings.

use crate::world::AccelWorld;

fn sysctl(world: &AccelWorld, name: &str) -> String {
    let path = format!("/proc/sys/{name}");
    world.run("cat", &[&path]).stdout.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_file_replaces_the_rules_in_force() {
    let Some(world) = AccelWorld::new() else { return };
    assert_eq!(world.weir(&["accel", "enable", "tcpa", "--all"]).code, Some(0));
    let file = world.write(
        "policy.toml",
        "[[rule]]\nport = 5401\nalgorithm = \"none\"\n\n\
         [[rule]]\nport = 5402\ninit_cwnd = 90\n\n\
         [system]\nwmem = [4096, 16384, 9000000]\ntimestamps = false\n",
    );
    let before = sysctl(&world, "net/ipv4/tcp_timestamps");
    let said = world.weir(&["accel", "policy", &file]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let status = world.status();
    assert_eq!(status["rules"].as_array().unwrap().len(), 2, "{status}");
    assert_eq!(status["system"]["timestamps"], false);
    assert_eq!(sysctl(&world, "net/ipv4/tcp_timestamps"), "0");
    assert_eq!(sysctl(&world, "net/ipv4/tcp_wmem"), "4096 16384 9000000");
    assert_eq!(world.transfer(5402, &[]).1, "tcpa");
    let (sender, receiver) = world.transfer(5401, &[]);
    assert!(sender != "tcpa" && receiver != "tcpa", "{sender} {receiver}");
    assert_eq!(world.weir(&["accel", "disable"]).code, Some(0));
    assert_eq!(sysctl(&world, "net/ipv4/tcp_timestamps"), before);
}

#[test]
fn a_wrong_file_changes_nothing() {
    let Some(world) = AccelWorld::new() else { return };
    let wmem = sysctl(&world, "net/ipv4/tcp_wmem");
    assert_eq!(world.weir(&["accel", "enable", "tcpa", "--port", "1"]).code, Some(0));
    let (status, raised) = (world.status(), sysctl(&world, "net/ipv4/tcp_wmem"));
    assert_ne!(wmem, raised);
    for (text, told) in [
        ("[[rule]]\ncgroup = \"/gone\"\n", "policy.toml:1: there is no control group `/gone`"),
        ("[[rule]]\nprot = 1\n", "did you mean `port`?"),
        ("[[rule]]\ninit_cwnd = 1000000\n", "init_cwnd"),
        ("[[rule]]\n\n[[rule]]\nport = 4\nalgorithm = \"none\"\n", "rule 2 never decides"),
        // The kernel refuses the second setting after the first was written: both are restored.
        ("[system]\ntimestamps = false\nwmem_max = 3276800\nwmem = [1, 2, 3]\n", ""),
    ] {
        let file = world.write("policy.toml", text);
        let said = world.weir(&["accel", "policy", &file]);
        assert_ne!(said.code, Some(0), "{text}");
        assert!(said.stderr.contains(told), "{text}: {}", said.stderr);
        assert_eq!(world.status(), status, "{text}");
        assert_eq!(sysctl(&world, "net/ipv4/tcp_wmem"), raised, "{text}");
        assert_eq!(sysctl(&world, "net/ipv4/tcp_timestamps"), "1", "{text}");
    }
    assert_eq!(world.weir(&["accel", "disable"]).code, Some(0));
    assert_eq!(sysctl(&world, "net/ipv4/tcp_wmem"), wmem);
}

#[test]
fn a_setting_that_cannot_be_restored_is_reported() {
    let Some(world) = AccelWorld::new() else { return };
    let wmem = sysctl(&world, "net/ipv4/tcp_wmem");
    assert_eq!(world.weir(&["accel", "enable", "tcpa", "--all"]).code, Some(0));
    let (status, raised) = (world.status(), sysctl(&world, "net/ipv4/tcp_wmem"));
    // From here on nobody can change the rules in force.
    world.map("weir-accel/active").freeze().unwrap();
    let file = world
        .write("policy.toml", "[[rule]]\nport = 5403\n[system]\nwmem = [4096, 16384, 9000000]\n");
    let said = world.weir(&["accel", "policy", &file]);
    assert_eq!(said.code, Some(1), "{}", said.stderr);
    for told in ["not everything could be put back", "weir accel status", "weir accel disable"] {
        assert!(said.stderr.contains(told), "{}", said.stderr);
    }
    // The other settings were restored.
    assert_eq!(world.status(), status);
    assert_eq!(sysctl(&world, "net/ipv4/tcp_wmem"), raised);
    assert_eq!(world.weir(&["accel", "disable"]).code, Some(0));
    assert_eq!(world.pinned(), "");
    assert_eq!(sysctl(&world, "net/ipv4/tcp_wmem"), wmem);
}

#[test]
fn a_setting_that_cannot_be_changed_leaves_nothing_to_put_back() {
    let Some(world) = AccelWorld::new() else { return };
    let before = sysctl(&world, "net/ipv4/tcp_wmem");
    let wmem = "/proc/sys/net/ipv4/tcp_wmem";
    let held = world.write("held", "1 2 3\n");
    let said = world.run("mount", &["--bind", &held, wmem]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let said = world.run("mount", &["-o", "remount,bind,ro", wmem]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let file = world.write("policy.toml", "[[rule]]\n[system]\nwmem = [4096, 16384, 9000000]\n");
    let said = world.weir(&["accel", "policy", &file]);
    assert_eq!(said.code, Some(1), "{}", said.stderr);
    assert!(said.stderr.contains("tcp_wmem"), "{}", said.stderr);
    // The setting was never changed, so there was nothing to restore.
    assert!(!said.stderr.contains("could be put back"), "{}", said.stderr);
    assert_eq!(world.status()["state"], "off");
    assert_eq!(world.run("umount", &[wmem]).code, Some(0));
    assert_eq!(sysctl(&world, "net/ipv4/tcp_wmem"), before);
    assert_eq!(world.pinned(), "");
}

#[test]
fn an_unreadable_journal_is_named() {
    let Some(world) = AccelWorld::new() else { return };
    assert_eq!(world.weir(&["accel", "enable", "tcpa", "--all"]).code, Some(0));
    let journal = "/run/weir-accel.json";
    assert_eq!(world.run("sh", &["-c", &format!("echo torn > {journal}")]).code, Some(0));
    for words in [&["accel", "status"][..], &["accel", "set", "init_cwnd=9"], &["accel", "disable"]]
    {
        let said = world.weir(words);
        assert_eq!(said.code, Some(1), "{words:?}: {}", said.stderr);
        assert!(said.stderr.contains(journal), "{words:?}: {}", said.stderr);
        assert!(said.stderr.contains("remove it"), "{words:?}: {}", said.stderr);
    }
    // It is off nevertheless.
    assert_eq!(world.pinned(), "");
    assert_eq!(world.run("rm", &[journal]).code, Some(0));
    assert_eq!(world.status()["state"], "off");
}

#[test]
fn a_missing_file_and_a_check() {
    let Some(world) = AccelWorld::new() else { return };
    let said = world.weir(&["accel", "policy", "/no/such/file"]);
    assert!(said.code != Some(0) && said.stderr.contains("/no/such/file"), "{}", said.stderr);
    let file = world.write("policy.toml", "[[rule]]\n");
    assert_eq!(world.weir(&["accel", "policy", "--check", &file]).code, Some(0));
    assert_eq!(world.status()["state"], "off");
}

#[test]
fn tunables_change_while_it_runs() {
    let Some(world) = AccelWorld::new() else { return };
    let said = world.weir(&["accel", "set", "init_cwnd=20"]);
    assert_eq!(said.code, Some(1), "{}", said.stderr);
    assert!(said.stderr.contains("weir accel enable"), "{}", said.stderr);
    assert_eq!(world.weir(&["accel", "enable", "tcpa", "--all"]).code, Some(0));
    for (words, told) in [
        (&["init_cwnd=0"][..], "init_cwnd"),
        (&["window=9"], "no tunable is called `window`"),
        (&["init_cwnd=9", "--rule", "2"], "no rule 2"),
        (&["rto_min=50ms"], "--rule"),
        (&["wmem=5"], "three numbers"),
        (&["timestamps=2"], "0 or 1"),
    ] {
        let mut all = vec!["accel", "set"];
        all.extend(words);
        let said = world.weir(&all);
        assert_eq!(said.code, Some(2), "{words:?}: {}", said.stderr);
        assert!(said.stderr.contains(told), "{words:?}: {}", said.stderr);
    }
    let words = ["accel", "set", "init_cwnd=21", "rto_min=40ms", "--rule", "1"];
    assert_eq!(world.weir(&words).code, Some(0));
    assert_eq!(world.weir(&["accel", "set", "loss_init_cwnd=3"]).code, Some(0));
    let words = ["accel", "set", "wmem=4096 16384 20000000", "fack=0", "metrics_minrtt=0"];
    assert_eq!(world.weir(&words).code, Some(0));
    assert_eq!(sysctl(&world, "net/ipv4/tcp_wmem"), "4096 16384 20000000");
    let status = world.status();
    assert_eq!(status["defaults"]["memory_age"], "0s");
    assert_eq!(status["rules"][0]["tunables"]["init_cwnd"], 21);
    assert_eq!(status["rules"][0]["tunables"]["rto_min"], "40ms");
    assert_eq!(status["defaults"]["loss_init_cwnd"], 3);
    assert_eq!(world.transfer(5411, &[]).0, "tcpa");
}
