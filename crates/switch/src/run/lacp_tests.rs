use super::*;

/// A cable between two ends, each of which is a member of a bond: `(bond, member)`.
type Cable = ((usize, &'static str), (usize, &'static str));

/// Two or more bonds with a clock. Cables connect the members of these bonds.
struct World {
    bonds: Vec<Lacp>,
    cables: Vec<Cable>,
    now_ms: u64,
}

fn settings(system: u8, is_active: bool) -> LacpSettings {
    LacpSettings {
        is_active,
        is_fast: true,
        system: [2, 0, 0, 0, 0, system],
        system_priority: 65_534,
        falls_back: false,
    }
}

fn member(name: &str, port: u16) -> MemberSettings {
    MemberSettings { name: name.to_owned(), port, priority: 65_535, key: 0, has_carrier: true }
}

impl World {
    fn new(cables: &[Cable]) -> Self {
        let bonds = (0..2).map(|_| Lacp::default()).collect();
        Self { bonds, cables: cables.to_vec(), now_ms: 0 }
    }

    /// Gives a bond the settings, and two members with the ports 1 and 2.
    fn configure(&mut self, bond: usize, settings: LacpSettings) {
        let members = vec![member("p1", 1), member("p2", 2)];
        self.bonds[bond].configure(settings, members, self.now_ms);
    }

    /// Advances the clock in steps of 100 ms. Cables carry LACPDUs without delay.
    fn pass(&mut self, milliseconds: u64) {
        let end = self.now_ms + milliseconds;
        while self.now_ms < end {
            self.now_ms += 100;
            for bond in 0..self.bonds.len() {
                for (name, pdu) in self.bonds[bond].run(self.now_ms) {
                    let at = (bond, name.as_str());
                    let to = self.cables.iter().find_map(|(a, b)| match (*a == at, *b == at) {
                        (true, _) => Some(*b),
                        (_, true) => Some(*a),
                        _ => None,
                    });
                    if let Some((bond, name)) = to {
                        self.bonds[bond].receive(name, &pdu, self.now_ms);
                    }
                }
            }
        }
    }

    /// Returns whether the members p1 and p2 of a bond may carry traffic.
    fn enabled(&self, bond: usize) -> [bool; 2] {
        ["p1", "p2"].map(|name| self.bonds[bond].may_enable(name))
    }
}

/// Returns the number of LACPDUs that the first member has sent.
fn sent(bond: &Lacp) -> u64 {
    let text = bond.show_statistics("b");
    let number = text.split("TX PDUs: ").nth(1).and_then(|text| text.lines().next());
    number.and_then(|number| number.parse().ok()).expect("a number")
}

const STRAIGHT: [Cable; 2] = [((0, "p1"), (1, "p1")), ((0, "p2"), (1, "p2"))];

#[test]
fn two_bonds_negotiate_if_at_least_one_is_active() {
    for (active, expected) in [([true, true], true), ([true, false], true), ([false; 2], false)] {
        let mut world = World::new(&STRAIGHT);
        for (bond, is_active) in active.into_iter().enumerate() {
            world.configure(bond, settings(bond as u8 + 1, is_active));
        }
        world.pass(2_000);
        for bond in 0..2 {
            assert_eq!(world.enabled(bond), [expected; 2], "{active:?}");
            let status = if expected { Status::Negotiated } else { Status::Configured };
            assert_eq!(world.bonds[bond].status(), status);
        }
        let sent = world.bonds[0].show_statistics("bond0").contains("TX PDUs: 0\n");
        assert_eq!(sent, !expected, "{active:?}");
    }
}

#[test]
fn lacp_show_prints_both_ends_as_open_vswitch_does() {
    let mut world = World::new(&STRAIGHT[..1]);
    world.configure(0, settings(1, true));
    let mut other = settings(2, true);
    (other.is_fast, other.system_priority) = (false, 7);
    let p1 = MemberSettings { key: 9, priority: 3, ..member("p1", 5) };
    world.bonds[1].configure(other, vec![p1], 0);
    world.pass(3_500);
    let text = world.bonds[0].show("bond0");
    let expected = "---- bond0 ----
  status: active negotiated
  sys_id: 02:00:00:00:00:01
  sys_priority: 65534
  aggregation key: 1
  lacp_time: fast

member: p1: current attached
  port_id: 1
  port_priority: 65535
  may_enable: true

  actor sys_id: 02:00:00:00:00:01
  actor sys_priority: 65534
  actor port_id: 1
  actor port_priority: 65535
  actor key: 1
  actor state: activity timeout aggregation synchronized collecting distributing

  partner sys_id: 02:00:00:00:00:02
  partner sys_priority: 7
  partner port_id: 5
  partner port_priority: 3
  partner key: 9
  partner state: activity synchronized collecting distributing

member: p2: defaulted detached
  port_id: 2
  port_priority: 65535
  may_enable: false

  actor sys_id: 02:00:00:00:00:01
  actor sys_priority: 65534
  actor port_id: 2
  actor port_priority: 65535
  actor key: 1
  actor state: activity timeout aggregation defaulted

  partner sys_id: 00:00:00:00:00:00
  partner sys_priority: 0
  partner port_id: 0
  partner port_priority: 0
  partner key: 0
  partner state:
";
    assert_eq!(text, expected);
    assert!(world.bonds[0].is_current("p1") && !world.bonds[0].is_current("p2"));
}

#[test]
fn a_silent_partner_is_asked_again_and_then_given_up() {
    let mut world = World::new(&STRAIGHT);
    world.configure(0, settings(1, true));
    world.configure(1, settings(2, true));
    world.pass(2_000);
    world.cables.remove(1);
    world.pass(4_000);
    assert_eq!(world.enabled(0), [true, false], "p2 has expired");
    assert!(world.bonds[0].show("b").contains("member: p2: expired attached\n"));
    world.pass(3_000);
    assert!(world.bonds[0].show("b").contains("member: p2: defaulted detached\n"));
    let statistics = world.bonds[0].show_statistics("b");
    assert!(statistics.contains("Link Expired: 1\n  Link Defaulted: 1\n"), "{statistics}");
    world.cables.clear();
    world.pass(7_000);
    assert_eq!((world.enabled(0), world.bonds[0].status()), ([false; 2], Status::Configured));
    assert_eq!(world.bonds[0].take_events().last(), Some(&Event::PartnerLost));
    world.cables = STRAIGHT.to_vec();
    world.pass(31_000);
    assert_eq!(world.enabled(0), [true; 2], "the partner is back");
}

#[test]
fn a_silent_partner_that_sent_slowly_is_asked_each_second() {
    let mut world = World::new(&STRAIGHT);
    for bond in 0..2 {
        let slow = LacpSettings { is_fast: false, ..settings(bond as u8 + 1, true) };
        world.configure(bond, slow);
    }
    world.pass(2_000);
    assert_eq!(world.enabled(0), [true; 2]);
    world.cables.clear();
    let expiry = (0..1_000).find(|_| {
        world.pass(100);
        world.bonds[0].show("b").contains("p1: expired")
    });
    assert!(expiry.is_some_and(|steps| steps > 800), "{expiry:?}");
    let before = sent(&world.bonds[0]);
    world.pass(2_500);
    assert_eq!(sent(&world.bonds[0]), before + 2);
}

#[test]
fn a_partner_that_changes_to_the_fast_rate_does_not_wait_for_the_slow_rate() {
    let mut world = World::new(&STRAIGHT);
    for bond in 0..2 {
        let slow = LacpSettings { is_fast: false, ..settings(bond as u8 + 1, true) };
        world.configure(bond, slow);
    }
    world.pass(10_000);
    let before = sent(&world.bonds[1]);
    world.configure(0, settings(1, true));
    world.pass(2_500);
    assert_eq!(sent(&world.bonds[1]), before + 2);
    assert_eq!(world.enabled(0), [true; 2]);
}

#[test]
fn a_bond_that_is_connected_to_itself_carries_no_traffic() {
    let mut world = World::new(&[((0, "p1"), (0, "p2"))]);
    world.configure(0, settings(1, true));
    world.pass(2_000);
    assert_eq!((world.enabled(0), world.bonds[0].status()), ([false; 2], Status::Configured));
    let events = world.bonds[0].take_events();
    let loops = events.iter().filter(|event| matches!(event, Event::Loop(_))).count();
    assert_eq!(loops, 2, "once for each member: {events:?}");
}

#[test]
fn members_with_another_key_or_system_stay_without_traffic() {
    // p1 is connected to the bond with key 7, and p2 to another bond of the same system.
    let mut world = World::new(&[((0, "p1"), (1, "p1")), ((0, "p2"), (2, "p1"))]);
    world.bonds.push(Lacp::default());
    world.configure(0, settings(1, true));
    for (bond, system, key) in [(1, 2, 7), (2, 2, 8)] {
        let p1 = MemberSettings { key, ..member("p1", bond as u16) };
        world.bonds[bond].configure(settings(system, true), vec![p1], 0);
    }
    world.pass(2_000);
    assert_eq!(world.enabled(0), [true, false], "another key");
    let p1 = MemberSettings { key: 7, ..member("p1", 2) };
    world.bonds[2].configure(settings(2, true), vec![p1.clone()], world.now_ms);
    world.pass(2_000);
    assert_eq!(world.enabled(0), [true, true]);
}

#[test]
fn a_partner_of_higher_priority_does_not_replace_a_member_that_works() {
    let mut world = World::new(&STRAIGHT[..1]);
    world.bonds.push(Lacp::default());
    world.configure(0, settings(1, true));
    world.configure(1, settings(2, true));
    world.pass(4_000);
    let preferred = LacpSettings { system_priority: 1, ..settings(3, true) };
    world.bonds[2].configure(preferred, vec![member("p1", 1)], world.now_ms);
    world.cables.push(((0, "p2"), (2, "p1")));
    world.pass(31_000);
    assert!(world.bonds[0].is_current("p2"));
    assert_eq!(world.enabled(0), [true, false]);
}

#[test]
fn without_a_partner_members_carry_traffic_only_by_the_fallback() {
    let mut world = World::new(&[]);
    let fallback = LacpSettings { falls_back: true, ..settings(1, true) };
    world.configure(0, fallback);
    world.pass(2_000);
    assert_eq!(world.enabled(0), [false; 2], "a partner may still answer");
    assert!(world.bonds[0].take_events().is_empty(), "no partner has answered");
    world.pass(2_000);
    assert_eq!(world.bonds[0].take_events(), [Event::PartnerLost]);
    assert_eq!((world.enabled(0), world.bonds[0].status()), ([true; 2], Status::Configured));
    world.configure(0, settings(1, true));
    world.pass(100);
    assert_eq!(world.enabled(0), [false; 2]);
}

#[test]
fn a_member_without_carrier_neither_sends_nor_listens() {
    let mut world = World::new(&STRAIGHT);
    world.configure(0, settings(1, true));
    world.configure(1, settings(2, true));
    world.pass(2_000);
    let down = MemberSettings { has_carrier: false, ..member("p1", 1) };
    let members = vec![down, member("p2", 2)];
    world.bonds[0].configure(settings(1, true), members, world.now_ms);
    let before = sent(&world.bonds[0]);
    world.pass(1_000);
    assert_eq!((world.enabled(0), sent(&world.bonds[0])), ([false, true], before));
    let after = world.bonds[0].show_statistics("b");
    assert!(after.contains("Carrier Status Changed: 1\n"), "{after}");
    world.configure(0, settings(1, true));
    world.pass(2_000);
    assert_eq!(world.enabled(0), [true; 2]);
}

#[test]
fn cut_and_damaged_lacpdus_change_nothing_but_counters() {
    let mut partner = Lacp::default();
    partner.configure(settings(2, true), vec![member("p1", 1)], 0);
    let (_, whole) = partner.run(0).remove(0);
    let mut bond = Lacp::default();
    bond.configure(settings(1, false), vec![member("p1", 1)], 0);
    for length in 0..LENGTH {
        bond.receive("p1", &whole[..length], 0);
    }
    // Change the subtype, then the type and the length of both parts.
    for at in [0, 2, 3, 22, 23] {
        let mut damaged = whole;
        damaged[at] ^= 0x40;
        bond.receive("p1", &damaged, 0);
    }
    bond.receive("p9", &whole, 0);
    assert!(bond.run(0).is_empty() && !bond.is_current("p1"));
    let malformed = bond.show_statistics("b");
    assert!(malformed.contains("RX PDUs: 115\n  RX Bad PDUs: 115\n"), "{malformed}");
    assert_eq!(bond.take_events(), [Event::Malformed("p1".to_owned())], "the log has one line");
    let mut marker = [0; LENGTH];
    marker[..4].copy_from_slice(&[2, 1, 1, 16]);
    bond.receive("p1", &marker, 0);
    assert!(bond.show_statistics("b").contains("RX Marker Request PDUs: 1\n"));
    // Bytes after an LACPDU are padding of the frame.
    bond.receive("p1", &[&whole[..], &[7; 4]].concat(), 0);
    assert!(bond.is_current("p1"));
}

#[test]
fn a_partner_that_never_agrees_gets_at_most_three_lacpdus_in_a_second() {
    let mut bond = Lacp::default();
    bond.configure(settings(1, true), vec![member("p1", 1)], 0);
    let wrong =
        compose(&Information::default(), &Information { port: 77, ..Information::default() });
    let mut sent = 0;
    for now_ms in 0..10_000 {
        bond.receive("p1", &wrong, now_ms);
        sent += bond.run(now_ms).len();
    }
    assert_eq!(sent, 30);
}
