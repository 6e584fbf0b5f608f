//! Loads: several queues, full tables, and ports that disappear while packets arrive at full speed.

use super::captures::{self, udp};
use super::interfaces::Host;
use super::test_switch::{TestSwitch, sandbox};
use crate::support::{Sandbox, await_some};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// Adds a port that plays a capture repeatedly, after the test has added its rules.
fn play(switch: &TestSwitch, port: &str, frames: &[Vec<u8>], options: &str) {
    let file = format!("{port}.pcap");
    captures::write(&switch.sandbox, &file, frames);
    let source = format!("pcap:{}{options}", switch.path(&file));
    switch.weir(&["port", "add", "br0", port, &source]);
}

fn start(sandbox: Sandbox, ports: &[&str], cpus: &str) -> TestSwitch {
    let ports: Vec<_> = ports.iter().map(|port| format!("br0:{port}")).collect();
    let mut words = vec!["--bridge", "br0", "--pmd-cpus", cpus];
    ports.iter().for_each(|port| words.extend(["--port", port]));
    TestSwitch::start(sandbox, &words)
}

/// Reads the number after `name`, `rx pkts` or `tx pkts`, in the output of `dump-ports`.
fn counted(switch: &TestSwitch, port: &str, name: &str) -> u64 {
    let text = switch.ofctl(&["dump-ports", "br0", port]);
    let (_, rest) = text.split_once(&format!("{name}=")).unwrap();
    rest.split(',').next().unwrap().trim().parse().unwrap()
}

fn event(switch: &TestSwitch, name: &str) -> u64 {
    switch.appctl(&["coverage/read-counter", name]).trim().parse().unwrap()
}

#[test]
fn four_queues_on_two_threads_keep_the_order_of_each_flow() {
    let Some(sandbox) = sandbox() else { return };
    let switch = start(sandbox, &["p1=pcap,write=out.pcap"], "0,1");
    switch.ofctl(&["add-flow", "br0", "in_port=2 actions=output:1"]);
    let frames: Vec<_> = (0..TURNS * FLOWS)
        .map(|number| {
            let mut frame = udp(number % FLOWS);
            frame[59] = (number / FLOWS) as u8;
            frame
        })
        .collect();
    play(&switch, "p2", &frames, ",queues=4");
    await_some("all frames", || {
        (counted(&switch, "p1", "tx pkts") == u64::from(TURNS * FLOWS)).then_some(())
    });
    let text = switch.appctl(&["dpif-netdev/pmd-rxq-show"]);
    assert_eq!(text.matches("port: p2").count(), 4, "{text}");
    assert_eq!(text.matches("queue-id:  3").count(), 1, "{text}");
    let sent = await_some("the capture", || {
        let sent = captures::read(&switch.sandbox, "out.pcap");
        (sent.len() == frames.len()).then_some(sent)
    });
    for flow in 0..FLOWS {
        let of_flow = |frame: &&Vec<u8>| frame[..59] == udp(flow)[..59];
        let turns = sent.iter().filter(of_flow).map(|frame| u32::from(frame[59]));
        assert!(turns.eq(0..TURNS), "flow {flow}");
    }
    switch.end();
}

/// Each change of the affinity moves the queue to the other thread while frames arrive.
#[test]
fn a_flow_keeps_its_order_while_its_queue_moves_between_threads() {
    let Some(sandbox) = sandbox() else { return };
    let switch = start(sandbox, &["p1=pcap,write=out.pcap"], "0,1");
    switch.ofctl(&["add-flow", "br0", "in_port=2 actions=output:1"]);
    let frames: Vec<_> = (0..MOVED)
        .map(|number| {
            let mut frame = udp(number % FLOWS);
            frame[56..].copy_from_slice(&number.to_be_bytes());
            frame
        })
        .collect();
    play(&switch, "p2", &frames, "");
    let mut affinities = ["0:0", "0:1"].into_iter().cycle();
    await_some("all frames", || {
        let affinity = affinities.next().unwrap();
        switch.weir(&["port", "set", "br0", "p2", "--rxq-affinity", affinity]);
        (counted(&switch, "p1", "tx pkts") == u64::from(MOVED)).then_some(())
    });
    let sent = await_some("the capture", || {
        let sent = captures::read(&switch.sandbox, "out.pcap");
        (sent.len() == frames.len()).then_some(sent)
    });
    let numbers = sent.iter().map(|frame| u32::from_be_bytes(frame[56..].try_into().unwrap()));
    let late = numbers.zip(0..MOVED).find(|(number, place)| number != place);
    assert_eq!(late, None);
    switch.end();
}

/// The queues of four ports are assigned in turn, so the ports that repeat their capture begin on
/// one thread, and the other thread has nothing to do.
#[test]
fn a_rebalance_gives_each_of_two_busy_queues_a_thread() {
    let Some(sandbox) = sandbox() else { return };
    captures::write(&sandbox, "in.pcap", &[udp(0)]);
    let ports =
        ["p1=pcap:in.pcap,loop", "p2=pcap:in.pcap", "p3=pcap:in.pcap,loop", "p4=pcap:in.pcap"];
    let switch = start(sandbox, &ports, "0,1");
    switch.ofctl(&["add-flow", "br0", "actions=drop"]);
    let busy = ["p1", "p3"];
    await_some("packets of both sources", || {
        busy.iter().all(|port| counted(&switch, port, "rx pkts") > 10_000).then_some(())
    });
    assert_eq!(busy.map(|port| cpu_of(&switch, port)), [0, 0]);
    // If another program takes the CPU while a thread forwards the only packet of an idle port, the
    // packet counts as a large load. The busy ports soon count more.
    await_some("a thread for each busy port", || {
        let said = switch.appctl(&["dpif-netdev/pmd-rxq-rebalance"]);
        assert_eq!(said, "pmd rxq rebalance requested.\n");
        let cpus = busy.map(|port| cpu_of(&switch, port));
        (cpus[0] != cpus[1]).then_some(())
    });
    switch.end();
}

/// Reads the CPU of the thread that polls the only queue of a port.
fn cpu_of(switch: &TestSwitch, port: &str) -> usize {
    let text = switch.appctl(&["dpif-netdev/pmd-rxq-show"]);
    let (before, _) = text.split_once(&format!("port: {port} ")).unwrap();
    let (_, core) = before.rsplit_once("core_id ").unwrap();
    core.split(':').next().unwrap().parse().unwrap()
}

#[test]
fn more_flows_than_megaflows_are_all_forwarded() {
    let Some(sandbox) = sandbox() else { return };
    let switch = start(sandbox, &["p1=null", "p2=null"], "0");
    let rules: String = (0..FLOWS)
        .map(|flow| format!("ip,nw_dst=48.0.0.{} actions=output:{}\n", flow + 1, flow % 2 + 1))
        .collect();
    switch.sandbox.write("rules", rules);
    switch.ofctl(&["add-flows", "br0", &switch.path("rules")]);
    let said = switch.appctl(&["upcall/set-flow-limit", "10"]);
    assert_eq!(said, "set flow_limit to 10\n");
    play(&switch, "p3", &(0..FLOWS).map(udp).collect::<Vec<_>>(), ",loop");
    await_some("packets", || (counted(&switch, "p1", "tx pkts") > 50_000).then_some(()));
    let megaflows = || switch.appctl(&["dpctl/dump-flows"]).matches("recirc_id(0)").count();
    assert!((1..=10).contains(&megaflows()), "{}", megaflows());
    switch.appctl(&["upcall/set-flow-limit", "1000"]);
    await_some("all megaflows", || (megaflows() == FLOWS as usize).then_some(()));
    let upcalls = switch.counted("miss with success upcall");
    assert!(upcalls > 10_000, "{upcalls}");
    let before = counted(&switch, "p1", "tx pkts");
    await_some("more packets", || {
        (counted(&switch, "p1", "tx pkts") > before + 9999).then_some(())
    });
    assert_eq!(switch.counted("miss with success upcall"), upcalls);
    switch.weir(&["port", "del", "br0", "p3"]);
    let sent = ["p1", "p2"].map(|port| counted(&switch, port, "tx pkts"));
    assert_eq!(sent[0] + sent[1], switch.counted("packets received"));
    assert!(sent[0].abs_diff(sent[1]) <= u64::from(FLOWS), "{sent:?}");
    switch.end();
}

#[test]
fn a_full_connection_table_does_not_affect_other_traffic() {
    let Some(sandbox) = sandbox() else { return };
    let switch = start(sandbox, &["p1=null", "p2=null"], "0");
    for rule in [
        "in_port=3,ip actions=ct(commit,table=1,nat(src=10.0.0.1))",
        "table=1,ip,nw_src=10.0.0.1 actions=output:1",
        "in_port=4,ip actions=output:2",
    ] {
        switch.ofctl(&["add-flow", "br0", rule]);
    }
    let maximum = u64::from(FLOWS) / 4;
    switch.appctl(&["dpctl/ct-set-maxconns", &maximum.to_string()]);
    let frames: Vec<_> = (0..FLOWS).map(udp).collect();
    play(&switch, "p3", &frames, ",loop");
    await_some("refused connections", || (event(&switch, "conntrack_full") > 10_000).then_some(()));
    play(&switch, "p4", &frames, ",loop");
    await_some("other traffic", || (counted(&switch, "p2", "tx pkts") > 50_000).then_some(()));
    switch.weir(&["port", "del", "br0", "p4"]);
    switch.weir(&["port", "del", "br0", "p3"]);
    assert_eq!(switch.appctl(&["dpctl/ct-get-nconns"]).trim(), maximum.to_string());
    // Existing connections continue, and packets of further connections are dropped: none leaves
    // untranslated.
    let full = event(&switch, "conntrack_full");
    let (tracked, other) = (counted(&switch, "p1", "tx pkts"), counted(&switch, "p2", "tx pkts"));
    assert_eq!(tracked + other + full, switch.counted("packets received"));
    assert!(tracked.abs_diff(full / 3) <= u64::from(FLOWS), "{tracked} {full}");
    switch.end();
}

/// The second port's connections start when a flood has already filled the table.
#[test]
fn a_flood_from_one_port_leaves_connections_for_another_port() {
    let Some(sandbox) = sandbox() else { return };
    let switch = start(sandbox, &["p1=null", "p2=null"], "0");
    for rule in [
        "in_port=3,ip actions=ct(commit,zone=5,table=1)",
        "in_port=4,ip actions=ct(commit,zone=5,table=2)",
        "table=1,ip actions=output:1",
        "table=2,ip actions=output:2",
    ] {
        switch.ofctl(&["add-flow", "br0", rule]);
    }
    switch.appctl(&["dpctl/ct-set-maxconns", "700"]);
    play(&switch, "p3", &(0..3000).map(udp).collect::<Vec<_>>(), ",loop");
    await_some("refused connections", || (event(&switch, "conntrack_full") > 10_000).then_some(()));
    // A connection is counted before it is refused, so the count may exceed the limit by one.
    let connections = switch.appctl(&["dpctl/ct-get-nconns"]);
    assert!(["700", "701"].contains(&connections.trim()), "{connections}");
    play(&switch, "p4", &(900_000..900_060).map(udp).collect::<Vec<_>>(), ",loop");
    let of_victim = || {
        let text = switch.appctl(&["dpctl/dump-conntrack", "zone=5"]);
        text.lines().filter(|line| line.contains("src=16.13.")).count()
    };
    await_some("the other port's connections", || (of_victim() == 60).then_some(()));
    // Both sources continue to send.
    let before = counted(&switch, "p1", "tx pkts");
    await_some("more packets", || {
        (counted(&switch, "p1", "tx pkts") > before + 50_000).then_some(())
    });
    assert_eq!(of_victim(), 60);
    switch.end();
}

/// A flood of connections, with the megaflows of 257 rules.
#[test]
fn memory_is_returned_after_a_flood_and_does_not_grow_with_the_next_flood() {
    let Some(sandbox) = sandbox() else { return };
    let switch = start(sandbox, &["p1=null"], "0");
    let frames: Vec<_> = (0..CONNECTIONS).map(udp).collect();
    captures::write(&switch.sandbox, "flood.pcap", &frames);
    let rules = (0..256).map(|net| format!("table=1,ip,nw_dst=48.0.{net}.0/24 actions=output:1\n"));
    let others = "ip actions=ct(commit,table=1)\ntable=1,ip actions=output:1\n";
    switch.sandbox.write("rules", rules.collect::<String>() + others);
    switch.weir(&["add-flows", "br0", "rules"]);
    let start = resident(&switch);
    let mut most = Vec::new();
    for round in 0..3 {
        let source = format!("pcap:{}", switch.path("flood.pcap"));
        switch.weir(&["port", "add", "br0", "flood", &source]);
        await_some("the connections", || {
            let connections = switch.appctl(&["dpctl/ct-get-nconns"]);
            (connections.trim() == CONNECTIONS.to_string()).then_some(())
        });
        most.push(resident(&switch));
        switch.weir(&["port", "del", "br0", "flood"]);
        switch.appctl(&["time/warp", "300000"]);
        let deadline = Instant::now() + Duration::from_secs(60);
        while resident(&switch) > start + (24 << 20) {
            let now = resident(&switch);
            assert!(Instant::now() < deadline, "round {round}: {start} {most:?} {now}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
    assert!(most[0] > start + (48 << 20), "{start} {most:?}");
    assert!(most[2] < most[0] + (16 << 20), "{start} {most:?}");
    switch.end();
}

#[test]
fn memory_of_deleted_rules_is_returned_and_does_not_grow_with_the_next_rules() {
    let Some(sandbox) = sandbox() else { return };
    let switch = start(sandbox, &["p1=null"], "0");
    let rule = |number: u32| {
        let (net, host) = (number >> 8 & 0xff, number & 0xff);
        format!("tcp,nw_src=10.{}.{net}.{host},tp_dst=80 actions=output:1\n", number >> 16)
    };
    switch.sandbox.write("rules", (0..RULES).map(rule).collect::<String>());
    let start = resident(&switch);
    let mut most = Vec::new();
    for round in 0..3 {
        switch.weir(&["add-flows", "br0", "rules"]);
        most.push(resident(&switch));
        switch.weir(&["del-flows", "br0"]);
        let deadline = Instant::now() + Duration::from_secs(60);
        while resident(&switch) > start + (16 << 20) {
            let now = resident(&switch);
            assert!(Instant::now() < deadline, "round {round}: {start} {most:?} {now}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
    assert!(most[0] > start + (32 << 20), "{start} {most:?}");
    assert!(most[2] < most[0] + (24 << 20), "{start} {most:?}");
    switch.end();
}

/// Reads the resident memory of the switch's process, in bytes.
fn resident(switch: &TestSwitch) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", switch.running.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn a_port_that_disappears_under_load_loses_no_other_packets() {
    let Some(sandbox) = sandbox() else { return };
    let host = Host::cabled(&sandbox, "p1", Ipv4Addr::new(10, 9, 0, 1));
    let switch = start(sandbox, &["p1=packet", "p2=null"], "0");
    switch.ofctl(&["add-flow", "br0", "in_port=3 actions=output:1,output:2"]);
    play(&switch, "p3", &(0..FLOWS).map(udp).collect::<Vec<_>>(), ",loop");
    let grows = |port: &str| {
        let before = counted(&switch, port, "tx pkts");
        await_some(port, || (counted(&switch, port, "tx pkts") > before + 1000).then_some(()));
    };
    let is_down = || {
        let text = switch.ofctl(&["show", "br0"]);
        let (_, rest) = text.split_once("1(p1)").unwrap();
        rest.split_once("2(p2)").unwrap().0.contains("LINK_DOWN")
    };
    let outer = switch.sandbox.inside(|| host::Namespace::current().unwrap());
    let mut hosts = vec![host];
    for _ in 0..2 {
        grows("p1");
        host::remove_interface(&outer, "p1").unwrap();
        hosts.clear();
        await_some("its end", || is_down().then_some(()));
        grows("p2");
        hosts.push(Host::cabled(&switch.sandbox, "p1", Ipv4Addr::new(10, 9, 0, 1)));
        await_some("its return", || (!is_down()).then_some(()));
        grows("p2");
    }
    grows("p1");
    switch.weir(&["port", "del", "br0", "p3"]);
    // The hosts' kernels also send packets, such as router solicitations, even between two
    // readings.
    await_some("equal counts", || {
        let received = switch.counted("packets received") - counted(&switch, "p1", "rx pkts");
        (counted(&switch, "p2", "tx pkts") == received).then_some(())
    });
    drop(hosts);
    switch.end();
}

const FLOWS: u32 = 64;
const RULES: u32 = 100_000;
const CONNECTIONS: u32 = 250_000;
const TURNS: u32 = 100;
const MOVED: u32 = 200_000;
