//! The rule language against Debian's ovs-ofctl: normal forms, error texts, and its own inverse.

#[path = "text/generator.rs"]
mod generator;
#[path = "text/wrong.rs"]
mod wrong;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::Command;

use rand::SeedableRng;
use rand_pcg::Pcg64;
use switch::flow::{Field, Key};
use switch::request::{FlowCommand, GroupCommand, MeterCommand};
use switch::text::{
    PortNames, compose, normalize, parse_actions, parse_datapath_key, parse_filter, parse_flow,
    parse_flow_line, parse_group, parse_hex_frame, parse_match, parse_meter, parse_packet,
    print_actions, print_datapath_key, print_match,
};

const RULES: u64 = 4000;

/// The output of ovs-ofctl with both streams, or `None` where it is not installed.
fn ovs_ofctl(arguments: &[&str]) -> Option<String> {
    let output = Command::new("ovs-ofctl").args(arguments).env("TZ", "UTC").output().ok()?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Some(text)
}

fn is_installed() -> bool {
    let is_installed = ovs_ofctl(&["--version"]).is_some_and(|text| text.contains("3.1."));
    if !is_installed {
        println!("SKIPPED: ovs-ofctl 3.1 is not installed (package openvswitch-common)");
    }
    is_installed
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(text.as_bytes()).expect("written");
    file
}

/// The match and the actions of a rule in the form of `ovs-ofctl diff-flows`.
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
            // A warning of its own concerns ports that OpenFlow 1.0 numbers otherwise.
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
        // Neither command reaches a switch: the first takes none, the second names none.
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

/// The error of an ovs-ofctl that does not get as far as the bridge, if the text has one.
fn error_of(arguments: &[&str]) -> Option<String> {
    let output = ovs_ofctl(arguments).expect("a run");
    let error = output.lines().find_map(|line| line.strip_prefix("ovs-ofctl: "))?;
    (!error.contains("is not a bridge or a socket")).then(|| error.to_owned())
}

#[test]
fn wrong_groups_and_meters_have_the_errors_of_ovs_ofctl() {
    if !is_installed() {
        return;
    }
    let mut differences = String::new();
    let mut compare = |text: &str, theirs: Option<String>, ours: Option<String>| {
        if ours != theirs {
            let _ = writeln!(differences, "{text}\n  theirs: {theirs:?}\n  ours:   {ours:?}");
        }
    };
    let names = PortNames::none();
    for text in wrong::GROUPS {
        let theirs =
            error_of(&["--no-names", "-O", "OpenFlow15", "add-group", "no-such-bridge", text]);
        let ours = parse_group(text, GroupCommand::Add, &names).err();
        compare(text, theirs, ours.map(|error| error.to_string()));
    }
    for text in wrong::METERS {
        let theirs =
            error_of(&["--no-names", "-O", "OpenFlow13", "add-meter", "no-such-bridge", text]);
        let ours = parse_meter(text, MeterCommand::Add).err();
        compare(text, theirs, ours.map(|error| error.to_string()));
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
        // ovs-ofctl writes some matches that it refuses to read.
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
        // A wide load prints as several.
        if !rule.contains("load") && !printed.contains("xreg") {
            assert_eq!(first.actions, second.actions, "{rule}\n{printed}");
        }
        assert_eq!(print_actions(&first.actions), print_actions(&second.actions), "{rule}");
    }
}

#[test]
fn no_text_panics() {
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
            let _ = parse_meter(cut, MeterCommand::Add);
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

#[test]
fn a_megaflow_prints_as_open_vswitch_prints_it() {
    let mut key = Key::ZERO;
    let mut mask = Key::ZERO;
    for (field, value, bits) in [
        (Field::InPort, 3, u128::MAX),
        (Field::EthType, 0x800, u128::MAX),
        (Field::IpDst, 0x3000_0003, 0xff00_0000),
    ] {
        key.write(field, value);
        mask.write(field, bits);
    }
    assert_eq!(
        print_datapath_key(&key, &mask),
        "recirc_id(0),in_port(3),packet_type(ns=0,id=0),eth_type(0x0800),\
         ipv4(dst=48.0.0.0/255.0.0.0,frag=no)"
    );
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
