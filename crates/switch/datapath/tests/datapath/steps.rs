//! Single steps: tags, copies, truncation, meters, packet-ins, recirculation and tracking.

use datapath::{
    Callees, Datapath, Meters, NoTracker, Packet, Settings, TrackCall, Tracked, Tracker,
};
use flow::port_number::PortNumber;
use flow::request::{Band, BandKind, MeterCommand, MeterEntry, MeterMod, PacketIn, PacketInReason};
use flow::step::{PortIndex, Step, Track, Translate, Translation};
use flow::{Field, Key};
use pipeline::{PortVlans, VlanMode};
use port::Frame;
use units::{Span, Time};

use super::bridge::{Bridge, Collected, add, tables};
use super::frames::frame;

#[test]
fn vlan_tags_are_pushed_and_popped_in_order() {
    let rule = "actions=push_vlan:0x88a8,mod_vlan_vid:7,push_vlan:0x8100,mod_vlan_vid:9,output:2,\
                strip_vlan,output:3";
    let mut bridge = Bridge::new(&[rule]);
    let plain = frame("udp,nw_dst=10.0.0.1");
    let sent = bridge.process(1, std::slice::from_ref(&plain)).sent;
    let [(2, both), (3, one)] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!(both[12..22], [0x81, 0, 0, 9, 0x88, 0xa8, 0, 7, 8, 0]);
    assert_eq!(one[12..18], [0x88, 0xa8, 0, 7, 8, 0]);
    assert_eq!(one[16..], plain[12..]);
}

#[test]
fn a_rule_changes_the_tag_that_is_outermost_after_a_push_and_a_pop() {
    let tagged = frame("udp,nw_dst=10.0.0.1,dl_vlan=10");
    let changed = frame("udp,nw_dst=10.0.0.1,dl_vlan=5");
    for actions in [
        "push_vlan:0x88a8,output:2,strip_vlan,mod_vlan_vid:5,output:3",
        "push_vlan:0x88a8,output:2,strip_vlan,output:4,mod_vlan_vid:5,output:3",
        "push_vlan:0x8100,push_vlan:0x88a8,output:2,strip_vlan,mod_vlan_vid:7,strip_vlan,\
         mod_vlan_vid:5,output:3",
    ] {
        let mut bridge = Bridge::new(&[format!("actions={actions}")]);
        let sent = bridge.process(1, std::slice::from_ref(&tagged)).sent;
        let to_3: Vec<_> = sent.iter().filter(|(port, _)| *port == 3).collect();
        assert_eq!(to_3, [&(3, changed.clone())], "{actions}");
    }
    let untagged = frame("udp,nw_dst=10.0.0.1");
    let mut bridge = Bridge::new(&["actions=push_vlan:0x88a8,output:2,strip_vlan,\
                                    mod_vlan_vid:5,output:3"]);
    let sent = bridge.process(1, &[untagged]).sent;
    assert_eq!(sent[1], (3, changed), "{sent:?}");
}

#[test]
fn the_second_vlan_tag_chooses_among_the_tunnel_ports_of_customers() {
    let mut bridge = Bridge::new(&["actions=NORMAL"]);
    for (port, cvlan) in [(2, 20), (3, 30)] {
        let vlans = PortVlans {
            mode: VlanMode::Dot1qTunnel,
            tag: 10,
            cvlans: vec![cvlan],
            ..PortVlans::default()
        };
        bridge.tables.set_port_vlans(PortNumber(port), vlans);
    }
    let customer = |vlan: u16| {
        frame(&format!(
            "udp,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02,nw_dst=10.0.0.1,dl_vlan={vlan}"
        ))
    };
    let double = |vlan| {
        let mut bytes = customer(vlan);
        bytes.splice(12..12, [0x88, 0xa8, 0, 10]);
        bytes
    };
    let to = |sent: &[(u16, Vec<u8>)], port: u16| {
        let frames = sent.iter().filter(|(to, _)| *to == port).map(|(_, bytes)| bytes.clone());
        let mut frames: Vec<_> = frames.collect();
        frames.sort();
        frames
    };
    // The second round finds the megaflows of the first round.
    for _ in 0..2 {
        let sent = bridge.process(1, &[double(20), double(30), double(20)]).sent;
        assert_eq!(to(&sent, 2), [customer(20), customer(20)]);
        assert_eq!(to(&sent, 3), [customer(30)]);
        assert_eq!(to(&sent, 4), [double(20), double(20), double(30)]);
    }
    let sent = bridge.process(2, &[customer(20), customer(30)]).sent;
    assert_eq!((to(&sent, 1), to(&sent, 4)), (vec![double(20)], vec![double(20)]));
    assert!(to(&sent, 3).is_empty(), "{sent:?}");
}

#[test]
fn outputs_go_to_the_queue_that_set_queue_or_enqueue_chose() {
    let rule = "in_port=1 actions=enqueue:2:1,output:2,set_queue:3,output:3";
    let mut bridge = Bridge::new(&[rule, "in_port=2 actions=output:3"]);
    let frames = [frame("udp"), frame("tcp")];
    let to_queue = |collected: &Collected| collected.queued.clone();
    let sent = bridge.process(1, &frames);
    // Frames of the same queue stay in order, and so do frames of the same port.
    assert_eq!(to_queue(&sent), [(2, 1, 1), (2, 0, 1), (2, 1, 1), (2, 0, 1), (3, 3, 2)]);
    let to_port_2: Vec<_> = sent.sent.iter().filter(|(port, _)| *port == 2).collect();
    assert!(to_port_2.iter().map(|(_, bytes)| bytes).eq([0, 0, 1, 1].map(|at| &frames[at])));
    let sent = bridge.process(2, &frames);
    assert_eq!((sent.sent.len(), to_queue(&sent)), (2, vec![]), "a new packet has no queue");
}

#[test]
fn a_vlan_tag_can_be_pushed_on_a_frame_without_headroom() {
    let mut packet = Packet::arrived(1, Frame::from_bytes(&frame("udp"), Time::ZERO));
    let before = packet.frame.bytes().to_vec();
    for _ in 0..100 {
        packet.push_vlan(0x8100, 5);
    }
    assert_eq!(packet.frame.len(), before.len() + 400);
    for _ in 0..101 {
        packet.pop_vlan();
    }
    assert_eq!(packet.frame.bytes(), before);
}

#[test]
fn max_len_truncates_a_single_output() {
    let mut bridge = Bridge::new(&["actions=output(port=2,max_len=20),output:3"]);
    let sent = bridge.process(1, &[frame("udp")]).sent;
    let lengths: Vec<_> = sent.iter().map(|(port, bytes)| (*port, bytes.len())).collect();
    assert_eq!(lengths, [(2, 20), (3, frame("udp").len())]);
}

#[test]
fn actions_in_a_clone_change_only_the_copy() {
    let rule = "actions=clone(mod_dl_dst:02:00:00:00:00:99,output:3),output:2";
    let mut bridge = Bridge::new(&[rule]);
    let packet = frame("udp,dl_dst=02:00:00:00:00:01");
    let mut sent = bridge.process(1, std::slice::from_ref(&packet)).sent;
    sent.sort();
    assert_eq!(sent[0], (2, packet));
    assert_eq!(sent[1].1[..6], [2, 0, 0, 0, 0, 0x99]);
}

#[test]
fn packet_ins_are_truncated_to_max_len() {
    let mut bridge = Bridge::new(&["cookie=5,priority=3 actions=controller(max_len=30,id=4)"]);
    let packet_ins = bridge.process(3, &[frame("udp")]).packet_ins;
    let [packet] = &packet_ins[..] else { panic!("{packet_ins:?}") };
    assert_eq!((packet.frame.len(), packet.controller, packet.cookie), (30, 4, 5));
    assert_eq!(usize::from(packet.total_len), frame("udp").len());
    assert_eq!(packet.reason, PacketInReason::Action);
    assert_eq!(packet.metadata.read(Field::InPort), 3);
}

#[test]
fn a_meter_passes_its_burst_and_then_its_rate() {
    let meters = std::sync::Arc::new(Meters::default());
    let band = Band { kind: BandKind::Drop, rate: 10, burst: 5 };
    let entry = MeterEntry {
        meter: 1,
        is_in_packets: true,
        has_burst: true,
        has_statistics: true,
        bands: vec![band],
    };
    meters.configure(&entry, Time::ZERO);
    let steps = [Step::Meter(1.into()), Step::Output(PortIndex(2))];
    let mut datapath = Datapath::new(Settings { meters: meters.clone(), ..Settings::default() });
    let mut send = |now, count: usize| {
        let mut collected = Collected::default();
        let mut frames: Vec<_> =
            (0..count).map(|_| Frame::from_bytes(&[0; 60], Time::ZERO)).collect();
        let mut callees = Callees {
            slow: &mut Fixed::new(&steps),
            tracker: &mut NoTracker,
            sink: &mut collected,
        };
        datapath.process(1, &mut frames, now, &mut callees);
        collected.sent.len()
    };
    assert_eq!(send(Time::ZERO, 20), 5);
    assert_eq!(send(Time::ZERO + Span::from_millis(99), 20), 0);
    assert_eq!(send(Time::ZERO + Span::from_millis(100), 20), 1);
    assert_eq!(send(Time::ZERO + Span::from_secs(100), 20), 5);
    let counts = meters.counts(1).expect("the meter");
    assert_eq!((counts.packets, counts.bands[0].0), (80, 69));
    meters.remove(1);
    assert_eq!(send(Time::ZERO + Span::from_secs(100), 20), 20);
    assert_eq!(datapath.statistics().dropped_by_meter, 69);
}

/// Sends six packets through a meter that lets one packet-in pass. Returns the packet-ins and the
/// output.
fn limited(rule: &str, number: u32, band: BandKind) -> (Vec<PacketIn>, Vec<(u16, Vec<u8>)>) {
    let band = Band { kind: band, rate: 1, burst: 0 };
    let mut tables = tables(&[] as &[&str]);
    let change = MeterMod {
        command: MeterCommand::Add,
        meter: number,
        is_in_packets: true,
        has_burst: false,
        has_statistics: true,
        bands: vec![band],
    };
    tables.meter_mod(change, 0).expect("a meter");
    add(&mut tables, rule);
    let meters = std::sync::Arc::new(Meters::default());
    meters.configure(&tables.meters(number).expect("the meter")[0], Time::ZERO);
    let settings = Settings { meters: meters.clone(), ..Settings::default() };
    let mut bridge = Bridge::with(tables, settings);
    let packet = frame("udp,nw_tos=0x28");
    let collected = bridge.process(1, &vec![packet; 6]);
    assert_eq!(meters.counts(number).expect("the meter").packets, 6, "{rule}");
    (collected.packet_ins, collected.sent)
}

#[test]
fn a_meter_limits_the_packets_for_a_controller_alone() {
    let drop = BandKind::Drop;
    for (rule, meter, sent) in [
        ("actions=controller(max_len=80,meter_id=7),output:2", 7, 6),
        ("actions=output:2,controller(reason=no_match,meter_id=7)", 7, 6),
        ("actions=controller(pause,meter_id=7),output:2", 7, 0),
        ("actions=controller,output:2", MeterMod::CONTROLLER, 6),
        ("actions=write_actions(controller)", MeterMod::CONTROLLER, 0),
        ("actions=controller(pause),output:2", MeterMod::CONTROLLER, 0),
        // The meter that the action names does not exist, so the virtual meter applies.
        ("actions=controller(meter_id=9),output:2", MeterMod::CONTROLLER, 6),
        ("actions=clone(controller),output:2", MeterMod::CONTROLLER, 6),
        ("ip,actions=mod_nw_ttl:1,dec_ttl,output:2", MeterMod::CONTROLLER, 0),
    ] {
        let (packet_ins, outputs) = limited(rule, meter, drop);
        assert_eq!((packet_ins.len(), outputs.len()), (1, sent), "{rule}");
    }
}

#[test]
fn a_remarking_meter_of_packets_for_a_controller_changes_no_other_copy() {
    let remark = BandKind::DscpRemark { precedence: 1 };
    let (packet_ins, sent) = limited("actions=controller(meter_id=7),output:2", 7, remark);
    let tos: Vec<_> = packet_ins.iter().map(|packet| packet.frame[15]).collect();
    assert_eq!(tos, [0x28, 0x30, 0x30, 0x30, 0x30, 0x30]);
    assert!(sent.iter().all(|(_, bytes)| bytes[15] == 0x28));
}

#[test]
fn a_remarking_meter_raises_the_drop_precedence() {
    let meters = std::sync::Arc::new(Meters::default());
    let band = Band { kind: BandKind::DscpRemark { precedence: 1 }, rate: 1, burst: 1 };
    let entry = MeterEntry {
        meter: 7,
        is_in_packets: true,
        has_burst: true,
        has_statistics: false,
        bands: vec![band],
    };
    meters.configure(&entry, Time::ZERO);
    let steps = [Step::Meter(7.into()), Step::Output(PortIndex(2))];
    let mut datapath = Datapath::new(Settings { meters, ..Settings::default() });
    let mut collected = Collected::default();
    // AF11 (DSCP 10) becomes AF12 (DSCP 12).
    let packet = frame("udp,nw_tos=40,nw_dst=10.0.0.1");
    let mut frames: Vec<_> = (0..2).map(|_| Frame::from_bytes(&packet, Time::ZERO)).collect();
    let mut callees =
        Callees { slow: &mut Fixed::new(&steps), tracker: &mut NoTracker, sink: &mut collected };
    datapath.process(1, &mut frames, Time::ZERO, &mut callees);
    assert_eq!(collected.sent[0].1, packet);
    assert_eq!(collected.sent[1].1, frame("udp,nw_tos=48,nw_dst=10.0.0.1"));
}

#[test]
fn endless_recirculation_ends_at_the_pass_limit() {
    let mut datapath = Datapath::new(Settings::default());
    let steps: std::sync::Arc<[Step]> =
        vec![Step::Clone(vec![Step::Recirculate(1)].into()), Step::Recirculate(1)].into();
    let mut collected = Collected::default();
    let mut frames: Vec<_> = (0..40).map(|_| Frame::from_bytes(&[0; 60], Time::ZERO)).collect();
    let mut callees =
        Callees { slow: &mut Fixed::new(&steps), tracker: &mut NoTracker, sink: &mut collected };
    datapath.process(1, &mut frames, Time::ZERO, &mut callees);
    assert!(collected.sent.is_empty());
    assert!(datapath.statistics().dropped_by_depth >= 40 * 64);
}

#[test]
fn tracked_packets_continue_with_their_state() {
    let rules = [
        "table=0,ip actions=ct(commit,zone=3,table=1)",
        "table=1,ip,ct_state=+new+trk,ct_zone=3 actions=output:2",
        "table=1,ip,ct_state=+est+trk actions=output:3",
        "table=1,priority=0 actions=output:4",
    ];
    let mut bridge = Bridge::new(&rules);
    let mut tracker = Seen::default();
    let packets: Vec<_> =
        (0..6).map(|low| frame(&format!("udp,nw_dst=10.0.0.{}", low % 3))).collect();
    let sent = bridge.process_tracked(1, &packets, &mut tracker).sent;
    let mut ports: Vec<_> = sent.iter().map(|(port, _)| *port).collect();
    ports.sort_unstable();
    assert_eq!(ports, [2, 2, 2, 3, 3, 3]);
    // All megaflows are known now, so the tracker gets the whole batch at once.
    let sent = bridge.process_tracked(1, &packets, &mut tracker).sent;
    assert!(sent.iter().all(|(port, _)| *port == 3));
    assert!(tracker.announced > 0);
    let statistics = bridge.datapath.statistics();
    assert_eq!((statistics.received, statistics.recirculated, statistics.upcalls), (12, 12, 3));
}

/// A tracker that treats each destination as a connection.
#[derive(Default)]
struct Seen {
    known: Vec<u128>,
    announced: usize,
}

impl Tracker for Seen {
    fn hash(&self, packet: &Packet, zone: u16) -> u64 {
        packet.key.read(Field::IpDst) as u64 ^ u64::from(zone)
    }

    fn prefetch(&self, hashes: &[u64], candidates: &mut [u32]) {
        assert!(!hashes.is_empty() && hashes.len() == candidates.len());
    }

    fn track(
        &mut self,
        packet: &mut Packet,
        call: &TrackCall<'_>,
        hash: Option<u64>,
        _: Time,
    ) -> Tracked {
        assert!(call.commit && !call.force && !call.has_nat);
        assert_eq!(call.track(), &Track { zone: 3, commit: true, ..Track::default() });
        if let Some(hash) = hash {
            assert_eq!(hash, self.hash(packet, 3));
            self.announced += 1;
        }
        let destination = packet.key.read(Field::IpDst);
        let is_known = self.known.contains(&destination);
        packet.key.write(Field::CtState, if is_known { 0x22 } else { 0x21 });
        packet.key.write(Field::CtZone, 3);
        self.known.push(destination);
        Tracked::Continues
    }
}

/// A pipeline that always returns this translation.
struct Fixed(Translation);

impl Fixed {
    fn new(steps: &[Step]) -> Self {
        Self(Translation {
            mask: Key::ZERO,
            steps: steps.into(),
            counters: Vec::new(),
            is_cacheable: true,
        })
    }
}

impl Translate for Fixed {
    fn translate(&mut self, _: &Key, _: &[u8], _: u64) -> Translation {
        self.0.clone()
    }

    fn generation(&self) -> u64 {
        1
    }
}

#[test]
fn a_packet_from_a_controller_runs_its_own_steps() {
    let mut bridge = Bridge { tables: tables(&[""; 0]), ..Bridge::new(&[""; 0]) };
    let steps = vec![Step::PushVlan { tpid: 0x8100, tci: 0x1005 }, Step::Output(PortIndex(4))];
    let translation = Translation {
        mask: Key::ZERO,
        steps: steps.into(),
        counters: Vec::new(),
        is_cacheable: false,
    };
    let mut collected = Collected::default();
    let mut callees = Callees {
        slow: &mut pipeline::Translator::new(&bridge.tables),
        tracker: &mut NoTracker,
        sink: &mut collected,
    };
    let packet = Frame::from_bytes(&frame("udp"), Time::ZERO);
    bridge.datapath.execute(1, packet, &translation, Time::ZERO, &mut callees);
    assert_eq!(collected.sent[0].1[12..16], [0x81, 0, 0, 5]);
    assert!(bridge.datapath.is_empty());
}
