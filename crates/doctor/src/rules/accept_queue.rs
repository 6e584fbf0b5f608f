//! A program does not accept its connections as fast as they come.

use super::{Advice, Finding, Outcome, Rule};
use crate::recording::Listener;
use crate::view::View;
use crate::words::counted;

pub(super) const RULE: Rule = Rule::new("accept-queue", "full accept queues").machine(judge);

fn judge(view: &View<'_>) -> Outcome {
    if !view.has_counters() {
        return Outcome::not_seen("the counters of listeners");
    }
    let full = |one: &&Listener| one.limit > 0 && one.waiting >= one.limit;
    let listener = view.last().listeners.iter().find(full);
    let overflows = view.counter("TcpExtListenOverflows").unwrap_or(0);
    // Without SYN cookies a full queue of handshakes drops the next SYN.
    let handshakes = view.counter("TcpExtTCPReqQFullDrop").unwrap_or(0);
    if overflows == 0 && handshakes == 0 && listener.is_none() {
        return Outcome::ruled_out("no accept queue overflowed");
    }
    let mut finding = Finding::new(match listener {
        Some(one) => format!("the accept queue of {} is full", one.local),
        None if overflows == 0 => {
            "a queue of handshakes is full: many SYNs wait for the last packet of their handshake"
                .to_owned()
        }
        None => "an accept queue overflowed".to_owned(),
    })
    .seen("SYNs dropped by a full queue of handshakes", handshakes.to_string())
    .seen("connections refused or delayed by full queues", overflows.to_string());
    if let Some(one) = listener {
        let waiting = counted(one.waiting.into(), "connection", "connections");
        finding = finding.seen("waiting to be accepted", format!("{waiting}, limit {}", one.limit));
    }
    if overflows > 0 || handshakes > 0 {
        finding = finding.explains(0.6);
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

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;

    fn listening(waiting: u32) -> Sketch {
        Sketch::idle().each(move |_, sample| {
            let local = "0.0.0.0:80".parse().unwrap();
            let listener = Listener { local, holders: Vec::new(), waiting, limit: 4 };
            sample.listeners.push(listener);
        })
    }

    #[test]
    fn a_full_queue_is_out_of_order_and_an_overflow_limits() {
        assert_eq!(listening(4).on_machine(RULE).finding().unwrap().explains, None);
        let refused = listening(5).counter("TcpExtListenOverflows", 3);
        assert!(refused.holds_machine(RULE).is_some_and(|share| share > 0.5));
        let handshakes = listening(0).counter("TcpExtTCPReqQFullDrop", 3);
        assert!(handshakes.holds_machine(RULE).is_some_and(|share| share > 0.5));
    }

    #[test]
    fn a_queue_with_room_is_in_order() {
        listening(3).machine_holds_not(RULE);
    }
}
