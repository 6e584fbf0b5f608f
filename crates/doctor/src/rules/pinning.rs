//! The device's interrupts and the process share a full core while another core is idle.

use super::{Advice, Finding, Outcome, Rule};
use crate::bound;
use crate::view::{Flow, View};
use crate::words::{cores, percent};

pub(super) const RULE: Rule =
    Rule::new("pinning", "interrupts and process on one core").flow(judge);

fn judge(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    if view.cores.len() < 2 {
        return Outcome::Irrelevant;
    }
    let ends = [&flow.sender, &flow.receiver].into_iter().flatten();
    let Some(task) =
        ends.filter_map(|end| end.busiest(view)).max_by(|a, b| a.cpu.total_cmp(&b.cpu))
    else {
        return Outcome::not_seen("the threads of the flow's processes");
    };
    let Some((core, shares)) = task.core.and_then(|core| Some((core, *view.cores.get(&core)?)))
    else {
        return Outcome::not_seen("the core that the thread runs on");
    };
    if task.confined_to.is_some() {
        return Outcome::Irrelevant;
    }
    let idlest = view.cores.values().map(|one| 1.0 - one.busy()).fold(0.0, f64::max);
    let full = shares.busy() >= FULL;
    let shared = shares.interrupts() >= INTERRUPTS && task.cpu >= THREAD;
    if !full || !shared || task.cpu >= FULL || idlest < IDLE {
        return Outcome::ruled_out(format!(
            "core {core} gives {} to interrupts and {} to the thread",
            percent(shares.interrupts()),
            percent(task.cpu.min(1.0))
        ));
    }
    let others: Vec<_> = view.cores.keys().copied().filter(|other| *other != core).collect();
    Finding::new(format!(
        "interrupts and process on one core are the limit: core {core} runs {} and the softirqs of its packets, and another core is {} idle",
        task.name,
        percent(idlest)
    ))
    .limits()
    .allows(bound::of_resource(flow.rate(), shares.busy()))
    .seen_from(format!("interrupts and softirqs, of core {core}"), percent(shares.interrupts()), percent(INTERRUPTS))
    .seen_from(format!("thread {} of {}, of the core", task.tid, task.name), percent(task.cpu), percent(THREAD))
    .advise(
        Advice::new("Run the process on another core than the interrupts")
            .run(format!("taskset -pc {} {}", cores(&others).replace(", ", ","), task.pid))
            .not("It does not help once either of them fills a core alone"),
    )
    .holds()
}

const FULL: f64 = 0.9;
const INTERRUPTS: f64 = 0.2;
const THREAD: f64 = 0.3;
const IDLE: f64 = 0.4;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;

    #[test]
    fn a_full_core_shared_by_process_and_interrupts_is_the_limit() {
        assert!(Sketch::new().core(0, [5, 50, 43, 0]).task(7, 55).holds(RULE) > 0.9);
    }

    #[test]
    fn an_idle_core_or_a_thread_that_fills_its_core_rules_out_pinning() {
        Sketch::new().core(0, [5, 30, 43, 0]).task(7, 35).holds_not(RULE);
        Sketch::new().core(0, [5, 70, 23, 0]).task(7, 95).holds_not(RULE);
        let both = Sketch::new().core(0, [5, 50, 43, 0]).core(1, [5, 50, 43, 0]).task(7, 55);
        both.holds_not(RULE);
    }
}
