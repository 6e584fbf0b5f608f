//! A queueing discipline of this machine drops packets although its queue is mostly empty: the
//! queue is too short for the bursts of a connection.

use super::{Advice, Finding, Outcome, Rule};
use crate::recording::Qdisc;
use crate::signs::emulated::EMULATES;
use crate::view::{Flow, View, counted};
use crate::words::{percent, rate};

pub(super) const RULE: Rule =
    Rule::new("queue-drops", "drops of a queue of this machine").flow(of_flow).machine(of_machine);

fn of_flow(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let (Some(name), Some(sender)) = (flow.interface(), &flow.sender) else {
        return Outcome::Irrelevant;
    };
    let Some(queue) = Queue::worst(view, |qdisc| qdisc.interface == name) else {
        return Outcome::Irrelevant;
    };
    let sent = sender.count(|tcp| tcp.data_segments_out).unwrap_or(0);
    let again = sender.count(|tcp| tcp.retransmitted).unwrap_or(0);
    let are_its = again.saturating_mul(2) >= queue.drops;
    if let Some(outcome) = queue.is_in_order(sent, SHARE, are_its) {
        return outcome;
    }
    let finding = queue
        .finding()
        .seen_if(
            "retransmissions of this connection",
            sender.tcp().retransmitted.map(|_| again.to_string()),
        )
        .seen("rate now", rate(flow.rate()));
    let held = sender.window_limited().unwrap_or(0.0) + sender.buffer_limited().unwrap_or(0.0);
    match held < 0.5 && sender.has_data() {
        true => finding.limits(),
        false => finding,
    }
    .holds()
}

/// Judges drops without a busy connection. Forwarded packets and datagrams belong to no connection
/// of this machine.
fn of_machine(view: &View<'_>) -> Outcome {
    let worst = Queue::worst(view, |_| true);
    let Some(queue) = worst.filter(|_| !view.flows.iter().any(Flow::is_busy)) else {
        return Outcome::Irrelevant;
    };
    let sent = view.interface(&queue.qdisc.interface).map_or(0, |one| one.sent_packets);
    match queue.is_in_order(sent, SHARE_OF_ALL, true) {
        Some(outcome) => outcome,
        None => queue.finding().limits().holds(),
    }
}

/// A queueing discipline during the observation.
struct Queue<'a> {
    qdisc: &'a Qdisc,
    drops: u64,
    per_second: f64,
    /// The share of the samples in which the queue held packets.
    waits: f64,
}

impl<'a> Queue<'a> {
    /// Returns the queue that dropped most packets.
    fn worst(view: &View<'a>, is_asked: impl Fn(&Qdisc) -> bool) -> Option<Self> {
        let queues = view.queues.iter();
        let queues = queues.filter(|queue| is_asked(queue.qdisc) && !queue.qdisc.is_hook());
        let dropped = queues.filter_map(|queue| {
            let drops = counted(queue.qdisc.drops, queue.earlier.drops)?;
            Some(Self {
                qdisc: queue.qdisc,
                drops,
                per_second: drops as f64 / view.elapsed().secs_f64(),
                waits: queue.waits,
            })
        });
        dropped.max_by_key(|queue| queue.drops)
    }

    /// Returns the reason why the queue is no fault; `None` if the queue is a fault. A dropped
    /// packet may have up to 64 KiB, and lose many segments. `are_its`: whether the dropped packets
    /// are among the `sent` packets.
    fn is_in_order(&self, sent: u64, most: f64, are_its: bool) -> Option<Outcome> {
        let (kind, name, drops) = (&self.qdisc.kind, &self.qdisc.interface, self.drops);
        let share = drops as f64 / (sent as f64).max(1.0);
        // A slow connection loses few packets a second, but a large share of its packets.
        let many = self.per_second >= DROPS || are_its && drops >= FEW && share >= HEAVY;
        if !many || share < most {
            return Some(Outcome::ruled_out(format!("{kind} on {name} dropped {drops} packets")));
        }
        // A queue that never empties belongs to a limit of the rate, or to a full link. An emulated
        // path holds packets for its delay.
        (self.waits >= STANDS && !self.is_emulated()).then(|| {
            Outcome::ruled_out(format!(
                "{kind} on {name} dropped {drops} packets, and its queue stands: it is used as it should be"
            ))
        })
    }

    /// Whether the queueing discipline emulates a path that loses packets (tc-netem(8)).
    fn is_emulated(&self) -> bool {
        self.qdisc.kind == EMULATES
    }

    fn finding(&self) -> Finding {
        let (kind, name, handle) = (&self.qdisc.kind, &self.qdisc.interface, &self.qdisc.handle);
        let show = format!("tc -s -d qdisc show dev {name}");
        let not = "The path beyond this machine has no part in these losses";
        let (sentence, advice) = match self.is_emulated() {
            true => (
                format!(
                    "a queueing discipline of this machine drops packets: {kind} on {name}, which emulates a path, dropped {}",
                    self.drops
                ),
                Advice::new(format!("Remove {kind} if it is not intended (handle {handle})"))
                    .run(show),
            ),
            false => (
                format!(
                    "a queue of this machine is too short: {kind} on {name} dropped {} packets, and held none in {} of the samples",
                    self.drops,
                    percent(1.0 - self.waits)
                ),
                Advice::new(format!("Lengthen the queue, or use one that paces (handle {handle})"))
                    .run(show)
                    .run(format!("ip link set {name} txqueuelen 1000"))
                    .run(format!("tc qdisc replace dev {name} root fq")),
            ),
        };
        Finding::new(sentence)
            .seen_from(
                "packets dropped there",
                format!("{:.0} a second", self.per_second),
                format!("{DROPS} a second"),
            )
            .seen("samples with packets in its queue", percent(self.waits))
            .advise(advice.not(not))
    }
}

/// Minimum number of dropped packets a second.
const DROPS: f64 = 3.0;
const FEW: u64 = 4;
const HEAVY: f64 = 5e-3;
/// Minimum ratio of dropped packets to segments that the connection sent.
const SHARE: f64 = 1e-5;
/// Minimum ratio of dropped packets to packets that the interface sent.
const SHARE_OF_ALL: f64 = 1e-3;
/// A queue with packets in this share of the samples is not too short.
const STANDS: f64 = 0.5;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use units::Bytes;

    fn dropping(per_second: u64, backlog: u64) -> Sketch {
        Sketch::new().each(move |at, sample| {
            sample.qdiscs.push(Qdisc {
                interface: "eth0".to_owned(),
                kind: "pfifo".to_owned(),
                handle: "8001:".to_owned(),
                drops: 70 + at * per_second,
                backlog: Bytes::new(backlog),
                ..Qdisc::default()
            });
        })
    }

    #[test]
    fn a_mostly_empty_queue_that_drops_is_the_limit() {
        assert!(dropping(40, 0).holds(RULE) > 0.95);
        let idle = dropping(40, 0).tcp(|_, tcp| tcp.unsent = Some(Bytes::ZERO));
        assert_eq!(idle.judge(RULE).finding().unwrap().explains, None);
    }

    /// A queue drops two of a hundred segments each second.
    #[test]
    fn a_queue_that_drops_many_packets_of_a_slow_connection_is_the_limit() {
        let slow = |again: u32| {
            dropping(2, 0).tcp(move |at, tcp| {
                tcp.data_segments_out = Some(at as u32 * 100);
                tcp.retransmitted = Some(at as u32 * again);
            })
        };
        assert!(slow(2).holds(RULE) > 0.95);
        // The queue drops packets of other connections.
        slow(0).holds_not(RULE);
        dropping(2, 0).holds_not(RULE);
    }

    #[test]
    fn no_drops_or_a_queue_that_never_empties_rules_out_a_short_queue() {
        dropping(0, 0).holds_not(RULE);
        dropping(40, 90_000).holds_not(RULE);
        Sketch::new().holds_not(RULE);
    }

    #[test]
    fn an_emulated_path_of_this_machine_that_drops_is_the_limit() {
        let emulated = |per_second: u64, backlog: u64| {
            dropping(per_second, backlog).each(|_, sample| {
                sample.qdiscs[0].kind = "netem".to_owned();
            })
        };
        for backlog in [0, 90_000] {
            assert!(emulated(40, backlog).holds(RULE) > 0.95, "{backlog}");
        }
        let said = emulated(40, 0).judge(RULE).finding().unwrap().sentence.clone();
        assert!(said.contains("emulates a path"), "{said}");
        emulated(0, 90_000).holds_not(RULE);
    }

    #[test]
    fn drops_without_a_connection_are_a_finding_on_the_machine() {
        let forwards = |backlog| dropping(90, backlog).each(|_, sample| sample.connections.clear());
        assert!(forwards(0).holds_machine(RULE).is_some_and(|share| share > 0.5));
        forwards(90_000).machine_holds_not(RULE);
        assert_eq!(dropping(90, 0).on_machine(RULE), Outcome::Irrelevant);
    }
}
