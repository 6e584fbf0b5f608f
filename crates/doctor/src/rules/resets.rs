//! The far end, or a filter on the path, resets open connections.

use super::{Advice, Finding, Outcome, Rule};
use crate::view::View;
use crate::words::percent;

pub(super) const RULE: Rule = Rule::new("resets", "connections that are reset").machine(judge);

fn judge(view: &View<'_>) -> Outcome {
    let Some(all) = view.counter("TcpEstabResets") else {
        return Outcome::not_seen("the count of connections that were reset");
    };
    // A program of this machine that closes a connection with unread data resets it, and so does
    // the kernel when it gives up a connection.
    let own = OWN.iter().filter_map(|name| view.counter(name)).fold(0, u64::saturating_add);
    let theirs = all.saturating_sub(own);
    let opened = ["TcpActiveOpens", "TcpPassiveOpens"];
    let opened = opened.iter().filter_map(|name| view.counter(name)).fold(0, u64::saturating_add);
    let share = theirs as f64 / opened.max(theirs).max(1) as f64;
    let per_second = theirs as f64 / view.elapsed().secs_f64();
    if per_second < LEAST || share < SHARE {
        return Outcome::ruled_out(format!(
            "{theirs} open connections were reset from outside, and {own} by this machine"
        ));
    }
    Finding::new(format!(
        "open connections are reset: {theirs} were ended by a reset of the far end or of a filter on the way"
    ))
    .limits_for(share)
    .seen_from(
        "connections reset from outside",
        format!("{per_second:.1} a second"),
        format!("{LEAST} a second"),
    )
    .seen_from("resets, of the connections opened meanwhile", percent(share), percent(SHARE))
    .seen("reset by this machine itself", own.to_string())
    .advise(
        Advice::new("Find the sender of the resets: the far program crashes or aborts, or a filter rejects with a reset")
            .run("tcpdump -ni any 'tcp[tcpflags] & tcp-rst != 0'   (compare the TTL with that of the data)")
            .run("nft list ruleset   (on both ends: reject with tcp reset)")
            .not("Buffers, windows and congestion control have no part in it"),
    )
    .holds()
}

/// Counters of resets by programs and by the kernel of this machine.
const OWN: [&str; 5] = [
    "TcpExtTCPAbortOnClose",
    "TcpExtTCPAbortOnData",
    "TcpExtTCPAbortOnLinger",
    "TcpExtTCPAbortOnMemory",
    "TcpExtTCPAbortOnTimeout",
];
/// Minimum number of resets a second. Health checks of load balancers also end in a reset, but are
/// rarer.
const LEAST: f64 = 2.0;
/// Minimum number of resets per connection that opened in the observation.
const SHARE: f64 = 0.3;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;

    #[test]
    fn many_resets_of_open_connections_are_a_finding() {
        let reset = Sketch::idle().counter("TcpEstabResets", 9).counter("TcpActiveOpens", 10);
        assert!(reset.holds_machine(RULE).unwrap() > 0.7);
    }

    #[test]
    fn few_resets_or_resets_by_own_programs_are_no_finding() {
        Sketch::idle().counter("TcpEstabResets", 1).machine_holds_not(RULE);
        let own = Sketch::idle().counter("TcpEstabResets", 9);
        own.counter("TcpExtTCPAbortOnClose", 9).machine_holds_not(RULE);
        let many = Sketch::idle().counter("TcpEstabResets", 9).counter("TcpPassiveOpens", 900);
        many.machine_holds_not(RULE);
        assert!(matches!(Sketch::idle().on_machine(RULE), Outcome::NotSeen(_)));
    }
}
