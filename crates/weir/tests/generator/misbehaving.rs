//! Misbehaving devices.

use crate::device::{cable, ip, json, link, start_switch, write_profile};
use crate::support::{Sandbox, await_some};
use serde_json::Value;
use testing::Attempt;

/// Runs the profile of the flow-rules reference report with numbered streams.
fn send(sandbox: &Sandbox) -> (Option<i32>, Value) {
    write_profile(sandbox, "p.yaml", "cap2/udp_64B.pcap", 5000.0, 255);
    let run = ["gen", "-f", "p.yaml", "-d", "2", "-l", "500", "--json"];
    let output = sandbox.weir(&[&run[..], &["--port", "gen0", "--port", "gen1"]].concat());
    let document = json(&output.stdout);
    (output.status.code(), document)
}

/// Sums a counter over both streams.
fn of_streams(document: &Value, what: &str) -> u64 {
    let streams = document["streams"].as_array().unwrap();
    streams.iter().map(|stream| stream[what].as_u64().unwrap()).sum()
}

fn received(document: &Value, port: usize) -> u64 {
    document["ports"][port]["ipackets"].as_u64().unwrap()
}

/// Checks that the statement about the rate agrees with the seconds and with the exit status.
fn rate_is_told(status: Option<i32>, document: &Value) {
    let seconds = document["seconds"].as_array().unwrap();
    let is_kept = seconds.iter().all(|second| {
        let (planned, sent) =
            (second["planned"].as_f64().unwrap(), second["sent"].as_f64().unwrap());
        (sent - planned).abs() <= (planned * 0.005).max(1.0)
    });
    assert_eq!(document["rate_kept"], is_kept, "{document}");
    assert_eq!(document["rate_problem"].is_null(), is_kept, "{document}");
    assert_eq!(status, Some(if is_kept { 0 } else { 1 }), "{document}");
}

fn take_down(sandbox: &Sandbox, devices: Vec<crate::support::Running>) {
    for device in devices {
        device.signal("INT");
        device.end();
    }
    ip(sandbox, "link del gen0");
    ip(sandbox, "link del gen1");
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

/// Tests a device that returns every packet of port 1 three times, and forwards it four times.
#[test]
fn packets_that_a_device_multiplies_are_counted() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    let rules = "in_port=1 actions=in_port,in_port,in_port,output:2,output:2,output:2,output:2\n\
                 in_port=2 actions=output:1\n";
    let device = start_switch(&sandbox, rules, "");
    // If the machine stalls for longer than the queues can buffer, some packets are lost.
    let mut wrong = Vec::new();
    let is_counted = (0..3).any(|_| {
        let (status, document) = send(&sandbox);
        rate_is_told(status, &document);
        // Each port sends a stream. The packets of the first port arrive seven times, the packets
        // of the second port once.
        let sent = |stream: usize| document["streams"][stream]["sent"].as_u64().unwrap();
        let planned = document["packets"]["planned"].as_u64().unwrap();
        let is_counted = of_streams(&document, "duplicates") >= 3 * sent(0).min(sent(1))
            && of_streams(&document, "lost") == 0
            && received(&document, 0) >= 3 * planned;
        wrong.push(document.to_string());
        is_counted
    });
    assert!(is_counted, "{}", wrong.join("\n"));
    take_down(&sandbox, vec![device]);
}

#[test]
fn frames_of_another_sender_do_not_count_as_frames_of_the_generator() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    let device = start_switch(&sandbox, "in_port=1 actions=output:2\n", "");
    cable(&sandbox, "flood0", "dev2");
    // Another sender sends frames as fast as one thread can.
    write_profile(&sandbox, "flood.yaml", "cap2/udp_64B.pcap", 50_000.0, 1000);
    let add =
        sandbox.weir(&["switch", "port", "add", "br0", "dev2", "packet:dev2", "--rundir", "run"]);
    assert!(add.status.success(), "{add:?}");
    let rule = ["switch", "add-flow", "br0", "in_port=3 actions=output:2", "--rundir", "run"];
    assert!(sandbox.weir(&rule).status.success());
    let flood = sandbox.start(&[
        "gen",
        "-f",
        "flood.yaml",
        "-d",
        "60",
        "--port",
        "flood0",
        "--no-real-time",
    ]);
    await_some("the flood", || {
        let shown = sandbox.inside(|| std::fs::read_to_string("/proc/thread-self/net/dev")).ok()?;
        let of_port = shown.lines().find_map(|line| line.trim_start().strip_prefix("flood0:"))?;
        let sent: u64 = of_port.split_whitespace().nth(9)?.parse().ok()?;
        (sent > 1000).then_some(())
    });
    let output = sandbox.weir(&[
        "gen",
        "ndr",
        "--port",
        "gen0",
        "--port",
        "gen1",
        "--trial",
        "300ms",
        "--sum",
        "1s",
        "--goal",
        "0.5%",
        "--min-rate",
        "1k",
        "--max-rate",
        "4k",
        "--no-latency",
        "--no-back-to-back",
        "--json",
    ]);
    let document = json(&output.stdout);
    // A busy machine may lose frames itself; the command then marks the trials invalid.
    let is_valid = document["valid"].as_bool().unwrap();
    assert_eq!(output.status.code(), Some(if is_valid { 0 } else { 1 }), "{document}");
    assert!(document["sizes"][0]["foreign"].as_u64().unwrap() > 0, "{document}");
    flood.signal("INT");
    flood.end();
    ip(&sandbox, "link del flood0");
    take_down(&sandbox, vec![device]);
}

#[test]
fn reordered_and_repeated_packets_are_counted_separately() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    let settings =
        ["--rate", "100mbit", "--reorder", "10%,20ms", "--duplicate", "5%", "--seed", "7"];
    let device = link(&sandbox, &settings);
    testing::undisturbed("counts of a device's disorder", |_| {
        let (status, document) = send(&sandbox);
        rate_is_told(status, &document);
        let sent = of_streams(&document, "sent") as f64;
        let duplicates = of_streams(&document, "duplicates") as f64 / sent;
        let is_right = (0.02..0.1).contains(&duplicates)
            && of_streams(&document, "reordered") as f64 >= sent * 0.04
            && of_streams(&document, "lost") == 0;
        if is_right { Attempt::Right(()) } else { Attempt::Wrong(document.to_string()) }
    });
    take_down(&sandbox, vec![device]);
}

/// The device flips bits anywhere: in addresses, lengths, marks, numbers and times.
#[test]
fn corrupted_packets_are_counted() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    let device = link(&sandbox, &["--rate", "100mbit", "--corrupt", "50%", "--seed", "9"]);
    testing::undisturbed("packets beside garbage", |_| {
        let (status, document) = send(&sandbox);
        rate_is_told(status, &document);
        let (sent, arrived) = (of_streams(&document, "sent"), of_streams(&document, "received"));
        assert!(arrived <= sent, "{document}");
        // Half of the packets are unchanged, and a flipped bit behind the stamp does not harm a
        // packet.
        match arrived >= sent * 4 / 10 {
            true => Attempt::Right(()),
            false => Attempt::Wrong(document.to_string()),
        }
    });
    take_down(&sandbox, vec![device]);
}

#[test]
fn a_device_that_dies_in_the_middle_ends_the_search() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    let device = start_switch(&sandbox, "in_port=1 actions=output:2\n", "");
    let search = sandbox.start(&[
        "gen",
        "ndr",
        "--port",
        "gen0",
        "--port",
        "gen1",
        "--trial",
        "300ms",
        "--sum",
        "3s",
        "--goal",
        "0",
        "--min-rate",
        "1k",
        "--max-rate",
        "8k",
        "--no-latency",
        "--no-back-to-back",
        "--json",
    ]);
    std::thread::sleep(std::time::Duration::from_millis(1500));
    device.signal("KILL");
    device.end();
    let output = search.end();
    let document = json(&output.stdout);
    let is_valid = document["valid"].as_bool().unwrap();
    assert_eq!(output.status.code(), Some(if is_valid { 0 } else { 1 }), "{document}");
    // The generator's own ports vanish as well.
    let (_, document) = send(&sandbox);
    assert_eq!(of_streams(&document, "received"), 0, "{document}");
    let running = sandbox
        .start(&["gen", "-f", "p.yaml", "-d", "30", "--json", "--port", "gen0", "--port", "gen1"]);
    let pid = running.pid();
    // A program that is pinned to a CPU keeps this CPU; the generator then has a single thread.
    await_some("a sending thread", || {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?.count();
        (tasks >= 2).then_some(())
    });
    ip(&sandbox, "link del gen0");
    let output = running.end();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    ip(&sandbox, "link del gen1");
    assert_eq!(sandbox.leftovers(), [""; 0]);
}
