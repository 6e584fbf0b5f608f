//! Segmentation offloads are off, and the CPU has no time left: it handles every packet by itself.

use super::{Advice, Case, Finding, Outcome, Rule};
use crate::view::{Flow, TaskUse, View};
use crate::words::{percent, rate};

pub(super) const RULE: Rule = Rule::new("offloads", "switched-off offloads").flow(judge);
pub(super) const CONFINED: Case = Case::new("one core is all that the sender may use");

fn judge(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let Some(name) = flow.interface() else { return Outcome::Irrelevant };
    let Some(sender) = &flow.sender else { return Outcome::Irrelevant };
    let Some(used) = view.interface(name) else { return Outcome::Irrelevant };
    let Some(offloads) = &used.facts.offloads else {
        return Outcome::not_seen(format!("the offloads of {name}"));
    };
    let off = offloads.segmentation == Some(false) && offloads.generic_segmentation == Some(false);
    let fixed = |feature: &str| offloads.fixed.iter().any(|one| one == feature);
    if !off || fixed("generic-segmentation") {
        return Outcome::ruled_out(format!("{name} segments by offload"));
    }
    let task = sender.busiest(view);
    let core = task.and_then(|task| view.cores.get(&task.core?));
    // A thread wants a core also while it waits for the core.
    let wants = |task: &TaskUse<'_>| task.cpu + task.waited.unwrap_or(0.0);
    let busy = task.map_or(0.0, |task| wants(task) + core.map_or(0.0, |core| core.interrupts()));
    let whole =
        view.cores.values().map(|core| core.busy()).sum::<f64>() / view.cores.len().max(1) as f64;
    // Threads beside the flow's own may have filled the cores.
    if busy < FULL && (whole < FULL || busy < MOSTLY) {
        return Outcome::ruled_out(format!(
            "segmentation offloads of {name} are off, and CPU time is left ({} of a core used)",
            percent(busy)
        ));
    }
    let frames = used.sent.count() / used.sent_packets.max(1);
    let confined = task.is_some_and(|task| task.confined_to.is_some());
    Finding::new(format!(
        "offloads are switched off: the CPU makes each packet on {name} by itself, {frames} bytes on average, and is full at {}",
        rate(flow.rate())
    ))
    .limits()
    .case_if(view.cores.len() == 1 || confined, CONFINED)
    .seen("TCP and generic segmentation offload", "off")
    .seen_from("busy time with interrupts, of the core of the sending thread", percent(busy.min(1.0)), percent(FULL))
    .seen("bytes for each packet sent", frames.to_string())
    .advise(
        Advice::new("Switch them on")
            .run(format!("ethtool -K {name} tso on gso on gro on sg on tx on"))
            .not("Devices that lack TSO still gain from generic segmentation (gso)"),
    )
    .holds()
}

/// Minimum utilisation at which a core counts as full (measured).
const FULL: f64 = 0.8;
const MOSTLY: f64 = 0.5;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use crate::recording::Offloads;

    fn off(percent: u64) -> Sketch {
        let sketch = Sketch::new().interface(|eth0| {
            eth0.offloads = Some(Offloads {
                segmentation: Some(false),
                generic_segmentation: Some(false),
                ..Offloads::default()
            });
        });
        sketch.task(7, percent)
    }

    #[test]
    fn missing_offloads_of_a_full_core_are_the_limit() {
        assert!(off(97).holds(RULE) > 0.9);
        let single = off(97).each(|_, sample| {
            sample.cores.remove(&1);
        });
        assert!(single.holds(RULE) < 0.6);
    }

    #[test]
    fn spare_cpu_time_or_enabled_offloads_rule_out_missing_offloads() {
        off(30).holds_not(RULE);
        Sketch::new().task(7, 97).holds_not(RULE);
    }
}
