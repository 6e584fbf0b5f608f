//! `weir accel enable caqm` as a user runs it: two hosts that agree, and tags on the path between
//! them.

use crate::test_machine::TestMachine;
use crate::test_machine::pair::{Pair, transfer};
use crate::test_machine::transfer::accel;
use serde_json::Value;
use std::io::Read as _;
use std::time::{Duration, Instant};

const ENABLE: [&str; 7] =
    ["enable", "caqm", "--all", "--interface", "near:eth0", "--interface", "far:eth0"];

fn totals(machine: &TestMachine) -> Value {
    machine.status()["caqm"]["totals"].clone()
}

fn count(totals: &Value, name: &str) -> u64 {
    totals[name].as_u64().unwrap()
}

#[test]
fn both_ends_agree_and_every_data_packet_carries_a_tag() {
    let Some(machine) = TestMachine::new() else { return };
    let pair = Pair::lay(&machine);
    let output = accel(&machine, &[&ENABLE[..], &["--trusts-path"]].concat());
    assert!(output.contains("caqm is on"), "{output}");
    assert_eq!(pair.transfer(5801, &[]), "caqm");
    let totals = totals(&machine);
    // Both ends of the control connection and of the transfer negotiated.
    assert_eq!(count(&totals, "negotiated"), 4, "{totals}");
    assert_eq!(count(&totals, "declined"), 0, "{totals}");
    assert_eq!(totals["sent_segments"], totals["heard_segments"], "{totals}");
    assert_eq!(totals["sent_answers"], totals["heard_answers"], "{totals}");
    // The path did not cut super-packets into segments, so a tag was sent with each super-packet.
    assert!(count(&totals, "sent_segments") > 10 * count(&totals, "sent_packets"), "{totals}");
    assert_eq!(totals["sent_super"], totals["heard_super"], "{totals}");
    assert_eq!(count(&totals, "implausible"), 0, "{totals}");
    accel(&machine, &["disable"]);
    assert_eq!(machine.pinned(), "");
    assert_ne!(pair.transfer(5802, &[]), "caqm");
}

#[test]
fn a_caqm_port_answers_the_query_in_a_handshake() {
    let Some(machine) = TestMachine::new() else { return };
    let link = ["--rate", "200mbit", "--delay", "2ms", "--queue", "caqm:60KB"];
    let _pair = Pair::over(&machine, &link);
    accel(&machine, &[&ENABLE[..], &["--rtt-standard", "4ms"]].concat());
    assert_eq!(transfer(&machine, 5803, &[])["end"]["sender_tcp_congestion"], "caqm");
    let totals = totals(&machine);
    println!("{totals}");
    assert_eq!(count(&totals, "negotiated"), 4, "{totals}");
    assert_eq!(count(&totals, "gave_up"), 0, "{totals}");
    assert!(count(&totals, "heard_answers") > 50, "{totals}");
    assert_eq!(count(&totals, "implausible"), 0, "{totals}");
}

#[test]
fn without_a_caqm_port_a_connection_uses_reno_and_carries_no_tags() {
    let Some(machine) = TestMachine::new() else { return };
    let link = ["--rate", "200mbit", "--delay", "2ms", "--queue", "droptail:200KB"];
    let pair = Pair::over(&machine, &link);
    accel(&machine, &ENABLE);
    let mut used = String::new();
    let tags = tags_during(&machine, || used = pair.transfer(5804, &[]));
    assert_eq!((tags, used.as_str()), (Vec::<String>::new(), "reno"));
    let totals = totals(&machine);
    println!("{totals}");
    assert_eq!(count(&totals, "negotiated"), 0, "{totals}");
    // Two connections, the control connection and the transfer: no port answered on the path of
    // either end's data.
    assert_eq!((count(&totals, "gave_up"), count(&totals, "declined")), (2, 2), "{totals}");
    let passed = ["sent_segments", "sent_answers", "heard_segments", "heard_answers"];
    assert_eq!(passed.map(|name| count(&totals, name)), [0; 4], "{totals}");
}

/// The port supports CAQM in one direction only: only data in that direction carries requests, and
/// the acknowledgements of that data carry answers.
#[test]
fn each_direction_negotiates_separately() {
    let Some(machine) = TestMachine::new() else { return };
    let (speaks, plain) = ("queue=caqm:60KB", "queue=droptail:200KB");
    for (number, (out, back)) in [(speaks, plain), (plain, speaks)].into_iter().enumerate() {
        let link = ["--rate", "100mbit", "--delay", "2ms", "--ab", out, "--ba", back];
        let pair = Pair::over(&machine, &link);
        accel(&machine, &[&ENABLE[..], &["--rtt-standard", "4ms"]].concat());
        for (reverse, asks) in [(false, out == speaks), (true, back == speaks)] {
            let more: &[&str] = if reverse { &["--reverse"] } else { &[] };
            let before = totals(&machine);
            let port = 5880 + 2 * number as u16 + u16::from(reverse);
            let report = transfer(&machine, port, more);
            let used = report["end"]["sender_tcp_congestion"].as_str().unwrap();
            assert_eq!(used, if asks { "caqm" } else { "reno" }, "{out} {back} {reverse}");
            let totals = totals(&machine);
            let came = count(&totals, "heard_segments") - count(&before, "heard_segments");
            // The control connection alone sends only some tens of segments.
            assert!(if asks { came > 1000 } else { came < 100 }, "{came}: {totals}");
        }
        accel(&machine, &["disable"]);
        drop(pair);
        ["near", "far"].into_iter().for_each(|end| {
            machine.run("ip", &["netns", "delete", end]);
        });
    }
}

/// Returns the lines that `weir link show-tags` prints at the far end during `work`.
fn tags_during(machine: &TestMachine, work: impl FnOnce()) -> Vec<String> {
    shown_during(machine, &[], work)
}

/// Returns the lines that `weir link show-tags` prints with these flags at the far end during
/// `work`.
fn shown_during(machine: &TestMachine, flags: &[&str], work: impl FnOnce()) -> Vec<String> {
    let weir = env!("CARGO_BIN_EXE_weir");
    let mut look = machine.start(weir, &[&["link", "show-tags", "far:eth0"][..], flags].concat());
    // A full pipe would stop `show-tags`.
    let mut printed = look.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut output = String::new();
        printed.read_to_string(&mut output).unwrap();
        output
    });
    let deadline = Instant::now() + Duration::from_secs(60);
    while !far_end_is_captured(machine) {
        assert!(Instant::now() < deadline, "show-tags reads no packets");
        std::thread::sleep(Duration::from_millis(10));
    }
    work();
    crate::support::signal(look.id(), "INT");
    let output = reader.join().unwrap();
    assert!(look.wait().unwrap().success());
    output.lines().map(str::to_owned).collect()
}

/// Whether a packet socket at the far end receives all protocols: 0003 is ETH_P_ALL, and 1 stands
/// for a running socket (packet_seq_show of net/packet/af_packet.c).
fn far_end_is_captured(machine: &TestMachine) -> bool {
    let words = ["netns", "exec", "far", "cat", "/proc/net/packet"];
    machine.run("ip", &words).stdout.lines().any(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        words.get(3) == Some(&"0003") && words.get(5) == Some(&"1")
    })
}

#[test]
fn a_capture_shows_the_reserved_bits_of_both_ends_that_negotiate_by_bits() {
    let Some(machine) = TestMachine::new() else { return };
    let pair = Pair::lay(&machine);
    accel(&machine, &[&ENABLE[..], &["--negotiation", "bits"]].concat());
    let mut used = String::new();
    let lines = shown_during(&machine, &["--handshakes"], || used = pair.transfer(5891, &[]));
    assert_eq!(used, "caqm");
    let of = |kind: &str| -> Vec<&str> {
        let lines = lines.iter().filter(|line| line.contains(&format!(" {kind}, ")));
        lines.filter_map(|line| line.split_once(&format!(" {kind}, "))).map(|two| two.1).collect()
    };
    for (kind, expected) in [
        ("SYN", "reserved bits 0001, no option: offers CAQM by bits"),
        ("SYN-ACK", "reserved bits 0010, no option: agrees to CAQM by bits"),
    ] {
        // The handshakes of the control connection and of the transfer have a segment of this
        // kind each. An end repeats a segment that the other end answers late.
        let told = of(kind);
        assert!(told.len() >= 2 && told.iter().all(|told| *told == expected), "{told:?}");
    }
    assert!(lines.iter().any(|line| line.contains("asks for")), "no data with a tag");
    accel(&machine, &["disable"]);
    let plain = shown_during(&machine, &["--handshakes"], || used = pair.transfer(5892, &[]));
    assert!(plain.len() >= 4 && plain.iter().all(|line| line.ends_with(": no CAQM")), "{plain:?}");
}

#[test]
fn with_one_caqm_end_no_packet_carries_a_tag() {
    let Some(machine) = TestMachine::new() else { return };
    let link = ["--rate", "100mbit", "--delay", "2ms", "--queue", "caqm:60KB"];
    let pair = Pair::over(&machine, &link);
    for (number, end) in ["near:eth0", "far:eth0"].into_iter().enumerate() {
        accel(&machine, &["enable", "caqm", "--all", "--interface", end]);
        let mut used = String::new();
        let tags = tags_during(&machine, || {
            used = pair.transfer(5810 + number as u16, &[]);
        });
        assert_eq!(tags, Vec::<String>::new());
        // The end that offers CAQM uses Reno; the other end keeps its algorithm.
        let totals = totals(&machine);
        assert_eq!((count(&totals, "negotiated"), count(&totals, "declined")), (0, 2), "{totals}");
        assert_eq!(used == "reno", end == "near:eth0", "{used}");
        accel(&machine, &["disable"]);
    }
}

#[test]
fn data_carries_requests_and_acknowledgements_carry_answers() {
    let Some(machine) = TestMachine::new() else { return };
    let link = ["--rate", "100mbit", "--delay", "2ms", "--queue", "caqm:60KB"];
    let _pair = Pair::over(&machine, &link);
    accel(&machine, &[&ENABLE[..], &["--rtt-standard", "4ms"]].concat());
    let mut report = Value::Null;
    let tags = tags_during(&machine, || report = transfer(&machine, 5820, &[]));
    let end = &report["end"];
    assert_eq!(end["sender_tcp_congestion"], "caqm", "{end}");
    let with = |words: &[&str]| -> Vec<&String> {
        tags.iter().filter(|line| words.iter().all(|word| line.contains(word))).collect()
    };
    let (data, answers) = (with(&["data ", "en 1"]), with(&[" ack ", "en 0"]));
    // The requests cover more than half of the data, in segments of at most 1448 bytes.
    let bytes = end["sum_received"]["bytes"].as_u64().unwrap();
    assert!(data.len() as u64 * 1448 > bytes / 2, "{} for {bytes} bytes", data.len());
    assert!(answers.len() > 100, "{} of {}", answers.len(), tags.len());
    // The path of both directions includes the port, which the client reports in its first tagged
    // packet.
    let ahead = "reports a CAQM port on the return path";
    assert!(tags[0].contains(ahead) && tags[0].contains(" > 10.0.0.2:"), "{}", tags[0]);
    assert!(with(&[ahead]).iter().all(|line| line.contains("> 10.0.0.2:")));
    assert!(!with(&["asks for", "> 10.0.0.2:"]).is_empty());
    println!("{}\n{}", data[data.len() / 2], answers[answers.len() / 2]);
}

#[test]
fn only_connections_of_a_rule_negotiate() {
    let Some(machine) = TestMachine::new() else { return };
    let pair = Pair::lay(&machine);
    let at = ["--interface", "near:eth0", "--interface", "far:eth0", "--trusts-path"];
    // Each end has its own rule, because the client's port differs from the server's.
    accel(&machine, &[&["enable", "caqm", "--port", "5830"][..], &at].concat());
    assert_ne!(pair.transfer(5830, &[]), "caqm");
    accel(&machine, &["enable", "caqm", "--to", "10.0.0.2"]);
    assert_eq!(pair.transfer(5830, &[]), "caqm");
    assert_ne!(pair.transfer(5831, &[]), "caqm");
    let status = machine.status();
    assert_eq!(status["caqm"]["rules"].as_array().unwrap().len(), 2, "{status}");
    // CAQM does not run on the loopback interface.
    assert_ne!(machine.transfer(5832, &[]).0, "caqm");
}

/// The kernel cuts segments after the program that adds tags, and merges them before the program
/// that removes tags (GSO, GRO). The kernel also spreads the work over CPUs (RPS).
#[test]
fn tagged_segments_are_cut_merged_and_steered_like_untagged_segments() {
    let Some(machine) = TestMachine::new() else { return };
    let _pair = Pair::lay(&machine);
    let offload = |end: &str, words: &[&str]| {
        let output =
            machine.run("ip", &[&["netns", "exec", end, "ethtool", "-K", "eth0"], words].concat());
        output.code == Some(0)
    };
    if !offload("near", &["tso", "off", "gso", "off"]) || !offload("far", &["gro", "on"]) {
        testing::skip(testing::Need::Program("ethtool"));
        return;
    }
    let steer = "echo 3 > /sys/class/net/eth0/queues/rx-0/rps_cpus";
    assert_eq!(machine.run("ip", &["netns", "exec", "far", "sh", "-c", steer]).code, Some(0));
    accel(&machine, &[&ENABLE[..], &["--trusts-path"]].concat());
    // With fewer connections, chance may steer all of them to one CPU.
    transfer(&machine, 5870, &["--parallel", "12"]);
    let status = machine.status();
    let totals = &status["caqm"]["totals"];
    assert!(count(totals, "sent_super") > 20, "{totals}");
    assert!(count(totals, "heard_super") > 20, "{totals}");
    // Losses, retransmissions and other CPUs never assign a segment to another connection.
    assert_eq!(count(totals, "implausible"), 0, "{totals}");
    // The sender counts retransmitted segments again, so it may count more than the receiver.
    assert!(count(totals, "heard_segments") <= count(totals, "sent_segments"), "{totals}");
    assert!(4 * count(totals, "heard_packets") < count(totals, "heard_segments"), "{totals}");
    let cpus = status["caqm"]["cpus"].as_array().unwrap();
    let working = cpus.iter().filter(|cpu| count(cpu, "heard_super") > 0).count();
    println!("{working} of {} CPUs took tags off: {totals}", cpus.len());
    assert!(working > 1 || host::online_cpus().len() == 1, "{cpus:?}");
}
