//! Changes of rules while packets arrive as fast as the switch can receive them.

use super::captures::{self, udp};
use super::test_switch::{TestSwitch, sandbox};
use crate::support::Sandbox;

#[test]
fn packets_are_neither_lost_nor_misrouted_while_rules_change() {
    let Some(sandbox) = sandbox() else { return };
    change_under_load(sandbox, &[0]);
}

#[test]
fn two_threads_neither_lose_nor_misroute_packets_while_rules_change() {
    let Some(sandbox) = sandbox() else { return };
    change_under_load(sandbox, &[0, 1]);
}

/// Each packet thread has a source, which repeats a round of four packets, one packet of each flow,
/// and each flow has its own output. Meanwhile the test replaces the rules by other rules with the
/// same outputs. The sources play whole rounds, so all outputs must have sent the same number of
/// packets, and the sum of these numbers must be the number of packets that arrived.
fn change_under_load(sandbox: Sandbox, cpus: &[usize]) {
    captures::write(&sandbox, "in.pcap", &(0..FLOWS).map(udp).collect::<Vec<_>>());
    let list: Vec<_> = cpus.iter().map(usize::to_string).collect();
    let list = list.join(",");
    let mut words = vec!["--bridge", "br0", "--pmd-cpus", &list];
    for port in ["br0:p1=null", "br0:p2=null", "br0:p3=null", "br0:p4=null", "br0:p5=null"] {
        words.extend(["--port", port]);
    }
    let switch = TestSwitch::start(sandbox, &words);
    let base: String = (0..FLOWS).map(|flow| rule(0, 1, flow, &output(flow))).collect();
    let base = format!("{base}table=1,priority=0,actions=output:5\n");
    switch.sandbox.write("base", &base);
    switch.ofctl(&["add-flows", "br0", &switch.path("base")]);
    let source = format!("pcap:{},loop", switch.path("in.pcap"));
    for cpu in cpus {
        let name = format!("source{cpu}");
        switch.weir(&["port", "add", "br0", &name, &source]);
        let affinity = format!("0:{cpu}");
        switch.weir(&["port", "set", "br0", &name, "--rxq-affinity", &affinity]);
    }

    for round in 0..ROUNDS {
        one_by_one(&switch, round);
        atomically(&switch, round, &base);
    }

    for cpu in cpus {
        switch.weir(&["port", "del", "br0", &format!("source{cpu}")]);
    }
    let each = received_by_thread(&switch);
    assert_eq!(each.len(), cpus.len(), "{each:?}");
    assert!(each.iter().all(|received| *received > 10_000), "{each:?}");
    let received = switch.counted("packets received");
    assert_eq!(each.iter().sum::<u64>(), received);
    let sent = sent(&switch);
    let [outputs @ .., wrong] = &sent[..] else { panic!("{sent:?}") };
    eprintln!("{each:?} packets arrived; sent by port: {sent:?}");
    assert!(received > 100_000, "{received}");
    assert_eq!(*wrong, 0, "{sent:?}");
    assert_eq!(outputs.iter().sum::<u64>(), received, "{sent:?}");
    assert!(outputs.iter().all(|count| *count == outputs[0]), "{sent:?}");
    let upcalls = switch.counted("miss with success upcall");
    assert!(upcalls > u64::from(ROUNDS * FLOWS), "packets saw few changes: {upcalls}");
    switch.end();
}

/// Reads the packets that each packet thread has received.
fn received_by_thread(switch: &TestSwitch) -> Vec<u64> {
    let text = switch.appctl(&["dpif-netdev/pmd-stats-show"]);
    let threads = text.split("pmd thread ").skip(1);
    let received = |thread: &str| -> u64 {
        let (_, rest) = thread.split_once("packets received: ").unwrap();
        rest.lines().next().unwrap().parse().unwrap()
    };
    threads.map(received).collect()
}

/// Changes the rules by separate commands. Each intermediate state has the right outputs.
fn one_by_one(switch: &TestSwitch, round: u32) {
    for flow in 0..FLOWS {
        let rule = rule(0, 10, flow, &format!("mod_nw_tos:{},{}", 4 * (round % 32), output(flow)));
        switch.ofctl(&["add-flow", "br0", rule.trim()]);
    }
    let narrow: String = (0..FLOWS)
        .flat_map(|flow| (0..100).map(move |port| (flow, port)))
        .map(|(flow, port)| {
            let (output, destination) = (output(flow), destination(flow));
            format!("priority=20,udp,nw_dst={destination},tp_src={port},actions={output}\n")
        })
        .collect();
    switch.sandbox.write("narrow", narrow);
    switch.ofctl(&["add-flows", "br0", &switch.path("narrow")]);
    for flow in 0..FLOWS {
        let what = format!("ip,nw_dst={},actions=dec_ttl,{}", destination(flow), output(flow));
        switch.ofctl(&["mod-flows", "br0", &what]);
    }
    for flow in 0..FLOWS {
        let what = format!("priority=10,ip,nw_dst={}", destination(flow));
        switch.ofctl(&["--strict", "del-flows", "br0", &what]);
    }
    switch.ofctl(&["del-flows", "br0", "udp"]);
}

/// Changes two tables whose rules agree on a number in a register. A packet that matches old rules
/// of one table and new rules of the other would leave by the last port.
fn atomically(switch: &TestSwitch, round: u32, base: &str) {
    for version in [2 * round + 1, 2 * round + 2] {
        let mut rules = base.to_owned();
        for flow in 0..FLOWS {
            let first = format!("load:{version}->NXM_NX_REG0[],resubmit(,1)");
            rules.push_str(&rule(0, 30, flow, &first));
            let (destination, output) = (destination(flow), output(flow));
            rules.push_str(&format!(
                "table=1,priority=5,reg0={version},ip,nw_dst={destination},actions={output}\n"
            ));
        }
        switch.sandbox.write("rules", rules);
        replace(switch, "rules");
    }
    replace(switch, "base");
}

fn replace(switch: &TestSwitch, file: &str) {
    let file = switch.path(file);
    switch.ofctl(&["-O", "OpenFlow14", "--bundle", "replace-flows", "br0", &file]);
}

fn rule(table: u8, priority: u16, flow: u32, actions: &str) -> String {
    let destination = destination(flow);
    format!("table={table},priority={priority},ip,nw_dst={destination},actions={actions}\n")
}

fn destination(flow: u32) -> String {
    format!("48.0.0.{}", flow + 1)
}

fn output(flow: u32) -> String {
    format!("output:{}", flow + 1)
}

fn sent(switch: &TestSwitch) -> Vec<u64> {
    let number = |port: u32| {
        let text = switch.ofctl(&["dump-ports", "br0", &format!("p{port}")]);
        let (_, rest) = text.split_once("tx pkts=").unwrap();
        rest.split(',').next().unwrap().parse::<u64>().unwrap()
    };
    (1..=FLOWS + 1).map(number).collect()
}

const FLOWS: u32 = 4;
const ROUNDS: u32 = 10;
