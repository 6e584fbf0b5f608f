//! Tests that parse valid and invalid profiles.
#![allow(clippy::unwrap_used)]

use generator::Profile;
use generator::profile::{AddressesInMac, Distribution, EditContent, ports_of_platform};
use proptest::prelude::*;
use units::Span;

/// The exact text of the profile in the flow-rules report.
const REPORT: &str = r#"#
# Simple IMIX test 64B
#
- duration : 1
  generator :
          distribution : "seq"
          clients_start : "16.0.0.1"
          clients_end   : "16.0.0.255"
          servers_start : "48.0.0.1"
          servers_end   : "48.0.255.255"
          clients_per_gb : 201
          min_clients    : 101
          dual_port_mask : "1.0.0.0"
          tcp_aging      : 0
          udp_aging      : 0
  cap_info :
     - name: cap2/udp_64B.pcap
       cps   : 10000.0
       ipg   : 10000
       rtt   : 10000
       w     : 1
       limit : 255
"#;

/// A folder without PCI devices.
const NO_CARDS: &str = "/nonexistent";

fn mistakes(text: &str) -> Vec<String> {
    match Profile::parse("p.yaml", text) {
        Ok(profile) => panic!("accepted: {profile:?}"),
        Err(mistakes) => mistakes.to_string().lines().map(str::to_owned).collect(),
    }
}

fn with_template(lines: &str) -> String {
    let (before, _) = REPORT.split_once("       limit").unwrap();
    format!("{before}{lines}")
}

fn with_top(lines: &str) -> String {
    REPORT.replace("  cap_info :", &format!("{lines}  cap_info :"))
}

#[test]
fn deprecated_keys_of_trex_are_accepted_with_a_note() {
    let text =
        with_top("  wlength : 7\n").replace("       limit", "       wlength : 2\n       limit");
    let notes = Profile::parse("p.yaml", &text).unwrap().notes;
    let counted: Vec<_> = notes.iter().filter(|note| note.contains("`wlength`")).collect();
    assert_eq!(counted.len(), 2, "{notes:?}");
    let wrong = mistakes(&with_top("  wlength : many\n"));
    assert!(wrong[0].contains("wlength"), "{wrong:?}");
}

#[test]
fn the_profile_of_the_reference_report_is_parsed() {
    let profile = Profile::parse("p.yaml", REPORT).unwrap();
    assert_eq!(profile.duration, Span::from_secs(1));
    let (clients, servers) = (&profile.client_pools[0], &profile.server_pools[0]);
    assert_eq!((clients.size(), servers.size()), (255, 65_535));
    assert_eq!(clients.distribution, Distribution::Sequential);
    assert_eq!(clients.dual_port_mask, 0x0100_0000);
    let template = &profile.templates[0];
    assert_eq!(template.name, "cap2/udp_64B.pcap");
    assert_eq!(template.flows.events(), 10_000.0);
    assert_eq!((template.gap, template.turn_gap), (Span::from_millis(10), Span::from_millis(10)));
    assert_eq!((template.window, template.limit), (1, Some(255)));
    assert!(!template.capture_times, "without `cap_ipg` the gaps are those of the profile");
    assert!(profile.notes.is_empty());
}

#[test]
fn all_keys_of_trex_are_accepted() {
    let text = with_top(
        "  cap_ipg : true\n  cap_ipg_min : 30\n  cap_override_ipg : 200\n  \
         mac_override_by_ip : 2\n  vlan : { enable : 1 , vlan0 : 100 , vlan1 : 200 }\n  \
         src_ipv6 : [0x2001,0x0232,0x1002,0x0051,0x0000,0x0000]\n  \
         dst_ipv6 : [0x3001,0x0DB8,0x0003,0x0004,0x0000,0x0000]\n  \
         tw :\n     buckets : 1024\n     levels : 3\n     bucket_time_usec : 20.0\n",
    );
    let text = text.replace(
        "       limit : 255\n",
        "       keep_src_port : true\n       server_addr : 48.0.0.7\n       one_app_server : true\n       \
         client_pool : c1\n       server_pool : s1\n       cap_ipg : false\n       \
         multi_flow_enabled : true\n       flows_dirs : [0, 1]\n       max_ip_tunnels : 2\n       \
         ip_header_offset : 0\n       dyn_pyload :\n          - pkt_id : 0\n            \
         pyld_offset : 2\n            type : 1\n            len : 1\n            mask : 0xff\n",
    );
    let text = text.replace(
        "          udp_aging      : 0\n",
        "          udp_aging      : 3\n          split_to_ports : true\n          generator_clients :\n             \
         - name : c1\n               distribution : random\n               ip_start : 26.0.0.1\n               \
         ip_end : 26.0.1.255\n          generator_servers :\n             - name : s1\n               \
         ip_start : 28.0.0.1\n               ip_end : 28.0.1.255\n               track_ports : false\n",
    );
    let profile = Profile::parse("p.yaml", &text).unwrap();
    assert_eq!(profile.vlans, Some([100, 200]));
    assert_eq!(profile.addresses_in_mac, AddressesInMac::All);
    assert_eq!(profile.ipv6.unwrap().servers[1], 0x0db8);
    assert_eq!(profile.shortest_gap, Some((Span::from_micros(30), Span::from_micros(200))));
    let template = &profile.templates[0];
    assert_eq!((template.client_pool, template.server_pool), (1, 1));
    assert_eq!(template.only_server, Some("48.0.0.7".parse().unwrap()));
    assert!(template.keep_source_port && !template.capture_times);
    assert_eq!(template.gap, Span::from_micros(200));
    assert_eq!(template.edits[0].content, EditContent::ClientAddress);
    let pool = &profile.client_pools[1];
    assert_eq!(pool.distribution, Distribution::Random);
    assert_eq!((pool.dual_port_mask, pool.udp_aging), (0x0100_0000, Span::from_secs(3)));
}

#[test]
fn every_error_names_its_line_and_the_right_spelling() {
    let text = REPORT
        .replace("clients_end   : \"16.0.0.255\"", "clientz_end : \"16.0.0.255\"")
        .replace("\"48.0.255.255\"", "\"47.0.0.1\"")
        .replace("cps   : 10000.0", "cps : fast")
        .replace("\"seq\"", "\"sec\"")
        .replace("limit : 255", "limmit : 255");
    let found = mistakes(&text);
    for expected in [
        "p.yaml:6: `distribution` is seq, random or normal, not `sec` (did you mean `seq`?)",
        "p.yaml:8: unknown key `clientz_end` in `generator` (did you mean `clients_end`?)",
        "p.yaml:10: `servers_end` is 47.0.0.1, before the start 48.0.0.1: the range is empty",
        "p.yaml:18: `cps` is a number from 0 on, not `fast`",
        "p.yaml:22: unknown key `limmit` in a template (did you mean `limit`?)",
    ] {
        assert!(found.iter().any(|line| line == expected), "{expected} is not in {found:#?}");
    }
}

/// If a pool has a mistake, a template that names the pool causes no further mistake.
#[test]
fn every_error_in_an_address_pool_names_its_line_and_the_right_spelling() {
    let text = REPORT.replace(
        "          udp_aging      : 0\n",
        "          udp_aging      : 0\n          generator_clients :\n             \
         - nmae : c1\n               ip_strat : 26.0.0.1\n               ip_end : 26.0.1.255\n             \
         - name : c2\n               ip_start : 27.0.0.1\n               ip_nd : 27.0.1.255\n",
    );
    let text = text.replace(
        "       limit : 255\n",
        "       client_pool : c1\n     - name : cap2/dns.pcap\n       cps : 1\n       ipg : 1\n       \
         rtt : 1\n       w : 1\n       client_pool : c2\n",
    );
    assert_eq!(
        mistakes(&text),
        [
            "p.yaml:17: `name` is missing in a pool of addresses",
            "p.yaml:17: `ip_start` is missing in a pool of addresses",
            "p.yaml:17: unknown key `nmae` in a pool of addresses (did you mean `name`?)",
            "p.yaml:18: unknown key `ip_strat` in a pool of addresses (did you mean `ip_start`?)",
            "p.yaml:20: `ip_end` is missing",
            "p.yaml:22: unknown key `ip_nd` in a pool of addresses (did you mean `ip_end`?)",
        ]
    );
}

#[test]
fn the_default_pool_is_the_first_pool() {
    let (before, rest) = REPORT.split_once("          distribution").unwrap();
    let (_, after) = rest.split_once("udp_aging      : 0\n").unwrap();
    let pools = ["clients", "servers"].map(|side| {
        format!(
            "          generator_{side} :\n             - name : first\n               \
             ip_start : 10.0.0.1\n               ip_end : 10.0.0.9\n"
        )
    });
    let text = format!("{before}{}{after}       client_pool : default\n", pools.concat());
    let profile = Profile::parse("p.yaml", &text).unwrap();
    assert_eq!((profile.templates[0].client_pool, profile.templates[0].server_pool), (0, 0));
}

#[test]
fn missing_and_contradicting_keys_are_errors() {
    // Each line has ten times as many values as the previous line.
    let line = |number: usize| {
        let ten = vec![format!("*a{}", number - 1); 10].join(", ");
        format!("  x{number} : &a{number} [{ten}]\n")
    };
    let bomb = "  x0 : &a0 1\n".to_owned() + &(1..9).map(line).collect::<String>();
    let bomb = with_top(&bomb);
    for (text, message) in [
        (String::new(), "empty"),
        ("- duration : 1\n".to_owned(), "`generator` is missing"),
        ("a: [1, 2".to_owned(), "this is not YAML"),
        ("- 1\n- 2\n".to_owned(), "a second profile"),
        ("just words".to_owned(), "a profile is a block of keys"),
        ("clients_start : 16.0.0.1\n".to_owned(), "`generator` alone"),
        ("groups:\n- a: 1\n".to_owned(), "client configuration"),
        ("- items:\n".to_owned(), "list of MAC addresses"),
        (with_template("       plugin_id : 2\n       limit : 4\n"), "exclude each other"),
        (with_template("       client_pool : none\n"), "names no pool"),
        (with_template("       flows_dirs : [0, 2]\n"), "from 0 to 1"),
        (with_template("       multi_flow_enabled : 1\n"), "needs `flows_dirs`"),
        (with_template("       server_addr : 1.1.1\n"), "IPv4 address"),
        (with_top("  vlan : { enable : 1, vlan0 : 9999 }\n"), "from 0 to 4095"),
        (with_top("  src_ipv6 : [1, 2]\n"), "six 16-bit words"),
        (with_top("  cap_ipg : maybe\n"), "true or false"),
        (with_top("  x : &a [*a]\n"), "inside the value that it names"),
        (with_top("  cap_ipg : *none\n"), "this is not YAML"),
        (bomb, "too many or too deeply"),
        (REPORT.replace("w     : 1", "w : -1"), "whole number"),
        (REPORT.replace("duration : 1", "duration : soon"), "is a number"),
    ] {
        let found = mistakes(&text).join("\n");
        assert!(found.contains(message), "{text}\n{found}");
    }
}

#[test]
fn a_yaml_alias_has_the_value_of_its_anchor() {
    let text = REPORT.replace("cps   : 10000.0", "cps : &rate 77.5").replace(
        "       limit : 255",
        "     - &second\n       name: cap2/dns.pcap\n       cps : *rate\n       ipg : 1\n       \
         rtt : 1\n       w : 1\n     - *second",
    );
    let profile = Profile::parse("p.yaml", &text).unwrap();
    let flows: Vec<f64> = profile.templates.iter().map(|one| one.flows.events()).collect();
    assert_eq!(flows, [77.5; 3]);
    assert_eq!(profile.templates[1], profile.templates[2]);
}

#[test]
fn a_second_yaml_document_is_an_error_unless_it_is_empty() {
    let first = with_template("");
    let second = mistakes(&format!("{first}---\n{}", first));
    assert_eq!(second, ["p.yaml:26: a second document: move it to another file"]);
    let open = mistakes(&format!("{first}---\n[\n"));
    assert_eq!(open, ["p.yaml:23: a second document: move it to another file"]);
    let broken = mistakes(&format!("{first}---\n\t@\n"));
    assert!(broken[0].contains("this is not YAML"), "{broken:?}");
    assert!(Profile::parse("p.yaml", &format!("---\n{first}---\n...\n")).is_ok());
}

#[test]
fn deprecated_and_repeated_keys_give_a_note() {
    let text = "- duration : 10\n  min_src_ip : 0x10000001\n  max_src_ip : 0x100000ff\n  \
                min_dst_ip : 0x30000001\n  max_dst_ip : 0x3000ffff\n  cap_info :\n     \
                - name : cap2/dns.pcap\n       cps : 1.0\n       ipg : 1\n       rtt : 1\n       \
                w : 1\n       w : 2\n";
    let profile = Profile::parse("p.yaml", text).unwrap();
    assert_eq!(profile.client_pools[0].first.to_string(), "16.0.0.1");
    assert_eq!(profile.templates[0].window, 2, "TRex's parser keeps the last value");
    assert!(profile.notes.iter().any(|note| note.contains("repeated")), "{:?}", profile.notes);
}

#[test]
fn numbers_parse_in_the_bases_that_trex_accepts() {
    for (text, limit) in [("0100", 64), ("0x1F", 31), ("0", 0), ("00", 0), ("\" 7 \"", 7)] {
        let profile = REPORT.replace("limit : 255", &format!("limit : {text}"));
        let profile = Profile::parse("p.yaml", &profile).unwrap();
        assert_eq!(profile.templates[0].limit.unwrap_or(0), limit, "{text}");
    }
    // Rates are decimal numbers.
    let rate = Profile::parse("p.yaml", &REPORT.replace("10000.0", "010.5")).unwrap();
    assert_eq!(rate.templates[0].flows.events(), 10.5);
    for text in ["08", "0x", "0o17", "1.0", "0x+1", "0+7"] {
        let wrong = mistakes(&REPORT.replace("limit : 255", &format!("limit : {text}")));
        assert!(wrong[0].contains("`limit` is a whole number"), "{wrong:?}");
    }
}

#[test]
fn a_platform_file_names_ports_and_gateways() {
    let text = "- port_limit : 2\n  version : 2\n  interfaces : [\"veth0\", \"veth1\"]\n  port_info :\n    \
                - ip : 192.168.10.2\n      default_gw : 192.168.10.1\n    \
                - dest_mac : [0x02, 0xac, 0x10, 0xff, 0x01, 0x02]\n      src_mac : \"02:00:00:00:00:07\"\n";
    let ports = ports_of_platform("trex_cfg.yaml", text, NO_CARDS.as_ref()).unwrap();
    assert_eq!(
        ports,
        [
            "veth0,ip=192.168.10.2,gateway=192.168.10.1",
            "veth1,dest-mac=02:ac:10:ff:01:02,mac=02:00:00:00:00:07"
        ]
    );
    // A published file has the key `port_info` twice, the first time without a value.
    let text = "- interfaces : [a, b]\n  port_info :\n  port_info :\n  - ip : 1.1.1.1\n";
    assert_eq!(ports_of_platform("x", text, NO_CARDS.as_ref()).unwrap(), ["a,ip=1.1.1.1", "b"]);
    let text = "- interfaces : [a, b]\n  port_info :\n";
    assert_eq!(ports_of_platform("x", text, NO_CARDS.as_ref()).unwrap(), ["a", "b"]);
    let without = ports_of_platform("x", "- a : 1\n", NO_CARDS.as_ref()).unwrap_err();
    assert!(without.to_string().contains("`interfaces`"));
}

#[test]
fn a_card_in_a_platform_file_is_the_kernels_interface() {
    let cards = tempfile::tempdir().unwrap();
    for interface in ["0000:03:00.0/net/eth4", "0000:03:00.0/net/eth5", "0000:03:00.1/net/eth6"] {
        std::fs::create_dir_all(cards.path().join(interface)).unwrap();
    }
    let ports = |interfaces: &str| {
        let text = format!("- interfaces : [{interfaces}]\n  port_info :\n  - ip : 1.1.1.1\n");
        ports_of_platform("x", &text, cards.path()).map_err(|mistakes| mistakes.to_string())
    };
    assert_eq!(ports("\"03:00.0\", \"0000:03:00.1\"").unwrap(), ["eth4,ip=1.1.1.1", "eth6"]);
    assert_eq!(ports("\"03:00.0/1\", \"dummy\"").unwrap(), ["eth5,ip=1.1.1.1", "null"]);
    assert_eq!(ports("\"dummy\", \"a:b\"").unwrap(), ["null", "a:b"]);
    let packet_socket = "\"--vdev=net_af_packet0,iface=veth0\"";
    assert_eq!(ports(packet_socket).unwrap(), ["veth0,ip=1.1.1.1"]);
    let reason = ports("\"04:00.0\"").unwrap_err();
    assert!(
        reason.contains("x:1: the card 0000:04:00.0 has no interface of the kernel"),
        "{reason}"
    );
    assert!(ports("\"--vdev=net_af_packet0\"").unwrap_err().contains("iface=INTERFACE"));
}

proptest! {
    #[test]
    fn parsing_a_changed_profile_causes_no_panic(at in 0usize..600, text in "\\PC{0,12}", cut in 0usize..40) {
        let mut bytes = REPORT.to_owned();
        let at = at.min(bytes.len());
        let end = (at + cut).min(bytes.len());
        bytes.replace_range(at..end, &text);
        if let Err(mistakes) = Profile::parse("p.yaml", &bytes) {
            prop_assert!(!mistakes.is_empty());
            let _ = mistakes.to_string();
        }
    }
}
