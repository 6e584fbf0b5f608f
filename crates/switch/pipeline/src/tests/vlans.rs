//! NORMAL in VLANs, and mirrors.

use flow::port_number::PortNumber;
use flow::step::{PortIndex, Step};
use flow::{Field, Key, Match};

use super::packets::{add, bridge, output, outputs, translate, udp};
use crate::{Mirror, MirrorOutput, MirroredPorts, PortVlans, ServiceTag, Tables, VlanMode};

/// Builds a bridge: ports 1 and 2 belong to VLAN 10, port 3 to VLAN 20, and port 4 is a trunk.
fn lan() -> Tables {
    let mut tables = bridge(4);
    for (port, tag) in [(1, 10), (2, 10), (3, 20)] {
        let vlans = PortVlans { mode: VlanMode::Access, tag, ..PortVlans::default() };
        tables.set_port_vlans(PortNumber(port), vlans);
    }
    let normal = flow::action::Action::Output { port: PortNumber::NORMAL, max_len: 0 };
    tables.flow_mod(add(0, 0, Match::any(), vec![normal]), 0).expect("added");
    tables
}

#[test]
fn a_frame_from_an_access_port_floods_its_vlan_and_gets_a_tag_on_the_trunk() {
    let translation = translate(&lan(), &udp(1, 9, 9));
    assert_eq!(outputs(&translation), [2, 4]);
    let steps = &translation.steps;
    assert!(matches!(steps[0], Step::Output(port) if port.0 == 2), "{steps:?}");
    assert!(matches!(steps[1], Step::PushVlan { tci, .. } if tci & 0xfff == 10), "{steps:?}");
}

#[test]
fn normal_forwards_bpdus_only_if_the_bridge_forwards_to_reserved_addresses() {
    let mut tables = lan();
    let mut packet = udp(1, 9, 9);
    packet.write(Field::EthDst, 0x0180_c200_000e);
    assert!(outputs(&translate(&tables, &packet)).is_empty());
    tables.set_forwards_reserved(true);
    assert_eq!(outputs(&translate(&tables, &packet)), [2, 4]);
}

#[test]
fn a_frame_from_a_trunk_leaves_an_access_port_untagged() {
    let mut packet = udp(4, 9, 9);
    packet.write(Field::VlanTci, 0x1000 | 20);
    let translation = translate(&lan(), &packet);
    assert_eq!(outputs(&translation), [3]);
    assert!(translation.steps.contains(&Step::PopVlan), "{:?}", translation.steps);
    packet.write(Field::VlanTci, 0x1000 | 30);
    assert!(outputs(&translate(&lan(), &packet)).is_empty());
}

#[test]
fn the_priority_of_a_tag_is_kept_from_an_access_port_to_a_trunk() {
    let mut tables = lan();
    tables.set_port_vlans(PortNumber(3), PortVlans::default());
    let mut packet = udp(4, 9, 9);
    packet.write(Field::VlanTci, 0xb000 | 10);
    let translation = translate(&tables, &packet);
    assert_eq!(outputs(&translation), [1, 2, 3]);
    let is_push =
        |step: &Step| matches!(step, Step::PushVlan { tci, .. } if tci & 0xefff == 0xa00a);
    assert!(translation.steps.iter().any(is_push), "{:?}", translation.steps);
}

#[test]
fn an_access_port_drops_frames_with_a_tag() {
    let mut packet = udp(1, 9, 9);
    packet.write(Field::VlanTci, 0x1000 | 10);
    assert!(outputs(&translate(&lan(), &packet)).is_empty());
}

/// Builds a bridge. Ports 1, 2 and 3 are dot1q-tunnel ports of VLAN 10; port 2 admits the
/// customer's VLANs 0 and 20, and port 3 the customer's VLAN 30. Port 4 is a trunk, and port 5 an
/// access port.
fn tunnels() -> Tables {
    let mut tables = bridge(5);
    let of = |mode| PortVlans { mode, tag: 10, ..PortVlans::default() };
    let tunnel = |cvlans: &[u16], service| {
        let cvlans = cvlans.to_vec();
        PortVlans { cvlans, service, ..of(VlanMode::Dot1qTunnel) }
    };
    for (port, vlans) in [
        (1, tunnel(&[], ServiceTag::Dot1ad)),
        (2, tunnel(&[0, 20], ServiceTag::Dot1ad)),
        (3, tunnel(&[30], ServiceTag::Dot1q)),
        (5, of(VlanMode::Access)),
    ] {
        tables.set_port_vlans(PortNumber(port), vlans);
    }
    let normal = flow::action::Action::Output { port: PortNumber::NORMAL, max_len: 0 };
    tables.flow_mod(add(0, 0, Match::any(), vec![normal]), 0).expect("added");
    tables
}

/// Open vSwitch 3.1 translates the same packets to the same steps, in a bridge without the bridge's
/// own port.
#[test]
fn frames_of_a_tunnel_port_get_the_service_tag_on_top_of_the_tags_of_the_customer() {
    let out = |port| Step::Output(PortIndex(port));
    let push = |tpid| Step::PushVlan { tpid, tci: 0x1000 | 10 };
    for (in_port, tci, steps) in [
        (1, 0, vec![out(2), push(0x88a8), out(4), Step::PopVlan, out(5)]),
        (1, 0x7000 | 20, vec![out(2), push(0x88a8), out(4)]),
        (2, 0x1000 | 30, vec![]),
        (3, 0x1000 | 30, vec![out(1), push(0x8100), out(4)]),
        (5, 0, vec![out(1), out(2), push(0x8100), out(4)]),
    ] {
        let mut packet = udp(in_port, 9, 9);
        packet.write(Field::VlanTci, tci);
        let found = translate(&tunnels(), &packet).steps;
        assert_eq!(found.to_vec(), steps, "{in_port} {tci:x}");
    }
}

#[test]
fn a_tunnel_port_sends_only_its_customers_vlans_and_without_the_service_tag() {
    for (inner, ports) in [(0x1000 | 20, [1, 2, 5]), (0x7000 | 30, [1, 3, 5]), (0, [1, 2, 5])] {
        let mut packet = udp(4, 9, 9);
        packet.write(Field::VlanTci, 0xb000 | 10);
        packet.write_at(Key::TAG_TYPE, 0x88a8);
        packet.write_at(Key::INNER_TCI, inner);
        let translation = translate(&tunnels(), &packet);
        assert_eq!(outputs(&translation), ports, "{inner:x}");
        assert_eq!(translation.steps[0], Step::PopVlan);
        assert_eq!(translation.mask.read_at(Key::INNER_TCI), 0x1fff);
    }
}

#[test]
fn frames_whose_second_tags_differ_only_in_priority_share_a_megaflow() {
    let translate_with = |inner: u128| {
        let mut packet = udp(4, 9, 9);
        packet.write(Field::VlanTci, 0x1000 | 10);
        packet.write_at(Key::TAG_TYPE, 0x88a8);
        packet.write_at(Key::INNER_TCI, inner);
        let translation = translate(&tunnels(), &packet);
        let key = packet.masked(&translation.mask);
        (key, translation.mask, translation.steps)
    };
    assert_eq!(translate_with(0x1000 | 20), translate_with(0xf000 | 20));
    assert_ne!(translate_with(0x1000 | 20).0, translate_with(0x1000 | 30).0);
}

#[test]
fn a_tag_that_one_port_removes_comes_back_with_its_type_for_the_next_port() {
    let mut tables = lan();
    tables.set_port_vlans(PortNumber(3), PortVlans::default());
    let mut packet = udp(3, 9, 9);
    packet.write(Field::VlanTci, 0xb000 | 10);
    packet.write_at(Key::TAG_TYPE, 0x88a8);
    let translation = translate(&tables, &packet);
    assert_eq!(outputs(&translation), [1, 2, 4]);
    let restored = Step::PushVlan { tpid: 0x88a8, tci: 0xb000 | 10 };
    assert!(translation.steps.contains(&restored), "{:?}", translation.steps);
    assert_eq!(translation.mask.read_at(Key::TAG_TYPE), 0xffff);
}

#[test]
fn a_rule_that_pushes_the_service_tag_leaves_the_tag_of_the_customer_under_it() {
    let mut tables = tunnels();
    let normal = flow::action::Action::Output { port: PortNumber::NORMAL, max_len: 0 };
    let actions =
        vec![flow::action::Action::PushVlan(0x88a8), flow::action::Action::SetVlanVid(10), normal];
    tables.flow_mod(add(0, 9, Match::any(), actions), 0).expect("added");
    let mut packet = udp(4, 9, 9);
    packet.write(Field::VlanTci, 0x1000 | 30);
    let translation = translate(&tables, &packet);
    assert_eq!(outputs(&translation), [1, 3, 5]);
    assert_eq!(translation.mask.read(Field::DlVlan), 0xfff);
    // Port 5, now a trunk, sends the frame with the service tag on top of the customer's tag.
    tables.set_port_vlans(PortNumber(5), PortVlans::default());
    let out = |port| Step::Output(PortIndex(port));
    let push = Step::PushVlan { tpid: 0x88a8, tci: 0x1000 | 10 };
    assert_eq!(translate(&tables, &packet).steps.to_vec(), [out(1), out(3), push, out(5)]);
}

fn mirror(output: MirrorOutput) -> Mirror {
    let one = |port| MirroredPorts::Some(vec![PortNumber(port)]);
    Mirror { sources: one(1), destinations: one(1), vlans: vec![], output, snap_length: None }
}

#[test]
fn a_mirror_of_a_tunnel_port_gives_copies_the_service_tag() {
    let mut tables = tunnels();
    tables.set_port_vlans(PortNumber(5), PortVlans::default());
    let mut mirror = mirror(MirrorOutput::Port(PortNumber(5)));
    mirror.sources = MirroredPorts::Some(Vec::new());
    mirror.destinations = MirroredPorts::Some(vec![PortNumber(3)]);
    tables.set_mirrors(vec![mirror]);
    let mut packet = udp(4, 9, 9);
    packet.write(Field::VlanTci, 0x1000 | 10);
    packet.write_at(Key::INNER_TCI, 0x1000 | 30);
    let translation = translate(&tables, &packet);
    assert_eq!(outputs(&translation), [1, 3, 5]);
    let push = Step::PushVlan { tpid: 0x8100, tci: 0x1000 | 10 };
    assert!(translation.steps.contains(&push), "{:?}", translation.steps);
}

#[test]
fn a_copy_without_the_service_tag_does_not_change_the_ports_of_the_customer() {
    let mut tables = tunnels();
    let mut mirror = mirror(MirrorOutput::Port(PortNumber(5)));
    mirror.sources = MirroredPorts::Some(vec![PortNumber(4)]);
    mirror.destinations = MirroredPorts::Some(Vec::new());
    tables.set_mirrors(vec![mirror]);
    let mut packet = udp(4, 9, 9);
    packet.write(Field::VlanTci, 0x1000 | 10);
    packet.write_at(Key::INNER_TCI, 0x1000 | 30);
    let translation = translate(&tables, &packet);
    assert_eq!(outputs(&translation), [5, 1, 3]);
    assert_eq!(translation.mask.read_at(Key::INNER_TCI), 0x1fff);
}

#[test]
fn a_copy_in_another_vlan_does_not_change_the_vlan_of_the_packet() {
    let mut tables = lan();
    tables.set_port_vlans(PortNumber(1), PortVlans::default());
    let mut mirror = mirror(MirrorOutput::Vlan(20));
    mirror.sources = MirroredPorts::Some(vec![PortNumber(4)]);
    mirror.destinations = MirroredPorts::Some(Vec::new());
    tables.set_mirrors(vec![mirror]);
    let mut packet = udp(4, 9, 9);
    packet.write(Field::VlanTci, 0x1000 | 10);
    assert_eq!(outputs(&translate(&tables, &packet)), [1, 3, 4, 1, 2]);
}

#[test]
fn a_mirror_port_gets_one_copy_and_no_flooded_packets() {
    let mut tables = lan();
    tables.set_mirrors(vec![mirror(MirrorOutput::Port(PortNumber(4)))]);
    // The mirror's copy has a VLAN tag, because the output port is a trunk.
    assert_eq!(outputs(&translate(&tables, &udp(1, 9, 9))), [4, 2]);
    assert_eq!(outputs(&translate(&tables, &udp(2, 9, 9))), [1, 4]);
    assert!(outputs(&translate(&tables, &udp(4, 9, 9))).is_empty());
    assert!(outputs(&translate(&tables, &udp(3, 9, 9))).is_empty());
}

#[test]
fn a_mirror_copies_packets_from_an_access_port_to_a_trunk() {
    let mut tables = lan();
    let mut mirror = mirror(MirrorOutput::Port(PortNumber(3)));
    mirror.sources = MirroredPorts::Some(Vec::new());
    mirror.destinations = MirroredPorts::Some(vec![PortNumber(4)]);
    mirror.vlans = vec![10];
    tables.set_mirrors(vec![mirror]);
    assert_eq!(outputs(&translate(&tables, &udp(1, 9, 9))), [2, 4, 3]);
}

#[test]
fn a_mirror_copies_outputs_of_rules_and_can_select_vlans() {
    let mut tables = bridge(3);
    tables.flow_mod(add(0, 1, Match::any(), vec![output(1)]), 0).expect("added");
    let mut mirror = mirror(MirrorOutput::Port(PortNumber(3)));
    tables.set_mirrors(vec![mirror.clone()]);
    assert_eq!(outputs(&translate(&tables, &udp(2, 9, 9))), [1, 3]);
    mirror.vlans = vec![7];
    tables.set_mirrors(vec![mirror]);
    assert_eq!(outputs(&translate(&tables, &udp(2, 9, 9))), [1]);
}

#[test]
fn a_mirror_into_a_vlan_sends_to_the_ports_of_the_vlan() {
    let mut tables = lan();
    tables.set_mirrors(vec![mirror(MirrorOutput::Vlan(20))]);
    assert_eq!(outputs(&translate(&tables, &udp(1, 9, 9))), [3, 4, 2, 4]);
}

/// The test repeats the case of Open vSwitch's test "mirroring, output_vlan".
#[test]
fn a_mirror_into_a_vlan_also_sends_to_the_port_of_the_packet() {
    let mut tables = bridge(2);
    tables.flow_mod(add(0, 1, Match::any(), vec![output(2)]), 0).expect("added");
    tables.set_mirrors(vec![Mirror {
        sources: MirroredPorts::All,
        destinations: MirroredPorts::All,
        ..mirror(MirrorOutput::Vlan(12))
    }]);
    let mut packet = udp(1, 9, 9);
    assert_eq!(outputs(&translate(&tables, &packet)), [1, 2, 2]);
    packet.write(Field::EthDst, 0x0180_c200_0002);
    assert_eq!(outputs(&translate(&tables, &packet)), [2]);
}

#[test]
fn a_bridge_without_its_controller_forwards_by_addresses_instead_of_rules() {
    let mut tables = lan();
    tables.flow_mod(add(0, 9, Match::any(), vec![output(3)]), 0).expect("added");
    let generation = tables.generation();
    tables.set_standalone(true);
    assert_ne!(tables.generation(), generation);
    assert_eq!(outputs(&translate(&tables, &udp(1, 9, 9))), [2, 4]);
    tables.set_standalone(false);
    assert_eq!(outputs(&translate(&tables, &udp(1, 9, 9))), [3]);
}
