//! Compares the rule language with Debian's ovs-ofctl: normal forms and error texts. Printed rules
//! must parse again.

#[path = "text/generator.rs"]
mod generator;
#[path = "text/wrong.rs"]
mod wrong;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::Command;
use std::time::Duration;

use flow::connection::{Connection, Tuple};
use flow::port_number::PortNumber;
use flow::request::{FlowCommand, FlowEntry, GroupCommand};
use flow::step::{PortIndex, Rewrite, Step, Track};
use flow::{Field, Key, Match, word};
use rand::SeedableRng;
use rand_pcg::Pcg64;
use text::{
    PortNames, compose, normalize, parse_actions, parse_datapath_key, parse_filter, parse_flow,
    parse_flow_line, parse_group, parse_hex_frame, parse_match, parse_packet, print_actions,
    print_connection, print_datapath_key, print_dump, print_match, print_megaflow_match,
    print_steps,
};

const RULES: u64 = 4000;

/// Runs ovs-ofctl. Returns standard output and standard error, or `None` if ovs-ofctl is not
/// installed.
fn ovs_ofctl(arguments: &[&str]) -> Option<String> {
    let output = Command::new("ovs-ofctl").args(arguments).env("TZ", "UTC").output().ok()?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Some(text)
}

fn is_installed() -> bool {
    let is_installed = ovs_ofctl(&["--version"]).is_some_and(|text| text.contains("3.1."));
    if !is_installed {
        testing::skip(testing::Need::Program("ovs-ofctl"));
    }
    is_installed
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(text.as_bytes()).expect("written");
    file
}

/// Returns the match and the actions of a rule, as `ovs-ofctl diff-flows` prints them.
fn normal_form(rule: &str) -> String {
    let change = parse_flow(rule, FlowCommand::Add, &PortNames::none())
        .unwrap_or_else(|error| panic!("{rule}: {error}"));
    let mut out = print_match(&change.matching);
    let _ = write!(out, " actions={}", print_actions(&change.actions));
    out
}

#[test]
fn generated_rules_have_the_normal_form_of_ovs_ofctl() {
    if !is_installed() {
        return;
    }
    let mut random = Pcg64::seed_from_u64(20);
    let mut text = String::new();
    let mut ours = BTreeMap::new();
    for cookie in 1..=RULES {
        let rule = generator::rule(&mut random);
        let _ = writeln!(text, "cookie={cookie:#x},reg15={cookie:#x},{rule}");
        ours.insert(cookie, normal_form(&format!("reg15={cookie:#x},{rule}")));
    }
    let rules = file(&text);
    let path = rules.path().to_str().expect("a path");
    let theirs = ovs_ofctl(&["diff-flows", path, "/dev/null"]).expect("a run");
    let mut differences = Vec::new();
    let mut seen = 0;
    for line in theirs.lines() {
        let Some((head, actions)) = line.split_once(" actions=") else {
            // The output also has warnings, about ports that OpenFlow 1.0 numbers differently. A
            // warning is not a rule.
            if !line.contains("|WARN|") {
                let number = line.split(':').nth(2).and_then(|number| number.parse::<usize>().ok());
                let rule = number.and_then(|number| text.lines().nth(number - 1));
                differences.push(format!("{line}\n{}", rule.unwrap_or_default()));
            }
            continue;
        };
        let (matching, cookie) = head.split_once(" cookie=0x").expect("a cookie");
        let cookie = cookie.split(' ').next().unwrap_or_default();
        let cookie = u64::from_str_radix(cookie, 16).expect("a number");
        seen += 1;
        let theirs = format!("{} actions={actions}", &matching[1..]);
        if ours.get(&cookie) != Some(&theirs) {
            differences.push(format!("{theirs}\n{}\n", ours[&cookie]));
        }
    }
    let shown = differences.iter().take(20).fold(String::new(), |out, one| out + one + "\n");
    assert!(differences.is_empty(), "{} differences, theirs first:\n{shown}", differences.len());
    assert_eq!(seen, RULES, "rules that ovs-ofctl printed");
}

#[test]
fn wrong_rules_have_the_errors_of_ovs_ofctl() {
    if !is_installed() {
        return;
    }
    let mut differences = String::new();
    for rule in wrong::RULES {
        // Neither command connects to a switch: parse-flow needs no switch, and the bridge that
        // del-flows names does not exist.
        let arguments = match rule.strip_prefix("delete ") {
            None => ["--no-names", "parse-flow", rule, ""],
            Some(filter) => ["--no-names", "del-flows", "no-such-bridge", filter],
        };
        let count = if arguments[3].is_empty() { 3 } else { 4 };
        let theirs = ovs_ofctl(&arguments[..count]).expect("a run");
        let theirs = theirs.lines().find_map(|line| line.strip_prefix("ovs-ofctl: "));
        let ours = parse_flow_line(rule, &PortNames::none()).err().map(|error| error.to_string());
        if ours.as_deref() != theirs {
            let _ = writeln!(differences, "{rule}\n  theirs: {theirs:?}\n  ours:   {ours:?}");
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

/// Runs ovs-ofctl, which ends before it connects to a bridge. Returns its error, if any.
fn error_of(arguments: &[&str]) -> Option<String> {
    let output = ovs_ofctl(arguments).expect("a run");
    let error = output.lines().find_map(|line| line.strip_prefix("ovs-ofctl: "))?;
    (!error.contains("is not a bridge or a socket")).then(|| error.to_owned())
}

#[test]
fn wrong_groups_have_the_errors_of_ovs_ofctl() {
    if !is_installed() {
        return;
    }
    let mut differences = String::new();
    let names = PortNames::none();
    for text in wrong::GROUPS {
        let theirs =
            error_of(&["--no-names", "-O", "OpenFlow15", "add-group", "no-such-bridge", text]);
        let ours = parse_group(text, GroupCommand::Add, &names).err();
        let ours = ours.map(|error| error.to_string());
        if ours != theirs {
            let _ = writeln!(differences, "{text}\n  theirs: {theirs:?}\n  ours:   {ours:?}");
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

#[test]
fn matches_without_prerequisites_have_the_normal_form_of_ovs_ofctl() {
    if !is_installed() {
        return;
    }
    let mut random = Pcg64::seed_from_u64(23);
    let matches: Vec<_> = (0..RULES).map(|_| generator::loose_match(&mut random)).collect();
    let text = matches.iter().fold(String::new(), |text, one| text + one + " actions=drop\n");
    let rules = file(&text);
    let path = rules.path().to_str().expect("a path");
    let theirs = ovs_ofctl(&["-F", "NXM+table_id", "parse-flows", path]).expect("a run");
    let theirs: Vec<_> = theirs
        .lines()
        .filter_map(|line| line.strip_prefix("NXT_FLOW_MOD (xid=")?.split_once("): "))
        .map(|(_, rule)| rule.strip_prefix("ADD table:255 ")?.split_once("actions="))
        .map(|parts| parts.map(|(matching, _)| matching.trim()))
        .collect();
    assert_eq!(theirs.len(), matches.len(), "rules that ovs-ofctl printed");
    let mut differences = String::new();
    for (text, theirs) in matches.iter().zip(theirs) {
        let ours = parse_match(text, &PortNames::none()).expect(text);
        // ovs-ofctl prints some matches that it refuses as input.
        let Some(theirs) = theirs else { continue };
        if print_match(&ours) != theirs {
            let _ = writeln!(differences, "{text}\n  {theirs}\n  {}", print_match(&ours));
        }
    }
    assert!(differences.is_empty(), "theirs first:\n{differences}");
}

#[test]
fn a_printed_rule_parses_to_the_same_rule() {
    let names = PortNames::none();
    let mut random = Pcg64::seed_from_u64(21);
    for _ in 0..2000 {
        let rule = generator::rule(&mut random);
        let first = parse_flow(&rule, FlowCommand::Add, &names).expect("a rule");
        let printed = normal_form(&rule);
        let second = parse_flow(&printed, FlowCommand::Add, &names)
            .unwrap_or_else(|error| panic!("{rule}\n{printed}: {error}"));
        assert_eq!(first.matching, second.matching, "{rule}\n{printed}");
        // A wide load is printed as several loads.
        if !rule.contains("load") && !printed.contains("xreg") {
            assert_eq!(first.actions, second.actions, "{rule}\n{printed}");
        }
        assert_eq!(print_actions(&first.actions), print_actions(&second.actions), "{rule}");
    }
}

#[test]
fn a_megaflow_prints_its_packet_type_after_its_metadata() {
    let mut matching = Match::any();
    matching.set(Field::RecircId, 7);
    matching.set(Field::CtState, 0x20);
    matching.set(Field::InPort, 1);
    let text = print_megaflow_match(&matching, &PortNames::none());
    assert!(
        text.starts_with("recirc_id=0x7,ct_state=") && text.ends_with(",eth,in_port=1"),
        "{text}"
    );
}

#[test]
fn the_queue_of_a_packet_parses_and_prints_but_no_rule_matches_it() {
    let text = "skb_priority(0x5),in_port(1),eth_type(0x8100),vlan(vid=7,pcp=0),\
                encap(eth_type(0x0800),ipv4(proto=1,tos=0,ttl=1,frag=no))";
    let key = parse_datapath_key(text).expect("a packet");
    assert_eq!(key.read_at(Key::PRIORITY), 5);
    assert_eq!(key.words[word::VLAN_TPID] as u16, 0x8100);
    let names = PortNames::none();
    let packet = parse_packet("skb_priority=0x5,in_port=1,pkt_mark=2", &names).expect("a packet");
    assert_eq!(packet.read_at(Key::PRIORITY), 5);
    let mut mask = Key::ZERO;
    mask.write_at(Key::PRIORITY, u128::MAX);
    mask.write(Field::PktMark, u128::MAX);
    mask.write(Field::InPort, u128::MAX);
    let matching = Match { value: packet.masked(&mask), mask: mask.clone() };
    assert_eq!(print_match(&matching), "pkt_mark=0x2,skb_priority=0x5,in_port=1");
    let printed = print_datapath_key(&packet, &mask);
    let expected = "skb_priority(0x5),skb_mark(0x2),recirc_id(0),in_port(1),packet_type(ns=0,id=0)";
    assert_eq!(printed, expected);
    assert!(parse_match("skb_priority=5", &names).is_err());
    assert!(parse_packet("skb_priority=x", &names).is_err());
    let error = parse_packet("in_portx=1,tcp", &names).expect_err("an unknown field");
    assert_eq!(error.to_string(), "in_portx=1,tcp: unknown field in_portx");
}

#[test]
fn parsing_random_text_causes_no_panic() {
    let names = PortNames::none();
    let mut random = Pcg64::seed_from_u64(22);
    let mut texts: Vec<String> = wrong::RULES.iter().map(|rule| (*rule).to_owned()).collect();
    for _ in 0..300 {
        texts.push(generator::rule(&mut random));
    }
    for text in &texts {
        for end in 0..=text.len() {
            let Some(cut) = text.get(..end) else { continue };
            let _ = parse_flow_line(cut, &names);
            let _ = parse_filter(cut, &names);
            let _ = parse_match(cut, &names);
            let _ = parse_actions(cut, &names);
            let _ = parse_group(cut, GroupCommand::Add, &names);
            let _ = parse_packet(cut, &names).map(|key| compose(&key));
            let _ = parse_datapath_key(cut).map(|key| compose(&key));
            let _ = parse_hex_frame(cut);
        }
    }
}

#[test]
fn fields_without_their_prerequisites_are_dropped() {
    for (text, normal) in [
        ("nw_dst=1.2.3.5", ""),
        ("ip,icmp_type=3", "ip"),
        ("icmp,tp_src=3", "icmp,icmp_type=3"),
        ("arp,nw_proto=1", "arp,arp_op=1"),
        ("udp,tcp_flags=+syn", "udp"),
        ("mpls,nw_src=1.1.1.1,mpls_label=5", "mpls,mpls_label=5"),
    ] {
        let matching = parse_match(text, &PortNames::none()).expect(text);
        assert_eq!(print_match(&matching), normal, "{text}");
        let mut again = matching.clone();
        normalize(&mut again);
        assert_eq!(again, matching, "{text}");
    }
}

/// `ovs-appctl dpctl/dump-flows` 3.1 printed the expected texts for packets of netdev-dummy.
#[test]
fn a_megaflow_prints_as_open_vswitch_prints_it() {
    let ethernet = "eth(src=de:75:cc:30:86:84,dst=02:ac:10:ff:01:01)";
    let udp = "ipv4(src=16.0.0.1,dst=48.0.0.3,proto=17,tos=0,ttl=64,frag=no),udp(src=1,dst=2)";
    let tcp = "ipv4(src=16.0.0.1,dst=49.0.0.3,proto=6,tos=0,ttl=64,frag=no),tcp(src=1,dst=80)";
    let icmp = "ipv4(src=16.0.0.1,dst=50.0.0.3,proto=1,tos=32,ttl=64,frag=no),icmp(type=8,code=0)";
    let six = "ipv6(src=fd00::1,dst=fd00::2,label=0,proto=6,hlimit=64,frag=no),tcp(src=1,dst=80)";
    let arp = "arp(sip=192.168.20.9,tip=192.168.20.1,op=1,sha=de:75:cc:30:86:84,tha=0:0:0:0:0:0)";
    let all = u128::MAX;
    type Masks = [(Field, u128)];
    let cases: [(String, &Masks, &str); 6] = [
        (
            format!("eth_type(0x0800),{udp}"),
            &[(Field::IpDst, 0xff00_0000)],
            "eth_type(0x0800),ipv4(dst=48.0.0.3/255.0.0.0,frag=no)",
        ),
        (
            format!("eth_type(0x0800),{tcp}"),
            &[
                (Field::IpDst, all),
                (Field::NwProto, all),
                (Field::NwTtl, all),
                (Field::TcpDst, all),
            ],
            "eth_type(0x0800),ipv4(dst=49.0.0.3,proto=6,ttl=64,frag=no),tcp(dst=80)",
        ),
        (
            format!("eth_type(0x86dd),{six}"),
            &[(Field::Ipv6Dst, all), (Field::NwProto, all)],
            "eth_type(0x86dd),ipv6(dst=fd00::2,proto=6,frag=no)",
        ),
        (
            format!("eth_type(0x0800),{icmp}"),
            &[
                (Field::IpDst, 0xfe00_0000),
                (Field::NwProto, all),
                (Field::NwTos, all),
                (Field::IcmpType, all),
            ],
            "eth_type(0x0800),ipv4(dst=50.0.0.3/254.0.0.0,proto=1,tos=0x20/0xfc,frag=no),\
             icmp(type=8)",
        ),
        (
            format!("eth_type(0x8100),vlan(vid=7,pcp=3),encap(eth_type(0x0800),{udp})"),
            &[(Field::VlanTci, 0x1fff)],
            "eth_type(0x8100),vlan(vid=7,pcp=3/0x0),encap(eth_type(0x0800),ipv4(frag=no))",
        ),
        (
            format!("eth_type(0x0806),{arp}"),
            &[(Field::ArpSpa, all), (Field::ArpTpa, all), (Field::ArpOp, all)],
            "eth_type(0x0806),arp(sip=192.168.20.9,tip=192.168.20.1,op=1)",
        ),
    ];
    for (packet, fields, expected) in cases {
        let packet = format!("in_port(1),{ethernet},{packet}");
        let key = parse_datapath_key(&packet).expect("a packet");
        let mut mask = Key::ZERO;
        for (field, bits) in [(Field::InPort, all), (Field::EthType, all)].iter().chain(fields) {
            mask.write(*field, *bits);
        }
        assert_eq!(
            print_datapath_key(&key, &mask),
            format!("recirc_id(0),in_port(1),packet_type(ns=0,id=0),{expected}"),
        );
    }
}

#[test]
fn a_megaflow_that_depends_on_the_second_vlan_tag_prints_both_tags() {
    let text = "in_port(1),eth_type(0x88a8),vlan(vid=10,pcp=0),encap(eth_type(0x8100),\
                vlan(vid=20,pcp=3),encap(eth_type(0x0800),ipv4(ttl=1)))";
    let key = parse_datapath_key(text).expect("a packet");
    assert_eq!(key.words[word::VLAN_TPID], 0x7014_88a8);
    assert_eq!((key.read(Field::DlVlan), key.read(Field::EthType)), (10, 0x8100));
    assert_eq!(key.read(Field::NwTtl), 0);
    assert_eq!(compose(&key)[12..22], [0x88, 0xa8, 0, 10, 0x81, 0, 0x60, 20, 0, 0]);
    let mut mask = Key::ZERO;
    for field in [Field::InPort, Field::EthType, Field::VlanTci] {
        mask.write(field, u128::MAX);
    }
    mask.write_at(Key::INNER_TCI, u128::MAX);
    assert_eq!(
        print_datapath_key(&key, &mask),
        "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x88a8),vlan(vid=10,pcp=0),\
         encap(eth_type(0x8100),vlan(vid=20,pcp=3))"
    );
    mask.write(Field::RecircId, u128::MAX);
    let matching = Match { value: key.masked(&mask), mask };
    assert_eq!(
        print_megaflow_match(&matching, &PortNames::none()),
        "recirc_id=0,eth,in_port=1,dl_vlan=10,dl_vlan_pcp=0,dl_vlan1=20,dl_vlan_pcp1=3,\
         dl_type=0x8100"
    );
    let mut mask = matching.mask.clone();
    mask.write_at(Key::INNER_TCI, 0x1fff);
    let matching = Match { value: key.masked(&mask), mask };
    assert_eq!(
        print_megaflow_match(&matching, &PortNames::none()),
        "recirc_id=0,eth,in_port=1,dl_vlan=10,dl_vlan_pcp=0,dl_vlan1=20,dl_type=0x8100"
    );
}

#[test]
fn steps_print_as_open_vswitch_prints_them() {
    let rewrite = |fields: &[(Field, u128)]| {
        let (mut value, mut mask) = (Key::ZERO, Key::ZERO);
        for (field, number) in fields {
            value.write(*field, *number);
            mask.write(*field, u128::MAX);
        }
        Step::Rewrite(Box::new(Rewrite { value, mask }))
    };
    let track = Track {
        commit: true,
        zone: 5,
        mark: Some((7, u32::MAX)),
        label: Some((9, u128::MAX)),
        ..Track::default()
    };
    let tcp = "eth_type(0x0800),ipv4(src=1.1.1.1,dst=2.2.2.2,proto=6,tos=0,ttl=64,frag=no),\
               tcp(src=1,dst=2)";
    let solicitation = "eth_type(0x86dd),ipv6(src=::1,dst=::2,label=0,proto=58,tclass=0,\
                        hlimit=255,frag=no),icmpv6(type=135,code=0)";
    let mpls = "eth_type(0x8847),mpls(label=5,tc=1,ttl=9,bos=1)";
    let tagged = "eth_type(0x8100),vlan(vid=10,pcp=3),encap(eth_type(0x0800),ipv4(ttl=1))";
    let cases: [(&str, Vec<Step>, &str); 8] = [
        (tagged, vec![rewrite(&[(Field::DlVlan, 5)])], "pop_vlan,push_vlan(vid=5,pcp=3)"),
        (
            tcp,
            vec![
                rewrite(&[(Field::EthSrc, 0x02ac_10ff_0101), (Field::EthDst, 0xde75_cce1_c685)]),
                rewrite(&[(Field::IpDst, 0x0102_0304), (Field::NwTtl, 63), (Field::TcpDst, 81)]),
                Step::Output(PortIndex(2)),
            ],
            "set(eth(src=02:ac:10:ff:01:01,dst=de:75:cc:e1:c6:85)),\
             set(ipv4(dst=1.2.3.4,ttl=63)),set(tcp(dst=81)),2",
        ),
        (
            solicitation,
            vec![
                rewrite(&[(Field::Ipv6Dst, 0xfd00 << 112 | 9)]),
                rewrite(&[(Field::NdTarget, 7), (Field::NdSll, 0x0200_0000_0001)]),
                Step::Output(PortIndex(3)),
            ],
            "set(ipv6(dst=fd00::9)),set(nd(target=::7,sll=02:00:00:00:00:01)),3",
        ),
        (
            tcp,
            vec![Step::SetPriority(255), Step::Output(PortIndex(2)), Step::SetPriority(0)],
            "set(skb_priority(0xff)),2,set(skb_priority(0))",
        ),
        (mpls, vec![rewrite(&[(Field::MplsLabel, 8)])], "set(mpls(label=8,tc=1,ttl=9,bos=1))"),
        (
            tcp,
            vec![
                Step::Track(Box::new(track)),
                Step::PushVlan { tpid: 0x8100, tci: 0x1000 },
                Step::Output(PortIndex(2)),
                Step::Track(Box::default()),
                Step::Recirculate(2),
            ],
            "ct(commit,zone=5,mark=0x7/0xffffffff,label=0x9),push_vlan(vid=0,pcp=0),2,ct,\
             recirc(0x2)",
        ),
        (
            tcp,
            vec![
                Step::Clone([Step::Meter(1.into()), Step::Output(PortIndex(1))].into()),
                Step::PopVlan,
            ],
            "clone(meter(0),1),pop_vlan",
        ),
        (tcp, vec![], "drop"),
    ];
    for (packet, steps, expected) in cases {
        let key = parse_datapath_key(packet).expect("a packet");
        assert_eq!(print_steps(&steps, &key, &PortNames::none()), expected);
    }
    let names: PortNames = [(PortNumber(2), "p2")].into_iter().collect();
    assert_eq!(print_steps(&[Step::Output(PortIndex(2))], &Key::ZERO, &names), "p2");
}

#[test]
fn a_connection_prints_as_open_vswitch_prints_it() {
    let address = |text: &str| text.parse().expect("an address");
    let connection = Connection {
        protocol: 6,
        original: Tuple {
            source: address("16.0.0.1"),
            destination: address("1.2.3.4"),
            source_port: 1,
            destination_port: 81,
        },
        reply: Tuple {
            source: address("1.2.3.4"),
            destination: address("16.0.0.1"),
            source_port: 81,
            destination_port: 1,
        },
        zone: 5,
        mark: 7,
        labels: 9,
        state: Some("SYN_SENT"),
        helper: None,
    };
    assert_eq!(
        print_connection(&connection),
        "tcp,orig=(src=16.0.0.1,dst=1.2.3.4,sport=1,dport=81),\
         reply=(src=1.2.3.4,dst=16.0.0.1,sport=81,dport=1),zone=5,mark=7,labels=0x9,\
         protoinfo=(state=SYN_SENT)"
    );
}

/// `ovs-ofctl dump-flows` 3.1 printed the expected text.
#[test]
fn a_dumped_rule_prints_as_ovs_ofctl_prints_it() {
    let rule = "priority=10,ip,in_port=1,nw_dst=48.0.0.0/8 \
                actions=ct(commit,table=1,nat(src=48.128.0.10))";
    let change = parse_flow(rule, FlowCommand::Add, &PortNames::none()).expect("a rule");
    let entry = FlowEntry {
        table: 0,
        priority: change.priority,
        cookie: 0,
        matching: change.matching,
        actions: change.actions,
        idle_timeout: 0,
        hard_timeout: 0,
        importance: 0,
        flags: change.flags,
        duration: Duration::from_millis(8),
        idle_age: Duration::ZERO,
        hard_age: Duration::from_millis(8),
        packets: 0,
        bytes: 0,
        added: 1,
        changed: 1,
    };
    assert_eq!(
        print_dump(std::slice::from_ref(&entry), &PortNames::none()),
        format!(
            " cookie=0x0, duration=0.008s, table=0, n_packets=0, n_bytes=0, idle_age=0, {rule}\n"
        ),
    );
    let names: PortNames = [(PortNumber(1), "vdpa1")].into_iter().collect();
    let named = rule.replace("in_port=1", "in_port=vdpa1");
    let printed = print_dump(std::slice::from_ref(&entry), &names);
    assert!(printed.ends_with(&format!(" idle_age=0, {named}\n")), "{printed}");
    let again = parse_flow(&named, FlowCommand::Add, &names).expect("a rule");
    assert_eq!(again.matching, entry.matching);
}

#[test]
fn a_composed_frame_has_valid_checksums() {
    let text = "in_port(1),eth(src=50:54:00:00:00:09,dst=50:54:00:00:00:0a),eth_type(0x0800),\
                ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,tos=0,ttl=64,frag=no),udp(src=1,dst=2)";
    let key = parse_datapath_key(text).expect("a key");
    let frame = compose(&key);
    assert_eq!(frame.len(), 14 + 20 + 8 + 64);
    let sum = |bytes: &[u8]| {
        let mut sum: u32 =
            bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum
    };
    assert_eq!(sum(&frame[14..34]), 0xffff);
    let mut datagram = frame[26..].to_vec();
    datagram.extend([0, 17, 0, 72]);
    assert_eq!(sum(&datagram), 0xffff);
}
