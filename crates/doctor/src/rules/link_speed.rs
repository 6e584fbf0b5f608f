//! The link negotiated less than both ends support: a bad cable, a bad port, or a setting.

use super::{Advice, Finding, Outcome, Rule};
use crate::view::View;
use crate::words::{percent, rate};

pub(super) const RULE: Rule =
    Rule::new("link-negotiation", "a link below its possible speed").machine(judge);

fn judge(view: &View<'_>) -> Outcome {
    let mut fine = Vec::new();
    for interface in view.interfaces().filter(|one| one.is_device()) {
        let (Some(speed), Some(modes)) = (interface.facts.speed, &interface.facts.modes) else {
            continue;
        };
        let Some(supported) = modes.supported_most else { continue };
        // Without the peer's offer, a slower peer is as likely as a fault.
        let possible = modes.peer_most.map_or(speed, |peer| peer.min(supported));
        let restricted = modes.advertised_most.is_some_and(|most| most < supported);
        let name = interface.name;
        if speed < possible || restricted && modes.peer_most.is_none_or(|peer| peer > speed) {
            let possible = possible.max(supported.min(modes.peer_most.unwrap_or(supported)));
            let finding = Finding::new(format!(
                "{name} runs at {} although {} is possible",
                rate(speed),
                rate(possible)
            ))
            .allows(Some(speed))
            .seen("this end supports", rate(supported))
            .seen_if("this end offers", modes.advertised_most.map(rate))
            .seen_if("the other end offers", modes.peer_most.map(rate))
            .advise(match restricted {
                true => Advice::new("This end offers less than it supports: let it offer all")
                    .run(format!("ethtool -s {name} autoneg on advertise 0xffffffff")),
                false => Advice::new("Try another cable (all four pairs), then another port")
                    .run(format!("ethtool {name}"))
                    .not("Settings do not help: both ends already offer more"),
            });
            let load = interface.load().map_or(0.0, |(received, sent)| received.max(sent));
            return if load >= LOADED {
                finding.seen("load, of the speed", percent(load)).limits_for(load)
            } else {
                finding
            }
            .holds();
        }
        fine.push(format!("{name} at {}", rate(speed)));
    }
    match fine.is_empty() {
        true => Outcome::not_seen("the link modes of a network device"),
        false => Outcome::ruled_out(fine.join(", ")),
    }
}

const LOADED: f64 = 0.5;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use crate::recording::LinkModes;
    use units::Rate;

    fn modes(speed: u64, supported: u64, advertised: u64, peer: Option<u64>) -> Sketch {
        Sketch::new().interface(|eth0| {
            eth0.speed = Some(Rate::from_mbit(speed));
            eth0.modes = Some(LinkModes {
                negotiates: Some(true),
                supported_most: Some(Rate::from_mbit(supported)),
                advertised_most: Some(Rate::from_mbit(advertised)),
                peer_most: peer.map(Rate::from_mbit),
            });
        })
    }

    #[test]
    fn a_link_of_100_mbit_between_gigabit_ends_is_found() {
        assert!(modes(100, 1000, 1000, Some(1000)).holds_machine(RULE).is_some());
        assert!(modes(100, 1000, 100, None).holds_machine(RULE).is_some());
    }

    #[test]
    fn a_slower_peer_is_no_fault() {
        modes(100, 1000, 1000, Some(100)).machine_holds_not(RULE);
        modes(1000, 1000, 1000, Some(1000)).machine_holds_not(RULE);
        modes(100, 1000, 1000, None).machine_holds_not(RULE);
    }
}
