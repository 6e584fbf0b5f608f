//! `weir link` as a user runs it.
#![allow(clippy::unwrap_used)]

mod support;

use support::{Running, World, await_some};

/// A name no other test's link has.
fn name(what: &str) -> String {
    format!("test-{}-{what}", std::process::id())
}

/// Lays a link between two interfaces that it makes, and waits until it is up.
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
    let said = world.weir(&["link", "up", "--a", "no-such-namespace:eth0", "--b", "east"]);
    assert!(!said.status.success());
    assert!(said.stderr.contains("no-such-namespace"), "{}", said.stderr);
    let said = world.weir(&["link", "set", &name("nobody"), "rate=1mbit"]);
    assert!(!said.status.success());
    assert!(said.stderr.contains("weir link list"), "{}", said.stderr);
    assert_eq!(world.leftovers(), Vec::<String>::new());
}

#[test]
fn it_is_shown_changed_and_ended_by_others() {
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
    assert!(end.status.success(), "{}", end.stderr);
    let report: serde_json::Value = serde_json::from_str(&end.stdout).unwrap();
    assert!(report.is_object(), "{report}");
    assert_eq!(world.leftovers(), Vec::<String>::new());
}

#[test]
fn however_it_ends_nothing_stays() {
    let Some(world) = World::new() else { return };
    for signal in ["INT", "TERM", "HUP", "KILL"] {
        let name = name(signal);
        let running = up(&world, &name, &["--delay", "5ms"]);
        running.signal(signal);
        let said = running.end();
        assert_eq!(said.status.success(), signal != "KILL", "{signal}: {}", said.stderr);
        assert_eq!(world.leftovers(), Vec::<String>::new(), "{signal}");
        // What a killed one leaves in the folder of sockets, the next look takes away.
        let listed = world.weir(&["link", "list"]);
        assert!(!listed.stdout.contains(&name), "{}", listed.stdout);
    }
}
