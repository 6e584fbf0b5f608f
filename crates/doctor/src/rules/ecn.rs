//! A queue on the path marks packets instead of dropping them, and the sender slows down.

use super::{Advice, Finding, Outcome, Rule};
use crate::view::{Flow, View};
use crate::words::percent;

pub(super) const RULE: Rule = Rule::new("ecn-marks", "congestion marks").flow(judge);

fn judge(flow: &Flow<'_>, _view: &View<'_>) -> Outcome {
    let Some(sender) = &flow.sender else { return Outcome::Irrelevant };
    if sender.tcp().ecn != Some(true) {
        return Outcome::Irrelevant;
    }
    let counted = sender.count(|tcp| tcp.delivered_marked).zip(sender.count(|tcp| tcp.delivered));
    let Some((marked, delivered)) = counted else { return Outcome::not_seen("congestion marks") };
    let share = marked as f64 / delivered.max(1) as f64;
    if share < SHARE {
        return Outcome::ruled_out(format!("{marked} of {delivered} segments were marked"));
    }
    let finding = Finding::new(format!(
        "a full queue on the path marks packets: {} of the segments carried a mark",
        percent(share)
    ));
    // Marks of others' traffic do not hold back a sender without data. Many of them say more about
    // the queue than its delay does.
    match sender.has_data() {
        true => finding.explains((0.7 + share * 10.0).min(0.9)),
        false => finding,
    }
    .seen_from("marked segments", percent(share), percent(SHARE))
    .advise(
        Advice::new("Find the hop whose queue marks: it is fully used")
            .run("tc -s qdisc show   (on routers: ecn_mark)")
            .not("Turning ECN off turns the marks into losses"),
    )
    .holds()
}

const SHARE: f64 = 0.005;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;

    fn marked(per_second: u32) -> Sketch {
        Sketch::new().tcp(move |at, tcp| {
            tcp.ecn = Some(true);
            tcp.delivered = Some(at as u32 * 10_000);
            tcp.delivered_marked = Some(at as u32 * per_second);
        })
    }

    #[test]
    fn marks() {
        assert!(marked(1_000).holds(RULE) > 0.85);
        assert!(marked(60).holds(RULE) < 0.8);
        marked(20).holds_not(RULE);
        assert_eq!(Sketch::new().judge(RULE), Outcome::Irrelevant);
    }
}
