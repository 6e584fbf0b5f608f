//! Datagrams go to a UDP port that no program has opened.

use super::{Advice, Case, Finding, Outcome, Rule};
use crate::signs::rejected::unreachable;
use crate::view::{Flow, View};
use crate::words::percent;

pub(super) const RULE: Rule =
    Rule::new("udp-no-listener", "datagrams that nobody takes").machine(judge);
pub(super) const REFUSED: Case = Case::new("ICMP messages tell that datagrams reach no program");

fn judge(view: &View<'_>) -> Outcome {
    let count = |names: [&str; 2]| {
        let known = names.iter().filter_map(|name| view.counter(name));
        known.reduce(u64::saturating_add)
    };
    let Some(came) = count(["UdpNoPorts", "Udp6NoPorts"]) else {
        return Outcome::not_seen("the counters of UDP");
    };
    let seconds = view.elapsed().secs_f64();
    let taken = count(["UdpInDatagrams", "Udp6InDatagrams"]).unwrap_or(0);
    let share = came as f64 / came.saturating_add(taken).max(1) as f64;
    if came as f64 / seconds >= PER_SECOND && share >= SHARE {
        return Finding::new(format!(
            "datagrams come to a UDP port that no program of this machine has opened: {came} were dropped"
        ))
        .limits()
        .seen_from("datagrams without a program", format!("{:.0} a second", came as f64 / seconds), format!("{PER_SECOND} a second"))
        .seen_from("datagrams without a program, of all that came", percent(share), percent(SHARE))
        .advise(
            Advice::new("Look whether the program runs, and for the port and address that it has opened")
                .run("ss -lun")
                .run("tcpdump -ni any 'icmp[0] == 3 and icmp[1] == 3'")
                .not("Buffers and filters have no part in it: the datagrams arrived"),
        )
        .holds();
    }
    // The other end's kernel sends at most one ICMP message of this type a second to each address.
    let refused = unreachable(view);
    let sent = count(["UdpOutDatagrams", "Udp6OutDatagrams"]).unwrap_or(0);
    let of_tcp =
        view.flows.iter().any(Flow::is_opening) || view.counter("TcpAttemptFails").unwrap_or(0) > 0;
    if refused as f64 / seconds >= MESSAGES && sent >= refused && !of_tcp {
        return Finding::new(format!(
            "datagrams of this machine are refused: {refused} ICMP messages say that they do not reach a program"
        ))
        .limits().case(REFUSED)
        .seen_from(
            "ICMP destination unreachable received",
            format!("{:.1} a second", refused as f64 / seconds),
            format!("{MESSAGES} a second"),
        )
        .seen("datagrams sent", sent.to_string())
        .advise(
            Advice::new("Look whether the program at the other end runs, and at the port")
                .run("tcpdump -ni any 'icmp[0] == 3'   (the message names the address and the port)")
                .run("ss -lun   (on the other end)"),
        )
        .holds();
    }
    Outcome::ruled_out(format!("{came} datagrams came to a port that no program has opened"))
}

/// Minimum number of refused datagrams a second. Late answers to a program that has ended are
/// rarer.
const PER_SECOND: f64 = 5.0;
const SHARE: f64 = 0.5;
const MESSAGES: f64 = 0.6;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;

    #[test]
    fn datagrams_to_a_closed_port_are_a_finding() {
        let here = Sketch::idle().counter("UdpNoPorts", 900).counter("UdpInDatagrams", 2);
        assert!(here.holds_machine(RULE).is_some_and(|share| share > 0.5));
        let far = Sketch::idle().counter("UdpNoPorts", 0).counter("UdpOutDatagrams", 900);
        assert!(far.counter("IcmpInDestUnreachs", 1).holds_machine(RULE).is_some());
    }

    #[test]
    fn few_refused_datagrams_or_messages_about_tcp_are_no_finding() {
        let few = Sketch::idle().counter("UdpNoPorts", 9).counter("UdpInDatagrams", 900);
        few.machine_holds_not(RULE);
        let tcp = Sketch::idle().counter("UdpNoPorts", 0).counter("UdpOutDatagrams", 900);
        let tcp = tcp.counter("IcmpInDestUnreachs", 9).counter("TcpAttemptFails", 9);
        tcp.machine_holds_not(RULE);
        assert!(matches!(Sketch::idle().on_machine(RULE), Outcome::NotSeen(_)));
    }
}
