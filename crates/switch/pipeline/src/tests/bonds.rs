//! Bonds: several ports that NORMAL uses as one port.

use flow::Match;
use flow::action::Action;
use flow::port_number::PortNumber;

use super::packets::{add, bridge, outputs, translate, udp};
use crate::{Balance, Bond};

fn bond(members: &[u32], active: u32) -> Bond {
    let members: Vec<_> = members.iter().map(|number| PortNumber(*number)).collect();
    Bond {
        enabled: members.clone(),
        members,
        active: Some(PortNumber(active)),
        balance: Balance::ActiveBackup,
        basis: 0,
        all_active: false,
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
    let access = crate::PortVlans { mode: crate::VlanMode::Access, tag: 7, trunks: Vec::new() };
    let of_access = bond.learning_packets(&macs, Some(&access));
    let [(_, untagged)] = &of_access[..] else { panic!("{of_access:?}") };
    assert_eq!((untagged.len(), untagged[11]), (42, 2));
    // balance-slb chooses the member as for a packet of the address.
    (bond.balance, bond.enabled) = (Balance::Slb, vec![PortNumber(1)]);
    assert!(bond.learning_packets(&macs, None).iter().all(|(member, _)| *member == PortNumber(1)));
    bond.enabled.clear();
    assert!(bond.learning_packets(&macs, None).is_empty());
}
