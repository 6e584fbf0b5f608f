//! An interface counts errors or drops, or its carrier flaps.

use super::{Advice, Case, Finding, Outcome, Rule};
use crate::signs::input_queues::drops_many;
use crate::view::{Flow, InterfaceUse, View};
use crate::words::counted;

pub(super) const RULE: Rule =
    Rule::new("interface-errors", "errors and drops of interfaces").machine(judge);
pub(super) const FLAPS: Case = Case::new("the carrier comes and goes");

fn judge(view: &View<'_>) -> Outcome {
    let interfaces: Vec<_> = view.interfaces().collect();
    if interfaces.is_empty() {
        return Outcome::not_seen("the counters of interfaces");
    }
    let Some((bad, worst)) = interfaces
        .iter()
        .map(|one| (bad(one), one))
        .filter(|(bad, one)| {
            let packets = one.received_packets.saturating_add(one.sent_packets);
            *bad > 0 && *bad as f64 >= packets as f64 * SHARE || flaps(one, view) > 0
        })
        .max_by_key(|(bad, one)| (flaps(one, view), *bad))
    else {
        return Outcome::ruled_out(format!(
            "{} counted no errors, drops or carrier changes",
            counted(interfaces.len() as u64, "interface", "interfaces")
        ));
    };
    let name = worst.name;
    let flaps = flaps(worst, view);
    let mut finding = Finding::new(match flaps > 0 {
        true if worst.facts.down().is_some() => format!("the link of {name} went down"),
        true => format!("the link of {name} goes down and comes back"),
        false => format!("{name} loses packets: it counted {bad} errors and drops"),
    })
    .seen("received with errors, dropped", pair(worst.received_errors, worst.received_drops))
    .seen("not sent by errors, dropped", pair(worst.sent_errors, worst.sent_drops))
    .seen("carrier changes", flaps.to_string());
    for (name, count) in worst.driver_named(&DRIVER).take(4) {
        finding = finding.seen(format!("driver's {name}"), count.to_string());
    }
    let packets = worst.received_packets.saturating_add(worst.sent_packets);
    let share = bad as f64 / packets.saturating_add(bad).max(1) as f64;
    if flaps > 0 {
        finding = finding.limits().case(FLAPS);
    } else if share >= LIMITS && bad >= FEW && !is_backlog(worst, bad, view) {
        // A loss of this size halves the rate of a connection over some milliseconds.
        finding = finding.limits();
    }
    let rings = worst.facts.rings.as_ref();
    if let Some(rings) = rings.filter(|rings| rings.receive < rings.receive_most)
        && worst.received_drops > 0
    {
        finding = finding
            .seen("receive ring, at most", format!("{}, {}", rings.receive, rings.receive_most))
            .advise(
                Advice::new("Give the card a longer receive ring")
                    .run(format!("ethtool -G {name} rx {}", rings.receive_most))
                    .not("It helps against bursts, and not against a core that is full"),
            );
    }
    finding
        .advise(
            Advice::new(match worst.is_device() {
                true => "Try another cable and another port; compare the switch's counters",
                false => "Look at the program or the peer behind this virtual interface",
            })
            .run(format!("ip -s -s link show {name}"))
            .run(format!("ethtool -S {name}"))
            .not("Buffers and congestion control do not bring lost packets back"),
        )
        .holds()
}

fn bad(one: &InterfaceUse<'_>) -> u64 {
    // Multicast and unknown protocols count as received drops; they are rare and harmless.
    [one.received_errors, one.sent_errors, one.received_drops, one.sent_drops]
        .into_iter()
        .fold(0, u64::saturating_add)
}

/// Changes of the carrier that are no fault do not count: a bridge has a carrier while one of its
/// ports has one, and a veth interface gets a carrier when its peer is switched on. The start and
/// the end of a container change the carriers of bridge and veth interface.
fn flaps(one: &InterfaceUse<'_>, view: &View<'_>) -> u64 {
    let changes = one.carrier_changes.unwrap_or(0);
    let is_used = |flow: &Flow<'_>| flow.interface() == Some(one.name);
    let came = changes == 1 && one.facts.down().is_none();
    match one.facts.kind.as_deref() {
        Some(kind) if kind == "bridge" || came => {
            if view.flows.iter().any(is_used) {
                changes
            } else {
                0
            }
        }
        _ => changes,
    }
}

/// Whether full input queues of cores, which are another cause, explain the drops. The kernel
/// counts a packet that an input queue drops also at the interface.
fn is_backlog(one: &InterfaceUse<'_>, bad: u64, view: &View<'_>) -> bool {
    let at_cores = view.softnet().values().map(|counts| counts[1]).fold(0, u64::saturating_add);
    drops_many(view)
        && at_cores.saturating_mul(2) >= one.received_drops
        && one.received_drops.saturating_mul(2) >= bad
}

fn pair(errors: u64, drops: u64) -> String {
    format!("{errors}, {drops}")
}

const SHARE: f64 = 1e-4;
const LIMITS: f64 = 2e-3;
const FEW: u64 = 50;
const DRIVER: [&str; 4] = ["crc", "err", "drop", "miss"];

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use crate::recording::InterfaceCounters;

    fn counting(change: impl Fn(u64, &mut InterfaceCounters)) -> Sketch {
        Sketch::new().each(|at, sample| change(at, sample.interfaces.get_mut("eth0").unwrap()))
    }

    #[test]
    fn errors_or_a_link_that_flaps_are_a_finding() {
        let errors = counting(|at, eth0| eth0.received_errors = at * 900);
        assert!(errors.holds_machine(RULE).is_some_and(|share| share > 0.5));
        let flaps = counting(|at, eth0| eth0.carrier_changes = Some(1 + at));
        assert!(flaps.holds_machine(RULE).is_some_and(|share| share > 0.8));
    }

    /// The first container of a machine starts, or the last container ends.
    #[test]
    fn a_bridge_without_ports_and_a_new_veth_carrier_are_no_fault() {
        let changed = |kind: &str, state: &str| {
            let sketch = Sketch::new().machine(|machine| {
                let mut other = machine.interfaces["eth0"].clone();
                (other.device, other.kind) = (false, Some(kind.to_owned()));
                other.state = state.to_owned();
                machine.interfaces.insert("other0".to_owned(), other);
            });
            sketch.each(|at, sample| {
                let carrier_changes = Some(if at > 1 { 2 } else { 1 });
                let counters = InterfaceCounters { carrier_changes, ..Default::default() };
                sample.interfaces.insert("other0".to_owned(), counters);
            })
        };
        changed("bridge", "up").machine_holds_not(RULE);
        changed("bridge", "down").machine_holds_not(RULE);
        changed("veth", "up").machine_holds_not(RULE);
        assert!(changed("veth", "lowerlayerdown").holds_machine(RULE).is_some_and(|s| s > 0.8));
    }

    #[test]
    fn drops_of_a_full_input_queue_are_no_interface_errors() {
        let dropping = counting(|at, eth0| eth0.received_drops = at * 900);
        assert!(dropping.holds_machine(RULE).is_some_and(|share| share > 0.5));
        let queue = dropping.each(|at, sample| {
            let core = sample.softnet.get_mut(&0).unwrap();
            (core.processed, core.dropped) = (at * 20_000, at * 900);
        });
        assert_eq!(queue.on_machine(RULE).finding().unwrap().explains, None);
        assert!(queue.holds_machine(super::super::backlog::RULE).is_some_and(|share| share > 0.5));
    }

    #[test]
    fn single_drops_and_old_errors_are_no_fault() {
        counting(|at, eth0| eth0.received_drops = at).machine_holds_not(RULE);
        counting(|_, eth0| eth0.received_errors = 1_000_000).machine_holds_not(RULE);
    }
}
