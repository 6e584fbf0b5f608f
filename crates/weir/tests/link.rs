//! `weir link` as a user runs it.
#![allow(clippy::unwrap_used)]

mod support;

use std::process::Command;
use support::{Running, Said, World, await_some, is_installed};

/// A name that no other test's link has.
fn name(what: &str) -> String {
    format!("test-{}-{what}", std::process::id())
}

/// Creates a link between two interfaces that it makes, and waits until it is up.
fn up(world: &World, name: &str, more: &[&str]) -> Running {
    let mut words = vec!["link", "up", "--a", "west", "--b", "east", "--name", name];
    words.extend(["--no-real-time", "--spin", "0us"]);
    words.extend(more);
    let running = world.start(&words);
    await_some("the link", || {
        let (stdout, stderr) = running.said_so_far();
        format!("{stdout}{stderr}").contains("is up").then_some(())
    });
    running
}

/// The link ended by itself with its figures. On a busy machine they may be late; the status shows
/// that.
fn orderly(said: &Said) -> bool {
    matches!(said.status.code(), Some(0 | 1)) && said.stdout.contains("lateness")
}

#[test]
fn nonsense_is_refused_and_nothing_is_made() {
    let Some(world) = World::new() else { return };
    for (words, told) in [
        (&["--rate", "0"][..], "rate"),
        (&["--rate", "600mbut"], "`mbut`"),
        (&["--loss", "140%"], "0% to 100%"),
        (&["--delay", "10"], "no unit"),
        (&["--queue", "dropptail:10p"], "`droptail`"),
        (&["--ab", "los=1%"], "`loss`"),
        (&["--ab", "loss"], "KEY=VALUE"),
        (&["--duration", "soon"], "time"),
        (&["--config", "missing.toml"], "missing.toml"),
    ] {
        let mut all = vec!["link", "up", "--a", "west", "--b", "east"];
        all.extend(words);
        let said = world.weir(&all);
        assert_eq!(said.status.code(), Some(2), "{words:?}: {}", said.stderr);
        assert!(said.stderr.contains(told), "{words:?}: {}", said.stderr);
        assert_eq!(world.leftovers(), Vec::<String>::new(), "{words:?}");
    }
}

#[test]
fn an_unknown_namespace_or_link_is_named() {
    let Some(world) = World::new() else { return };
    let no_capture = world.weir(&["link", "show-tags", "/no/such.pcap"]);
    assert_eq!(no_capture.status.code(), Some(2), "{}", no_capture.stderr);
    assert!(no_capture.stderr.contains("no capture `/no/such.pcap`"), "{}", no_capture.stderr);
    let said = world.weir(&["link", "up", "--a", "no-such-namespace:eth0", "--b", "east"]);
    assert!(!said.status.success());
    assert!(said.stderr.contains("no-such-namespace"), "{}", said.stderr);
    let said = world.weir(&["link", "set", &name("nobody"), "rate=1mbit"]);
    assert!(!said.status.success());
    assert!(said.stderr.contains("weir link list"), "{}", said.stderr);
    assert_eq!(world.leftovers(), Vec::<String>::new());
}

#[test]
fn other_commands_show_change_and_end_a_link() {
    let Some(world) = World::new() else { return };
    let name = name("wan");
    let running = up(&world, &name, &["--rate", "10mbit", "--json"]);
    let listed = world.weir(&["link", "list"]);
    assert!(listed.stdout.contains(&name), "{}", listed.stdout);

    let said = world.weir(&["link", "set", &name, "rate=20mbit", "--ba", "loss=2%"]);
    assert!(said.status.success(), "{}", said.stderr);
    let refused = world.weir(&["link", "set", &name, "rate=30mbit", "--ab", "loss=200%"]);
    assert_eq!(refused.status.code(), Some(2), "{}", refused.stderr);

    let shown = world.weir(&["link", "show", &name, "--json"]);
    assert!(shown.status.success(), "{}", shown.stderr);
    let shown = serde_json::from_str::<serde_json::Value>(&shown.stdout).unwrap().to_string();
    assert!(shown.contains("20mbit") && shown.contains("2%"), "{shown}");
    assert!(!shown.contains("30mbit"), "a refused change changed something: {shown}");

    let said = world.weir(&["link", "down", &name]);
    assert!(said.status.success(), "{}", said.stderr);
    let end = running.end();
    assert!(orderly(&end), "{end:?}");
    let report: serde_json::Value = serde_json::from_str(&end.stdout).unwrap();
    assert!(report.is_object(), "{report}");
    assert_eq!(world.leftovers(), Vec::<String>::new());
}

#[test]
fn a_link_leaves_nothing_however_it_ends() {
    let Some(world) = World::new() else { return };
    for signal in ["INT", "TERM", "HUP", "KILL"] {
        let name = name(signal);
        let running = up(&world, &name, &["--delay", "5ms"]);
        running.signal(signal);
        let said = running.end();
        assert_eq!(orderly(&said), signal != "KILL", "{signal}: {said:?}");
        assert_eq!(world.leftovers(), Vec::<String>::new(), "{signal}");
        // The next `show` removes the socket that a killed link left in the folder.
        let listed = world.weir(&["link", "list"]);
        assert!(!listed.stdout.contains(&name), "{}", listed.stdout);
    }
}

#[test]
fn a_name_belongs_to_one_link_and_a_vanished_interface_ends_it() {
    let Some(world) = World::new() else { return };
    let name = name("one");
    let mut running = up(&world, &name, &[]);
    let second = world.weir(&["link", "up", "--a", "w2", "--b", "e2", "--name", &name]);
    assert_eq!(second.status.code(), Some(2), "{}", second.stderr);
    assert!(second.stderr.contains("is up already"), "{}", second.stderr);
    assert!(!running.has_ended());

    let mut remove = Command::new("ip");
    remove.args(["link", "del", "west"]);
    assert!(world.start_command(remove).end().status.success());
    let said = running.end();
    assert_eq!(said.status.code(), Some(1), "{}", said.stderr);
    assert!(said.stderr.contains("is down or gone"), "{}", said.stderr);
    assert_eq!(world.leftovers(), [""; 0]);
}

/// An existing interface stays as it was; the command warns about an address on it.
#[test]
fn existing_interfaces_are_attached_to_and_left_alone() {
    let Some(world) = World::new() else { return };
    let ip = |words: &str| {
        let mut command = Command::new("ip");
        command.args(words.split(' '));
        let said = world.start_command(command).end();
        assert!(said.status.success(), "{words}: {}", said.stderr);
    };
    ip("link add west type veth peer name farwest");
    ip("link add east type veth peer name fareast");
    for interface in ["west", "farwest", "east", "fareast"] {
        ip(&format!("link set {interface} up"));
    }
    ip("addr add 10.1.2.3/24 dev east");
    let name = name("attached");
    let running = up(&world, &name, &[]);
    let (_, stderr) = running.said_so_far();
    assert!(stderr.contains("east carries the address 10.1.2.3"), "{stderr}");
    assert!(!stderr.contains("made interface"), "{stderr}");
    running.signal("INT");
    let said = running.end();
    assert!(orderly(&said), "{said:?}");
    let refused =
        world.weir(&["link", "up", "--a", "west", "--b", "east", "--address-a", "10.0.0.1/8"]);
    assert_eq!(refused.status.code(), Some(2), "{}", refused.stderr);
    ip("link del west");
    ip("link del east");
    assert_eq!(world.leftovers(), [""; 0]);
}

#[test]
fn a_file_takes_the_same_settings_as_flags() {
    let Some(world) = World::new() else { return };
    world.write("wan.toml", "rate = \"5mbit\"\nspin = \"0us\"\n[ba]\nloss = \"3%\"\n");
    world.write("bad.toml", "rate = \"5mbit\"\ndelai = \"1ms\"\n");
    let running =
        up(&world, &name("file"), &["--config", "wan.toml", "--json", "--duration", "100ms"]);
    let said = running.end();
    let report: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(report["ab"]["config"]["rate"], "5mbit");
    assert_eq!(report["ba"]["config"]["loss"], "3%");
    let refused = world.weir(&["link", "up", "--a", "west", "--b", "east", "--config", "bad.toml"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        refused.stderr.contains("bad.toml:2: ") && refused.stderr.contains("`delay`"),
        "{}",
        refused.stderr
    );
    assert_eq!(world.leftovers(), [""; 0]);
}

/// Without root the link makes new namespaces and prints how to enter them; it cannot use others.
#[test]
fn without_root_a_link_makes_its_own_namespaces() {
    let Some(world) = World::new() else { return };
    let nobody = |words: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).args(words);
        command.env("XDG_RUNTIME_DIR", world.path("tmp"));
        command
    };
    if !is_installed("setpriv") || !is_installed("unshare") || !is_installed("nsenter") {
        eprintln!("SKIPPED: setpriv, unshare and nsenter are needed");
        return;
    }
    if !nobody(&["unshare", "--user", "--net", "true"]).output().unwrap().status.success() {
        eprintln!("SKIPPED: this kernel gives user namespaces to root alone");
        return;
    }
    std::fs::copy(env!("CARGO_BIN_EXE_weir"), world.path("weir")).unwrap();
    for folder in [world.home().to_owned(), world.path("tmp")] {
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(folder, all).unwrap();
    }
    let words = |a: &'static str| {
        [
            "./weir",
            "link",
            "up",
            "--a",
            a,
            "--b",
            "right:eth0",
            "--address-b",
            "10.0.0.2/24",
            "--spin",
            "0us",
        ]
    };
    let running = world.start_command(nobody(&words("left:eth0")));
    let entrance = await_some("the link", || {
        let (_, stderr) = running.said_so_far();
        let line =
            stderr.lines().find(|line| line.contains("namespace right is this link's own"))?;
        stderr.contains("is up").then(|| line.split_once("nsenter ").unwrap().1.to_owned())
    });
    let entrance: Vec<&str> = entrance.split(' ').filter(|word| word.starts_with("--")).collect();
    let mut inside = vec!["nsenter"];
    inside.extend(entrance);
    inside.extend(["ip", "address", "show", "dev", "eth0"]);
    let seen = world.start_command(nobody(&inside)).end();
    assert!(seen.stdout.contains("10.0.0.2/24"), "{seen:?}");
    running.signal("TERM");
    let said = running.end();
    assert!(said.stderr.contains("running without root"), "{}", said.stderr);
    assert_eq!(said.stderr.matches("real-time").count(), 1, "{}", said.stderr);

    let refused = world.start_command(nobody(&words("pid:1:eth0"))).end();
    assert_eq!(refused.status.code(), Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("without root no other namespace"), "{}", refused.stderr);
    std::fs::remove_dir_all(world.path("tmp/weir")).unwrap();
    assert_eq!(world.leftovers(), [""; 0]);
}
