use super::*;
use crate::interface::tests::TestMachine;
use serde_json::{Value as Json, json};

fn id(number: u32) -> String {
    format!("00000000-0000-0000-0000-{number:012}")
}

fn topology(updates: Json) -> Topology {
    let mut database = Database::default();
    database.apply(&updates).unwrap();
    Topology::of(&database, &TestMachine)
}

#[test]
fn database_rows_become_bridges_with_ports() {
    let reference = |number: u32| json!(["uuid", id(number)]);
    let new = |row: Json| json!({ "new": row });
    let found = topology(json!({
        "Open_vSwitch": { id(1): new(json!({ "bridges": reference(2), "next_cfg": 7,
            "other_config": ["map", [["pmd-cpu-mask", "6"]]], "ssl": reference(12) })) },
        "SSL": { id(12): new(json!({ "private_key": "/k", "certificate": "/c",
            "ca_cert": "/a", "bootstrap_ca_cert": true })) },
        "Bridge": { id(2): new(json!({ "name": "br0", "fail_mode": "secure",
            "protocols": "OpenFlow13", "ports": ["set", [reference(3), reference(4)]],
            "controller": reference(7), "stp_enable": true, "mirrors": reference(9),
            "rstp_enable": false, "flood_vlans": 5,
            "other_config": ["map", [["datapath-id", "00000000000000A1"],
                ["forward-bpdu", "true"]]] })) },
        "Port": { id(3): new(json!({ "name": "br0", "interfaces": reference(5) })),
            id(4): new(json!({ "name": "p1", "interfaces": reference(6), "tag": 10,
                "protected": false, "qos": reference(8) })) },
        "Interface": { id(5): new(json!({ "name": "br0", "type": "internal" })),
            id(6): new(json!({ "name": "p1", "type": "", "ofport_request": 9, "ofport": -1,
                "bfd": ["map", [["enable", "true"]]], "cfm_mpid": 7,
                "lldp": ["map", [["enable", "false"]]], "ingress_policing_rate": 1000,
                "ingress_policing_kpkts_burst": 5_000_000_000_u64,
                "other_config": ["map", [["pmd-rxq-affinity", "0:1"]]] })) },
        "Controller": { id(7): new(json!({ "target": "tcp:10.0.0.9",
            "inactivity_probe": 0, "max_backoff": ["set", []] })) },
        "Mirror": { id(9): new(json!({ "name": "m0", "select_src_port": reference(4),
            "output_vlan": 9 })) },
        "QoS": { id(8): new(json!({ "type": "linux-hfsc",
            "queues": ["map", [[1, reference(10)], [0, reference(11)]]],
            "other_config": ["map", [["max-rate", "1000000"]]] })) },
        "Queue": { id(10): new(json!({ "other_config":
            ["map", [["max-rate", "200000"], ["min-rate", "1"]]] })),
            id(11): new(json!({ "other_config": ["map", []] })) },
    }));
    assert_eq!((found.next_cfg, found.pmd_cpu_mask.as_deref()), (7, Some("6")));
    let tls = found.tls.as_ref().unwrap();
    let paths = [&tls.private_key[..], &tls.certificate, &tls.ca_certificate];
    assert_eq!((paths, tls.bootstraps), (["/k", "/c", "/a"], true));
    let [bridge] = &found.bridges[..] else { panic!("{found:?}") };
    assert!(bridge.is_secure && bridge.local.is_some() && bridge.forwards_bpdu);
    assert_eq!(bridge.protocols, ["OpenFlow13"]);
    assert_eq!(bridge.datapath_id.as_deref(), Some("00000000000000a1"));
    assert_eq!(
        bridge.controllers[0].target,
        Target::Connect(Carrier::Tcp, "10.0.0.9:6653".to_owned())
    );
    let Controller { inactivity_probe_ms, max_backoff_ms, .. } = bridge.controllers[0];
    assert_eq!((inactivity_probe_ms, max_backoff_ms), (Some(0), None));
    let [port] = &bridge.ports[..] else { panic!("{bridge:?}") };
    assert_eq!((port.number, port.former_number), (Some(9), None));
    let queue = |number, bits_per_second| Queue { number, bits_per_second };
    let queues = vec![queue(0, None), queue(1, Some(200_000))];
    let bits_per_second = Some(1_000_000);
    let kind = "linux-hfsc";
    assert_eq!(port.egress, Some(Egress { kind, bits_per_second, queue: None, queues }));
    assert_eq!(port.rxq_affinity.as_deref(), Some("0:1"));
    assert_eq!(port.vlans.tag, Some(10));
    let expected = Police { rate_kbit: 1000, burst_kpkts: u32::MAX, ..Police::default() };
    assert_eq!(port.police, expected);
    let ignored = [
        "port p1: min-rate of its queue 1",
        "interface p1: BFD",
        "interface p1: CFM",
        "bridge br0: spanning tree (stp_enable)",
        "bridge br0: flood_vlans",
    ];
    assert_eq!(found.ignored, ignored);
    assert_eq!(bridge.lacking, ["spanning tree (stp_enable)", "flood_vlans"]);
    let [mirror] = &bridge.mirrors[..] else { panic!("{bridge:?}") };
    assert_eq!((&mirror.sources[..], mirror.output_vlan), (&["p1".to_owned()][..], Some(9)));
}

#[test]
fn several_receive_queues_of_a_port_with_one_queue_are_reported() {
    let interface = |name: &str, kind: &str, options: Json| {
        let row = json!({ "name": name, "type": kind, "options": ["map", options] });
        json!({ "new": row })
    };
    let af_packet = json!([["dpdk-devargs", "net_af_packet0,iface=eth1"], ["n_rxq", "2"]]);
    let found = topology(json!({
        "Open_vSwitch": { id(1): { "new": { "bridges": ["uuid", id(2)] } } },
        "Bridge": { id(2): { "new": { "name": "br0", "ports":
            ["set", [["uuid", id(3)], ["uuid", id(4)]]] } } },
        "Port": { id(3): { "new": { "name": "p1", "interfaces": ["uuid", id(5)] } },
            id(4): { "new": { "name": "v1", "interfaces": ["uuid", id(6)] } } },
        "Interface": { id(5): interface("p1", "dpdk", af_packet),
            id(6): interface("v1", "dpdkvhostuser", json!([["n_rxq", "2"]])) },
    }));
    assert_eq!(found.ignored, ["interface p1: options:n_rxq=2, its port has one queue"]);
}

#[test]
fn a_port_of_two_interfaces_is_a_bond_of_two_ports() {
    let found = topology(json!({
        "Open_vSwitch": { id(1): { "new": { "bridges": ["uuid", id(2)] } } },
        "Bridge": { id(2): { "new": { "name": "br0", "ports": ["uuid", id(3)] } } },
        "Port": { id(3): { "new": { "name": "bond0", "bond_mode": "balance-slb", "tag": 7,
            "interfaces": ["set", [["uuid", id(4)], ["uuid", id(5)]]], "bond_updelay": 9,
            "lacp": "active", "bond_active_slave": "02:00:00:00:00:0a",
            "other_config": ["map", [["bond-primary", "p1"], ["lacp-time", "fast"],
                ["lacp-system-priority", "70000"], ["lacp-fallback-ab", "true"],
                ["lacp-system-id", "x"]]] } } },
        "Interface": { id(4): { "new": { "name": "p2", "other_config": ["map",
            [["lacp-port-id", "5"], ["lacp-port-priority", "-1"]]] } },
            id(5): { "new": { "name": "p1" } } },
    }));
    let [bridge] = &found.bridges[..] else { panic!("{found:?}") };
    assert!(bridge.ports.iter().all(|port| port.device.is_ok() && port.vlans.tag == Some(7)));
    let [bond] = &bridge.bonds[..] else { panic!("{bridge:?}") };
    assert_eq!(
        (&bond.name[..], &bond.members[..]),
        ("bond0", &["p1", "p2"].map(str::to_owned)[..])
    );
    assert_eq!((bond.mode.as_deref(), bond.updelay), (Some("balance-slb"), 9));
    assert_eq!(bond.last_active, Some([2, 0, 0, 0, 0, 10]));
    let expected = Lacp {
        is_active: true,
        is_fast: true,
        system_id: Some("x".to_owned()),
        system_priority: 0,
        falls_back: true,
    };
    assert_eq!(bond.lacp, Some(expected));
    let expected = LacpPort { port_id: 5, ..LacpPort::default() };
    assert!(bridge.ports.iter().any(|port| port.name == "p2" && port.lacp == expected));
    assert!(found.ignored.is_empty(), "{:?}", found.ignored);
}

#[test]
fn a_dot1q_tunnel_port_has_its_customers_vlans_and_the_type_of_the_service_tag() {
    let port = |ethtype: &str, tags: &str| {
        json!({ "new": { "name": ethtype, "vlan_mode": "dot1q-tunnel", "tag": 10,
            "interfaces": ["uuid", id(5)], "cvlans": ["set", [20, 30]],
            "other_config":
                ["map", [["qinq-ethtype", ethtype], ["priority-tags", tags]]] } })
    };
    let found = topology(json!({
        "Open_vSwitch": { id(1): { "new": { "bridges": ["uuid", id(2)] } } },
        "Bridge": { id(2): { "new": { "name": "br0", "ports":
            ["set", [["uuid", id(3)], ["uuid", id(4)]]] } } },
        "Port": { id(3): port("802.1q", "never"), id(4): port("x", "always") },
        "Interface": { id(5): { "new": { "name": "p1" } } },
    }));
    let vlans = |qinq_ethtype| Vlans {
        mode: Some(VlanMode::Dot1qTunnel),
        tag: Some(10),
        trunks: Vec::new(),
        cvlans: vec![20, 30],
        qinq_ethtype,
    };
    let found_vlans: Vec<_> = found.bridges[0].ports.iter().map(|port| &port.vlans).collect();
    assert_eq!(found_vlans, [&vlans(Some(QinqEthtype::Dot1q)), &vlans(None)]);
    let ignored = ["port x: qinq-ethtype x", "port x: other_config:priority-tags"];
    assert_eq!(found.ignored, ignored);
}

#[test]
fn missing_and_wrong_database_rows_are_left_out() {
    assert_eq!(topology(json!({})), Topology::default());
    let found = topology(json!({ "Open_vSwitch": { id(1): { "new": {
        "bridges": ["uuid", id(2)], "next_cfg": "x" } } } }));
    assert!(found.root.is_some() && found.bridges.is_empty() && found.next_cfg == 0);
}

#[test]
fn controller_targets_become_addresses_or_errors() {
    let connect = |text: &str| Target::Connect(Carrier::Tcp, text.to_owned());
    let listen = |text: &str| Target::Listen(Carrier::Tcp, text.to_owned());
    let parse = Target::parse;
    assert_eq!(parse("tcp:10.0.0.9:6633"), connect("10.0.0.9:6633"));
    assert_eq!(parse("tcp:[::1]:6633"), connect("[::1]:6633"));
    assert_eq!(parse("tcp:[::1]"), connect("[::1]:6653"));
    assert_eq!(parse("ptcp:6654"), listen("0.0.0.0:6654"));
    assert_eq!(parse("ptcp:"), listen("0.0.0.0:6653"));
    assert_eq!(parse("ptcp:6654:127.0.0.1"), listen("127.0.0.1:6654"));
    let (address, any) = ("10.0.0.9:6653".to_owned(), "0.0.0.0:6654".to_owned());
    assert_eq!(parse("ssl:10.0.0.9"), Target::Connect(Carrier::Tls, address));
    assert_eq!(parse("pssl:6654"), Target::Listen(Carrier::Tls, any));
    for text in ["tcp:", "tcp:a:x", "ptcp:x", "ssl:10.0.0.9:0", "unix:/x", "", "\n"] {
        assert!(matches!(parse(text), Target::Refused(_)), "{text}");
    }
}
