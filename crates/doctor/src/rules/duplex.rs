//! Half duplex: the two ends of a link send in turns. If only one end is half duplex, frames
//! collide.

use super::{Advice, Finding, Outcome, Rule};
use crate::view::View;
use crate::words::rate;

pub(super) const RULE: Rule = Rule::new("half-duplex", "half duplex").machine(judge);

fn judge(view: &View<'_>) -> Outcome {
    let mut known = Vec::new();
    for interface in view.interfaces().filter(|one| one.is_device() && one.facts.state != "down") {
        match interface.facts.full_duplex {
            None => continue,
            Some(true) => known.push(interface.name),
            Some(false) => {
                let name = interface.name;
                let collisions = interface.driver_sum(&["collision", "late_coll"]);
                let finding = Finding::new(format!(
                    "{name} runs in half duplex: it cannot send while it receives"
                ))
                .seen("duplex", "half")
                .seen_if("speed", interface.facts.speed.map(rate))
                .seen("collisions", collisions.to_string())
                .advise(
                    Advice::new("Let both ends negotiate, or set both to the same by hand")
                        .run(format!("ethtool {name}"))
                        .run(format!("ethtool -s {name} autoneg on"))
                        .not("Setting only one end makes the other fall back to half duplex"),
                );
                let carries = interface.rates();
                let busy = carries.0.max(carries.1).mbit_per_second() > 1.0;
                return if busy { finding.limits() } else { finding }.holds();
            }
        }
    }
    match known.is_empty() {
        true => Outcome::not_seen("the duplex mode of a network device"),
        false => Outcome::ruled_out(format!("{} in full duplex", known.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;

    #[test]
    fn half_duplex_is_a_finding_and_full_duplex_is_none() {
        let half = Sketch::new().interface(|eth0| eth0.full_duplex = Some(false));
        assert!(half.holds_machine(RULE).is_some());
        Sketch::new().machine_holds_not(RULE);
    }

    #[test]
    fn an_unknown_duplex_mode_is_not_judged() {
        let unknown = Sketch::new().interface(|eth0| eth0.full_duplex = None);
        assert!(matches!(unknown.on_machine(RULE), Outcome::NotSeen(_)));
    }
}
