use crate::device::{cable, ip, json, link, write_profile};
use crate::support::{Sandbox, await_some};
use generator::{Capture, traffic::Stamp};
use std::collections::HashSet;
use testing::Attempt;

/// Runs the profile and the flags of the flow-rules reference report, with two ports.
#[test]
fn packets_of_the_reports_profile_reach_the_other_port() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    cable(&sandbox, "gen0", "gen1");
    write_profile(&sandbox, "imix_64.yaml", "cap2/udp_64B.pcap", 1000.0, 255);
    let run = ["gen", "-f", "imix_64.yaml", "-m", "10", "-d", "2", "-c", "2"];
    let ports = ["--port", "gen0", "--port", "gen1"];
    // After a stall the machine sends many packets at once, for which the other port has no room.
    testing::undisturbed("run of the report's profile", |_| {
        let output = sandbox.weir(&[&run[..], &ports, &["--json", "-l", "50"]].concat());
        let document = json(&output.stdout);
        assert_eq!(document["planned_pps"], 10_000.0);
        assert_eq!(document["packets"]["planned"], 20_000);
        let is_kept = document["rate_kept"].as_bool().unwrap();
        assert_eq!(output.status.code(), Some(if is_kept { 0 } else { 1 }), "{document}");
        let sent = document["ports"][0]["opackets"].as_u64().unwrap();
        let streams = document["streams"].as_array().unwrap();
        let has_arrived = |stream: &serde_json::Value| {
            stream["lost"] == 0 && stream["latency_us"]["p50"].as_f64() > Some(0.0)
        };
        let is_right = (20_000..=20_110).contains(&sent)
            && document["ports"][1]["ipackets"] == sent
            && streams.iter().all(has_arrived);
        if is_right { Attempt::Right(()) } else { Attempt::Wrong(document.to_string()) }
    });

    let output = sandbox.weir(&[&run[..], &ports].concat());
    for words in [
        "-Per port stats table",
        " summary stats ",
        " Total-pkt-drop       : ",
        " Total-tx-pkt         : 20000 pkts",
    ] {
        assert!(output.stdout.contains(words), "{words}: {}", output.stdout);
    }
    ip(&sandbox, "link del gen0");
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

#[test]
fn a_capture_has_as_many_five_tuples_as_the_limit() {
    let Some(sandbox) = Sandbox::new() else { return };
    write_profile(&sandbox, "flows.yaml", "cap2/udp_64B.pcap", 2000.0, 700);
    for order in ["lockstep", "destination"] {
        let output = sandbox.weir(&[
            "gen",
            "-f",
            "flows.yaml",
            "-d",
            "1",
            "--addressing",
            order,
            "--port",
            "pcap:out.pcap",
            "--port",
            "null",
        ]);
        assert!(output.stdout.contains("Total-tx-pkt         : 2000 pkts"), "{output:?}");
        let bytes = std::fs::read(sandbox.path("out.pcap")).unwrap();
        let capture = Capture::parse("out.pcap", &bytes).unwrap();
        let tuples: HashSet<&[u8]> =
            capture.packets.iter().map(|packet| &packet.bytes[26..38]).collect();
        assert_eq!((capture.packets.len(), tuples.len()), (2000, 700), "{order}");
        let sources: HashSet<&[u8]> =
            capture.packets.iter().map(|packet| &packet.bytes[26..30]).collect();
        assert_eq!(sources.len(), if order == "destination" { 1 } else { 255 });
        assert_eq!(Stamp::read(&capture.packets[0].bytes), None);
    }
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

#[test]
fn the_address_of_a_gateway_is_resolved() {
    let Some(sandbox) = Sandbox::new() else { return };
    cable(&sandbox, "gen0", "far0");
    ip(&sandbox, "addr add 192.168.10.1/24 dev far0");
    let has_ipv6 = testing::Need::Ipv6.is_met();
    if has_ipv6 {
        ip(&sandbox, "addr add fd00::1/64 dev far0 nodad");
    } else {
        testing::skip_part(testing::Need::Ipv6);
    }
    ip(&sandbox, "link set far0 address 02:ac:10:ff:01:01");
    write_profile(&sandbox, "one.yaml", "dns.pcap", 100.0, 4);
    let ipv6 = has_ipv6.then_some(("fd00::2", "fd00::1"));
    for (own, gateway) in [("192.168.10.2", "192.168.10.1")].into_iter().chain(ipv6) {
        let port = format!("gen0,ip={own},gateway={gateway}");
        let output =
            sandbox.weir(&["gen", "-f", "one.yaml", "-d", "0.2", "--port", &port, "--json"]);
        assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
        assert_eq!(json(&output.stdout)["packets"]["sent"], 39, "{output:?}");
    }
    let output = sandbox.weir(&[
        "gen",
        "-f",
        "one.yaml",
        "--port",
        "gen0,ip=192.168.10.2,gateway=192.168.10.9",
    ]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stderr.contains("no answer from gateway 192.168.10.9"), "{output:?}");
    ip(&sandbox, "link del gen0");
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

#[test]
fn loss_reordering_and_duplicates_of_a_device_are_counted() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    let device = link(
        &sandbox,
        &[
            "--delay",
            "2ms",
            "--loss",
            "10%",
            "--reorder",
            "20%,5ms",
            "--duplicate",
            "10%",
            "--seed",
            "7",
        ],
    );
    write_profile(&sandbox, "one.yaml", "udp_64B.pcap", 100.0, 4);
    // On a stalled machine the link loses packets beside the packets that it drops on purpose.
    testing::undisturbed("counts of a device's disorder", |_| {
        let output = sandbox.weir(&[
            "gen", "-f", "one.yaml", "-d", "2", "-l", "1000", "--port", "gen0", "--port", "gen1",
            "--json",
        ]);
        let document = json(&output.stdout);
        let stream = &document["streams"][0];
        let count = |what: &str| stream[what].as_u64().unwrap();
        let is_right = count("sent") == 2000
            && (100..300).contains(&count("lost"))
            && (100..300).contains(&count("duplicates"))
            && count("reordered") > 100
            && count("received") + count("lost") == 2000 + count("duplicates")
            && stream["latency_us"]["p50"].as_f64() >= Some(2000.0);
        if is_right { Attempt::Right(()) } else { Attempt::Wrong(document.to_string()) }
    });
    device.signal("INT");
    device.end();
    ip(&sandbox, "link del gen0");
    ip(&sandbox, "link del gen1");
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

#[test]
fn a_run_shuts_down_cleanly_when_cancelled_or_when_its_port_vanishes() {
    let Some(sandbox) = Sandbox::new() else { return };
    cable(&sandbox, "gen0", "gen1");
    write_profile(&sandbox, "one.yaml", "udp_64B.pcap", 1000.0, 4);
    let start = || {
        let running = sandbox.start(&[
            "gen", "-f", "one.yaml", "-d", "60", "--port", "gen0", "--port", "gen1", "--json",
        ]);
        let pid = running.pid();
        // A program that is pinned to a CPU keeps this CPU; the generator then has a single thread.
        await_some("a sending thread", || {
            let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?.count();
            (tasks >= 2).then_some(())
        });
        running
    };
    let running = start();
    running.signal("INT");
    let output = running.end();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(json(&output.stdout)["cancelled"], true);

    let running = start();
    ip(&sandbox, "link del gen0");
    let output = running.end();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let error = json(&output.stdout)["error"].to_string();
    assert!(error.contains("is down or gone"), "{error}");
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

/// Before the run the port asks for its gateway by ARP, and the gateway asks for the port.
#[test]
fn arp_before_the_run_is_counted() {
    let Some(sandbox) = Sandbox::new() else { return };
    cable(&sandbox, "gen0", "gateway0");
    ip(&sandbox, "addr add 192.168.10.1/24 dev gateway0");
    write_profile(&sandbox, "one.yaml", "udp_64B.pcap", 100.0, 4);
    let words = [
        "gen",
        "-f",
        "one.yaml",
        "-d",
        "0.2",
        "--port",
        "gen0,ip=192.168.10.2,gateway=192.168.10.1",
        "--port",
        "null",
    ];
    let output = sandbox.weir(&words);
    assert!(output.status.success(), "{output:?}");
    let counted = |name: &str| -> u64 {
        let line = output.stdout.lines().find(|line| line.contains(name)).unwrap();
        let number = line.split_once(':').unwrap().1.trim().trim_end_matches("pkts");
        number.trim().parse().unwrap()
    };
    assert!(counted("Total ARP sent") >= 1, "{}", output.stdout);
    assert!(counted("Total ARP received") >= 1, "{}", output.stdout);
    ip(&sandbox, "link del gen0");
    assert_eq!(sandbox.leftovers(), [""; 0]);
}
