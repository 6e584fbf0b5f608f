//! Rules and the control socket, with ovs-ofctl and ovs-appctl.

use super::captures::{self, udp};
use super::test_switch::{TestSwitch, sandbox, socket};
use crate::support::await_some;
use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

fn start() -> Option<TestSwitch> {
    let sandbox = sandbox()?;
    let ports = ["br0:p1=dummy", "br0:p2=dummy", "br0:p3=dummy"];
    let mut words = vec!["--bridge", "br0"];
    ports.iter().for_each(|port| words.extend(["--port", port]));
    Some(TestSwitch::start(sandbox, &words))
}

const PACKET: &str = "in_port(1),eth(src=50:54:00:00:00:09,dst=50:54:00:00:00:0a),eth_type(0x0800),\
    ipv4(src=10.0.0.2,dst=10.0.0.1,proto=1,tos=0,ttl=64,frag=no),icmp(type=8,code=0)";

/// Starts a switch whose port `p1` repeats two packets, which leave by `p2`.
fn start_with_packets() -> Option<TestSwitch> {
    let sandbox = sandbox()?;
    captures::write(&sandbox, "in.pcap", &[udp(0), udp(1)]);
    let port = "br0:p1=pcap:in.pcap,loop";
    let words = ["--bridge", "br0", "--port", port, "--port", "br0:p2=null", "--pmd-cpus", "1"];
    let switch = TestSwitch::start(sandbox, &words);
    switch.ofctl(&["add-flow", "br0", "in_port=1 actions=output:2"]);
    Some(switch)
}

#[test]
fn rules_are_replaced_and_compared_as_files() {
    let Some(switch) = start() else { return };
    let rules = "ip,nw_dst=10.0.0.1 actions=output:2\nip,nw_dst=10.0.0.2 actions=output:3\n";
    switch.sandbox.write("a.txt", rules);
    switch.sandbox.write("b.txt", "ip,nw_dst=10.0.0.1 actions=output:2\narp actions=NORMAL\n");
    switch.ofctl(&["--bundle", "add-flows", "br0", &switch.path("a.txt")]);
    let different = switch.try_ofctl(&["diff-flows", "br0", &switch.path("b.txt")]);
    assert_eq!(different.status.code(), Some(2), "{different:?}");
    assert!(different.stdout.contains("-ip,nw_dst=10.0.0.2 actions=output:3"), "{different:?}");
    assert!(different.stdout.contains("+arp actions=NORMAL"), "{different:?}");
    switch.ofctl(&["replace-flows", "br0", &switch.path("b.txt")]);
    switch.ofctl(&["diff-flows", "br0", &switch.path("b.txt")]);
    switch.ofctl(&["-O", "OpenFlow14", "--bundle", "replace-flows", "br0", &switch.path("a.txt")]);
    switch.ofctl(&["diff-flows", "br0", &switch.path("a.txt")]);
    switch.end();
}

#[test]
fn a_dump_of_megaflows_lists_the_megaflows_that_match_the_filter() {
    let Some(switch) = start() else { return };
    switch.ofctl(&["add-flow", "br0", "icmp actions=output:3"]);
    // The clock is stopped, because unused megaflows are removed after ten seconds.
    switch.appctl(&["time/stop"]);
    for port in ["p1", "p2"] {
        switch.appctl(&["netdev-dummy/receive", port, PACKET]);
    }
    let shown = |filter: &str| {
        let text = switch.appctl(&["dpctl/dump-flows", "--names", &format!("filter={filter}")]);
        text.lines().filter(|line| line.contains("actions:")).count()
    };
    assert_eq!((shown("in_port=p1"), shown("in_port=p2"), shown("in_port=p3")), (1, 1, 0));
    assert_eq!((shown("ip"), shown("arp"), shown("in_port=p1,ip")), (2, 0, 1));
    let refused = switch.try_appctl(&["dpctl/dump-flows", "filter=foo=1"]);
    assert!(refused.stderr.contains("Failed to parse filter"), "{refused:?}");
    switch.end();
}

#[test]
fn dpctl_ipf_commands_set_the_limits_of_fragments_and_show_the_counters() {
    let Some(switch) = start() else { return };
    let set = |words: &[&str]| switch.appctl(words);
    assert!(set(&["dpctl/ipf-set-min-frag", "v4", "1000"]).contains("successful"));
    assert!(set(&["dpctl/ipf-set-max-nfrags", "500"]).contains("successful"));
    assert!(set(&["dpctl/ipf-set-disabled", "v6"]).contains("disabling"));
    let text = switch.appctl(&["dpctl/ipf-get-status", "-m"]);
    for line in [
        "v4 enabled: 1",
        "v6 enabled: 0",
        "max num frags (v4/v6): 500",
        "min v4 frag size: 1000",
        "v6 frags purged: 0",
        "Fragment Lists:",
    ] {
        assert!(text.contains(line), "no {line:?} in {text}");
    }
    for (words, error) in [
        (vec!["dpctl/ipf-set-min-frag", "v4", "399"], "minimum fragment size too small"),
        (vec!["dpctl/ipf-set-min-frag", "v5", "1000"], "parameter missing"),
        (vec!["dpctl/ipf-set-max-nfrags", "5001"], "setting maximum fragments failed"),
        (vec!["dpctl/ct-set-maxconns", "many"], "maxconns missing or malformed (Invalid argument)"),
        (vec!["dpctl/ct-set-maxconns", "dp", "10"], "datapath not found (Invalid argument)"),
        (vec!["dpctl/ct-get-nconns", "dp"], "datapath not found (Invalid argument)"),
    ] {
        let refused = switch.try_appctl(&words);
        assert!(refused.stderr.contains(error), "{words:?}: {refused:?}");
    }
    let whole = "ct_nw_src=10.0.0.1,ct_nw_dst=10.0.0.2,ct_nw_proto=17,ct_tp_src=1,ct_tp_dst=2";
    let refused = switch.try_appctl(&["dpctl/flush-conntrack", whole]);
    assert!(refused.stderr.contains("failed to flush conntrack"), "{refused:?}");
    switch.end();
}

#[test]
fn a_bundle_with_a_bad_rule_changes_nothing() {
    let Some(switch) = start() else { return };
    switch.ofctl(&["add-flow", "br0", "arp actions=drop"]);
    switch.sandbox.write("a.txt", "ip actions=output:2\nudp actions=group:7\n");
    let refused = switch.try_ofctl(&["--bundle", "add-flows", "br0", &switch.path("a.txt")]);
    assert!(!refused.status.success(), "{refused:?}");
    let text = switch.ofctl(&["--no-stats", "dump-flows", "br0"]);
    assert_eq!(text.trim(), "arp actions=drop");
    switch.end();
}

#[test]
fn injected_packets_are_forwarded_and_traced() {
    let Some(switch) = start() else { return };
    switch.ofctl(&["add-flow", "br0", "in_port=1,icmp actions=output:2,output:3"]);
    // The clock is stopped, because unused megaflows are removed after ten seconds.
    switch.appctl(&["time/stop"]);
    for _ in 0..3 {
        switch.appctl(&["netdev-dummy/receive", "p1", PACKET]);
    }
    assert_eq!(switch.packets("br0", "icmp"), 3);
    let text = switch.ofctl(&["dump-ports", "br0", "p2"]);
    assert!(text.contains("tx pkts=3"), "{text}");
    let text = switch.appctl(&["dpctl/dump-flows"]);
    assert!(text.contains("flow-dump from the main thread:"), "{text}");
    assert!(text.contains("packets:2") && text.contains("actions:2,3"), "{text}");
    let text = switch.appctl(&["ofproto/trace", "br0", "in_port=p1,icmp"]);
    assert!(text.contains("Datapath actions: 2,3"), "{text}");
    let text = switch.appctl(&["ofproto/trace", PACKET]);
    assert!(text.contains("Datapath actions: 2,3"), "{text}");
    let text = switch.appctl(&["ofproto/trace", "system@ovs-system", PACKET]);
    assert!(text.contains("Datapath actions: 2,3"), "{text}");
    let text = switch.appctl(&["dpif/show"]);
    assert!(text.contains("  br0:\n    br0 65534/100: (internal)\n    p1 1/1: (dummy)"), "{text}");
    let text = switch.appctl(&["dpctl/show"]);
    assert!(text.contains("  port 1: p1 (dummy)"), "{text}");
    assert!(!text.contains("packets:"), "{text}");
    let text = switch.appctl(&["dpctl/show", "-s"]);
    assert!(text.contains("  port 2: p2 (dummy)\n    RX packets:0 errors:"), "{text}");
    assert!(text.contains("\n    TX packets:3 errors:"), "{text}");
    assert_eq!(switch.appctl(&["dpctl/dump-flows", "type=offloaded"]), "");
    assert!(switch.appctl(&["dpctl/dump-flows", "type=ovs"]).contains("actions:2,3"));
    switch.end();
}

#[test]
fn traces_and_megaflows_show_the_queue_of_a_packet() {
    let Some(switch) = start() else { return };
    switch.ofctl(&["add-flow", "br0", "in_port=1 actions=enqueue:2:7,output:3"]);
    let text = switch.appctl(&["ofproto/trace", "br0", "in_port=1,dl_type=0x900"]);
    let expected = "Megaflow: recirc_id=0,skb_priority=0,eth,in_port=1,dl_type=0x0900\n\
                    Datapath actions: set(skb_priority(0x7)),2,set(skb_priority(0)),3\n";
    assert!(text.ends_with(expected), "{text}");
    let text = switch.appctl(&["ofproto/trace", "br0", "in_port=1,skb_priority=7,pkt_mark=2"]);
    assert!(text.starts_with("Flow: pkt_mark=0x2,skb_priority=0x7,in_port=1,"), "{text}");
    // The packet already has the queue that the first output sets.
    assert!(!text.contains("Megaflow: recirc_id=0,skb_priority"), "{text}");
    assert!(text.ends_with("\nDatapath actions: 2,3\n"), "{text}");
    let frame: String = udp(0).iter().map(|byte| format!("{byte:02x}")).collect();
    let text = switch.appctl(&["ofproto/trace", "in_port(1),skb_priority(7)", &frame]);
    assert!(text.starts_with("Flow: skb_priority=0x7,udp,in_port=1,"), "{text}");
    for _ in 0..2 {
        switch.appctl(&["netdev-dummy/receive", "p1", PACKET]);
    }
    let text = switch.appctl(&["dpctl/dump-flows"]);
    assert!(text.contains("\nskb_priority(0),recirc_id(0),in_port(1),"), "{text}");
    assert!(text.contains("actions:set(skb_priority(0x7)),2,set(skb_priority(0)),3"), "{text}");
    for port in ["p2", "p3"] {
        let text = switch.ofctl(&["dump-ports", "br0", port]);
        assert!(text.contains("tx pkts=2"), "{text}");
    }
    switch.end();
}

#[test]
fn a_dummy_port_writes_the_frames_of_both_directions() {
    let Some(sandbox) = sandbox() else { return };
    let port = "br0:p1=dummy,write=both.pcap";
    let words = ["--bridge", "br0", "--port", port, "--port", "br0:p2=dummy"];
    let switch = TestSwitch::start(sandbox, &words);
    switch.ofctl(&["add-flow", "br0", "in_port=2 actions=output(port=1,max_len=20)"]);
    let frames = [udp(0), udp(1)];
    for (port, frame) in ["p1", "p2"].iter().zip(&frames) {
        let frame: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
        switch.appctl(&["netdev-dummy/receive", port, &frame]);
    }
    let written = captures::read(&switch.sandbox, "both.pcap");
    assert_eq!(written, [frames[0].clone(), frames[1][..20].to_vec()]);
    let text = switch.ofctl(&["dump-ports", "br0", "p1"]);
    assert!(text.contains("rx pkts=1, bytes=60") && text.contains("tx pkts=1, bytes=20"), "{text}");
    switch.end();
}

#[test]
fn a_trace_reports_resubmissions_with_too_much_output() {
    let Some(switch) = start() else { return };
    let mut rules: String = (0..10)
        .map(|table| {
            let next = table + 1;
            format!("table={table} actions=resubmit(,{next}),resubmit(,{next})\n")
        })
        .collect();
    rules.push_str(&format!("table=10 actions=output:2{}\n", ",output:2".repeat(8)));
    switch.sandbox.write("rules", rules);
    switch.ofctl(&["add-flows", "br0", &switch.path("rules")]);
    let text = switch.appctl(&["ofproto/trace", "br0", "in_port=1"]);
    assert_eq!(text.matches(">>>> resubmits yielded over 64 kB of actions <<<<").count(), 1);
    assert!(text.ends_with("  - Uses action(s) not supported by datapath.\n"));
    switch.end();
}

#[test]
fn normal_learns_mac_addresses_and_forgets_them_after_their_timeout() {
    let Some(switch) = start() else { return };
    switch.ofctl(&["add-flow", "br0", "priority=0 actions=NORMAL"]);
    switch.appctl(&["time/stop"]);
    switch.appctl(&["netdev-dummy/receive", "p1", PACKET]);
    let text = switch.appctl(&["fdb/show", "br0"]);
    assert!(text.contains("    1     0  50:54:00:00:00:09    0"), "{text}");
    let text = switch.appctl(&["fdb/stats-show", "br0"]);
    assert!(text.contains("table: 1/8192"), "{text}");
    switch.appctl(&["time/warp", "301000", "10000"]);
    let text = switch.appctl(&["fdb/show", "br0"]);
    assert!(!text.contains("50:54"), "{text}");
    switch.end();
}

#[test]
fn static_mac_entries_do_not_move_and_events_are_counted() {
    let Some(switch) = start() else { return };
    switch.ofctl(&["add-flow", "br0", "priority=0 actions=NORMAL"]);
    switch.appctl(&["netdev-dummy/receive", "p1", PACKET]);
    assert_eq!(switch.appctl(&["coverage/read-counter", "mac_learning_learned"]), "1\n");
    let said = switch.appctl(&["fdb/add", "br0", "p3", "0", "50:54:00:00:00:09"]);
    assert_eq!(said, "Overriding already existing dynamic entry on 1\n");
    switch.appctl(&["fdb/add", "br0", "p2", "0", "50:54:00:00:00:0a"]);
    // The destination is known now, and the source is at another port than the added entry.
    switch.appctl(&["netdev-dummy/receive", "p1", PACKET]);
    let text = switch.ofctl(&["dump-ports", "br0", "p2"]);
    assert!(text.contains("tx pkts=2"), "{text}");
    let text = switch.ofctl(&["dump-ports", "br0", "p3"]);
    assert!(text.contains("tx pkts=1"), "{text}");
    switch.appctl(&["fdb/flush"]);
    let text = switch.appctl(&["fdb/show", "br0"]);
    assert!(text.contains("    3     0  50:54:00:00:00:09  static\n"), "{text}");
    let text = switch.appctl(&["fdb/stats-show", "br0"]);
    assert!(text.contains("Current static MAC entries in the table : 2"), "{text}");
    switch.appctl(&["fdb/del", "br0", "0", "50:54:00:00:00:09"]);
    for (words, said) in [
        (&["fdb/del", "br0", "0", "50:54:00:00:00:09"][..], "could not find static mac entry"),
        (&["fdb/add", "br0", "p9", "0", "50:54:00:00:00:09"][..], "p9"),
        (&["fdb/add", "br0", "p1", "0", "50:54:00"][..], "bad MAC address"),
        (&["coverage/read-counter", "foo"][..], "No such counter"),
        (&["upcall/set-flow-limit", "x"][..], "a limit is a number"),
    ] {
        let refused = switch.try_appctl(words);
        assert_eq!(refused.status.code(), Some(2), "{words:?}: {refused:?}");
        assert!(refused.stderr.contains(said), "{words:?}: {refused:?}");
    }
    switch.appctl(&["dpif-netdev/pmd-stats-clear"]);
    let text = switch.appctl(&["coverage/show"]);
    assert!(text.starts_with("Event coverage, avg rate over last: 5 seconds, "), "{text}");
    let upcalls = text.lines().find(|line| line.starts_with("xlate_actions ")).unwrap();
    assert!(upcalls.ends_with("   total: 2") && text.contains(" events never hit\n"), "{text}");
    assert!(text.contains("mac_learning_static_none_move"), "{text}");
    switch.end();
}

#[test]
fn rules_expire_and_monitors_get_flow_removed() {
    let Some(switch) = start() else { return };
    switch.appctl(&["time/stop"]);
    let mut command = std::process::Command::new("ovs-ofctl");
    command
        .args(["-O", "OpenFlow14", "monitor", "br0", "65534", "watch:"])
        .env("OVS_RUNDIR", switch.sandbox.path("run"));
    let monitor = switch.sandbox.start_command(command);
    let said = |part: &str| {
        await_some(part, || {
            let (out, err) = monitor.output_so_far();
            (out.contains(part) || err.contains(part)).then_some(())
        });
    };
    // A monitor gets flow-removed messages once it has asked for packet-ins.
    await_some("the monitor", || {
        let rule = "hard_timeout=10,send_flow_rem,icmp actions=controller";
        switch.ofctl(&["del-flows", "br0"]);
        switch.ofctl(&["add-flow", "br0", rule]);
        let (out, err) = monitor.output_so_far();
        (out.contains("event=ADDED") || err.contains("event=ADDED")).then_some(())
    });
    switch.appctl(&["netdev-dummy/receive", "p1", PACKET]);
    said("(via action)");
    switch.appctl(&["time/warp", "11000"]);
    said("OFPT_FLOW_REMOVED");
    said("event=DELETED reason=hard");
    assert_eq!(switch.ofctl(&["--no-stats", "dump-flows", "br0"]).trim(), "");
    switch.ofctl(&["mod-port", "br0", "p2", "down"]);
    said("OFPT_PORT_STATUS");
    monitor.signal("TERM");
    monitor.end();
    switch.end();
}

#[test]
fn a_packet_out_executes_its_actions() {
    let Some(switch) = start() else { return };
    let frame: String = udp(0).iter().map(|byte| format!("{byte:02x}")).collect();
    let packet = format!("in_port=1 packet={frame} actions=set_field:1.2.3.4->ip_dst,output:3");
    switch.ofctl(&["packet-out", "br0", &packet]);
    let text = switch.ofctl(&["dump-ports", "br0", "p3"]);
    assert!(text.contains("tx pkts=1"), "{text}");
    switch.ofctl(&["add-flow", "br0", "udp actions=output:2"]);
    let table = format!("in_port=1 packet={frame} actions=table");
    switch.ofctl(&["packet-out", "br0", &table]);
    assert_eq!(switch.packets("br0", "udp"), 1);
    switch.end();
}

#[test]
fn the_control_socket_answers_like_open_vswitch() {
    let Some(switch) = start() else { return };
    let text = switch.appctl(&["list-commands"]);
    for command in [
        "dpctl/dump-flows",
        "dpif-netdev/pmd-perf-show",
        "dpif-netdev/pmd-rxq-show",
        "fdb/show",
        "netdev-dummy/receive",
        "ofproto/trace",
        "time/warp",
        "vlog/set",
    ] {
        assert!(text.contains(&format!("  {command}")), "{command}: {text}");
    }
    let refused = switch.try_appctl(&["no/such"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(refused.stderr.contains("\"no/such\" is not a valid command"), "{refused:?}");
    let refused = switch.try_appctl(&["fdb/show"]);
    assert!(refused.stderr.contains("command requires at least 1 arguments"), "{refused:?}");
    let refused = switch.try_appctl(&["fdb/show", "br9"]);
    assert!(refused.stderr.contains("no such bridge"), "{refused:?}");
    switch.appctl(&["vlog/set", "switch:console:dbg"]);
    assert!(switch.appctl(&["vlog/list"]).contains("DBG"));
    assert!(switch.appctl(&["version"]).starts_with("weir-switch "));
    switch.appctl(&["dpif-netdev/pmd-stats-clear"]);
    assert_eq!(switch.counted("packets received"), 0);
    let ended = {
        let TestSwitch { sandbox, running } = switch;
        let target = sandbox.path("run/weir-switch.ctl").display().to_string();
        let mut command = std::process::Command::new("ovs-appctl");
        command.args(["-t", &target, "exit"]);
        assert!(sandbox.start_command(command).end().status.success());
        running.end()
    };
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
}

#[test]
fn a_meter_limits_packets_and_a_group_copies_them() {
    let Some(switch) = start() else { return };
    let of13 = ["-O", "OpenFlow13"];
    let run = |words: &[&str]| switch.ofctl(&[&of13[..], words].concat());
    run(&["add-group", "br0", "group_id=1,type=all,bucket=output:2,bucket=output:3"]);
    run(&["add-meter", "br0", "meter=1,pktps,burst,bands=type=drop,rate=1,burst_size=2"]);
    run(&["add-flow", "br0", "in_port=1 actions=meter:1,group:1"]);
    switch.appctl(&["time/stop"]);
    for _ in 0..5 {
        switch.appctl(&["netdev-dummy/receive", "p1", PACKET]);
    }
    let text = switch.ofctl(&["dump-ports", "br0", "p2"]);
    assert!(text.contains("tx pkts=2"), "{text}");
    let text = run(&["meter-stats", "br0"]);
    assert!(text.contains("packet_in_count:5") && text.contains("packet_count:3"), "{text}");
    let text = run(&["dump-group-stats", "br0"]);
    assert!(text.contains("group_id=1") && text.contains("packet_count=5"), "{text}");
    switch.end();
}

#[test]
fn dpif_netdev_commands_show_the_cycles_per_packet() {
    let Some(switch) = start_with_packets() else { return };
    await_some("packets", || (switch.counted("megaflow hits") > 1000).then_some(()));
    let text = switch.appctl(&["dpif-netdev/pmd-stats-show"]);
    for part in ["pmd thread numa_id 0 core_id 1:", "avg cycles per packet:", "main thread:"] {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
    let text = switch.appctl(&["dpif-netdev/pmd-rxq-show"]);
    assert!(
        text.contains("  port: p1                queue-id:  0 (enabled)   pmd usage: "),
        "{text}"
    );
    let text = switch.appctl(&["dpif-netdev/pmd-perf-show", "-pmd", "1"]);
    for part in ["Rx packets:", "Megaflow hits:", "Cycles per packet by stage:", "- parse:"] {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
    switch.end();
}

#[test]
fn a_port_that_is_down_receives_and_counts_nothing() {
    let Some(switch) = start_with_packets() else { return };
    let received = || {
        let text = switch.ofctl(&["dump-ports", "br0", "p1"]);
        let (_, rest) = text.split_once("rx pkts=").unwrap();
        rest.split(',').next().unwrap().parse::<u64>().unwrap()
    };
    await_some("packets", || (received() > 1000).then_some(()));
    switch.ofctl(&["mod-port", "br0", "p1", "down"]);
    // The packet thread may be processing a batch.
    await_some("a port without packets", || {
        let before = received();
        std::thread::sleep(Duration::from_millis(50));
        (received() == before).then_some(())
    });
    let before = received();
    switch.ofctl(&["mod-port", "br0", "p1", "up"]);
    await_some("packets", || (received() > before + 1000).then_some(()));
    switch.end();
}

#[test]
fn a_reload_gives_a_port_a_requested_number_that_another_port_got() {
    let Some(sandbox) = sandbox() else { return };
    let settings = |ports: &str| format!("[bridge.br0.port]\n{ports}");
    sandbox.write("switch.toml", settings("p1 = { type = \"dummy\" }\n"));
    let switch = TestSwitch::start(sandbox, &["--config", "switch.toml"]);
    let both = "p1 = { type = \"dummy\" }\np2 = { type = \"dummy\", number = 1 }\n";
    switch.sandbox.write("switch.toml", settings(both));
    switch.appctl(&["switch/reload"]);
    let text = switch.ofctl(&["show", "br0"]);
    assert!(text.contains(" 1(p2): ") && text.contains(" 2(p1): "), "{text}");
    // Two ports that request the same number are still refused.
    switch.sandbox.write(
        "switch.toml",
        settings(&format!("{both}p3 = {{ type = \"dummy\", number = 1 }}\n")),
    );
    assert!(!switch.try_appctl(&["switch/reload"]).status.success());
    switch.end();
}

#[test]
fn silent_peers_lose_their_connections_to_other_peers() {
    let Some(switch) = start() else { return };
    let socket = socket(&switch.sandbox, "br0.mgmt");
    let silent: Vec<_> = (0..128).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    await_some("a place", || {
        let shown = switch.try_ofctl(&["show", "br0"]);
        shown.status.success().then_some(())
    });
    // The switch closes the connection of a silent peer even if the switch has room for more
    // connections.
    drop(silent);
    let mut silent = UnixStream::connect(&socket).unwrap();
    silent.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    silent.read_to_end(&mut Vec::new()).unwrap();
    switch.ofctl(&["show", "br0"]);
    switch.end();
}
