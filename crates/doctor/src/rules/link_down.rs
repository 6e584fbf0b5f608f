//! The interface of a connection is switched off, or its cable leads to no other device.

use super::{Advice, Finding, Outcome, Rule};
use crate::view::{Flow, View};

pub(super) const RULE: Rule = Rule::new("link-down", "an interface without a link").flow(judge);

fn judge(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    if !flow.is_opening() && !flow.is_stalled() {
        return Outcome::Irrelevant;
    }
    let Some(name) = flow.interface() else { return Outcome::Irrelevant };
    let Some(facts) = view.machine().interfaces.get(name) else { return Outcome::Irrelevant };
    // An interface that flaps has a cause of its own.
    let changes = view.interface(name).and_then(|one| one.carrier_changes).unwrap_or(0);
    let Some(state) = facts.down().filter(|_| changes < FLAPS) else {
        return Outcome::ruled_out(format!("{name} is up"));
    };
    Finding::new(format!("{name} has no link: {state}"))
        .limits()
        .seen(format!("state of {name}"), facts.state.clone())
        .seen("switched on", if facts.enabled { "yes" } else { "no" })
        .advise(match facts.enabled {
            false => Advice::new("Switch the interface on").run(format!("ip link set {name} up")),
            true => Advice::new("Look at the cable, at the port of the switch, or at the virtual machine or container at the other end")
                .run(format!("ip -s link show {name}"))
                .run(format!("ethtool {name}   (Link detected)"))
                .not("Nothing above the link layer can be the reason while there is no carrier"),
        })
        .holds()
}

/// Minimum number of carrier changes of a link that flaps: down, up, down.
const FLAPS: u64 = 3;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use units::Bytes;

    fn stalled() -> Sketch {
        Sketch::new().tcp(|_, tcp| tcp.bytes_acked = Some(Bytes::new(9_000_000)))
    }

    #[test]
    fn an_interface_without_a_carrier_or_switched_off_is_the_limit() {
        let no_carrier = stalled().interface(|eth0| eth0.state = "lowerlayerdown".to_owned());
        assert!(no_carrier.holds(RULE) > 0.95);
        let off = stalled().interface(|eth0| eth0.enabled = false);
        assert!(off.holds(RULE) > 0.95);
    }

    #[test]
    fn an_interface_that_is_up_or_flaps_is_not_down() {
        stalled().holds_not(RULE);
        let unknown = stalled().interface(|eth0| eth0.state = "unknown".to_owned());
        unknown.holds_not(RULE);
        let moves = Sketch::new().interface(|eth0| eth0.enabled = false);
        assert_eq!(moves.judge(RULE), Outcome::Irrelevant);
        let flaps =
            stalled().interface(|eth0| eth0.state = "down".to_owned()).each(|at, sample| {
                sample.interfaces.get_mut("eth0").unwrap().carrier_changes = Some(1 + at);
            });
        flaps.holds_not(RULE);
    }
}
