//! Compares the packets of TRex's published profiles with TRex's recordings of its own runs. Needs
//! the `scripts` folder of a TRex release, named by `TREX_SCRIPTS`.
#![allow(clippy::unwrap_used)]

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use generator::{LaneAddresses, Plan, PlanOptions, Traffic};
use units::{Span, Time};

struct Case {
    profile: &'static str,
    recording: &'static str,
    ipv6: bool,
    /// In this profile, TRex changes texts in the payload, and thereby the lengths of packets.
    has_text: bool,
}

const fn case(profile: &'static str, recording: &'static str) -> Case {
    Case { profile, recording, ipv6: false, has_text: false }
}

const fn ipv6(profile: &'static str, recording: &'static str) -> Case {
    Case { profile, recording, ipv6: true, has_text: false }
}

const fn text(profile: &'static str, recording: &'static str) -> Case {
    Case { profile, recording, ipv6: false, has_text: true }
}

const fn ipv6_text(profile: &'static str, recording: &'static str) -> Case {
    Case { profile, recording, ipv6: true, has_text: true }
}

const CASES: &[Case] = &[
    case("cap2/dns.yaml", "dns"),
    case("cap2/dns_one_server.yaml", "dns_one_server"),
    case("cap2/limit_single_pkt.yaml", "limit_single_pkt"),
    case("cap2/limit_multi_pkt.yaml", "limit_multi_pkt"),
    case("cap2/imix_64_fast.yaml", "imix_64_fast"),
    case("automation/regression/cfg/imix.yaml", "imix"),
    case("cap2/sfr2.yaml", "sfr2"),
    case("cap2/sfr4.yaml", "sfr_4"),
    case("cap2/per_template_gen1.yaml", "sfr_4"),
    case("cap2/per_template_gen2.yaml", "sfr_4"),
    case("cap2/test_pcap_mode1.yaml", "pcap_mode1"),
    case("cap2/test_pcap_mode2.yaml", "pcap_mode2"),
    case("cap2/ipv4_load_balance.yaml", "ipv4_load_balance"),
    case("cap2/dyn_pyld1.yaml", "dyn_pyld1"),
    ipv6("cap2/dns.yaml", "dns_ipv6"),
    ipv6("cap2/ipv6.yaml", "ipv6"),
    ipv6("cap2/ipv6_load_balance.yaml", "ipv6_load_balance"),
    ipv6("cap2/http_simple_ipv6.yaml", "http_simple_ipv6"),
    ipv6("automation/regression/cfg/imix.yaml", "imix_v6"),
    text("cap2/http_plugin.yaml", "http_plugin"),
    text("cap2/rtsp_short1.yaml", "rtsp_short1"),
    text("cap2/rtsp_short2.yaml", "rtsp_short2"),
    text("cap2/rtsp_short3.yaml", "rtsp_short3"),
    text("cap2/sip_short1.yaml", "sip_short1"),
    text("cap2/sip_short2.yaml", "sip_short2"),
    ipv6_text("cap2/http_plugin.yaml", "http_plugin_v6"),
    ipv6_text("cap2/rtsp_short1.yaml", "rtsp_short1_v6"),
    ipv6_text("cap2/rtsp_short2.yaml", "rtsp_short2_v6"),
    ipv6_text("cap2/rtsp_short3.yaml", "rtsp_short3_v6"),
    ipv6_text("cap2/sip_short1.yaml", "sip_short1_v6"),
    ipv6_text("cap2/sip_short2.yaml", "sip_short2_v6"),
];

#[test]
fn published_profiles_send_the_packets_that_trex_recorded() {
    let Some(scripts) = std::env::var_os("TREX_SCRIPTS").map(PathBuf::from) else {
        testing::skip_because(
            testing::Need::Variable("TREX_SCRIPTS"),
            "the scripts folder of a TRex release",
        );
        return;
    };
    let mut failed = Vec::new();
    for case in CASES {
        let name = format!("{} and exp/{}", case.profile, case.recording);
        match compare(&scripts, case) {
            Ok(found) => println!("equal: {name}: {found}"),
            Err(problem) => failed.push(format!("{name}: {problem}")),
        }
    }
    assert!(
        failed.is_empty(),
        "{} of {} differ:\n{}",
        failed.len(),
        CASES.len(),
        failed.join("\n")
    );
}

/// A packet, with the client's port counted from the client's first port.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Packet {
    nanos: u64,
    lane: u8,
    len: usize,
    /// The packet's bytes without MAC addresses, checksums and padding.
    bytes: Vec<u8>,
    flow: Flow,
    ports: [u16; 2],
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Flow {
    client: Vec<u8>,
    server: Vec<u8>,
    number: u16,
}

fn compare(scripts: &Path, case: &Case) -> Result<String, String> {
    let path = scripts.join(case.profile);
    let (profile, captures) = generator::load(&path).map_err(|error| error.to_string())?;
    let recording = scripts.join(format!("exp/{}-0-ex.erf", case.recording));
    let recording = std::fs::read(&recording).map_err(|error| error.to_string())?;
    let recorded = flows(packets(read_erf(&recording), case));
    let lanes = [LaneAddresses::default(); 2];
    let options = PlanOptions { ipv6: case.ipv6, ..PlanOptions::default() };
    let plan = Plan::new(&profile, &captures, &lanes, options).map_err(|e| e.to_string())?;
    let ours = flows(packets(sent(plan, profile.duration), case));

    let is_limited = profile.templates.iter().any(|template| template.limit.is_some());
    let once = captures.iter().map(|capture| capture.packets.len()).max().unwrap_or(0);
    let shifted = profile.vlans.is_some();
    if profile.templates.len() > 1 {
        let rates = profile.templates.iter().map(|template| template.flows.events());
        begin_alike(&recorded, &ours, rates.sum())?;
        if case.recording.starts_with("imix") {
            begin_equal(&recorded, &ours)?;
        }
    }
    if !is_limited && profile.templates.len() > 1 && case.recording == "sfr2" {
        return alike(&recorded, &ours);
    }
    let mut compared = 0;
    let is_ordered = profile.templates.len() == 1;
    for (number, theirs) in recorded.iter().enumerate() {
        let own = match is_ordered {
            true => ours.get(number),
            false => ours.iter().find(|own| own[0].flow == theirs[0].flow),
        };
        let own = own.ok_or(format!("flow {number} is missing: {:?}", theirs[0].flow))?;
        if theirs[0].flow != own[0].flow {
            return Err(format!("flow {number}: {:?}, not {:?}", own[0].flow, theirs[0].flow));
        }
        // A limited flow repeats. TRex adds the duration of the flow to the period.
        let count = if is_limited { once } else { theirs.len() };
        if !is_limited && own.len() != count {
            return Err(format!("flow {number}: {} packets, not {count}", own.len()));
        }
        let (mut allowed, mut before) = (TOLERANCE, own[0].nanos);
        for (at, (theirs_one, own_one)) in theirs.iter().zip(own).take(count).enumerate() {
            let place = format!("flow {number} packet {at}");
            same(theirs_one, own_one, case, shifted)
                .map_err(|problem| format!("{place}: {problem}"))?;
            let (then, now) = (theirs_one.nanos - theirs[0].nanos, own_one.nanos - own[0].nanos);
            allowed += if own_one.nanos - before > LONG_GAP { LONG_TICK } else { TICK };
            before = own_one.nanos;
            if then.abs_diff(now) > allowed {
                return Err(format!("{place}: {now} ns after the first, not {then}"));
            }
            compared += 1;
        }
    }
    if is_limited && ours.len() != recorded.len() {
        return Err(format!("{} flows, not {}", ours.len(), recorded.len()));
    }
    Ok(format!("{} flows, {compared} packets", recorded.len()))
}

/// Checks that the flows of all templates begin at the same times and in the same order. If flows
/// are due at the same time, TRex's rounding decides which flow begins first, and whether a flow
/// begins at all. In that case, the starts of each template's flows may differ by at most the
/// interval between two starts of any templates.
fn begin_alike(recorded: &[Vec<Packet>], ours: &[Vec<Packet>], rate: f64) -> Result<(), String> {
    let since = |flow: &[Packet], first: &[Packet]| flow[0].nanos - first[0].nanos;
    let kind = |flow: &[Packet]| (flow[0].ports[1], flow[0].len);
    let mut begun: HashMap<(u16, usize), usize> = HashMap::new();
    for (number, theirs) in recorded.iter().enumerate() {
        let place = begun.entry(kind(theirs)).or_insert(0);
        let own = ours.iter().filter(|own| kind(own) == kind(theirs)).nth(*place);
        let own = own.ok_or(format!("flow {number} is missing"))?;
        *place += 1;
        let (then, now) = (since(theirs, &recorded[0]), since(own, &ours[0]));
        if then.abs_diff(now) > START_TOLERANCE + (1e9 / rate) as u64 {
            return Err(format!("flow {number} begins {now} ns after the first, not {then}"));
        }
    }
    Ok(())
}

/// Like [`begin_alike`], for profiles in which no two flows are due at the same time.
fn begin_equal(recorded: &[Vec<Packet>], ours: &[Vec<Packet>]) -> Result<(), String> {
    for (number, (theirs, own)) in recorded.iter().zip(ours).enumerate() {
        let since = |flow: &[Packet], first: &[Packet]| flow[0].nanos - first[0].nanos;
        let (then, now) = (since(theirs, &recorded[0]), since(own, &ours[0]));
        let is_same = theirs[0].ports[1] == own[0].ports[1] && theirs[0].len == own[0].len;
        if !is_same || then.abs_diff(now) > START_TOLERANCE {
            return Err(format!("flow {number} begins {now} ns after the first, not {then}"));
        }
    }
    Ok(())
}

/// Compares flows of several templates whose windows begin at about the same time. TRex's scheduler
/// is uneven and decides which template draws first, but the drawn addresses and the flows of each
/// template must be the same.
fn alike(recorded: &[Vec<Packet>], ours: &[Vec<Packet>]) -> Result<String, String> {
    let drawn = |flows: &[Vec<Packet>]| -> HashSet<Vec<u8>> {
        flows.iter().map(|flow| [&flow[0].flow.client[..], &flow[0].flow.server].concat()).collect()
    };
    let begun = &ours[..recorded.len().min(ours.len())];
    if drawn(recorded) != drawn(begun) {
        return Err(format!("drawn: {:?}, not {:?}", drawn(begun), drawn(recorded)));
    }
    let mut used: HashMap<u16, usize> = HashMap::new();
    let mut compared = 0;
    for theirs in recorded {
        let port = theirs[0].ports[1];
        let number = used.entry(port).or_insert(0);
        let own = ours.iter().filter(|own| own[0].ports[1] == port).nth(*number);
        let own = own.ok_or(format!("flow {number} of port {port} is missing"))?;
        *number += 1;
        let shape =
            |flow: &[Packet]| flow.iter().map(|one| (one.lane, one.len)).collect::<Vec<_>>();
        let complete = theirs.len().min(own.len());
        if shape(&theirs[..complete]) != shape(&own[..complete]) {
            return Err(format!("flow {number} of port {port} differs"));
        }
        compared += complete;
    }
    Ok(format!("{} flows, {compared} packets, in another order", recorded.len()))
}

fn same(theirs: &Packet, own: &Packet, case: &Case, shifted: bool) -> Result<(), String> {
    // TRex's simulator, unlike its ports, does not swap the sides of the second VLAN.
    if theirs.lane != own.lane && !shifted {
        return Err(format!("leaves by port {}, not {}", own.lane, theirs.lane));
    }
    if theirs.ports != own.ports {
        return Err(format!("ports {:?}, not {:?}", own.ports, theirs.ports));
    }
    if !case.has_text && (theirs.len != own.len || theirs.bytes != own.bytes) {
        return Err(format!(
            "{} bytes, not {}:\n {}\n {}",
            own.len,
            theirs.len,
            hex(&own.bytes),
            hex(&theirs.bytes)
        ));
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the packets that a run of this duration sends, and then the remaining packets of its
/// flows.
fn sent(plan: Plan, duration: Span) -> Vec<(u64, u8, Vec<u8>)> {
    let plan = Arc::new(plan);
    let mut buffer = vec![0; plan.longest()];
    let mut traffic = Traffic::new(Arc::clone(&plan), 1.0, 0, 1);
    let end = Time::ZERO + duration + Span::from_secs(70);
    let mut sent = Vec::new();
    while traffic.due().is_some_and(|due| due < end) && sent.len() < 200_000 {
        let departure = traffic.take(Time::ZERO, &mut buffer).unwrap();
        let frame = buffer[..departure.len].to_vec();
        sent.push((departure.at.nanos(), departure.lane as u8, frame));
    }
    sent
}

/// Reads records of Endace's format. The last four bytes of a frame are the check sequence.
fn read_erf(bytes: &[u8]) -> Vec<(u64, u8, Vec<u8>)> {
    let word = |at: usize| usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
    let mut packets = Vec::new();
    let mut at = 0;
    while at + 18 <= bytes.len() {
        let time = u64::from_le_bytes(*bytes[at..].first_chunk().unwrap());
        let nanos = (time >> 32) * 1_000_000_000 + (((time & 0xffff_ffff) * 1_000_000_000) >> 32);
        let (record, wire) = (word(at + 10), word(at + 14));
        if record < 18 || at + record > bytes.len() {
            break;
        }
        let frame = bytes[at + 18..(at + 18 + wire - 4).min(at + record)].to_vec();
        packets.push((nanos, bytes[at + 9] & 3, frame));
        at += record;
    }
    packets
}

fn packets(frames: Vec<(u64, u8, Vec<u8>)>, case: &Case) -> Vec<Packet> {
    let mut first_ports: HashMap<Vec<u8>, u16> = HashMap::new();
    let mut seen: HashMap<Vec<u8>, usize> = HashMap::new();
    let mut packets = Vec::new();
    for (nanos, lane, frame) in frames {
        let len = frame.len();
        let layout = wire::Layout::parse(&frame).unwrap();
        let mut bytes = frame[..layout.end].to_vec();
        bytes[..12].fill(0);
        let (at, start) = (layout.network_offset, layout.transport_offset);
        let (first, size) = match layout.network {
            wire::Network::Ipv4 => {
                bytes[at + 10..at + 12].fill(0);
                // TRex marks its packets with a bit of this field, and with long lifetimes.
                bytes[at + 1] &= !1;
                bytes[at + 8] = bytes[at + 8].min(128);
                (at + 12, 4)
            }
            _ => {
                bytes[at + 1] &= !0x10;
                bytes[at + 7] = bytes[at + 7].min(128);
                (at + 8, 16)
            }
        };
        let (source, destination) =
            (bytes[first..first + size].to_vec(), bytes[first + size..first + 2 * size].to_vec());
        // Clients have lower addresses than servers.
        let from_client = source[size - 4] < destination[size - 4];
        let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let (client_at, server_at) =
            if from_client { (start, start + 2) } else { (start + 2, start) };
        let (client, server) =
            if from_client { (source, destination) } else { (destination, source) };
        let (port, server_port) = (word(client_at), word(server_at));
        let first_port = *first_ports.entry(client.clone()).or_insert(port);
        let number = port.wrapping_sub(first_port);
        // Media connections use the client's port number at the client and at the server.
        let ports = match server_port == port {
            true => [number, number],
            false => [number, server_port],
        };
        bytes[start..start + 4].fill(0);
        let checksum_at = match layout.transport {
            wire::Transport::Udp => start + 6,
            _ => start + 16,
        };
        bytes[checksum_at..checksum_at + 2].fill(0);
        let flow = Flow { client, server, number: if case.has_text { number / 3 } else { number } };
        let key = format!("{flow:?}").into_bytes();
        let place = seen.entry(key).or_insert(0);
        if case.recording == "dyn_pyld1" && *place == 0 {
            // TRex fills the remaining bytes with random numbers.
            bytes.truncate(start + 8);
        }
        *place += 1;
        packets.push(Packet { nanos, lane, len, bytes, flow, ports });
    }
    packets
}

/// Groups packets into flows, in the order of their first packets.
fn flows(packets: Vec<Packet>) -> Vec<Vec<Packet>> {
    let mut places: HashMap<Flow, usize> = HashMap::new();
    let mut flows: Vec<Vec<Packet>> = Vec::new();
    for packet in packets {
        let place = *places.entry(packet.flow.clone()).or_insert(flows.len());
        if place == flows.len() {
            flows.push(Vec::new());
        }
        flows[place].push(packet);
    }
    flows
}

/// Tolerance for the time resolution of a recording, in nanoseconds.
const START_TOLERANCE: u64 = 10;
const TOLERANCE: u64 = 1_000_000;
/// TRex's timer wheel delays a packet by up to this time, because the second level of the wheel is
/// coarse.
const TICK: u64 = 25_000;
const LONG_TICK: u64 = 1_300_000;
const LONG_GAP: u64 = 19_000_000;
