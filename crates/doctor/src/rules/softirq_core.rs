//! A single core processes all packets while other cores are idle: RSS, RPS or interrupts send all
//! packets to one core.

use super::{Advice, Finding, Outcome, Rule};
use crate::bound;
use crate::view::{Flow, View};
use crate::words::{cores, mask, percent, rate};

pub(super) const RULE: Rule =
    Rule::new("softirq-core", "packet processing on one core").flow(of_flow).machine(of_machine);

fn of_flow(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let own = flow.cores(view);
    match finding(view, |core| own.may_be_processed_on(core)) {
        Ok(finding) => finding
            .allows(bound::of_resource(flow.rate(), 0.97))
            .seen("rate now", rate(flow.rate()))
            .holds(),
        Err(outcome) => outcome,
    }
}

fn of_machine(view: &View<'_>) -> Outcome {
    // Without a connection in this namespace, the machine may forward packets or receive UDP.
    if view.flows.iter().any(Flow::is_busy) {
        return Outcome::Irrelevant;
    }
    finding(view, |_| true).map_or_else(|outcome| outcome, Finding::holds)
}

/// Finds a core that softirqs fill. `counts`: whether packets of the connection may be processed on
/// a core.
fn finding(view: &View<'_>, counts: impl Fn(usize) -> bool) -> Result<Finding, Outcome> {
    if view.cores.is_empty() {
        return Err(Outcome::not_seen("the CPU time of cores"));
    }
    let Some((core, shares)) = view
        .cores
        .iter()
        .filter(|(core, _)| view.cores.len() > 1 && counts(**core))
        .max_by(|(_, a), (_, b)| a.interrupts().total_cmp(&b.interrupts()))
    else {
        return Err(Outcome::Irrelevant);
    };
    let idlest = view.cores.values().map(|one| 1.0 - one.busy()).fold(0.0, f64::max);
    if shares.interrupts() < MOSTLY || shares.busy() < FULL || idlest < IDLE {
        return Err(Outcome::ruled_out(format!(
            "core {core} has the most interrupts, {} of its time",
            percent(shares.interrupts())
        )));
    }
    let all: Vec<_> = view.cores.keys().copied().collect();
    let device = view.interfaces().filter(|one| one.is_device()).max_by_key(|one| one.received);
    let name = device.as_ref().map_or("DEV", |one| one.name);
    let queues = device.as_ref().map_or(1, |one| {
        one.facts.queues.keys().filter(|name| name.starts_with("rx-")).count().max(1)
    });
    let steered = device.as_ref().is_some_and(|one| {
        one.facts.queues.iter().any(|(name, q)| name.starts_with("rx-") && q.cores.len() > 1)
    });
    let mut finding = Finding::new(format!(
        "packet processing on one core is the limit: core {core} spends {} of its time on interrupts and softirqs while another is {} idle",
        percent(shares.interrupts()),
        percent(idlest)
    ))
    .limits_for(shares.busy())
    .seen_from(format!("interrupts and softirqs, of core {core}"), percent(shares.interrupts()), percent(MOSTLY))
    .seen_from(format!("busy time, of core {core}"), percent(shares.busy()), percent(FULL))
    .seen("receive queues of the device", queues.to_string());
    if let Some(one) = &device {
        for interrupt in one.facts.interrupts.iter().take(4) {
            finding = finding.seen(
                format!("interrupt {} ({})", interrupt.number, interrupt.name),
                format!("cores {}", cores(&interrupt.cores)),
            );
        }
    }
    let more = device.as_ref().and_then(|one| one.facts.channels_most).unwrap_or(1);
    finding = match more as usize > queues {
        true => finding.advise(
            Advice::new(format!("Use more of the device's {more} queues"))
                .run(format!("ethtool -L {name} combined {}", more.min(all.len() as u32)))
                .not("One connection stays on one queue"),
        ),
        false if steered => finding,
        false => finding.advise(
            Advice::new("Steer received packets to all cores (RPS)")
                .run(format!("echo {} > /sys/class/net/{name}/queues/rx-0/rps_cpus", mask(&all)))
                .not("RPS spreads connections: a single one stays on one core"),
        ),
    };
    Ok(finding)
}

/// Minimum utilisation at which a core counts as full (measured).
const FULL: f64 = 0.9;
const MOSTLY: f64 = 0.6;
const IDLE: f64 = 0.3;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use crate::recording::InterruptPlace;

    #[test]
    fn one_core_full_of_softirqs_is_the_limit() {
        assert!(Sketch::new().core(0, [2, 8, 88, 0]).holds(RULE) > 0.9);
        let machine = Sketch::idle().core(0, [2, 8, 88, 0]);
        assert!(machine.on_machine(RULE).finding().is_some());
    }

    #[test]
    fn a_core_with_another_devices_interrupts_is_no_limit() {
        let full = |core: usize| {
            Sketch::new().core(1, [2, 8, 88, 0]).interface(|eth0| {
                eth0.queues.clear();
                eth0.interrupts = vec![InterruptPlace { cores: vec![core], ..Default::default() }];
            })
        };
        full(0).holds_not(RULE);
        assert!(full(1).holds(RULE) > 0.9);
    }

    #[test]
    fn a_second_full_core_or_a_single_core_rules_out_one_softirq_core() {
        let both = Sketch::new().core(0, [2, 8, 88, 0]).core(1, [2, 8, 88, 0]);
        both.holds_not(RULE);
        Sketch::new().core(0, [2, 8, 70, 0]).holds_not(RULE);
        let single = Sketch::new().each(|_, sample| {
            sample.cores.remove(&1);
        });
        single.core(0, [2, 8, 88, 0]).holds_not(RULE);
    }
}
