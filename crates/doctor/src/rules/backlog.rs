//! A core drops received packets because its input queue is full, or leaves them for the next round
//! because its budget is used up.

use super::{Advice, Finding, Outcome, Rule};
use crate::signs::input_queues::drops_many;
use crate::view::{Flow, View};

pub(super) const RULE: Rule =
    Rule::new("receive-backlog", "the receive backlog of cores").flow(of_flow).machine(of_machine);

/// Judges a flow that this machine receives: a drop at this machine is a loss of the flow.
fn of_flow(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let is_here = flow.receiver.is_some() || !view.period.far_ends.is_empty();
    let Some(counts) = Counts::of(view).filter(|_| is_here) else { return Outcome::Irrelevant };
    let again = flow.sender.as_ref().and_then(|sender| sender.count(|tcp| tcp.retransmitted));
    // The drop of a super-packet is the loss of several segments. If there are many more drops than
    // losses, other traffic lost most of the packets.
    let are_its = counts.dropped >= FEW
        && again.is_some_and(|again| {
            counts.dropped.saturating_mul(MANY) >= again && counts.dropped / 2 <= again
        });
    match are_its {
        true => counts.finding(view).limits().holds(),
        false => Outcome::Irrelevant,
    }
}

fn of_machine(view: &View<'_>) -> Outcome {
    let Some(counts) = Counts::of(view) else {
        return Outcome::not_seen("the receive backlog of cores");
    };
    if counts.dropped == 0 {
        return Outcome::ruled_out(format!(
            "no packet of {} was dropped; {} rounds ended by their budget",
            counts.processed, counts.squeezed
        ));
    }
    let finding = counts.finding(view);
    if drops_many(view) { finding.limits() } else { finding }.holds()
}

/// Packets of all cores, and the core that dropped most.
struct Counts {
    processed: u64,
    dropped: u64,
    squeezed: u64,
    worst: usize,
}

impl Counts {
    fn of(view: &View<'_>) -> Option<Self> {
        let cores = view.softnet();
        let sum = |at: usize| cores.values().map(|counts| counts[at]).fold(0, u64::saturating_add);
        let (worst, _) = cores.iter().max_by_key(|(_, counts)| counts[1])?;
        Some(Self { processed: sum(0), dropped: sum(1), squeezed: sum(2), worst: *worst })
    }

    fn all(&self) -> u64 {
        self.processed.saturating_add(self.dropped)
    }

    fn finding(&self, view: &View<'_>) -> Finding {
        let backlog = view.sysctl("net.core.netdev_max_backlog").map(str::to_owned);
        Finding::new(format!("core {} drops received packets: its input queue is full", self.worst))
            .seen("packets dropped", format!("{} of {}", self.dropped, self.all()))
            .seen("rounds ended by their budget", self.squeezed.to_string())
            .seen_if("net.core.netdev_max_backlog", backlog)
            .advise(
                Advice::new("Lengthen the input queue of cores, and give a round more packets")
                    .run("sysctl -w net.core.netdev_max_backlog=10000")
                    .run("sysctl -w net.core.netdev_budget=600 net.core.netdev_budget_usecs=8000")
                    .not("It does not help a core that is full all the time"),
            )
    }
}

/// Minimum number of dropped packets for a finding about a flow.
const FEW: u64 = 5;
/// Maximum number of segments in a GRO or GSO super-packet.
const MANY: u64 = 45;

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
    fn a_full_input_queue_is_a_finding_on_the_machine() {
        assert!(dropping(500).holds_machine(RULE).is_some_and(|share| share > 0.5));
        assert_eq!(dropping(2).on_machine(RULE).finding().unwrap().explains, None);
        dropping(0).machine_holds_not(RULE);
    }

    /// Reno at 6 Mbit/s loses 1 % at a round trip of 20 ms.
    #[test]
    fn drops_of_this_machine_explain_the_losses_of_a_flow_that_it_receives() {
        let losing = |sketch: Sketch| {
            sketch.sender(|at, sender| {
                sender.congestion = Some("reno".to_owned());
                sender.tcp.data_segments_out = Some(at as u32 * 10_000);
                sender.tcp.retransmitted = Some(at as u32 * 100);
                sender.tcp.bytes_acked = Some(units::Bytes::new(at * 750_000));
            })
        };
        let here = losing(dropping(60)).with_receiver(|_, _| {});
        assert!(here.holds(RULE) > 0.95);
        assert_eq!(losing(dropping(60)).judge(RULE), Outcome::Irrelevant);
        let others = losing(dropping(9_000)).with_receiver(|_, _| {});
        assert_eq!(others.judge(RULE), Outcome::Irrelevant);
        let idle = losing(dropping(0)).with_receiver(|_, _| {});
        assert_eq!(idle.judge(RULE), Outcome::Irrelevant);
    }
}
