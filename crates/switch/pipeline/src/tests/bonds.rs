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
