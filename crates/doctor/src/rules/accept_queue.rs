//! A program accepts connections more slowly than clients open them.

use super::{Advice, Case, Finding, Outcome, Rule};
use crate::recording::{Listener, Sample};
use crate::view::View;
use crate::words::counted;
use std::collections::HashMap;
use std::net::SocketAddr;
use units::Span;

pub(super) const RULE: Rule = Rule::new("accept-queue", "full accept queues").machine(judge);
pub(super) const STANDS: Case = Case::new("connections wait in every sample, and none is refused");

fn judge(view: &View<'_>) -> Outcome {
    if !view.has_counters() {
        return Outcome::not_seen("the counters of listeners");
    }
    let full = |one: &&Listener| one.limit > 0 && one.waiting >= one.limit;
    let listener = view.last().listeners.iter().find(full);
    let standing = standing(view);
    let overflows = view.counter("TcpExtListenOverflows").unwrap_or(0);
    // Without SYN cookies a full queue of handshakes drops the next SYN.
    let handshakes = view.counter("TcpExtTCPReqQFullDrop").unwrap_or(0);
    let handshakes = handshakes.saturating_add(unnamed(view, overflows, handshakes));
    let cookies = view.counter("TcpExtTCPReqQFullDoCookies").unwrap_or(0);
    let drops = overflows > 0 || handshakes > 0;
    if !drops && cookies == 0 && listener.is_none() && standing.is_none() {
        return Outcome::ruled_out("no accept queue overflowed, and none stands");
    }
    let mut finding = Finding::new(match (listener, standing) {
        (Some(one), _) => format!("the accept queue of {} is full", one.local),
        (None, _) if handshakes > 0 && overflows == 0 || !drops && standing.is_none() => {
            "a queue of handshakes is full: many SYNs wait for the last packet of their handshake"
                .to_owned()
        }
        (None, Some((one, _))) if !drops => format!(
            "connections to {} wait to be accepted: its program accepts none, or is slower than they come",
            one.local
        ),
        _ => "an accept queue overflowed".to_owned(),
    })
    .seen("SYNs dropped by a full queue of handshakes", handshakes.to_string())
    .seen("SYNs answered with a cookie, because that queue was full", cookies.to_string())
    .seen("connections refused or delayed by full queues", overflows.to_string());
    if let Some(one) = listener.or(standing.map(|(one, _)| one)) {
        let waiting = counted(one.waiting.into(), "connection", "connections");
        finding = finding.seen("waiting to be accepted", format!("{waiting}, limit {}", one.limit));
    }
    if let Some((_, least)) = standing {
        finding = finding.seen_from("waiting in every sample, at least", least.to_string(), "1");
    }
    if drops {
        finding = finding.limits();
    } else if standing.is_some() {
        finding = finding.limits().case(STANDS);
    }
    finding
        .seen_if("net.core.somaxconn", view.sysctl("net.core.somaxconn").map(str::to_owned))
        .advise(
            Advice::new(
                "Look for the reason why the program does not accept: its threads, its locks",
            )
            .run("ss -ltn   (Recv-Q is the queue, Send-Q its limit)"),
        )
        .advise(
            Advice::new("For bursts, raise the limit in the program's listen() and the system's")
                .run("sysctl -w net.core.somaxconn=4096 net.ipv4.tcp_max_syn_backlog=4096")
                .run("sysctl -w net.ipv4.tcp_syncookies=1")
                .not("A longer queue does not help a program that never accepts"),
        )
        .holds()
}

/// Returns the SYNs that a listener dropped without one of the two other counters: without SYN
/// cookies the last quarter of the queue of handshakes is for hosts that are known
/// (`tcp_conn_request`). A listener drops SYNs for other reasons, too, so handshakes must wait.
fn unnamed(view: &View<'_>, overflows: u64, full: u64) -> u64 {
    let dropped = view.counter("TcpExtListenDrops").unwrap_or(0);
    let dropped = dropped.saturating_sub(overflows).saturating_sub(full);
    let waiting = |sample: &Sample| sample.states.get("syn-received").copied().unwrap_or(0);
    let waits = view.samples().iter().all(|sample| waiting(sample) >= FEWEST_HANDSHAKES);
    if waits && dropped >= FEWEST_DROPPED { dropped } else { 0 }
}

/// Returns the listener with the most connections that waited in every sample, and the least number
/// of them. A program that accepts connections empties its queue now and then.
fn standing<'a>(view: &View<'a>) -> Option<(&'a Listener, u32)> {
    let samples = view.samples();
    if samples.len() < LEAST_SAMPLES || view.elapsed() < LEAST_TIME {
        return None;
    }
    // A listener of the same address counts once in a sample.
    let waiting = |sample: &Sample| -> HashMap<SocketAddr, u32> {
        sample.listeners.iter().rev().map(|one| (one.local, one.waiting)).collect()
    };
    let mut least = waiting(view.last());
    for sample in samples {
        let now = waiting(sample);
        least.retain(|at, least| {
            *least = now.get(at).map_or(0, |waiting| (*waiting).min(*least));
            *least > 0
        });
    }
    let listeners = view.last().listeners.iter();
    let waits = listeners.filter_map(|one| Some((one, *least.get(&one.local)?)));
    waits.max_by_key(|(_, least)| *least)
}

/// Fewer SYNs than this, or fewer handshakes at a time, do not show a full queue.
const FEWEST_DROPPED: u64 = 5;
const FEWEST_HANDSHAKES: u64 = 4;
const LEAST_SAMPLES: usize = 4;
const LEAST_TIME: Span = Span::from_secs(1);

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;

    /// Builds a queue of `last` connections at the end, and of `before` connections in the earlier
    /// samples.
    fn waiting(last: u32, before: u32) -> Sketch {
        Sketch::idle().each(move |at, sample| {
            let local = "0.0.0.0:80".parse().unwrap();
            let waiting = if at == 3 { last } else { before };
            let listener = Listener { local, holders: Vec::new(), waiting, limit: 4 };
            sample.listeners.push(listener);
        })
    }

    fn listening(last: u32) -> Sketch {
        waiting(last, 0)
    }

    /// A flood of SYNs without SYN cookies: Linux 6.18 counts 413 drops a second, and names none.
    #[test]
    fn dropped_syns_beside_waiting_handshakes_are_a_full_queue_of_handshakes() {
        let flood = |waiting: u64, dropped: u64| {
            Sketch::idle().counter("TcpExtListenDrops", dropped).each(move |_, sample| {
                sample.states.insert("syn-received".to_owned(), waiting);
            })
        };
        assert!(flood(13, 413).holds_machine(RULE).is_some_and(|share| share > 0.5));
        let said = flood(13, 413).on_machine(RULE).finding().unwrap().sentence.clone();
        assert!(said.contains("queue of handshakes is full"), "{said}");
        flood(0, 413).machine_holds_not(RULE);
        flood(13, 1).machine_holds_not(RULE);
    }

    #[test]
    fn a_full_accept_queue_is_a_finding_and_its_overflow_is_a_limit() {
        assert_eq!(listening(4).on_machine(RULE).finding().unwrap().explains, None);
        let refused = listening(5).counter("TcpExtListenOverflows", 3);
        assert!(refused.holds_machine(RULE).is_some_and(|share| share > 0.5));
        let handshakes = listening(0).counter("TcpExtTCPReqQFullDrop", 3);
        assert!(handshakes.holds_machine(RULE).is_some_and(|share| share > 0.5));
    }

    #[test]
    fn an_accept_queue_with_room_is_no_finding() {
        listening(3).machine_holds_not(RULE);
    }

    /// A server that is stuck has few clients, and its queue still has room.
    #[test]
    fn an_accept_queue_that_never_empties_is_a_finding() {
        assert!(waiting(2, 1).holds_machine(RULE).is_some_and(|share| share > 0.4));
        waiting(0, 3).machine_holds_not(RULE);
    }

    #[test]
    fn syn_cookies_are_a_finding_and_no_limit() {
        let cookies = listening(0).counter("TcpExtTCPReqQFullDoCookies", 90);
        let outcome = cookies.on_machine(RULE);
        let finding = outcome.finding().unwrap();
        assert_eq!(finding.explains, None);
        assert!(finding.sentence.contains("handshakes"), "{finding:?}");
    }
}
