//! Tests of ovs-ofctl's commands.

use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

use flow::request::{ConnectionFlush, Fragments, PacketIn, PacketInReason};
use flow::{Field, Key};

use super::server::{Server, is_installed};

const VERSIONS: [&str; 4] = ["OpenFlow10", "OpenFlow13", "OpenFlow14", "OpenFlow15"];

fn assert_lines(text: &str, expected: &[&str]) {
    for line in expected {
        assert!(text.contains(line), "no {line:?} in:\n{text}");
    }
}

#[test]
fn ovs_ofctl_show_prints_the_ports() {
    if !is_installed() {
        return;
    }
    let server = Server::start();
    for version in VERSIONS {
        let text = server.ok(&["-O", version], "show", &[]);
        assert_lines(
            &text,
            &["dpid:000000aabbccddee", "n_tables:254", "1(p1): addr:02:00:00:00:00:01"],
        );
        assert_lines(&text, &["2(p2)", "LOCAL(br0)", "frags=normal", "current:    10GB-FD"]);
        let text = server.ok(&["-O", version], "dump-ports-desc", &[]);
        assert_lines(&text, &["1(p1): addr:02:00:00:00:00:01", "LOCAL(br0)"]);
        let text = server.ok(&["-O", version], "dump-desc", &[]);
        assert_lines(&text, &["Manufacturer: Weir", "DP Description: br0"]);
    }
}

#[test]
fn ovs_ofctl_reads_port_counters_and_sets_the_port_configuration() {
    if !is_installed() {
        return;
    }
    let server = Server::start();
    for version in VERSIONS {
        let text = server.ok(&["-O", version], "dump-ports", &[]);
        assert_lines(&text, &["2 ports", "rx pkts=100, bytes=6400", "tx pkts=50, bytes=3200"]);
        let text = server.ok(&["-O", version], "dump-ports", &["2"]);
        assert_lines(&text, &["1 ports", "drop=3"]);
        server.ok(&["-O", version], "mod-port", &["p1", "down"]);
        assert_eq!(server.bridge.lock().unwrap().port_config[0] & 1, 1);
        server.ok(&["-O", version], "mod-port", &["p1", "up"]);
        assert_eq!(server.bridge.lock().unwrap().port_config[0] & 1, 0);
        let ran = server.run(&["-O", version], "dump-ports", &["7"]);
        assert!(ran.stderr.contains("BAD_PORT") || ran.stdout.contains("BAD_PORT"), "{ran:?}");
    }
}

#[test]
fn set_frags_changes_the_handling_of_fragments() {
    if !is_installed() {
        return;
    }
    let server = Server::start();
    for version in VERSIONS {
        for (name, way) in [
            ("drop", Fragments::Drop),
            ("nx-match", Fragments::Match),
            ("normal", Fragments::Normal),
        ] {
            server.ok(&["-O", version], "set-frags", &[name]);
            assert_eq!(server.bridge.lock().unwrap().fragments, way);
            assert_eq!(server.ok(&["-O", version], "get-frags", &[]).trim(), name);
        }
        // The switch refuses the mode for reassembly.
        assert!(!server.run(&["-O", version], "set-frags", &["reassemble"]).is_success);
        assert_eq!(server.bridge.lock().unwrap().fragments, Fragments::Normal);
    }
}

#[test]
fn ovs_ofctl_lists_the_queues_of_ports() {
    if !is_installed() {
        return;
    }
    let server = Server::start();
    for version in VERSIONS {
        let options = ["-O", version];
        let text = server.ok(&options, "queue-stats", &[]);
        assert_lines(&text, &["3 queues", "port 1 queue 0: bytes=?, pkts=?, errors=?"]);
        assert_lines(&text, &["port 2 queue 1: bytes=640, pkts=10, errors=2", "queue 7: bytes=0"]);
        assert_lines(&server.ok(&options, "queue-stats", &["2", "7"]), &["1 queues", "port 2"]);
        assert_lines(&server.ok(&options, "queue-stats", &["ALL", "0"]), &["1 queues", "port 1"]);
        let ran = server.run(&options, "queue-stats", &["2", "5"]);
        assert_lines(&(ran.stdout + &ran.stderr), &["OFPQOFC_BAD_QUEUE"]);
        let ran = server.run(&options, "queue-stats", &["9"]);
        assert_lines(&(ran.stdout + &ran.stderr), &["OFPQOFC_BAD_PORT"]);
        let text = server.ok(&options, "queue-get-config", &["1"]);
        assert_lines(&text, &["port=1\nqueue 0:"]);
        let text = server.ok(&options, "queue-get-config", &["2"]);
        assert_lines(&text, &["queue 1:", "queue 7:"]);
        let ran = server.run(&options, "queue-get-config", &["9"]);
        assert_lines(&(ran.stdout + &ran.stderr), &["OFPQOFC_BAD_PORT"]);
    }
}

#[test]
fn ovs_ofctl_adds_changes_and_deletes_rules() {
    if !is_installed() {
        return;
    }
    for version in VERSIONS {
        let server = Server::start();
        let options = ["-O", version];
        let file = server.file("flows", "in_port=1,ip actions=2\nin_port=2 actions=1\ntable=3,cookie=0x7,priority=9 actions=drop\n");
        server.ok(&options, "add-flows", &[file.to_str().unwrap()]);
        let text = server.ok(&options, "dump-flows", &[]);
        assert_lines(&text, &["cookie=0x7, duration=1.500s, table=3, n_packets=7, n_bytes=420,"]);
        server.ok(&options, "mod-flows", &["in_port=2 actions=drop"]);
        assert_lines(&server.ok(&options, "dump-flows", &["in_port=2"]), &["actions=drop"]);
        server.ok(&options, "mod-flows", &["table=3,cookie=0x7/-1,actions=output:2"]);
        let text = server.ok(&options, "dump-flows", &["cookie=0x7/0xff"]);
        assert_lines(&text, &["actions=output:2"]);
        assert_eq!(text.matches("actions=").count(), 1, "{text}");
        assert_lines(
            &server.ok(&options, "dump-aggregate", &[]),
            &["packet_count=21 byte_count=1260 flow_count=3"],
        );
        assert_lines(&server.ok(&options, "dump-aggregate", &["table=3"]), &["flow_count=1"]);
        server.ok(&[&options[..], &["--strict"]].concat(), "del-flows", &["in_port=1"]);
        assert_eq!(server.bridge.lock().unwrap().flows.len(), 3);
        server.ok(&[&options[..], &["--strict"]].concat(), "del-flows", &["in_port=1,ip"]);
        assert_eq!(server.bridge.lock().unwrap().flows.len(), 2);
        server.ok(&options, "del-flows", &["out_port=2"]);
        assert_eq!(server.bridge.lock().unwrap().flows.len(), 1);
        server.ok(&options, "del-flows", &[]);
        assert_eq!(server.bridge.lock().unwrap().flows.len(), 0);
    }
}

#[test]
fn a_dump_in_plain_openflow_1_0_format_has_the_rules() {
    if !is_installed() {
        return;
    }
    let server = Server::start();
    let rules = [
        "tcp,in_port=1,dl_vlan=5,dl_vlan_pcp=2,nw_src=10.0.0.0/8,tp_dst=80 actions=output:2",
        "icmp,icmp_type=8 actions=drop",
        "arp,arp_spa=10.0.0.1,arp_op=2 actions=drop",
    ];
    for rule in rules {
        server.ok(&["-F", "OpenFlow10-table_id"], "add-flow", &[rule]);
    }
    let text = server.ok(&["-F", "OpenFlow10", "--no-stats"], "dump-flows", &[]);
    assert_lines(
        &text,
        &["tcp,in_port=1,dl_vlan=5,dl_vlan_pcp=2,nw_src=10.0.0.0/8,tp_dst=80 actions=output:2"],
    );
    assert_lines(
        &text,
        &["icmp,icmp_type=8 actions=drop", "arp,arp_spa=10.0.0.1,arp_op=2 actions=drop"],
    );
}

#[test]
fn a_dump_of_many_rules_has_many_messages() {
    if !is_installed() {
        return;
    }
    let server = Server::start();
    let lines =
        (0..5000).map(|n| format!("ip,nw_dst=10.0.{}.{} actions=output:2\n", n / 256, n % 256));
    let file = server.file("flows", &lines.collect::<String>());
    for version in VERSIONS {
        server.ok(&["-O", version], "add-flows", &[file.to_str().unwrap()]);
        let text = server.ok(&["-O", version], "dump-flows", &[]);
        assert_eq!(text.matches("actions=").count(), 5000);
    }
}

#[test]
fn ovs_ofctl_dumps_the_tables() {
    if !is_installed() {
        return;
    }
    let server = Server::start();
    server.ok(&[], "add-flow", &["actions=drop"]);
    for version in VERSIONS {
        let text = server.ok(&["-O", version], "dump-tables", &[]);
        assert_lines(&text, &["active=1, lookup=11, matched=5"]);
        // A single message has the statistics of all tables.
        assert_eq!(text.matches("OFPST_TABLE reply").count(), 1, "{text}");
        if version != "OpenFlow10" {
            server.ok(&["-O", version], "mod-table", &["3", &format!("name:of_{version}")]);
            let text = server.ok(&["-O", version], "dump-table-features", &[]);
            assert_lines(&text, &["table 0:", "ct_{state", "goto_table"]);
            assert_lines(&text, &[&format!("table 3 (\"of_{version}\"): ditto")]);
            if version >= "OpenFlow13" {
                // A match may leave out each field and may mask some fields. No packet continues
                // after the last table.
                let masked = "arbitrary mask: dp_hash tun_id metadata pkt_mark";
                assert_lines(&text, &[masked, "exact match or wildcard: recirc_id conj_id"]);
                assert!(!text.contains("must exact match"), "{text}");
                let (_, last) = text.split_once("table 253:").unwrap();
                assert!(!last.contains("goto_table") && !last.contains("next tables"), "{last}");
            }
            server.ok(&["-O", version], "mod-table", &["3", "name:"]);
        }
        if version >= "OpenFlow14" {
            server.ok(&["-O", version], "dump-table-desc", &[]);
        }
    }
}

#[test]
fn ovs_ofctl_adds_and_dumps_groups() {
    if !is_installed() {
        return;
    }
    for version in VERSIONS {
        let server = Server::start();
        let options = ["-O", version];
        let group = "group_id=1,type=select,bucket=weight:10,actions=output:1,bucket=weight:20,actions=output:2";
        server.ok(&options, "add-group", &[group]);
        server.ok(
            &options,
            "add-group",
            &["group_id=2,type=ff,bucket=watch_port:1,actions=output:1"],
        );
        server.ok(&options, "add-group", &["group_id=3,type=indirect,bucket=actions=output:1"]);
        let text = server.ok(&options, "dump-groups", &[]);
        assert_lines(
            &text,
            &[
                "group_id=1,type=select,",
                "weight:10,actions=output:1",
                "weight:20,actions=output:2",
            ],
        );
        assert_lines(
            &text,
            &["group_id=2,type=ff,", "watch_port:1,actions=output:1", "group_id=3,type=indirect"],
        );
        server.ok(&options, "mod-group", &["group_id=3,type=all,bucket=actions=output:2"]);
        assert_lines(&server.ok(&options, "dump-groups", &[]), &["group_id=3,type=all,bucket="]);
        let text = server.ok(&options, "dump-group-stats", &[]);
        assert_lines(&text, &["group_id=1,", "ref_count=1,packet_count=4,byte_count=240"]);
        assert_lines(&server.ok(&options, "dump-group-features", &[]), &["Group"]);
        let ran = server.run(&options, "add-group", &["group_id=3,type=all"]);
        assert!(ran.stderr.contains("OFPGMFC_GROUP_EXISTS"), "{ran:?}");
        server.ok(&options, "del-groups", &["group_id=3"]);
        assert_eq!(server.bridge.lock().unwrap().groups.len(), 2);
        server.ok(&options, "del-groups", &[]);
        assert!(server.bridge.lock().unwrap().groups.is_empty());
        if version == "OpenFlow15" || version == "OpenFlow10" {
            let group = "group_id=5,type=select,selection_method=hash,fields(ip_src,ip_dst=255.255.255.0),bucket=bucket_id:1,actions=output:1";
            server.ok(&options, "add-group", &[group]);
            assert_lines(
                &server.ok(&options, "dump-groups", &[]),
                &["selection_method=hash,fields(ip_src,ip_dst=255.255.255.0)"],
            );
            server.ok(
                &options,
                "insert-buckets",
                &["group_id=5,command_bucket_id=last,bucket=bucket_id:7,actions=output:2"],
            );
            server.ok(&options, "remove-buckets", &["group_id=5,command_bucket_id=1"]);
            assert_lines(&server.ok(&options, "dump-groups", &[]), &["bucket=bucket_id:7"]);
        }
    }
}

#[test]
fn ovs_ofctl_adds_and_dumps_meters() {
    if !is_installed() {
        return;
    }
    for version in &VERSIONS[1..] {
        let server = Server::start();
        let options = ["-O", version];
        server.ok(
            &options,
            "add-meter",
            &["meter=3,kbps,burst,stats,band=type=drop,rate=1000,burst_size=200"],
        );
        server.ok(
            &options,
            "add-meter",
            &["meter=4,pktps,band=type=dscp_remark,rate=10,prec_level=2"],
        );
        let text = server.ok(&options, "dump-meters", &[]);
        assert_lines(
            &text,
            &["meter=3 kbps burst stats bands=", "type=drop rate=1000 burst_size=200"],
        );
        assert_lines(&text, &["meter=4 pktps bands=", "type=dscp_remark rate=10 prec_level=2"]);
        let text = server.ok(&options, "meter-stats", &["meter=3"]);
        assert_lines(&text, &["meter:3 flow_count:1 packet_in_count:8 byte_in_count:480"]);
        assert_lines(
            &server.ok(&options, "meter-features", &[]),
            &["max_bands:8", "drop", "dscp_remark"],
        );
        let ran = server.run(&options, "add-meter", &["meter=3,kbps,band=type=drop,rate=1"]);
        assert!(ran.stderr.contains("OFPMMFC_METER_EXISTS"), "{ran:?}");
        server.ok(&options, "del-meter", &["meter=3"]);
        server.ok(&options, "del-meters", &[]);
        assert!(server.bridge.lock().unwrap().meters.is_empty());
    }
}

#[test]
fn a_packet_out_of_ovs_ofctl_reaches_the_bridge() {
    if !is_installed() {
        return;
    }
    let server = Server::start();
    for version in VERSIONS {
        let packet = "in_port=1,packet=020000000001020000000002080000,actions=output:2";
        server.ok(&["-O", version], "packet-out", &[packet]);
        let packets = std::mem::take(&mut server.bridge.lock().unwrap().packets);
        assert_eq!(packets.len(), 1);
        assert_eq!(packets[0].in_port.0, 1);
        assert_eq!(packets[0].frame.len(), 15);
        assert_eq!(packets[0].metadata.read(Field::InPort), 1);
    }
}

#[test]
fn a_bundle_makes_all_changes_or_none() {
    if !is_installed() {
        return;
    }
    for version in &VERSIONS[1..] {
        let server = Server::start();
        let options = ["-O", version, "--bundle"];
        let file = server.file("flows", "in_port=1 actions=2\nin_port=2 actions=1\n");
        server.ok(&options, "add-flows", &[file.to_str().unwrap()]);
        assert_eq!(server.bridge.lock().unwrap().flows.len(), 2);
        // The test's bridge refuses table 200.
        let file = server.file("bad", "in_port=3 actions=2\ntable=200,in_port=4 actions=1\n");
        let ran = server.run(&options, "add-flows", &[file.to_str().unwrap()]);
        assert!(!ran.is_success, "{ran:?}");
        assert_lines(&ran.stderr, &["OFPBRC_BAD_TABLE_ID", "OFPBFC_MSG_FAILED"]);
        assert_eq!(server.bridge.lock().unwrap().flows.len(), 2);
        let file = server.file("group", "group group_id=1,type=all,bucket=actions=output:1\nflow add in_port=9 actions=group:1\n");
        server.ok(&["-O", version], "bundle", &[file.to_str().unwrap()]);
        assert_eq!(server.bridge.lock().unwrap().groups.len(), 1);
    }
}

#[test]
fn ovs_ofctl_replaces_and_compares_rules() {
    if !is_installed() {
        return;
    }
    for version in VERSIONS {
        let server = Server::start();
        let options = ["-O", version];
        server.ok(&options, "add-flow", &["in_port=1,ip,nw_dst=10.0.0.0/8 actions=2"]);
        server.ok(&options, "add-flow", &["in_port=2 actions=1"]);
        let file =
            server.file("flows", "in_port=1,ip,nw_dst=10.0.0.0/8 actions=2\nin_port=3 actions=1\n");
        let path = file.to_str().unwrap();
        let ran = server.run(&options, "diff-flows", &[path]);
        assert_eq!(
            ran.stdout, "-in_port=2 actions=output:1\n+in_port=3 actions=output:1\n",
            "{ran:?}"
        );
        let with_bundle = ["-O", version, "--bundle"];
        let replace: &[&str] = if version == "OpenFlow10" { &options } else { &with_bundle };
        server.ok(replace, "replace-flows", &[path]);
        let ran = server.run(&options, "diff-flows", &[path]);
        assert!(ran.is_success && ran.stdout.is_empty(), "{ran:?}");
        assert_eq!(server.bridge.lock().unwrap().flows.len(), 2);
    }
}

#[test]
fn ovs_ofctl_ct_flush_reaches_the_bridge() {
    if !is_installed() {
        return;
    }
    let server = Server::start();
    server.ok(&[], "ct-flush-zone", &["123"]);
    server.ok(&[], "ct-flush", &[]);
    let tuple = "ct_nw_src=10.1.1.1,ct_nw_dst=10.1.1.2,ct_nw_proto=17,ct_tp_src=1";
    server.ok(&[], "ct-flush", &["zone=5", tuple, "ct_nw_src=10.2.2.2,ct_nw_proto=17"]);
    server.ok(&[], "ct-flush", &["ct_ipv6_src=fd00::1,ct_nw_proto=17"]);
    // ovs-ofctl ends before the bridge has read the last request.
    server.ok(&[], "dump-flows", &[]);
    let end = Instant::now() + Duration::from_secs(60);
    while server.bridge.lock().unwrap().flushes.len() < 4 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    let flushes = std::mem::take(&mut server.bridge.lock().unwrap().flushes);
    let [zone, all, tuples, v6] = flushes.as_slice() else { panic!("{flushes:?}") };
    assert_eq!(*zone, ConnectionFlush { zone: Some(123), ..ConnectionFlush::default() });
    assert_eq!(*all, ConnectionFlush::default());
    assert_eq!(tuples.zone, Some(5));
    let (original, reply) = (tuples.original.unwrap(), tuples.reply.unwrap());
    assert_eq!(original.source, Some("10.1.1.1".parse().unwrap()));
    assert_eq!(original.destination, Some("10.1.1.2".parse().unwrap()));
    assert_eq!((original.protocol, original.source_port), (Some(17), Some(1)));
    assert_eq!(reply.source, Some("10.2.2.2".parse().unwrap()));
    assert_eq!(reply.destination, None);
    assert_eq!((v6.zone, v6.reply), (None, None));
    assert_eq!(v6.original.unwrap().source, Some("fd00::1".parse().unwrap()));
}

#[test]
fn ovs_ofctl_prints_the_error_names_of_open_vswitch() {
    if !is_installed() {
        return;
    }
    let server = Server::start();
    // ovs-ofctl itself refuses most wrong requests, but not this request.
    let ran = server.run(&["-O", "OpenFlow13"], "mod-group", &["group_id=9,type=all"]);
    assert_lines(&ran.stderr, &["OFPGMFC_UNKNOWN_GROUP"]);
}

#[test]
fn ovs_ofctl_monitor_prints_rule_changes_and_packet_ins() {
    if !is_installed() {
        return;
    }
    for version in VERSIONS {
        let server = Server::start();
        server.ok(&["-O", version], "add-flow", &["in_port=1 actions=2"]);
        let mut monitor = Monitor::start(&server, &["-O", version], &["65534", "watch:"]);
        monitor.wait_for("event=");
        server.ok(&["-O", version], "add-flow", &["in_port=2,ip actions=1"]);
        monitor.wait_for("event=ADDED table=0 cookie=0 ip,in_port=2");
        server.ok(&["-O", version], "del-flows", &["in_port=1"]);
        monitor.wait_for("reason=delete table=0 cookie=0 in_port=1");
        let mut metadata = Key::ZERO;
        metadata.write(Field::InPort, 1);
        metadata.write(Field::Reg0, 0x55);
        server.packet_ins.lock().unwrap().push(PacketIn {
            frame: vec![2; 60],
            total_len: 60,
            reason: PacketInReason::Action,
            table: 3,
            cookie: 0x77,
            controller: 0,
            metadata,
            userdata: vec![1, 2, 3],
            continuation: None,
        });
        monitor.wait_for("total_len=60");
        let text = monitor.stop();
        assert_lines(
            &text,
            &["cookie=0x77 total_len=60 reg0=0x55,in_port=1 (via action)", "userdata=01.02.03"],
        );
    }
}

/// A run of `ovs-ofctl monitor`. A thread collects the command's output.
struct Monitor {
    child: std::process::Child,
    text: std::sync::Arc<std::sync::Mutex<String>>,
}

impl Monitor {
    fn start(server: &Server, options: &[&str], arguments: &[&str]) -> Self {
        let mut child = server
            .command()
            .args(options)
            .arg("monitor")
            .arg(server.target())
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let text = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
        let streams: [Box<dyn Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        for mut stream in streams {
            let text = text.clone();
            std::thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(read @ 1..) = stream.read(&mut bytes) {
                    text.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..read]));
                }
            });
        }
        Self { child, text }
    }

    fn wait_for(&mut self, expected: &str) {
        let end = Instant::now() + Duration::from_secs(60);
        while !self.text.lock().unwrap().contains(expected) {
            assert!(Instant::now() < end, "no {expected:?} in:\n{}", self.text.lock().unwrap());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn stop(mut self) -> String {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.text.lock().unwrap().clone()
    }
}
