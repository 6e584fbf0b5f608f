//! The hypervisor gives the time of this machine's cores to other machines.

use super::{Advice, Finding, Outcome, Rule};
use crate::view::{Flow, View};
use crate::words::percent;

pub(super) const RULE: Rule =
    Rule::new("stolen-cpu", "CPU time taken by the hypervisor").flow(of_flow).machine(of_machine);

fn of_flow(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let cores = flow.cores(view);
    judge(view, |core| cores.may_use(core))
}

fn of_machine(view: &View<'_>) -> Outcome {
    match view.flows.iter().any(Flow::is_busy) {
        true => Outcome::Irrelevant,
        false => judge(view, |_| true),
    }
}

/// Judges the core with most stolen time. `counts`: whether the connection needs a core.
fn judge(view: &View<'_>, counts: impl Fn(usize) -> bool) -> Outcome {
    let Some((core, worst)) = view
        .cores
        .iter()
        .filter(|(core, _)| counts(**core))
        .map(|(core, shares)| (core, shares.steal))
        .max_by(|a, b| a.1.total_cmp(&b.1))
    else {
        return Outcome::not_seen("the CPU time of cores");
    };
    if worst < STOLEN {
        return Outcome::ruled_out(format!(
            "the hypervisor took {} of core {core}",
            percent(worst)
        ));
    }
    let busy = view.cores.get(core).map_or(0.0, |shares| shares.busy());
    // A core that is mostly idle does not need the stolen time. A full core needs the stolen time,
    // and threads on other cores wait for the threads of the full core, so the stolen time counts
    // twice.
    let finding = Finding::new(format!(
        "the hypervisor is the limit: it gives {} of core {core} to other machines",
        percent(worst)
    ))
    .seen_from(format!("stolen time, of core {core}"), percent(worst), percent(STOLEN))
    .seen("busy time, of that core", percent(busy))
    .advise(
        Advice::new("Move to a less loaded host, or to reserved cores")
            .not("No setting inside this machine gets the time back"),
    );
    if busy + worst >= WANTED { finding.limits_for(worst) } else { finding }.holds()
}

/// Minimum stolen share of a core's time (measured).
const STOLEN: f64 = 0.05;
const WANTED: f64 = 0.6;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use crate::recording::InterruptPlace;

    #[test]
    fn stolen_time_of_a_busy_core_is_the_limit() {
        assert!(Sketch::new().core(0, [10, 50, 5, 30]).holds(RULE) > 0.5);
        assert!(Sketch::new().core(0, [5, 30, 5, 60]).holds(RULE) > 0.9);
    }

    #[test]
    fn little_stolen_time_or_time_stolen_from_an_idle_core_is_no_limit() {
        Sketch::new().core(0, [10, 50, 5, 3]).holds_not(RULE);
        let idle = Sketch::new().core(0, [5, 5, 5, 10]);
        assert_eq!(idle.judge(RULE).finding().unwrap().explains, None);
    }

    #[test]
    fn a_core_that_does_not_serve_the_connection_is_no_limit() {
        let elsewhere = |core: usize| {
            let stolen = Sketch::new().core(1, [5, 30, 5, 60]);
            stolen.interface(|eth0| {
                eth0.queues.clear();
                eth0.interrupts = vec![InterruptPlace { cores: vec![core], ..Default::default() }];
            })
        };
        elsewhere(0).holds_not(RULE);
        assert!(elsewhere(1).holds(RULE) > 0.9);
    }
}
