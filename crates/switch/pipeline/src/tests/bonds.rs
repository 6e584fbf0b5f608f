//! Bonds: several ports that NORMAL uses as one port.

use flow::Match;
use flow::action::Action;
use flow::port_number::PortNumber;
use flow::request::PacketOut;

use super::packets::{add, bridge, output, outputs, translate, udp};
use crate::{Balance, Bond, LacpState};

fn bond(members: &[u32], active: u32) -> Bond {
    let members: Vec<_> = members.iter().map(|number| PortNumber(*number)).collect();
    Bond {
        enabled: members.clone(),
        members,
        active: Some(PortNumber(active)),
        balance: Balance::ActiveBackup,
        basis: 0,
        all_active: false,
        lacp: LacpState::Off,
    }
}

#[test]
fn the_active_bond_member_sends_and_receives_until_its_port_is_removed() {
    let normal = Action::Output { port: PortNumber::NORMAL, max_len: 0 };
    let mut tables = bridge(4);
    tables.flow_mod(add(0, 1, Match::any(), vec![normal]), 0).expect("added");
    tables.set_bonds(vec![bond(&[1, 2], 2)]);
    let flooded = |tables: &crate::Tables, from| outputs(&translate(tables, &udp(from, 1, 2)));
    assert_eq!(flooded(&tables, 3), [2, 4]);
    assert!(flooded(&tables, 1).is_empty(), "the other member takes none");
    assert_eq!(flooded(&tables, 2), [3, 4]);
    tables.remove_port(PortNumber(2));
    assert_eq!(flooded(&tables, 3), [4], "no member is active");
    tables.set_bonds(vec![bond(&[1], 1)]);
    assert_eq!(flooded(&tables, 3), [1, 4]);
}

#[test]
fn a_bond_with_lacp_carries_traffic_once_a_partner_is_there() {
    let normal = Action::Output { port: PortNumber::NORMAL, max_len: 0 };
    let mut tables = bridge(4);
    tables.flow_mod(add(0, 1, Match::any(), vec![normal]), 0).expect("added");
    let mut bond = Bond { balance: Balance::Tcp, ..bond(&[1, 2], 2) };
    // Returns the outputs of frames from the ports 1, 2 and 4.
    let mut flooded = |lacp: LacpState| {
        bond.lacp = lacp;
        bond.enabled = vec![PortNumber(1)];
        tables.set_bonds(vec![bond.clone()]);
        [1, 2, 4].map(|from| outputs(&translate(&tables, &udp(from, 1, 2))))
    };
    let none: &[u16] = &[];
    assert_eq!(flooded(LacpState::Waiting), [none, none, &[3]]);
    assert_eq!(flooded(LacpState::FallenBack), [none, &[3, 4], &[2, 3]], "the active member");
    assert_eq!(flooded(LacpState::Negotiated), [&[3, 4], none, &[1, 3]], "the enabled member");
}

#[test]
fn lacp_frames_of_a_bond_with_lacp_pass_no_table() {
    let mut tables = bridge(4);
    let output = Action::Output { port: PortNumber(3), max_len: 0 };
    tables.flow_mod(add(0, 1, Match::any(), vec![output]), 0).expect("added");
    let mut slow = udp(1, 1, 2);
    slow.write(flow::Field::EthType, 0x8809);
    tables.set_bonds(vec![bond(&[1, 2], 2)]);
    assert_eq!(outputs(&translate(&tables, &slow)), [3]);
    tables.set_bonds(vec![Bond { lacp: LacpState::Waiting, ..bond(&[1, 2], 2) }]);
    let taken = translate(&tables, &slow);
    assert!(taken.steps.is_empty() && !taken.is_cacheable);
    slow.write(flow::Field::InPort, 4);
    assert_eq!(outputs(&translate(&tables, &slow)), [3], "no member");
}

#[test]
fn a_trace_says_that_lacp_takes_received_frames_and_no_packet_outs() {
    let mut tables = bridge(4);
    tables.set_bonds(vec![Bond { lacp: LacpState::Waiting, ..bond(&[1, 2], 2) }]);
    let mut slow = udp(1, 1, 2);
    slow.write(flow::Field::EthType, 0x8809);
    let trace = crate::Trace::new(&tables, "br0", super::trace::Names);
    let received = trace.run(&slow, &[0; 60], 0);
    assert!(received.ends_with("  - Consists of LACP packets.\n"), "{received}");
    let packet = PacketOut {
        frame: vec![0; 60],
        in_port: PortNumber(1),
        metadata: flow::Key::ZERO,
        actions: vec![output(3)],
    };
    let sent = trace.run_packet_out(&packet, &slow, 0);
    assert!(sent.ends_with("Datapath actions: 3\n"), "{sent}");
}

/// The expected numbers are the output of `ovs-appctl bond/hash` of Open vSwitch 3.1.
#[test]
fn the_hash_of_an_address_is_that_of_open_vswitch() {
    for (address, vlan, basis, hash) in [
        (0, 0, 0, 252),
        (0x5054_0000_0001, 0, 0, 144),
        (0x5054_0000_0001, 10, 0, 60),
        (0x5054_0000_0001, 10, 7, 70),
        (0xffff_ffff_ffff, 4095, u32::MAX, 93),
    ] {
        assert_eq!(crate::slb_hash(address, vlan, basis), hash, "{address:x} {vlan} {basis}");
    }
}

#[test]
fn addresses_with_the_same_hash_leave_by_the_same_member_of_balance_slb() {
    let mut bond = bond(&[1, 2, 3], 1);
    bond.balance = Balance::Slb;
    let mut members = std::collections::BTreeMap::new();
    let macs = (0..2_000_u16).map(|number| {
        let [high, low] = number.to_be_bytes();
        let address = [2, 0, 0, 0, high, low];
        crate::MacEntry { port: PortNumber(4), vlan: 0, address, age_seconds: None }
    });
    for entry in macs {
        let packets = bond.learning_packets(&[entry], None);
        let [(member, _)] = &packets[..] else { panic!("{packets:?}") };
        let number = entry.address.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let known = members.entry(crate::slb_hash(number, 0, 0)).or_insert(*member);
        assert_eq!(known, member, "{entry:?}");
    }
    let used: std::collections::BTreeSet<_> = members.values().collect();
    assert_eq!(used.len(), 3);
}

#[test]
fn learning_packets_announce_the_addresses_behind_other_ports() {
    let mac = |port: u32, vlan: u16, last: u8| crate::MacEntry {
        port: PortNumber(port),
        vlan,
        address: [2, 0, 0, 0, 0, last],
        age_seconds: None,
    };
    let macs = [mac(3, 0, 1), mac(4, 7, 2), mac(1, 0, 3)];
    let mut bond = bond(&[1, 2], 2);
    let packets = bond.learning_packets(&macs, None);
    let [(PortNumber(2), plain), (PortNumber(2), tagged)] = &packets[..] else {
        panic!("{packets:?}");
    };
    assert_eq!(plain[..14], [255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 1, 0x80, 0x35]);
    assert_eq!(
        plain[14..],
        [0, 1, 8, 0, 6, 4, 0, 3, 2, 0, 0, 0, 0, 1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1, 0, 0, 0, 0]
    );
    assert_eq!((tagged.len(), &tagged[11..18]), (46, &[2, 0x81, 0, 0, 7, 0x80, 0x35][..]));
    // Frames of an access port have no tag, and belong to its VLAN.
    let mode = crate::VlanMode::Access;
    let access = crate::PortVlans { mode, tag: 7, ..crate::PortVlans::default() };
    let of_access = bond.learning_packets(&macs, Some(&access));
    let [(_, untagged)] = &of_access[..] else { panic!("{of_access:?}") };
    assert_eq!((untagged.len(), untagged[11]), (42, 2));
    // balance-slb chooses the member as for a packet that comes from the address.
    (bond.balance, bond.enabled) = (Balance::Slb, vec![PortNumber(1)]);
    assert!(bond.learning_packets(&macs, None).iter().all(|(member, _)| *member == PortNumber(1)));
    bond.enabled.clear();
    assert!(bond.learning_packets(&macs, None).is_empty());
}
