//! A queueing discipline of this machine drops packets although it is mostly empty: it is too short
//! for the bursts of a connection.

use super::policer::is_hook;
use super::{Advice, Finding, Outcome, Rule};
use crate::recording::Qdisc;
use crate::view::{Flow, View, counted};
use crate::words::{percent, rate};

pub(super) const RULE: Rule =
    Rule::new("queue-drops", "drops of a queue of this machine").flow(judge);

fn judge(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let (Some(name), Some(sender)) = (flow.interface(), &flow.sender) else {
        return Outcome::Irrelevant;
    };
    let samples = view.samples();
    let (first, last) = (&samples[0], view.last());
    let queues = last.qdiscs.iter().filter(|qdisc| qdisc.interface == name && !is_hook(qdisc));
    let dropped = queues.filter_map(|later| {
        let same = |q: &&Qdisc| {
            (&q.interface, &q.handle, &q.kind) == (&later.interface, &later.handle, &later.kind)
        };
        let drops = counted(later.drops, first.qdiscs.iter().find(same)?.drops)?;
        let waits = samples.iter().flat_map(|sample| sample.qdiscs.iter().filter(same));
        let waits = waits.filter(|q| q.backlog.count() > 0).count() as f64 / samples.len() as f64;
        Some((later, drops, waits))
    });
    let Some((qdisc, drops, waits)) = dropped.max_by_key(|(_, drops, _)| *drops) else {
        return Outcome::Irrelevant;
    };
    let per_second = drops as f64 / view.elapsed().secs_f64();
    let sent = sender.count(|tcp| tcp.data_segments_out).unwrap_or(0);
    // One packet may be up to 64 KiB, and lose as many segments.
    let share = drops as f64 / (sent as f64).max(1.0);
    if per_second < DROPS || share < SHARE {
        return Outcome::ruled_out(format!("{} on {name} dropped {drops} packets", qdisc.kind));
    }
    // A queue that stands belongs to a limit of the rate, or to a link that is full.
    if waits >= STANDS {
        return Outcome::ruled_out(format!(
            "{} on {name} dropped {drops} packets, and its queue stands: it is used as it should be",
            qdisc.kind
        ));
    }
    let finding = Finding::new(format!(
        "a queue of this machine is too short: {} on {name} dropped {drops} packets, and held none in {} of the samples",
        qdisc.kind,
        percent(1.0 - waits)
    ))
    .seen_from("packets dropped there", format!("{per_second:.0} a second"), format!("{DROPS} a second"))
    .seen("samples with packets in its queue", percent(waits))
    .seen_if(
        "retransmissions of this connection",
        sender.count(|tcp| tcp.retransmitted).map(|count| count.to_string()),
    )
    .seen("rate now", rate(flow.rate()))
    .advise(
        Advice::new(format!("Lengthen the queue, or use one that paces (handle {})", qdisc.handle))
            .run(format!("tc -s -d qdisc show dev {name}"))
            .run(format!("ip link set {name} txqueuelen 1000"))
            .run(format!("tc qdisc replace dev {name} root fq"))
            .not("The path beyond this machine has no part in these losses"),
    );
    let held = sender.window_limited().unwrap_or(0.0) + sender.buffer_limited().unwrap_or(0.0);
    match held < 0.5 && sender.has_data() {
        true => finding.explains(0.98),
        false => finding,
    }
    .holds()
}

/// Packets a second.
const DROPS: f64 = 3.0;
/// Packets dropped by segments sent.
const SHARE: f64 = 1e-5;
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
    fn drops_of_a_queue_that_is_mostly_empty() {
        assert!(dropping(40, 0).holds(RULE) > 0.95);
        let idle = dropping(40, 0).tcp(|_, tcp| tcp.unsent = Some(Bytes::ZERO));
        assert_eq!(idle.judge(RULE).finding().unwrap().explains, None);
    }

    #[test]
    fn no_drops_or_a_queue_that_stands() {
        dropping(0, 0).holds_not(RULE);
        dropping(40, 90_000).holds_not(RULE);
        Sketch::new().holds_not(RULE);
    }
}
