//! `weir link` as a user runs it.
#![allow(clippy::unwrap_used)]

mod support;

use std::process::Command;
use support::{CommandOutput, Running, Sandbox, await_some, is_installed};

fn name(what: &str) -> String {
    format!("test-{}-{what}", std::process::id())
}

/// Creates a link between two interfaces that it makes, and waits until it is up.
fn up(sandbox: &Sandbox, name: &str, more: &[&str]) -> Running {
    let mut words = vec!["link", "up", "--a", "west", "--b", "east", "--name", name];
    words.extend(["--no-real-time", "--spin", "0us"]);
    words.extend(more);
    let running = sandbox.start(&words);
    await_some("the link", || {
        let (stdout, stderr) = running.output_so_far();
        format!("{stdout}{stderr}").contains("is up").then_some(())
    });
    running
}

/// Whether the link shut down in order and printed its counters. On a busy machine frames may be
/// late, which the exit status shows.
fn orderly(output: &CommandOutput) -> bool {
    matches!(output.status.code(), Some(0 | 1)) && output.stdout.contains("lateness")
}

#[test]
fn invalid_arguments_are_refused_and_nothing_is_made() {
    let Some(sandbox) = Sandbox::new() else { return };
    for (words, message) in [
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
        let output = sandbox.weir(&all);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", output.stderr);
        assert!(output.stderr.contains(message), "{words:?}: {}", output.stderr);
        assert_eq!(sandbox.leftovers(), Vec::<String>::new(), "{words:?}");
    }
}

/// Each of the two links would also carry the frames that the other link delivers.
#[test]
fn a_second_link_at_the_same_interfaces_is_refused() {
    let Some(sandbox) = Sandbox::new() else { return };
    let (first, second) = (name("first"), name("second"));
    let _running = up(&sandbox, &first, &[]);
    let words = ["link", "up", "--a", "other", "--b", "east", "--name", &second];
    let output = sandbox.weir(&words);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stderr.contains(&format!("east is an end of {first} already")), "{output:?}");
    // An interface of this name in another namespace is another interface.
    let Some(elsewhere) = Sandbox::new() else { return };
    let _other = up(&elsewhere, &second, &[]);
}

#[test]
fn an_unknown_namespace_or_link_is_named() {
    let Some(sandbox) = Sandbox::new() else { return };
    let no_capture = sandbox.weir(&["link", "show-tags", "/no/such.pcap"]);
    assert_eq!(no_capture.status.code(), Some(2), "{}", no_capture.stderr);
    assert!(no_capture.stderr.contains("cannot read /no/such.pcap"), "{}", no_capture.stderr);
    let output = sandbox.weir(&["link", "up", "--a", "no-such-namespace:eth0", "--b", "east"]);
    assert!(!output.status.success());
    assert!(output.stderr.contains("no-such-namespace"), "{}", output.stderr);
    let output = sandbox.weir(&["link", "set", &name("nobody"), "rate=1mbit"]);
    assert!(!output.status.success());
    assert!(output.stderr.contains("weir link list"), "{}", output.stderr);
    assert_eq!(sandbox.leftovers(), Vec::<String>::new());
}

#[test]
fn other_commands_show_change_and_end_a_link() {
    let Some(sandbox) = Sandbox::new() else { return };
    let name = name("wan");
    let running = up(&sandbox, &name, &["--rate", "10mbit", "--json"]);
    let listed = sandbox.weir(&["link", "list"]);
    assert!(listed.stdout.contains(&name), "{}", listed.stdout);

    let output = sandbox.weir(&["link", "set", &name, "rate=20mbit", "--ba", "loss=2%"]);
    assert!(output.status.success(), "{}", output.stderr);
    let refused = sandbox.weir(&["link", "set", &name, "rate=30mbit", "--ab", "loss=200%"]);
    assert_eq!(refused.status.code(), Some(2), "{}", refused.stderr);

    let shown = sandbox.weir(&["link", "show", &name, "--json"]);
    assert!(shown.status.success(), "{}", shown.stderr);
    let shown = serde_json::from_str::<serde_json::Value>(&shown.stdout).unwrap().to_string();
    assert!(shown.contains("20mbit") && shown.contains("2%"), "{shown}");
    let set = sandbox.weir(&["link", "set", &name, "loss=3%", "--json"]);
    let set: serde_json::Value = serde_json::from_str(&set.stdout).unwrap();
    assert!(set.to_string().contains("3%"), "{set}");
    assert!(!shown.contains("30mbit"), "a refused change changed something: {shown}");

    let output = sandbox.weir(&["link", "down", &name, "--json"]);
    assert!(output.status.success(), "{}", output.stderr);
    let down: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(down, serde_json::json!({ "name": name, "ended": true }));
    let end = running.end();
    assert!(orderly(&end), "{end:?}");
    let report: serde_json::Value = serde_json::from_str(&end.stdout).unwrap();
    assert!(report.is_object(), "{report}");
    assert_eq!(sandbox.leftovers(), Vec::<String>::new());
}

/// A command that ignores SIGTERM, like an interactive shell.
const STUBBORN: &str = "trap '' TERM; sleep 60; true";

#[test]
fn the_link_of_a_command_is_listed_changed_and_ended() {
    let Some(sandbox) = Sandbox::new() else { return };
    let name = name("of-a-command");
    let running = sandbox.start(&["link", "run", "--name", &name, "--", "sh", "-c", STUBBORN]);
    let line = await_some("the link", || {
        let listed = sandbox.weir(&["link", "list"]).stdout;
        listed.lines().find(|line| line.contains(&name)).map(str::to_owned)
    });
    assert!(line.contains("process"), "{line}");
    let output = sandbox.weir(&["link", "set", &name, "delay=5ms"]);
    assert!(output.status.success(), "{output:?}");
    assert!(sandbox.weir(&["link", "show", &name, "--json"]).stdout.contains("5ms"));
    let taken = sandbox.weir(&["link", "run", "--name", &name, "--", "true"]);
    assert!(!taken.status.success() && taken.stderr.contains(&name), "{taken:?}");
    let output = sandbox.weir(&["link", "down", &name]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(running.end().status.code(), Some(1));
    assert_eq!(sandbox.leftovers(), Vec::<String>::new());
}

#[test]
fn without_a_queue_a_link_holds_100_ms_of_its_rate_and_follows_changes() {
    let Some(sandbox) = Sandbox::new() else { return };
    let name = name("queue");
    let running = up(&sandbox, &name, &["--rate", "20mbit", "--rtt", "10ms"]);
    let queue = || {
        let shown = sandbox.weir(&["link", "show", &name, "--json"]).stdout;
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        shown["ab"]["config"]["queue"].as_str().unwrap().to_owned()
    };
    assert_eq!(queue(), "droptail:250KB");
    for (change, expected) in [
        ("rate=8mbit", "droptail:100KB"),
        ("rtt=400ms", "droptail:400KB"),
        ("queue=droptail:9p", "droptail:9p"),
    ] {
        assert!(sandbox.weir(&["link", "set", &name, change]).status.success(), "{change}");
        assert_eq!(queue(), expected, "{change}");
    }
    running.signal("INT");
    assert!(orderly(&running.end()));
}

/// An ARP request would cost the first connection a round trip.
#[test]
fn both_namespaces_of_link_run_know_each_others_mac_address() {
    let Some(sandbox) = Sandbox::new() else { return };
    // On a busy machine the command may begin before the far side has written its file.
    let far = "ip neigh > far; touch done; sleep 600";
    let near = "until [ -e done ]; do sleep 0.01; done; ip neigh > near";
    let words = ["link", "run", "--rtt", "40ms", "--far", far, "--", "sh", "-c", near];
    let output = sandbox.weir(&words);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for (file, ip) in [("near", "10.0.0.2"), ("far", "10.0.0.1")] {
        let known = sandbox.read(file);
        let line = known.lines().find(|line| line.starts_with(&format!("{ip} ")));
        assert!(line.is_some_and(|line| line.contains("PERMANENT")), "{file}: {known}");
    }
}

#[test]
fn the_link_of_a_command_prints_its_cpu_time_at_the_end() {
    let Some(sandbox) = Sandbox::new() else { return };
    let connect = "for n in 1 2 3; do : </dev/tcp/10.0.0.2/9; done; true";
    let words = ["link", "run", "--rate", "10mbit", "--rtt", "2ms", "--", "bash", "-c", connect];
    let output = sandbox.weir(&words);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let line = output.stderr.lines().find(|line| line.starts_with("note: the link used ")).unwrap();
    assert!(line.contains("of CPU time") && line.contains("of a core"), "{line}");
    let frames = line.split(" for ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    assert!(frames.parse::<u64>().unwrap() >= 6, "{line}");
}

#[test]
fn a_caqm_period_far_from_the_round_trip_gives_a_warning() {
    let Some(sandbox) = Sandbox::new() else { return };
    let run = |queue: &str| {
        let words =
            ["link", "run", "--rate", "100mbit", "--rtt", "20ms", "--queue", queue, "--", "true"];
        let output = sandbox.weir(&words);
        assert_eq!(output.status.code(), Some(0), "{queue}: {output:?}");
        output.stderr
    };
    let warning = "is far from the round trip 20ms";
    assert!(run("caqm:143KB,period=1ms").contains(warning));
    assert!(run("caqm:143KB,period=200ms").contains(warning));
    assert!(!run("caqm:143KB,period=10ms").contains(warning));
    assert!(!run("caqm:143KB").contains(warning));

    let name = name("caqm");
    let running = up(&sandbox, &name, &["--rate", "100mbit", "--queue", "caqm:143KB,period=1ms"]);
    let output = sandbox.weir(&["link", "set", &name, "rtt=20ms"]);
    assert!(output.stderr.contains(warning), "{output:?}");
    running.signal("INT");
    let output = running.end();
    assert!(output.stdout.contains(warning), "{output:?}");
}

#[test]
fn a_link_leaves_nothing_however_it_ends() {
    let Some(sandbox) = Sandbox::new() else { return };
    for signal in ["INT", "TERM", "HUP", "KILL"] {
        let name = name(signal);
        let running = up(&sandbox, &name, &["--delay", "5ms"]);
        running.signal(signal);
        let output = running.end();
        assert_eq!(orderly(&output), signal != "KILL", "{signal}: {output:?}");
        assert_eq!(sandbox.leftovers(), Vec::<String>::new(), "{signal}");
        // The next `show` removes the socket that a killed link left in the folder.
        let listed = sandbox.weir(&["link", "list"]);
        assert!(!listed.stdout.contains(&name), "{}", listed.stdout);
    }
}

#[test]
fn two_links_cannot_have_the_same_name_and_a_removed_interface_ends_its_link() {
    let Some(sandbox) = Sandbox::new() else { return };
    let name = name("one");
    let mut running = up(&sandbox, &name, &[]);
    let second = sandbox.weir(&["link", "up", "--a", "w2", "--b", "e2", "--name", &name]);
    assert_eq!(second.status.code(), Some(2), "{}", second.stderr);
    assert!(second.stderr.contains("is up already"), "{}", second.stderr);
    assert!(!running.has_ended());

    let mut remove = Command::new("ip");
    remove.args(["link", "del", "west"]);
    assert!(sandbox.start_command(remove).end().status.success());
    let output = running.end();
    assert_eq!(output.status.code(), Some(1), "{}", output.stderr);
    assert!(output.stderr.contains("is down or gone"), "{}", output.stderr);
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

/// An existing interface must stay unchanged; the command warns about an address on it.
#[test]
fn existing_interfaces_are_attached_and_stay_unchanged() {
    let Some(sandbox) = Sandbox::new() else { return };
    let ip = |words: &str| {
        let mut command = Command::new("ip");
        command.args(words.split(' '));
        let output = sandbox.start_command(command).end();
        assert!(output.status.success(), "{words}: {}", output.stderr);
    };
    ip("link add west type veth peer name farwest");
    ip("link add east type veth peer name fareast");
    for interface in ["west", "farwest", "east", "fareast"] {
        ip(&format!("link set {interface} up"));
    }
    ip("addr add 10.1.2.3/24 dev east");
    let name = name("attached");
    let running = up(&sandbox, &name, &[]);
    let (_, stderr) = running.output_so_far();
    assert!(stderr.contains("east carries the address 10.1.2.3"), "{stderr}");
    assert!(!stderr.contains("made interface"), "{stderr}");
    running.signal("INT");
    let output = running.end();
    assert!(orderly(&output), "{output:?}");
    let refused =
        sandbox.weir(&["link", "up", "--a", "west", "--b", "east", "--address-a", "10.0.0.1/8"]);
    assert_eq!(refused.status.code(), Some(2), "{}", refused.stderr);
    ip("link del west");
    ip("link del east");
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

#[test]
fn a_file_of_a_link_takes_the_same_settings_as_flags() {
    let Some(sandbox) = Sandbox::new() else { return };
    sandbox.write("wan.toml", "rate = \"5mbit\"\nspin = \"0us\"\n[ba]\nloss = \"3%\"\n");
    sandbox.write("bad.toml", "rate = \"5mbit\"\ndelai = \"1ms\"\n");
    let running =
        up(&sandbox, &name("file"), &["--config", "wan.toml", "--json", "--duration", "100ms"]);
    let output = running.end();
    let report: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(report["ab"]["config"]["rate"], "5mbit");
    assert_eq!(report["ba"]["config"]["loss"], "3%");
    let refused =
        sandbox.weir(&["link", "up", "--a", "west", "--b", "east", "--config", "bad.toml"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        refused.stderr.contains("bad.toml:2: ") && refused.stderr.contains("`delay`"),
        "{}",
        refused.stderr
    );
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

/// Without root the link makes new namespaces and prints how to enter them. The link cannot use
/// other namespaces.
#[test]
fn without_root_a_link_makes_its_own_namespaces() {
    let Some(sandbox) = Sandbox::new() else { return };
    let nobody = |words: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).args(words);
        command.env("XDG_RUNTIME_DIR", sandbox.path("tmp"));
        command
    };
    for program in ["setpriv", "unshare", "nsenter"] {
        if !is_installed(program) {
            return testing::skip(testing::Need::Program(program));
        }
    }
    if !nobody(&["unshare", "--user", "--net", "true"]).output().unwrap().status.success() {
        return testing::skip(testing::Need::UserNamespaces);
    }
    std::fs::copy(env!("CARGO_BIN_EXE_weir"), sandbox.path("weir")).unwrap();
    for folder in [sandbox.home().to_owned(), sandbox.path("tmp")] {
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
    let running = sandbox.start_command(nobody(&words("left:eth0")));
    let entrance = await_some("the link", || {
        let (_, stderr) = running.output_so_far();
        let line =
            stderr.lines().find(|line| line.contains("namespace right is this link's own"))?;
        stderr.contains("is up").then(|| line.split_once("nsenter ").unwrap().1.to_owned())
    });
    let entrance: Vec<&str> = entrance.split(' ').filter(|word| word.starts_with("--")).collect();
    let mut inside = vec!["nsenter"];
    inside.extend(entrance);
    inside.extend(["ip", "address", "show", "dev", "eth0"]);
    let seen = sandbox.start_command(nobody(&inside)).end();
    assert!(seen.stdout.contains("10.0.0.2/24"), "{seen:?}");
    running.signal("TERM");
    let output = running.end();
    assert!(output.stderr.contains("running without root"), "{}", output.stderr);
    assert_eq!(output.stderr.matches("real-time").count(), 1, "{}", output.stderr);

    let run =
        ["./weir", "link", "run", "--rtt", "2ms", "--", "ip", "address", "show", "dev", "eth0"];
    let behind = sandbox.start_command(nobody(&run)).end();
    assert_eq!(behind.status.code(), Some(0), "{behind:?}");
    assert!(behind.stdout.contains("10.0.0.1/24"), "{behind:?}");

    let refused = sandbox.start_command(nobody(&words("pid:1:eth0"))).end();
    assert_eq!(refused.status.code(), Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("without root no other namespace"), "{}", refused.stderr);
    assert!(!sandbox.path("tmp/weir").exists(), "the directory of the links stays");
    assert_eq!(sandbox.leftovers(), [""; 0]);
}
