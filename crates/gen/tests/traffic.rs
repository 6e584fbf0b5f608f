//! The packets of profiles, in logical time.
#![allow(clippy::unwrap_used)]

use std::collections::HashSet;
use std::sync::Arc;

use generator::capture::CapturedPacket;
use generator::traffic::Stamp;
use generator::{Addressing, Capture, LaneAddresses, Plan, PlanOptions, Profile, Traffic};
use proptest::prelude::*;
use units::{Span, Time};

fn profile(generator: &str, top: &str, templates: &str) -> Profile {
    let text = format!("- duration : 1\n  generator :\n{generator}{top}  cap_info :\n{templates}");
    Profile::parse("p.yaml", &text).unwrap()
}

fn pools(clients: &str, servers: &str) -> String {
    format!(
        "    distribution : seq\n    clients_start : 16.0.0.1\n    clients_end : {clients}\n    \
         servers_start : 48.0.0.1\n    servers_end : {servers}\n    dual_port_mask : 1.0.0.0\n"
    )
}

fn template(name: &str, cps: f64, more: &str) -> String {
    format!(
        "   - name : {name}\n     cps : {cps}\n     ipg : 1000\n     rtt : 5000\n     w : 1\n{more}"
    )
}

fn plan(profile: &Profile, lanes: usize, options: PlanOptions) -> Arc<Plan> {
    let captures: Vec<Capture> = profile
        .templates
        .iter()
        .map(|template| Capture::built_in(&template.name).unwrap())
        .collect();
    let lanes: Vec<LaneAddresses> = (0..lanes as u8)
        .map(|n| LaneAddresses {
            source: [2, 0, 0, 0, 0, n],
            destination: [2, 0, 0, 0, 1, n],
            vlan: None,
        })
        .collect();
    Arc::new(Plan::new(profile, &captures, &lanes, options).unwrap())
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Seen {
    at: u64,
    lane: usize,
    source: [u8; 4],
    destination: [u8; 4],
    ports: (u16, u16),
    len: usize,
}

/// Returns all packets before `end`. Checks their checksums with an independent implementation.
fn packets(traffic: &mut Traffic, end: Span) -> Vec<Seen> {
    let mut seen = Vec::new();
    let mut buffer = [0; 2048];
    while traffic.due().is_some_and(|due| due < Time::ZERO + end) {
        let departure = traffic.take(Time::ZERO, &mut buffer).unwrap();
        let frame = &buffer[..departure.len];
        let headers = etherparse::PacketHeaders::from_ethernet_slice(frame).unwrap();
        let Some(etherparse::NetHeaders::Ipv4(ip, _)) = &headers.net else { panic!("no IPv4") };
        assert_eq!(ip.header_checksum, ip.calc_header_checksum());
        let payload = headers.payload.slice();
        let ports = match headers.transport.clone() {
            Some(etherparse::TransportHeader::Udp(udp)) => {
                assert_eq!(udp.checksum, udp.calc_checksum_ipv4(ip, payload).unwrap());
                (udp.source_port, udp.destination_port)
            }
            Some(etherparse::TransportHeader::Tcp(tcp)) => {
                assert_eq!(tcp.checksum, tcp.calc_checksum_ipv4(ip, payload).unwrap());
                (tcp.source_port, tcp.destination_port)
            }
            other => panic!("{other:?}"),
        };
        seen.push(Seen {
            at: departure.at.nanos(),
            lane: departure.lane,
            source: ip.source,
            destination: ip.destination,
            ports,
            len: departure.len,
        });
    }
    seen
}

#[test]
fn client_and_server_addresses_advance_together_and_client_ports_begin_at_1024() {
    let profile = profile(&pools("16.0.0.3", "48.0.0.2"), "", &template("udp_64B.pcap", 100.0, ""));
    let mut traffic = Traffic::new(plan(&profile, 2, PlanOptions::default()), 1.0, 0, 1);
    let seen = packets(&mut traffic, Span::from_millis(80));
    let short: Vec<(u8, u8, u16)> = seen
        .iter()
        .map(|packet| (packet.source[3], packet.destination[3], packet.ports.0))
        .collect();
    let expected = [
        (1, 1, 1024),
        (2, 2, 1024),
        (3, 1, 1024),
        (1, 2, 1025),
        (2, 1, 1025),
        (3, 2, 1025),
        (1, 1, 1026),
        (2, 2, 1026),
    ];
    assert_eq!(short, expected);
    assert!(seen.iter().all(|packet| packet.lane == 0 && packet.len == 60));
    let times: Vec<u64> = seen.iter().map(|packet| packet.at / 1_000_000).collect();
    assert_eq!(times, [0, 10, 20, 30, 40, 50, 60, 70]);
}

#[test]
fn the_key_limit_repeats_the_first_flows_at_the_same_rate_in_both_orders() {
    for addressing in [Addressing::Lockstep, Addressing::Destination] {
        for limit in [1usize, 255, 4096, 262_144] {
            let profile = profile(
                &pools("16.0.0.255", "48.0.255.255"),
                "",
                &template("udp_64B.pcap", 1e6, &format!("     limit : {limit}\n")),
            );
            let options = PlanOptions { addressing, ..PlanOptions::default() };
            let mut traffic = Traffic::new(plan(&profile, 2, options), 1.0, 0, 1);
            let span = Span::from_micros(limit as u64 * 2 + 500);
            let seen = packets(&mut traffic, span);
            assert_eq!(seen.len(), limit * 2 + 500, "the rate must not depend on the limit");
            let tuple = |packet: &Seen| (packet.source, packet.destination, packet.ports);
            let different: HashSet<_> = seen.iter().map(tuple).collect();
            assert_eq!(different.len(), limit, "{addressing:?}");
            for (first, again) in seen.iter().zip(&seen[limit..]) {
                assert_eq!(tuple(first), tuple(again));
            }
            if addressing == Addressing::Destination {
                let sources: HashSet<_> = seen.iter().map(|packet| packet.source).collect();
                assert_eq!(sources.len(), limit.div_ceil(65_535));
            }
        }
    }
}

/// Counts the flows by the quarter of the 400 addresses in which their server is. The second result
/// has the client and the client port of each flow.
fn quarters(distribution: &str) -> ([usize; 4], HashSet<(u32, u16)>) {
    let pools = pools("16.0.0.99", "48.0.1.143");
    let pools = pools.replacen("distribution : seq", &format!("distribution : {distribution}"), 1);
    let profile = profile(&pools, "", &template("udp_64B.pcap", 10_000.0, ""));
    let mut traffic = Traffic::new(plan(&profile, 2, PlanOptions::default()), 1.0, 0, 1);
    let (mut quarters, mut clients) = ([0; 4], HashSet::new());
    for packet in packets(&mut traffic, Span::from_secs(2)) {
        let place = u32::from_be_bytes(packet.destination) - 0x3000_0001;
        assert!(place < 400, "{place}");
        quarters[place as usize / 100] += 1;
        let client = u32::from_be_bytes(packet.source);
        assert!((0x1000_0001..=0x1000_0064).contains(&client), "{client:x}");
        clients.insert((client, packet.ports.0));
    }
    assert_eq!(quarters.iter().sum::<usize>(), 20_000);
    (quarters, clients)
}

#[test]
fn random_addresses_are_uniform() {
    let (quarters, clients) = quarters("random");
    // Five standard deviations of 20,000 draws with probability 1/4 are 306.
    assert!(quarters.iter().all(|count| count.abs_diff(5_000) < 306), "{quarters:?}");
    // Almost no pair of client and port may occur twice, because the same pair would be the same
    // flow.
    assert!(clients.len() > 19_900, "{}", clients.len());
}

#[test]
fn normally_distributed_addresses_are_most_frequent_in_the_middle() {
    let (quarters, clients) = quarters("normal");
    let [low, left, right, high] = quarters;
    // P(sum of four uniform numbers < 1) = 1/24. The second quarter has the rest of the lower half:
    // 11/24.
    for (count, share) in
        [(low, 1.0 / 24.0), (left, 11.0 / 24.0), (right, 11.0 / 24.0), (high, 1.0 / 24.0)]
    {
        let expected = 20_000.0 * share;
        let five_deviations = 5.0 * f64::sqrt(20_000.0 * share * (1.0 - share));
        assert!((count as f64 - expected).abs() < five_deviations, "{quarters:?}");
    }
    assert!(clients.len() > 19_500, "{}", clients.len());
}

#[test]
fn drawn_addresses_repeat_with_the_limit_and_do_not_depend_on_threads() {
    let pools = pools("16.0.0.99", "48.0.1.143");
    let pools = pools.replacen("distribution : seq", "distribution : random", 1);
    let profile = profile(&pools, "", &template("udp_64B.pcap", 1_000.0, "     limit : 50\n"));
    let plan = plan(&profile, 2, PlanOptions::default());
    let end = Span::from_secs(1);
    let all = packets(&mut Traffic::new(Arc::clone(&plan), 1.0, 0, 1), end);
    let tuples: HashSet<_> =
        all.iter().map(|packet| (packet.source, packet.destination, packet.ports)).collect();
    assert_eq!(tuples.len(), 50);
    let of_parts: HashSet<Seen> = (0..3)
        .flat_map(|part| packets(&mut Traffic::new(Arc::clone(&plan), 1.0, part, 3), end))
        .collect();
    assert_eq!(of_parts, all.into_iter().collect());
}

#[test]
fn flows_of_a_window_share_one_pair_of_addresses() {
    let templates = template("udp_64B.pcap", 100.0, "").replace("w : 1", "w : 3");
    let profile = profile(&pools("16.0.0.9", "48.0.0.9"), "", &templates);
    let mut traffic = Traffic::new(plan(&profile, 2, PlanOptions::default()), 1.0, 0, 1);
    let seen = packets(&mut traffic, Span::from_millis(70));
    let short: Vec<(u8, u16)> =
        seen.iter().map(|packet| (packet.source[3], packet.ports.0)).collect();
    assert_eq!(
        short,
        [(1, 1024), (1, 1025), (1, 1026), (2, 1024), (2, 1025), (2, 1026), (3, 1024)]
    );
}

#[test]
fn packets_of_both_directions_keep_the_gaps_and_leave_by_different_ports() {
    let profile = profile(&pools("16.0.0.9", "48.0.0.9"), "", &template("dns.pcap", 1.0, ""));
    let mut traffic = Traffic::new(plan(&profile, 2, PlanOptions::default()), 1.0, 0, 1);
    let seen = packets(&mut traffic, Span::from_millis(900));
    assert_eq!(seen.len(), 2);
    let (query, answer) = (&seen[0], &seen[1]);
    assert_eq!((query.lane, answer.lane), (0, 1));
    assert_eq!(answer.at - query.at, 5_000_000);
    assert_eq!((query.source, query.ports), (answer.destination, (answer.ports.1, answer.ports.0)));

    let mut alone = Traffic::new(plan(&profile, 1, PlanOptions::default()), 1.0, 0, 1);
    assert!(packets(&mut alone, Span::from_millis(900)).iter().all(|packet| packet.lane == 0));
}

#[test]
fn cap_ipg_takes_the_gaps_from_the_capture() {
    let top = "  cap_ipg : true\n  cap_ipg_min : 20000\n  cap_override_ipg : 30000\n";
    let profile = profile(&pools("16.0.0.9", "48.0.0.9"), top, &template("dns.pcap", 1.0, ""));
    let mut traffic = Traffic::new(plan(&profile, 2, PlanOptions::default()), 1.0, 0, 1);
    let seen = packets(&mut traffic, Span::from_millis(900));
    // The gap of 10 ms in the capture is below `cap_ipg_min`, 20 ms, so `cap_override_ipg`, 30 ms,
    // replaces it.
    assert_eq!(seen[1].at - seen[0].at, 30_000_000);
}

#[test]
fn port_pairs_share_the_flows_and_add_the_mask_to_the_addresses() {
    let profile = profile(&pools("16.0.0.9", "48.0.0.9"), "", &template("udp_64B.pcap", 100.0, ""));
    let mut traffic = Traffic::new(plan(&profile, 4, PlanOptions::default()), 1.0, 0, 1);
    let seen = packets(&mut traffic, Span::from_millis(40));
    let short: Vec<_> =
        seen.iter().map(|packet| (packet.lane, packet.source, packet.destination[0])).collect();
    assert_eq!(
        short,
        [
            (0, [16, 0, 0, 1], 48),
            (2, [17, 0, 0, 1], 49),
            (0, [16, 0, 0, 2], 48),
            (2, [17, 0, 0, 2], 49)
        ]
    );
}

#[test]
fn the_vlan_tag_and_the_first_port_alternate_with_the_client_address() {
    let top = "  vlan : { enable : 1, vlan0 : 100, vlan1 : 200 }\n";
    let profile =
        profile(&pools("16.0.0.9", "48.0.0.9"), top, &template("udp_64B.pcap", 100.0, ""));
    let mut traffic = Traffic::new(plan(&profile, 2, PlanOptions::default()), 1.0, 0, 1);
    let mut buffer = [0; 128];
    let mut seen = Vec::new();
    for _ in 0..4 {
        let departure = traffic.take(Time::ZERO, &mut buffer).unwrap();
        assert_eq!((departure.len, &buffer[12..14]), (64, &[0x81, 0x00][..]));
        seen.push((departure.lane, u16::from_be_bytes([buffer[14], buffer[15]])));
    }
    // The first client is 16.0.0.1, and clients with odd addresses have the second tag.
    assert_eq!(seen, [(1, 200), (0, 100), (1, 200), (0, 100)]);
}

#[test]
fn ipv6_addresses_keep_the_low_bits_and_the_checksum_is_valid() {
    let top =
        "  src_ipv6 : [0x2001, 0xdb8, 0, 0, 0, 0]\n  dst_ipv6 : [0x3001, 0xdb8, 0, 0, 0, 0]\n";
    let profile = profile(&pools("16.0.0.9", "48.0.0.9"), top, &template("dns.pcap", 100.0, ""));
    let options = PlanOptions { ipv6: true, ..PlanOptions::default() };
    let mut traffic = Traffic::new(plan(&profile, 2, options), 1.0, 0, 1);
    let (mut buffer, mut lanes) = ([0; 256], Vec::new());
    for _ in 0..6 {
        let departure = traffic.take(Time::ZERO, &mut buffer).unwrap();
        let headers =
            etherparse::PacketHeaders::from_ethernet_slice(&buffer[..departure.len]).unwrap();
        let Some(etherparse::NetHeaders::Ipv6(ip, _)) = &headers.net else { panic!("no IPv6") };
        let Some(etherparse::TransportHeader::Udp(udp)) = &headers.transport else { panic!() };
        let right = udp.calc_checksum_ipv6(ip, headers.payload.slice()).unwrap();
        assert_eq!(udp.checksum, right);
        let is_query = departure.lane == 0;
        let client = if is_query { ip.source } else { ip.destination };
        assert_eq!(client[..2], [0x20, 0x01]);
        assert_eq!(client[12], 16);
        lanes.push(departure.lane);
    }
    assert_eq!(lanes, [0, 1, 0, 1, 0, 1]);
}

#[test]
fn payload_edits_keep_the_checksum_valid_at_any_offset() {
    for offset in 0..5 {
        let edit = format!(
            "     dyn_pyload :\n       - {{ pkt_id : 0, pyld_offset : {offset}, type : 0, len : 2, mask : 0xff00ffff }}\n       \
             - {{ pkt_id : 1, pyld_offset : {offset}, type : 1, len : 1, mask : 0xffffffff }}\n"
        );
        let profile =
            profile(&pools("16.0.0.9", "48.0.0.9"), "", &template("dns.pcap", 50.0, &edit));
        let mut traffic = Traffic::new(plan(&profile, 2, PlanOptions::default()), 1.0, 0, 1);
        assert!(packets(&mut traffic, Span::from_millis(500)).len() > 40);
    }
}

#[test]
fn templates_that_share_pools_never_share_a_five_tuple() {
    let templates =
        [64, 594, 1518].map(|size| template(&format!("udp_{size}B.pcap"), 1000.0, "")).concat();
    let profile = profile(&pools("16.0.0.7", "48.0.0.5"), "", &templates);
    let mut traffic = Traffic::new(plan(&profile, 2, PlanOptions::default()), 1.0, 0, 1);
    let seen = packets(&mut traffic, Span::from_secs(1));
    assert_eq!(seen.len(), 3000);
    let tuples: HashSet<_> =
        seen.iter().map(|packet| (packet.source, packet.destination, packet.ports)).collect();
    assert_eq!(tuples.len(), 3000);
}

#[test]
fn templates_draw_from_shared_pools_in_the_order_of_their_flows() {
    let templates = [("udp_64B", 28.0, 7), ("udp_594B", 20.0, 5), ("udp_1518B", 4.0, 1)];
    let templates: String = templates
        .iter()
        .map(|(name, cps, limit)| template(name, *cps, &format!("     limit : {limit}\n")))
        .collect();
    let profile =
        profile(&pools("16.0.0.255", "48.0.255.255"), "", &templates.replace("w : 1", "w : 4"));
    let mut traffic = Traffic::new(plan(&profile, 2, PlanOptions::default()), 1.0, 0, 1);
    let drawn = packets(&mut traffic, Span::from_millis(260));
    let drawn: Vec<_> =
        drawn.iter().map(|packet| (packet.len, packet.source[3], packet.ports.0)).collect();
    let of = |len| drawn.iter().filter(move |one| one.0 == len).map(|one| (one.1, one.2));
    let first: Vec<_> = of(60).collect();
    let expected = [(1, 1024), (1, 1025), (1, 1026), (1, 1027), (4, 1024), (4, 1025), (4, 1026)];
    assert_eq!(first, expected);
    assert_eq!(
        of(590).collect::<Vec<_>>(),
        [(2, 1024), (2, 1025), (2, 1026), (2, 1027), (5, 1024)]
    );
    assert_eq!(of(1514).collect::<Vec<_>>(), [(3, 1024)]);
}

fn udp(source: ([u8; 4], u16), destination: ([u8; 4], u16)) -> CapturedPacket {
    let builder = etherparse::PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv4(source.0, destination.0, 64)
        .udp(source.1, destination.1);
    let mut bytes = Vec::new();
    builder.write(&mut bytes, b"media").unwrap();
    CapturedPacket { at: Span::ZERO, bytes }
}

fn replay(capture: &Capture, more: &str, count: usize) -> Result<Vec<Seen>, String> {
    let profile = profile(&pools("16.0.0.9", "48.0.0.9"), "", &template("x", 1.0, more));
    let lanes = [LaneAddresses::default(); 2];
    let captures = std::slice::from_ref(capture);
    let plan = Plan::new(&profile, captures, &lanes, PlanOptions::default());
    let plan = plan.map_err(|error| error.to_string())?;
    let mut seen = packets(&mut Traffic::new(Arc::new(plan), 1.0, 0, 1), Span::from_secs(10));
    seen.truncate(count);
    Ok(seen)
}

#[test]
fn plugins_give_media_connections_separate_ports() {
    let (client, server) = ([21, 0, 0, 1], [22, 0, 0, 1]);
    // The media of the caller come from a different host than the caller's signalling.
    let phone = [21, 0, 0, 5];
    let capture = Capture {
        packets: vec![
            udp((client, 1350), (server, 5060)),
            udp((server, 5060), (client, 1350)),
            udp((phone, 10110), (server, 10110)),
            udp((server, 10110), (phone, 10110)),
            udp((server, 10112), (phone, 10112)),
        ],
    };
    let seen = replay(&capture, "     plugin_id : 2\n", 7).unwrap();
    let short: Vec<_> = seen.iter().map(|packet| (packet.lane, packet.ports)).collect();
    let expected = [
        (0, (1024, 5060)),
        (1, (5060, 1024)),
        (0, (1025, 1025)),
        (1, (1025, 1025)),
        (1, (1026, 1026)),
        (0, (1024, 5060)),
        (1, (5060, 1024)),
    ];
    assert_eq!(short, expected);
    assert!(
        seen[..5].iter().all(|packet| [packet.source, packet.destination].contains(&[16, 0, 0, 1]))
    );
    let plain = replay(&capture, "", 5).unwrap();
    assert_eq!(plain[2].ports, (10110, 10110), "without the plug-in the ports must stay");
}

#[test]
fn flows_dirs_names_the_connections_that_servers_begin() {
    let (client, server) = ([21, 0, 0, 1], [22, 0, 0, 1]);
    let capture = Capture {
        packets: vec![
            udp((client, 1000), (server, 5060)),
            udp((client, 2000), (server, 5061)),
            udp((server, 5061), (client, 2000)),
        ],
    };
    let more = "     multi_flow_enabled : true\n     flows_dirs : ";
    let lanes = |directions: &str| {
        let seen = replay(&capture, &format!("{more}{directions}\n"), 3);
        seen.map(|seen| seen.iter().map(|packet| packet.lane).collect::<Vec<_>>())
    };
    assert_eq!(lanes("[0, 0]").unwrap(), [0, 0, 1]);
    assert_eq!(lanes("[1, 0]").unwrap(), [1, 0, 1]);
    assert_eq!(lanes("[0, 1]").unwrap(), [0, 1, 0]);
    assert!(lanes("[0]").unwrap_err().contains("more connections"));
}

#[test]
fn frames_are_padded_to_the_minimum_ethernet_length() {
    let mut capture = Capture { packets: vec![udp(([1; 4], 1), ([2; 4], 2)); 2] };
    assert_eq!(capture.packets[0].bytes.len(), 47);
    capture.packets[1].bytes.extend([0; 90]);
    let seen = replay(&capture, "", 2).unwrap();
    assert!(seen.iter().all(|packet| packet.len == 60), "{seen:?}");
}

#[test]
fn a_capture_without_ip_is_refused_and_the_error_names_its_frames() {
    let mut pppoe = udp(([1; 4], 1), ([2; 4], 2));
    pppoe.bytes[12..14].copy_from_slice(&[0x88, 0x64]);
    let capture = Capture { packets: vec![pppoe] };
    let error = replay(&capture, "", 1).unwrap_err();
    assert!(error.contains("no IP packet; the first one is PPPoE"), "{error}");
}

#[test]
fn every_built_in_capture_replays_with_right_checksums() {
    for name in Capture::built_in_names() {
        let mut templates = template(name, 2.0, "");
        if name.contains("9k") || name == "jumbo" {
            continue;
        }
        templates.push_str("     limit : 2\n");
        let profile = profile(&pools("16.0.0.9", "48.0.0.9"), "", &templates);
        let mut traffic = Traffic::new(plan(&profile, 2, PlanOptions::default()), 1.0, 0, 1);
        assert!(!packets(&mut traffic, Span::from_secs(2)).is_empty(), "{name}");
    }
}

#[test]
fn stamped_packets_have_valid_checksums_and_a_sequence_per_lane() {
    let profile = profile(&pools("16.0.0.9", "48.0.0.9"), "", &template("udp_64B.pcap", 100.0, ""));
    let options = PlanOptions { stamped: true, ..PlanOptions::default() };
    let plan = plan(&profile, 2, options);
    let mut traffic = Traffic::new(plan, 1.0, 0, 1).with_streams_from(7);
    let mut buffer = [0; 128];
    for number in 0..20 {
        let now = Time::from_nanos(123_456_789_012_345);
        let departure = traffic.take(now, &mut buffer).unwrap();
        let frame = &buffer[..departure.len];
        let stamp = Stamp::read(frame).unwrap();
        assert_eq!(stamp, Stamp { stream: 7, sequence: number, sent: now });
        let headers = etherparse::PacketHeaders::from_ethernet_slice(frame).unwrap();
        let Some(etherparse::NetHeaders::Ipv4(ip, _)) = &headers.net else { panic!() };
        let Some(etherparse::TransportHeader::Udp(udp)) = &headers.transport else { panic!() };
        assert_eq!(udp.checksum, udp.calc_checksum_ipv4(ip, headers.payload.slice()).unwrap());
    }
    assert_eq!(traffic.streams().collect::<Vec<_>>(), [(7, 20), (8, 0)]);
}

proptest! {
    #[test]
    fn several_threads_together_send_the_packets_of_a_single_thread(
        parts in 1usize..6,
        lanes in prop::sample::select(vec![1usize, 2, 4, 6]),
        window in 1u32..5,
        limit in prop::option::of(1u32..50),
        multiplier in 0.5f64..3.0,
    ) {
        let limit = limit.map(|limit| format!("     limit : {limit}\n")).unwrap_or_default();
        let templates = (template("udp_64B.pcap", 700.0, &limit)
            + &template("dns.pcap", 300.0, ""))
            .replace("w : 1", &format!("w : {window}"));
        let profile = profile(&pools("16.0.0.7", "48.0.0.11"), "", &templates);
        let plan = plan(&profile, lanes, PlanOptions::default());
        let span = Span::from_millis(300);
        let mut whole =
            packets(&mut Traffic::new(Arc::clone(&plan), multiplier, 0, 1), span);
        prop_assert!(whole.is_sorted_by_key(|packet| packet.at));
        let mut together: Vec<Seen> = (0..parts)
            .flat_map(|part| {
                packets(&mut Traffic::new(Arc::clone(&plan), multiplier, part, parts), span)
            })
            .collect();
        let key = |packet: &Seen| (packet.at, packet.lane, packet.source, packet.destination, packet.ports, packet.len);
        whole.sort_by_key(key);
        together.sort_by_key(key);
        prop_assert_eq!(whole, together);
    }
}
