//! The application or an administrator limits the pace of the connection (SO_MAX_PACING_RATE).

use super::{Advice, Finding, Outcome, Rule};
use crate::view::{Flow, View};
use crate::words::{percent, rate};

pub(super) const RULE: Rule = Rule::new("pacing", "a limit of the connection's pace").flow(judge);

fn judge(flow: &Flow<'_>, _view: &View<'_>) -> Outcome {
    let Some(sender) = &flow.sender else { return Outcome::Irrelevant };
    let Some(most) = sender.tcp().pacing_most else {
        return Outcome::ruled_out("its pace has no limit");
    };
    let share = flow.rate().bits_per_second() as f64 / most.bits_per_second().max(1) as f64;
    // A program may have lowered the limit during the observation.
    if !(NEAR..MOST).contains(&share) {
        return Outcome::ruled_out(format!(
            "its pace may be up to {}, {} of which is used",
            rate(most),
            percent(share)
        ));
    }
    Finding::new(format!(
        "a limit of the connection's pace is the limit: SO_MAX_PACING_RATE is {}",
        rate(most)
    ))
    .limits_for(share)
    .allows(Some(most))
    .seen_from("rate, of the pace's limit", percent(share), percent(NEAR))
    .advise(
        Advice::new("Remove the limit in the sending program (iperf3 --fq-rate, nginx limit_rate, curl --limit-rate)")
            .not("Buffers, congestion control and more CPU change nothing"),
    )
    .holds()
}

/// The observed rate as a share of the limit. A faster connection had another limit.
const NEAR: f64 = 0.85;
const MOST: f64 = 1.25;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use units::Rate;

    fn paced(mbit: u64) -> Sketch {
        Sketch::new().tcp(move |_, tcp| tcp.pacing_most = Some(Rate::from_mbit(mbit)))
    }

    #[test]
    fn a_rate_at_the_pacing_limit_is_limited_and_a_lower_rate_is_not() {
        assert!(paced(410).holds(RULE) > 0.9);
        paced(500).holds_not(RULE);
        paced(100).holds_not(RULE);
        Sketch::new().holds_not(RULE);
    }
}
