//! A queueing discipline of this machine limits the rate: tbf, htb and others count each packet
//! that their rate delays as an overlimit.

use super::{Advice, Finding, Outcome, Rule};
use crate::view::{Flow, View, counted};
use crate::words::{bytes, percent, rate};
use units::Rate;

pub(super) const RULE: Rule =
    Rule::new("shaper", "a rate limit in a queueing discipline").flow(judge);

fn judge(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let Some(name) = flow.interface() else { return Outcome::Irrelevant };
    if flow.sender.is_none() {
        return Outcome::Irrelevant;
    }
    let (samples, seconds) = (view.samples(), view.elapsed().secs_f64());
    let (first, last) = (&samples[0], view.last());
    let mut seen = Vec::new();
    for later in last.qdiscs.iter().filter(|qdisc| qdisc.interface == name) {
        let same = |q: &&crate::recording::Qdisc| {
            (&q.interface, &q.handle, &q.kind) == (&later.interface, &later.handle, &later.kind)
        };
        let Some(earlier) = first.qdiscs.iter().find(same) else { continue };
        let over = counted(later.overlimits, earlier.overlimits);
        let sent = counted(later.sent.count(), earlier.sent.count());
        let Some((over, sent)) = over.zip(sent) else { continue };
        let waits = samples.iter().flat_map(|sample| sample.qdiscs.iter().filter(same));
        let waits = waits.filter(|q| q.backlog.count() > 0).count() as f64 / samples.len() as f64;
        seen.push((later, over, sent, waits));
    }
    let Some((qdisc, over, sent, waits)) = seen.into_iter().max_by_key(|(_, over, ..)| *over)
    else {
        return Outcome::ruled_out(format!("no queueing discipline on {name} limits a rate"));
    };
    let passes = Rate::from_bits_per_second((sent as f64 * 8.0 / seconds) as u64);
    let per_second = over as f64 / seconds;
    if per_second < OVERLIMITS || waits < WAITS {
        return Outcome::ruled_out(format!(
            "{} on {name} delayed {over} packets; it held some in {} of the samples",
            qdisc.kind,
            percent(waits)
        ));
    }
    Finding::new(format!(
        "a rate limit of this machine is the limit: {} on {name} passes {} and holds the rest back",
        qdisc.kind,
        rate(passes)
    ))
    .explains(waits.max(0.5))
    .allows(Some(passes))
    .seen_from("packets delayed by the limit", format!("{per_second:.0} a second"), format!("{OVERLIMITS} a second"))
    .seen_from("samples with packets in its queue", percent(waits), percent(WAITS))
    .seen("queue now", bytes(qdisc.backlog))
    .advise(
        Advice::new(format!("Look at the limit, and raise or remove it if it is not intended (handle {})", qdisc.handle))
            .run(format!("tc -s -d qdisc show dev {name}"))
            .run(format!("tc -s class show dev {name}"))
            .not("Buffers, congestion control and more CPU change nothing: the limit holds for all of them together"),
    )
    .holds()
}

const OVERLIMITS: f64 = 20.0;
/// Measured.
const WAITS: f64 = 0.5;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use crate::recording::Qdisc;
    use units::Bytes;

    fn shaped(overlimits: u64, backlog: u64) -> Sketch {
        Sketch::new().each(move |at, sample| {
            sample.qdiscs.push(Qdisc {
                interface: "eth0".to_owned(),
                kind: "tbf".to_owned(),
                handle: "1:".to_owned(),
                sent: Bytes::new(at * 12_000_000),
                drops: 0,
                overlimits: at * overlimits,
                backlog: Bytes::new(backlog),
            });
        })
    }

    #[test]
    fn a_full_shaper() {
        assert!(shaped(5_000, 90_000).holds(RULE) > 0.9);
        let outcome = shaped(5_000, 90_000).judge(RULE);
        let allows = outcome.finding().unwrap().allows.unwrap();
        assert_eq!(allows, Rate::from_mbit(96));
    }

    #[test]
    fn one_that_seldom_delays_is_ruled_out() {
        shaped(3, 90_000).holds_not(RULE);
        shaped(5_000, 0).holds_not(RULE);
        Sketch::new().holds_not(RULE);
    }

    #[test]
    fn a_counter_that_was_reset_says_nothing() {
        let reset = shaped(5_000, 90_000)
            .each(|at, sample| sample.qdiscs[0].overlimits = 9_000 - at * 2_000);
        reset.holds_not(RULE);
    }
}
