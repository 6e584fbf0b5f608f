//! Random rules with connection tracking and address translation: a datapath with batches and
//! caches agrees with a reference that processes one packet after the other.

use std::sync::Arc;

use datapath::conntrack::{Conntrack, Settings, ThreadTracker};
use datapath::{Packet, Settings as DatapathSettings, TrackCall, Tracked, Tracker, extract};
use flow::step::{Step, Translate};
use flow::{Field, word};
use pipeline::{Tables, Translator};
use port::Frame;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use units::{Span, Time};

use super::bridge::{Bridge, add, counts, group_counts, tables};
use super::frames::{frame, random_frame};
use super::plain_frame::{PlainFrame, complete_sctp};

#[test]
fn tracked_packets_agree_with_the_reference() {
    compare(11, 120, 300);
}

#[test]
#[ignore = "takes minutes"]
fn tracked_packets_agree_with_the_reference_in_a_million_cases() {
    compare(12, 4_000, 250);
}

#[test]
fn connections_share_the_megaflow_that_sends_them_to_a_controller() {
    let mut bridge = Bridge::new(&[
        "udp,actions=ct(table=1,zone=7)",
        "table=1,udp,ct_state=+new,actions=controller,ct(commit),controller",
        "arp,actions=controller",
    ]);
    let conntrack = Arc::new(Conntrack::new(&Settings::default()));
    let mut tracker = ThreadTracker::new(conntrack);
    let frames: Vec<_> = (1..=3)
        .map(|port| frame(&format!("udp,nw_src=10.0.0.9,nw_dst=10.0.0.1,tp_src={port},tp_dst=53")))
        .collect();
    let packets = bridge.process_tracked(1, &frames, &mut tracker).packet_ins;
    let read = |field| packets.iter().map(|packet| packet.metadata.read(field)).collect::<Vec<_>>();
    // After `ct(commit)`, the packet is untracked.
    assert_eq!(read(Field::CtState), [0x21, 0, 0x21, 0, 0x21, 0]);
    assert_eq!(read(Field::CtZone), [7, 0, 7, 0, 7, 0]);
    assert_eq!(read(Field::CtTpSrc), [1, 0, 2, 0, 3, 0]);
    assert_eq!(read(Field::EthType), [0x0800, 0, 0x0800, 0, 0x0800, 0]);
    assert_eq!(bridge.datapath.len(), 2);
    let packets = bridge.process_tracked(1, &[frame("arp")], &mut tracker).packet_ins;
    assert_eq!(packets[0].metadata.read(Field::EthType), 0);
}

fn compare(seed: u64, sets: usize, packets: usize) {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    for set in 0..sets {
        let rules = random_rules(&mut random);
        let many_megaflows = random.random_range(1..4);
        let settings = DatapathSettings { many_megaflows, ..DatapathSettings::default() };
        let mut bridge = Bridge::with(tables(&rules), settings);
        let mut plain = tables(&rules);
        let threads = random.random_range(1..4);
        let table =
            || Arc::new(Conntrack::new(&Settings { seed: 5, threads, ..Settings::default() }));
        let connections = table();
        let mut tracker = ThreadTracker::new(connections.clone());
        let mut reference = ThreadTracker::new(table());
        let mut left = packets;
        while left > 0 {
            let count = random.random_range(1..=40).min(left);
            left -= count;
            bridge.now += Span::from_millis(random.random_range(0..3000));
            let in_port = random.random_range(1..4);
            let frames: Vec<_> =
                (0..count).map(|_| complete_sctp(random_frame(&mut random))).collect();
            let mut sent = bridge.process_tracked(in_port, &frames, &mut tracker).sent;
            let mut expected = Vec::new();
            for frame in &frames {
                process(&plain, in_port, frame, bridge.now, &mut reference, &mut expected);
            }
            sent.sort();
            expected.sort();
            assert_eq!(sent, expected, "set {set}: {rules:#?}");
            bridge.maintain();
            if random.random_range(0..4) == 0 {
                connections.set_threads(random.random_range(1..4));
            }
            if random.random_range(0..4) == 0 {
                let low = random.random_range(1..6);
                let cookie = 100 + left;
                let rule = format!(
                    "table=1,priority=6,cookie={cookie},ip,nw_src=10.0.0.{low} actions=output:{}",
                    random.random_range(1..4)
                );
                bridge.add(&rule);
                add(&mut plain, &rule);
            }
        }
        assert_eq!(bridge.counts(), counts(&plain), "set {set}: {rules:#?}");
        let groups = (group_counts(&bridge.tables), group_counts(&plain));
        assert_eq!(groups.0, groups.1, "set {set}: {rules:#?}");
    }
}

/// A connection's packets use the megaflow that matched the last packet, until the megaflow is
/// removed or no longer matches.
#[test]
fn packets_of_a_connection_find_a_new_megaflow_after_theirs_is_removed() {
    let mut bridge = Bridge::new(&[
        "table=0,ip actions=ct(commit,table=1)",
        "table=1,cookie=1,udp actions=output:2",
    ]);
    let mut tracker = ThreadTracker::new(Arc::new(Conntrack::new(&Settings::default())));
    let packets: Vec<_> =
        (1..=20).map(|low| frame(&format!("udp,nw_src=10.0.0.{low},nw_dst=10.0.1.1"))).collect();
    let mut send = |bridge: &mut Bridge, packets: &[Vec<u8>]| -> Vec<u16> {
        let sent = bridge.process_tracked(1, packets, &mut tracker).sent;
        sent.iter().map(|(port, _)| *port).collect()
    };
    for _ in 0..20 {
        assert_eq!(send(&mut bridge, &packets), [2; 20]);
    }
    // Connections last longer than megaflows.
    for _ in 0..150 {
        bridge.now += Span::from_millis(100);
        bridge.maintain();
    }
    assert_eq!(bridge.datapath.len(), 0);
    let upcalls = bridge.datapath.statistics().upcalls;
    assert_eq!(send(&mut bridge, &packets), [2; 20]);
    assert_eq!(bridge.datapath.statistics().upcalls, upcalls + 2);
    bridge.add("table=1,priority=40000,cookie=2,udp,nw_src=10.0.0.3 actions=output:3");
    for _ in 0..3 {
        let ports = send(&mut bridge, &packets);
        let at_three = ports.iter().filter(|port| **port == 3).count();
        assert_eq!((ports.len(), at_three), (20, 1), "{ports:?}");
    }
}

/// The same holds for the megaflows that packets match before tracking, and for reply packets.
#[test]
fn packets_find_a_new_megaflow_before_tracking_after_theirs_is_removed() {
    let rules: Vec<_> = (1..=20)
        .flat_map(|low| {
            [
                format!("cookie={low},ip,nw_dst=10.0.1.{low} actions=ct(commit,table=1)"),
                format!("cookie={low},ip,nw_dst=10.0.0.{low} actions=ct(table=1)"),
            ]
        })
        .chain(["table=1,ip,nw_dst=10.0.1.0/24 actions=output:2".to_owned()])
        .chain(["table=1,ip,nw_dst=10.0.0.0/24 actions=output:3".to_owned()])
        .collect();
    let settings = DatapathSettings { many_megaflows: 1, ..DatapathSettings::default() };
    let mut bridge = Bridge::with(tables(&rules), settings);
    let mut tracker = ThreadTracker::new(Arc::new(Conntrack::new(&Settings::default())));
    let packets = |from: u8, to: u8| -> Vec<_> {
        let addresses = |low| format!("nw_src=10.0.{from}.{low},nw_dst=10.0.{to}.{low}");
        (1..=20).map(|low| frame(&format!("udp,{}", addresses(low)))).collect()
    };
    let (there, back) = (packets(0, 1), packets(1, 0));
    let mut send = |bridge: &mut Bridge, packets: &[Vec<u8>]| -> Vec<u16> {
        let sent = bridge.process_tracked(1, packets, &mut tracker).sent;
        sent.iter().map(|(port, _)| *port).collect()
    };
    for _ in 0..20 {
        assert_eq!(send(&mut bridge, &there), [2; 20]);
        assert_eq!(send(&mut bridge, &back), [3; 20]);
    }
    let statistics = bridge.datapath.statistics();
    assert_eq!((statistics.upcalls, bridge.datapath.len()), (42, 42));
    // Connections last longer than megaflows.
    for _ in 0..150 {
        bridge.now += Span::from_millis(100);
        bridge.maintain();
    }
    assert_eq!(bridge.datapath.len(), 0);
    for _ in 0..2 {
        assert_eq!(send(&mut bridge, &there), [2; 20]);
        assert_eq!(send(&mut bridge, &back), [3; 20]);
    }
    assert_eq!(bridge.datapath.statistics().upcalls, 84);
    bridge.add("priority=40000,cookie=99,udp,nw_dst=10.0.1.3 actions=output:4");
    for _ in 0..3 {
        let ports = send(&mut bridge, &there);
        let at_four = ports.iter().filter(|port| **port == 4).count();
        assert_eq!((ports.len(), at_four), (20, 1), "{ports:?}");
    }
}

fn process(
    tables: &Tables,
    in_port: u32,
    frame: &[u8],
    now: Time,
    tracker: &mut ThreadTracker,
    sent: &mut Vec<(u16, Vec<u8>)>,
) {
    let packet = Packet::arrived(in_port, Frame::from_bytes(frame, Time::ZERO));
    let mut reference = Reference { tables, in_port, now, tracker, sent };
    reference.pass(packet, 4);
}

/// The reference implementation: processes one packet after the other, without caches.
struct Reference<'a> {
    tables: &'a Tables,
    in_port: u32,
    now: Time,
    tracker: &'a mut ThreadTracker,
    sent: &'a mut Vec<(u16, Vec<u8>)>,
}

impl Reference<'_> {
    fn pass(&mut self, packet: Packet, passes: usize) {
        if passes == 0 {
            return;
        }
        let milliseconds = self.now.nanos() / 1_000_000;
        let mut translator = Translator::new(self.tables);
        let translation = translator.translate(&packet.key, packet.frame.bytes(), milliseconds);
        for counters in &translation.counters {
            counters.add(1, packet.frame.len() as u64, milliseconds);
        }
        self.run(packet, &translation.steps, passes);
    }

    fn run(&mut self, mut packet: Packet, steps: &[Step], passes: usize) {
        let mut recirculates = None;
        let mut hash = packet.key.read(Field::DpHash);
        for (at, step) in steps.iter().enumerate() {
            match step {
                Step::Output(port) => self.sent.push((port.0, packet.frame.bytes().to_vec())),
                Step::Rewrite(rewrite) => {
                    let mut plain = PlainFrame::new(packet.frame.bytes().to_vec());
                    for field in [Field::EthSrc, Field::EthDst] {
                        let mask = rewrite.mask.read(field);
                        plain.set(field, rewrite.value.read(field), mask);
                    }
                    packet.frame.bytes_mut().copy_from_slice(&plain.bytes);
                }
                Step::Track(_) => {
                    let call = TrackCall::first_of(&steps[at..]).expect("a track");
                    match self.tracker.track(&mut packet, &call, None, self.now) {
                        Tracked::Continues => {}
                        Tracked::Dropped => return,
                        Tracked::Held => {
                            for fragment in packet.released.into_iter().flat_map(|all| *all) {
                                self.run(fragment, &steps[at + 1..], passes);
                            }
                            return;
                        }
                    }
                }
                Step::Hash(how) => hash = how.of(&extract(0, packet.frame.bytes())).into(),
                Step::Recirculate(id) => recirculates = Some(*id),
                other => panic!("{other:?} is none of these rules' steps"),
            }
        }
        let Some(id) = recirculates else { return };
        let tracked = packet.key.words[word::CT..word::ETH_SRC].to_vec();
        let mut packet = Packet::arrived(self.in_port, packet.frame);
        packet.key.words[word::CT..word::ETH_SRC].copy_from_slice(&tracked);
        packet.key.write(Field::RecircId, id.into());
        packet.key.write(Field::DpHash, hash);
        self.pass(packet, passes - 1);
    }
}

#[test]
fn all_fragments_continue_when_the_last_fragment_arrives() {
    let rules = [
        "table=0,ip,in_port=1 actions=ct(commit,zone=3,table=1,nat(src=192.0.2.1))",
        "table=1,ct_state=+new+trk,udp,ip_frag=first actions=output:2",
        "table=1,ct_state=+new+trk,udp,ip_frag=later actions=output:3",
    ];
    let mut bridge = Bridge::new(&rules);
    let mut tracker = ThreadTracker::new(Arc::new(Conntrack::new(&Settings::default())));
    // In the second round, all megaflows are known.
    for source in [5, 6] {
        let [first, last] = fragments(source);
        let mut send = |frames: &[Vec<u8>]| bridge.process_tracked(1, frames, &mut tracker).sent;
        assert_eq!(send(std::slice::from_ref(&last)), []);
        let ports = |sent: Vec<(u16, Vec<u8>)>| -> Vec<_> {
            assert!(sent.iter().all(|(_, frame)| frame[26..30] == [192, 0, 2, 1]));
            sent.iter().map(|(port, _)| *port).collect()
        };
        assert_eq!(ports(send(std::slice::from_ref(&first))), [2, 3]);
        assert_eq!(ports(send(&[first, last])), [2, 3]);
    }
}

/// Builds a UDP packet of 10.0.0.1 in two fragments.
fn fragments(source_port: u8) -> [Vec<u8>; 2] {
    let mut segment = vec![0, source_port, 0, 53, 0, 0, 0, 0];
    segment.resize(2008, 0xab);
    segment[4..6].copy_from_slice(&2008_u16.to_be_bytes());
    let cut = |from: usize, to: usize, flags: u16| {
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0]);
        frame.extend((20 + (to - from) as u16).to_be_bytes());
        frame.extend([0, source_port]);
        frame.extend((flags | (from as u16 / 8)).to_be_bytes());
        frame.extend([64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        let sum = wire::checksum::Sum::of(&frame[14..34]).checksum();
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame.extend_from_slice(&segment[from..to]);
        frame
    };
    [cut(0, 1400, 0x2000), cut(1400, 2008, 0)]
}

fn random_rules(random: &mut Pcg64Mcg) -> Vec<String> {
    let translations = [
        "",
        ",nat",
        ",nat(src=10.0.0.1-10.0.0.3)",
        ",nat(src=192.168.0.1:1000-1003)",
        ",nat(src=192.168.0.1:1000-1003,random)",
        ",nat(dst=10.0.0.1-10.0.0.2)",
        ",nat(dst=10.0.0.4:80)",
    ];
    // In half of the cases, groups precede tracking for all packets. All packets are then tracked
    // one pass later, so that connections begin in the order of their packets.
    let has_groups = random.random_range(0..2) == 0;
    let mut groups = vec![
        "group_id=1,type=select,bucket=watch_port:2,actions=output:2,\
         bucket=actions=mod_dl_src:02:00:00:00:00:66,output:4"
            .to_owned(),
        "group_id=2,type=select,bucket=actions=ct(zone=0,nat,table=1),\
         bucket=weight:2,actions=ct(commit,zone=1,table=1)"
            .to_owned(),
    ];
    let mut behind_group = |actions: String| {
        if !has_groups {
            return actions;
        }
        let group = groups.len() + 1;
        groups.push(format!("group_id={group},type=select,bucket=actions={actions}"));
        format!("group:{group}")
    };
    let mut rules: Vec<_> = (0..random.random_range(1..5))
        .map(|number| {
            let translation = translations[random.random_range(0..translations.len())];
            let commit = random.random_range(0..4) > 0 || translation.contains('(');
            let commit = if commit { "commit," } else { "" };
            let zone = random.random_range(0..2);
            let port = random.random_range(1..4);
            let low = random.random_range(1..6);
            let actions = behind_group(format!("ct({commit}zone={zone},table=1{translation})"));
            format!(
                "table=0,priority={number},cookie={number},ip,in_port={port},nw_dst=10.0.0.{low}/30 \
                 actions={actions}"
            )
        })
        .collect();
    let first = if has_groups { "group:2" } else { "ct(zone=0,nat,table=1)" };
    let new = ["output:2", "group:1"][random.random_range(0..2)];
    rules.push(format!("table=0,priority=0,ip actions={first}"));
    let ipv6 = behind_group("ct(commit,zone=1,table=1)".to_owned());
    rules.push(format!("table=0,priority=0,ipv6 actions={ipv6}"));
    rules.push(format!("table=1,priority=5,cookie=10,ct_state=+new+trk actions={new}"));
    rules.push(
        "table=1,priority=4,cookie=11,ct_state=+est+trk,ip,nw_dst=10.0.0.2 \
         actions=mod_dl_dst:02:00:00:00:00:77,output:3"
            .into(),
    );
    rules.push("table=1,priority=3,cookie=12,ct_state=+rpl actions=output:4".into());
    rules.push("table=1,priority=2,cookie=13,ct_state=+inv actions=output:1".into());
    rules.push("table=1,priority=1,cookie=14 actions=in_port".into());
    groups.extend(rules);
    groups
}
