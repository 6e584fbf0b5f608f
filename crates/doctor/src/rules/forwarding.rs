//! This machine receives packets for other hosts and does not forward them: forwarding is off, or
//! there is no route.

use super::{Advice, Finding, Outcome, Rule};
use crate::view::View;

pub(super) const RULE: Rule =
    Rule::new("forwarding", "packets for others that are not forwarded").machine(judge);

fn judge(view: &View<'_>) -> Outcome {
    let count = |name: &str| view.counter(name).unwrap_or(0);
    if !view.has_counters() {
        return Outcome::not_seen("the counters of IP");
    }
    // ip_error() in net/ipv4/route.c.
    let (off, unrouted) = (count("IpInAddrErrors"), count("IpExtInNoRoutes"));
    if off.max(unrouted) < LEAST {
        return Outcome::ruled_out(format!(
            "{off} packets for others came, and none was dropped for want of a route"
        ));
    }
    let forwards = view.sysctl("net.ipv4.ip_forward").map(str::to_owned);
    let finding = match off >= unrouted {
        true => Finding::new(format!(
            "this machine does not forward: it dropped {off} packets for other addresses"
        ))
        .advise(
            Advice::new("Switch forwarding on if this machine is a router; else find the one that sends it these packets")
                .run("sysctl -w net.ipv4.ip_forward=1")
                .run("ip route   (on the sender: this machine is its next hop)"),
        ),
        false => Finding::new(format!(
            "this machine has no route for {unrouted} packets that it should forward"
        ))
        .advise(
            Advice::new("Add the route to their destination")
                .run("ip route; ip rule")
                .run("ip route get DESTINATION from SOURCE iif DEV"),
        ),
    };
    finding
        .limits()
        .seen_from("packets for other addresses", off.to_string(), LEAST.to_string())
        .seen_from("packets without a route", unrouted.to_string(), LEAST.to_string())
        .seen_if("net.ipv4.ip_forward", forwards)
        .holds()
}

const LEAST: u64 = 3;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;

    #[test]
    fn packets_for_other_hosts_that_are_not_forwarded_are_a_finding() {
        let off = Sketch::idle().counter("IpInAddrErrors", 5);
        assert!(off.holds_machine(RULE).is_some_and(|share| share > 0.5));
        let unrouted = Sketch::idle().counter("IpExtInNoRoutes", 5).on_machine(RULE);
        assert!(unrouted.finding().unwrap().sentence.contains("no route"));
        Sketch::idle().counter("IpInAddrErrors", 0).machine_holds_not(RULE);
    }
}
