//! Packets are forwarded too often: a routing loop, or a TTL that is too small for the path.

use super::{Advice, Finding, Outcome, Rule};
use crate::view::{Flow, View};

pub(super) const RULE: Rule = Rule::new("time-exceeded", "packets that expire").machine(judge);

fn judge(view: &View<'_>) -> Outcome {
    let counts = MESSAGES.iter().filter_map(|name| view.counter(name));
    let Some(expired) = counts.reduce(u64::saturating_add) else {
        return Outcome::not_seen("ICMP messages about expired packets");
    };
    // traceroute also causes such messages.
    let waits = view.flows.iter().any(|flow| flow.is_opening() || flow.is_stalled());
    if expired == 0 || !waits {
        return Outcome::ruled_out(format!("{expired} ICMP messages about expired packets came"));
    }
    let to = view.flows.iter().find(|flow| flow.is_opening() || flow.is_stalled());
    let to = to.map(|flow: &Flow<'_>| flow.addresses().1.ip());
    let host = to.map_or_else(|| "HOST".to_owned(), |address| address.to_string());
    Finding::new(format!(
        "packets expire on the way to {host}: a router reports that they were forwarded too often, so that they go in a circle or begin with a small TTL"
    ))
    .limits()
    .seen("ICMP time exceeded received", expired.to_string())
    .seen_if("net.ipv4.ip_default_ttl", view.sysctl("net.ipv4.ip_default_ttl").map(str::to_owned))
    .advise(
        Advice::new("Look where the packets go, and for the TTL that they begin with")
            .run(format!("tracepath -n {host}"))
            .run("sysctl net.ipv4.ip_default_ttl")
            .not("The far end and its filters have no part in it: the packets do not arrive"),
    )
    .holds()
}

/// Counters of the messages over IPv4 and IPv6. In a loop the hop limit of IPv6 ends as the TTL
/// does.
const MESSAGES: [&str; 2] = ["IcmpInTimeExcds", "Icmp6InTimeExcds"];

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use crate::recording::ConnectionState;

    #[test]
    fn expired_packets_explain_a_handshake_without_an_answer() {
        for name in MESSAGES {
            let opens = Sketch::new().counter(name, 1).sender(|_, sender| {
                sender.state = ConnectionState::SynSent;
            });
            assert!(opens.holds_machine(RULE).unwrap() > 0.85, "{name}");
        }
    }

    #[test]
    fn expired_packets_beside_a_transfer_are_no_fault() {
        Sketch::new().counter("IcmpInTimeExcds", 9).machine_holds_not(RULE);
        Sketch::idle().counter("IcmpInTimeExcds", 9).machine_holds_not(RULE);
        assert!(matches!(Sketch::new().on_machine(RULE), Outcome::NotSeen(_)));
    }
}
