//! A core drops received packets because its input queue is full, or leaves them for the next round
//! because its budget is used up.

use super::{Advice, Finding, Outcome, Rule};
use crate::view::View;

pub(super) const RULE: Rule =
    Rule::new("receive-backlog", "the receive backlog of cores").machine(judge);

fn judge(view: &View<'_>) -> Outcome {
    let cores = view.softnet();
    if cores.is_empty() {
        return Outcome::not_seen("the receive backlog of cores");
    }
    let sum = |at: usize| cores.values().map(|counts| counts[at]).fold(0, u64::saturating_add);
    let (processed, dropped, squeezed) = (sum(0), sum(1), sum(2));
    if dropped == 0 {
        return Outcome::ruled_out(format!(
            "no packet of {processed} was dropped; {squeezed} rounds ended by their budget"
        ));
    }
    let share = dropped as f64 / processed.saturating_add(dropped) as f64;
    let worst = cores.iter().max_by_key(|(_, counts)| counts[1]).map_or(0, |(core, _)| *core);
    let backlog = view.sysctl("net.core.netdev_max_backlog").map(str::to_owned);
    let finding =
        Finding::new(format!("core {worst} drops received packets: its input queue is full"))
            .seen("packets dropped", format!("{dropped} of {}", processed.saturating_add(dropped)))
            .seen("rounds ended by their budget", squeezed.to_string())
            .seen_if("net.core.netdev_max_backlog", backlog)
            .advise(
                Advice::new("Lengthen the input queue of cores, and give a round more packets")
                    .run("sysctl -w net.core.netdev_max_backlog=10000")
                    .run("sysctl -w net.core.netdev_budget=600 net.core.netdev_budget_usecs=8000")
                    .not("It does not help a core that is full all the time"),
            );
    if share >= SHARE { finding.explains(0.6) } else { finding }.holds()
}

const SHARE: f64 = 1e-3;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;

    fn dropping(per_second: u64) -> Sketch {
        Sketch::new().each(move |at, sample| {
            let core = sample.softnet.get_mut(&1).unwrap();
            core.processed = at * 10_000;
            core.dropped = at * per_second;
        })
    }

    #[test]
    fn a_full_input_queue() {
        assert!(dropping(500).holds_machine(RULE).is_some_and(|share| share > 0.5));
        assert_eq!(dropping(2).on_machine(RULE).finding().unwrap().explains, None);
        dropping(0).machine_holds_not(RULE);
    }
}
