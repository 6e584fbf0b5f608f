//! The link of this machine is full, which is a limit and no fault.

use super::{Advice, Finding, Outcome, Rule};
use crate::bound;
use crate::view::{Flow, View};
use crate::words::{percent, rate};

pub(super) const RULE: Rule = Rule::new("link", "the link's speed").flow(judge);

fn judge(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let Some(name) = flow.interface() else {
        return if flow.is_inside() {
            Outcome::Irrelevant
        } else {
            Outcome::not_seen("the route of the connection")
        };
    };
    if view.machine().interfaces.get(name).is_some_and(|facts| !is_a_link(facts)) {
        return Outcome::Irrelevant;
    }
    let Some(interface) = view.interface(name) else {
        return Outcome::not_seen(format!("the counters of {name}"));
    };
    let Some(speed) = interface.facts.speed.filter(|speed| speed.bits_per_second() > 0) else {
        return Outcome::not_seen(format!("the speed of {name}, which its driver does not report"));
    };
    let (received, sent) = interface.load().unwrap_or_default();
    let load = if flow.sender.is_some() { sent } else { received };
    if load > BEYOND {
        return Outcome::ruled_out(format!(
            "{name} carries {} of the {} that it names: nothing enforces that speed",
            percent(load),
            rate(speed)
        ));
    }
    if load < FULL {
        return Outcome::ruled_out(format!(
            "{name} carries {} of its {}",
            percent(load),
            rate(speed)
        ));
    }
    let own =
        flow.rate().bits_per_second() as f64 / bound::payload_of(speed).bits_per_second() as f64;
    let mut finding = Finding::new(format!(
        "the link is full: {name} carries {} of its {}",
        percent(load.min(1.0)),
        rate(speed)
    ))
    .limits_for(load)
    .allows(Some(bound::payload_of(speed)))
    .healthy()
    .seen_from(format!("load, of {name}"), percent(load), percent(FULL))
    .seen("payload that TCP can have of it", rate(bound::payload_of(speed)))
    .advise(
        Advice::new("Use a faster link, or send less")
            .not("No setting of this machine makes the link faster"),
    );
    if own < 0.5 {
        finding = finding.seen("this connection's part, of the load", percent(own));
    }
    finding.holds()
}

/// Whether the interface has a real speed: veth reports a speed that nothing enforces, and `lo` has
/// none.
fn is_a_link(facts: &crate::recording::Interface) -> bool {
    facts.device
        || facts.kind.as_deref().is_some_and(|kind| matches!(kind, "bond" | "vlan" | "tun"))
}

/// Minimum load at which a link counts as full (measured).
const FULL: f64 = 0.9;
/// A virtual device passes more than the speed that it reports: TUN and TAP report 10 Mbit/s, or
/// the speed that somebody set. Drivers of cards that read their counters each second may report a
/// third more than the speed.
const BEYOND: f64 = 1.5;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use units::{Bytes, Rate};

    fn carrying(mbit: u64) -> Sketch {
        Sketch::new().each(move |at, sample| {
            let eth0 = sample.interfaces.get_mut("eth0").unwrap();
            eth0.sent = Bytes::new(at * mbit * 125_000);
            eth0.sent_packets = at * mbit * 125_000 / 1514;
        })
    }

    #[test]
    fn a_full_link_is_a_limit_and_no_fault() {
        let outcome = carrying(960).judge(RULE);
        let finding = outcome.finding().unwrap();
        assert!(finding.healthy && finding.explains.is_some_and(|share| share > 0.9));
        assert_eq!(finding.allows.map(|rate| rate.mbit_per_second() as u64), Some(941));
    }

    #[test]
    fn spare_capacity_rules_out_the_link() {
        carrying(440).holds_not(RULE);
    }

    #[test]
    fn a_speed_that_nothing_enforces_is_no_limit() {
        let tunnel = carrying(440).interface(|tun| {
            (tun.device, tun.kind) = (false, Some("tun".to_owned()));
            tun.speed = Some(Rate::from_mbit(10));
        });
        tunnel.holds_not(RULE);
    }

    #[test]
    fn a_link_of_unknown_speed_is_not_judged_and_veth_is_irrelevant() {
        let unknown = carrying(960).interface(|eth0| eth0.speed = None);
        assert!(matches!(unknown.judge(RULE), Outcome::NotSeen(_)));
        let cable = carrying(9_900).interface(|eth0| {
            (eth0.device, eth0.kind) = (false, Some("veth".to_owned()));
            eth0.speed = Some(Rate::from_mbit(10_000));
        });
        assert_eq!(cable.judge(RULE), Outcome::Irrelevant);
    }
}
