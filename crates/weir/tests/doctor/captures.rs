//! Captures that `weir doctor` makes, and capture files of other programs.

use crate::peer::{PORT, Pair};
use crate::support::Sandbox;
use serde_json::Value;
use testing::Attempt;

#[test]
fn the_packets_of_an_interface_are_judged() {
    let Some(sandbox) = Sandbox::new() else { return };
    let _pair = Pair::start(&sandbox, "20000,20", "65536,0");
    let flow = format!("port:{PORT}");
    testing::undisturbed("diagnosis of a capture", |_| {
        let words = ["doctor", "--capture", "lo", "-t", "2", "--flow", &flow, "--json"];
        let ended = sandbox.weir(&words);
        if !ended.status.success() {
            return Attempt::Wrong(format!("{ended:?}"));
        }
        let diagnosis: Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!(diagnosis["origin"], "captured");
        let found = &diagnosis["periods"][0]["flows"][0];
        let ends = found["to"].as_str().unwrap().to_owned() + found["from"].as_str().unwrap();
        assert!(ends.contains(&format!("127.0.0.1:{PORT}")), "{diagnosis:#}");
        // The reader reads all data at once, and loopback loses nothing.
        let causes = diagnosis["verdict"]["causes"].to_string();
        let wrong = ["loss", "receiver-window", "slow-reader", "path"];
        match wrong.iter().any(|wrong| causes.contains(wrong)) {
            true => Attempt::Wrong(format!("{diagnosis:#}")),
            false => Attempt::Right(()),
        }
    });
}

#[test]
fn silent_and_missing_interfaces_have_their_own_errors() {
    let Some(sandbox) = Sandbox::new() else { return };
    let ended = sandbox.weir(&["doctor", "--capture", "lo", "-t", "1"]);
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(ended.stderr.contains("no TCP segment passed lo"), "{}", ended.stderr);
    let ended = sandbox.weir(&["doctor", "--capture", "nothere", "-t", "1"]);
    assert!(!ended.status.success(), "{ended:?}");
    assert!(ended.stderr.contains("nothere"), "{}", ended.stderr);
}

#[test]
fn a_missing_empty_or_foreign_file_is_no_capture() {
    let Some(sandbox) = Sandbox::new() else { return };
    sandbox.write("empty.pcap", "");
    sandbox.write("text.pcapng", "hello, this is no capture");
    for (file, words) in [
        ("missing.pcap", "a capture in pcap's or pcapng's format"),
        ("empty.pcap", "none of the 0 packets"),
        ("text.pcapng", "pcapng's format: name a file that `tcpdump -w` wrote"),
    ] {
        let ended = sandbox.weir(&["doctor", file]);
        assert!(!ended.status.success(), "{ended:?}");
        assert!(ended.stderr.contains(words), "{file}: {}", ended.stderr);
    }
}
