//! `weir perf client` as a user runs it.

use crate::support::{Running, Sandbox, await_some, intervals, is_installed};
use serde_json::Value;
use std::process::Command;

/// Starts a stock server for one test, in the sandbox's namespace.
fn iperf3(sandbox: &Sandbox) -> Option<Running> {
    if !is_installed("iperf3") {
        testing::skip(testing::Need::Program("iperf3"));
        return None;
    }
    let mut command = Command::new("iperf3");
    command.args(["-s", "-1", "--forceflush"]);
    let server = sandbox.start_command(command);
    await_some("iperf3", || server.output_so_far().0.contains("listening").then_some(()));
    Some(server)
}

#[test]
fn invalid_arguments_are_refused_with_a_suggestion() {
    let Some(sandbox) = Sandbox::new() else { return };
    for (words, message) in [
        (&["-b", "100mbut"][..], "(did you mean `100mbit`?)"),
        (&["-b", "100M/0"], "1 to 1000 blocks, as in 100M/16"),
        (&["-t", "10sek"], "(did you mean `10s`?)"),
        (&["-t", "5", "-n", "1M"], "cannot be used with"),
        (&["-R", "--bidir"], "cannot be used with"),
        (&["--reverce"], "'--reverse'"),
        (&["-P", "0"], "1..=128"),
        (&["-l", "2M"], "1B to 1MiB"),
        (&["-u", "-l", "8"], "16 to 65507 bytes"),
        (&["-u", "-C", "cubic"], "--congestion is for TCP"),
        (&["-u", "-M", "1000"], "--set-mss is for TCP"),
        (&["-C", "cubix"], "(did you mean `cubic`?)"),
        (&["-B", "eth0"], "%eth0"),
        (&["-A", "x"], "not the number of a CPU"),
        (&["--dscp", "efe"], "(did you mean `ef`?)"),
        (&["-f", "x"], "k, m, g or t"),
        (&["--udp-counters-64bit"], "add --udp"),
        (&["--cport", "0"], "1 to 65535"),
        (&["-J", "--json-stream"], "cannot be used with"),
        (&["-F", "data"], "`weir perf download URL`"),
        (&["--sctp"], "weir perf tests TCP and UDP"),
        (&["--cntl-ka=1/2/3/4"], "as in 60/10/5"),
    ] {
        let mut all = vec!["perf", "client", "127.0.0.1"];
        all.extend(words);
        let output = sandbox.weir(&all);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", output.stderr);
        assert!(output.stderr.contains(message), "{words:?}: {}", output.stderr);
        assert_eq!(output.stdout, "", "{words:?}");
    }
}

#[test]
fn a_failed_test_prints_one_sentence_and_has_exit_status_1() {
    let Some(sandbox) = Sandbox::new() else { return };
    let output = sandbox.weir(&["perf", "client", "127.0.0.1"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stdout, "");
    assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
    assert!(output.stderr.starts_with("weir: nobody listens at 127.0.0.1:5201: "));
    let output = sandbox.weir(&["perf", "client", "127.0.0.1", "-J"]);
    assert_eq!(output.status.code(), Some(1));
    let document: Value = serde_json::from_str(&output.stdout).unwrap();
    assert!(document["error"].as_str().unwrap().contains("nobody listens"), "{document}");
}

#[test]
fn values_are_accepted_in_weirs_and_in_iperf3s_notation() {
    let Some(sandbox) = Sandbox::new() else { return };
    let mut started = Vec::new();
    for words in [
        ["-t", "0.4", "-b", "8M", "-l", "16K", "-i", "0.2"],
        ["-t", "400ms", "-b", "8mbit", "-l", "16KiB", "-i", "200ms"],
    ] {
        let Some(server) = iperf3(&sandbox) else { return };
        let mut all = vec!["perf", "client", "127.0.0.1", "-J", "--no-probes"];
        all.extend(words);
        let output = sandbox.weir(&all);
        assert!(output.status.success(), "{}", output.stderr);
        assert!(server.end().status.success());
        let document: Value = serde_json::from_str(&output.stdout).unwrap();
        started.push(document["start"]["test_start"].clone());
    }
    assert_eq!(started[0], started[1]);
    assert_eq!(started[0]["blksize"], 16_384);
}

#[test]
fn a_signal_ends_the_test_with_the_results_so_far() {
    let Some(sandbox) = Sandbox::new() else { return };
    let Some(server) = iperf3(&sandbox) else { return };
    let client =
        sandbox.start(&["perf", "client", "127.0.0.1", "-b", "10M", "-i", "0.1", "-t", "0"]);
    await_some("an interval", || (intervals(&client.output_so_far().0) >= 1).then_some(()));
    client.signal("INT");
    let output = client.end();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stderr, "weir: interrupted\n");
    assert!(output.stdout.contains("no end"), "{}", output.stdout);
    assert!(output.stdout.contains("summary"), "{}", output.stdout);
    // The server learns that its client ended the test.
    let message = server.end();
    assert!(message.stderr.contains("client has terminated"), "{message:?}");
    assert_eq!(sandbox.leftovers(), Vec::<String>::new());
}

#[test]
fn help_shows_examples_and_a_bare_command_shows_help() {
    let Some(sandbox) = Sandbox::new() else { return };
    let output = sandbox.weir(&["perf", "client", "--help"]);
    assert!(output.status.success());
    assert!(output.stdout.contains("weir perf client 10.0.0.2 -u -b 600mbit"));
    let output = sandbox.weir(&["perf"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        output.stderr.contains("client") && output.stderr.contains("server"),
        "{}",
        output.stderr
    );
}

#[test]
fn the_cost_of_the_probes_is_reported_with_its_interval() {
    let Some(sandbox) = Sandbox::new() else { return };
    for (words, both_ends) in [(&["-1"][..], true), (&["-1", "--no-probes"], false)] {
        let mut server = vec!["perf", "server"];
        server.extend(words);
        let server = sandbox.start(&server);
        await_some("the server", || server.output_so_far().0.contains("listening").then_some(()));
        let ask = ["perf", "client", "127.0.0.1", "-t", "1.5", "--probe-cost", "-b", "200M", "-J"];
        let output = sandbox.weir(&ask);
        assert!(output.status.success(), "{}", output.stderr);
        // The server releases its port.
        assert!(server.end().status.success());
        let document: Value = serde_json::from_str(&output.stdout).unwrap();
        let cost = &document["weir"]["probe_cost"];
        assert_eq!(cost["both_ends"], both_ends, "{cost}");
        // The test has at most two blocks of turns, too few for an interval.
        assert!(cost["pairs"].as_u64().unwrap() <= 4, "{cost}");
        assert_eq!(cost.get("percent"), None, "{cost}");
    }
    let output = sandbox.weir(&["perf", "client", "127.0.0.1", "--probe-cost", "-u"]);
    assert_eq!(output.status.code(), Some(2), "{}", output.stderr);
}
