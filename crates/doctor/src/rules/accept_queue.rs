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
pub(super) const COOKIES: Case = Case::new("handshakes fill their queue, and new SYNs get cookies");

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
    let of_handshakes =
        listener.is_none() && (handshakes > 0 && overflows == 0 || !drops && standing.is_none());
    let mut finding = Finding::new(match (listener, standing) {
        (Some(one), _) => format!("the accept queue of {} is full", one.local),
        (None, _) if of_handshakes => {
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
    let one = listener.or(standing.map(|(one, _)| one));
    if let Some(one) = one {
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
    } else if cookies >= FEWEST_DROPPED && waits_for_handshakes(view) {
        finding = finding.limits().case(COOKIES);
    }
    if of_handshakes {
        finding = finding.advise(
            Advice::new("Look who sends the SYNs, and whether this machine's answers arrive there: a flood, a scan, or a broken way back")
                .run("ss -tn state syn-recv")
                .run("nstat -az TcpExtSyncookiesSent TcpExtSyncookiesRecv"),
        );
    }
    finding
        .seen_if(MOST, view.sysctl(MOST).map(str::to_owned))
        .advise(
            Advice::new(
                "Look for the reason why the program does not accept: its threads, its locks",
            )
            .run("ss -ltn   (Recv-Q is the queue, Send-Q its limit)"),
        )
        .advise(longer(view, one).not("A longer queue does not help a program that never accepts"))
        .holds()
}

/// Advises a longer queue. The limit of a queue is the smaller of two: the limit that the program
/// gives to listen(2), and the limit of the system.
fn longer(view: &View<'_>, listener: Option<&Listener>) -> Advice {
    let most = view.sysctl_number(MOST, 0);
    match listener.zip(most).filter(|(one, most)| u64::from(one.limit) < *most) {
        Some((one, most)) => Advice::new(format!(
            "For bursts, raise the limit in the program's listen(): it is {}, and {MOST} allows {most}",
            one.limit
        )),
        None => {
            Advice::new("For bursts, raise the limit in the program's listen() and the system's")
                .run("sysctl -w net.core.somaxconn=4096 net.ipv4.tcp_max_syn_backlog=4096")
                .run("sysctl -w net.ipv4.tcp_syncookies=1")
        }
    }
}

/// Returns the SYNs that a listener dropped without one of the two other counters: without SYN
/// cookies the last quarter of the queue of handshakes is for hosts that are known
/// (`tcp_conn_request`). A listener drops SYNs for other reasons, too, so handshakes must wait.
fn unnamed(view: &View<'_>, overflows: u64, full: u64) -> u64 {
    let dropped = view.counter("TcpExtListenDrops").unwrap_or(0);
    let dropped = dropped.saturating_sub(overflows).saturating_sub(full);
    if dropped >= FEWEST_DROPPED && waits_for_handshakes(view) { dropped } else { 0 }
}

/// Whether several handshakes wait for their last packet in every sample.
fn waits_for_handshakes(view: &View<'_>) -> bool {
    let waiting = |sample: &Sample| sample.states.get("syn-received").copied().unwrap_or(0);
    view.samples().iter().all(|sample| waiting(sample) >= FEWEST_HANDSHAKES)
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

const MOST: &str = "net.core.somaxconn";
/// Minimum number of dropped SYNs that shows a full queue of handshakes.
const FEWEST_DROPPED: u64 = 5;
/// Minimum number of handshakes that wait in each sample.
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
        // A flood keeps the queue full.
        let flood = cookies.each(|_, sample| {
            sample.states.insert("syn-received".to_owned(), 13);
        });
        assert!(flood.holds_machine(RULE).is_some_and(|share| share > 0.3));
        let said = flood.on_machine(RULE).finding().unwrap().advice[0].action.clone();
        assert!(said.contains("a flood"), "{said}");
    }

    #[test]
    fn the_advice_names_the_smaller_limit_of_the_queue() {
        let advised = |somaxconn: &str| {
            let full = listening(5).counter("TcpExtListenOverflows", 3).machine(|machine| {
                machine.sysctls.insert(MOST.to_owned(), somaxconn.to_owned());
            });
            full.on_machine(RULE).finding().unwrap().advice[1].clone()
        };
        let of_program = advised("4096");
        assert!(of_program.action.ends_with("it is 4, and net.core.somaxconn allows 4096"));
        assert!(of_program.commands.is_empty(), "{of_program:?}");
        assert!(advised("4").commands[0].starts_with("sysctl -w net.core.somaxconn="));
    }
}
