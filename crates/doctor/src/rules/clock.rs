//! The busy core runs below its frequency: a governor, a limit, or heat.

use super::{Advice, Finding, Outcome, Rule};
use crate::view::{Flow, View};
use crate::words::percent;

pub(super) const RULE: Rule = Rule::new("clock", "the cores' frequency").flow(judge);

fn judge(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let clocks = &view.machine().clocks;
    if clocks.is_empty() {
        return Outcome::not_seen("the cores' frequency");
    }
    let slow =
        view.cores.iter().filter(|(_, shares)| shares.busy() >= BUSY).find_map(|(core, _)| {
            let clock = clocks.get(core)?;
            let (now, most) = (clock.now_hz?, clock.most_hz?);
            let share = now as f64 / most.max(1) as f64;
            // The busy cores of a machine share its highest frequency, so that a core with the
            // fastest governor runs below its own maximum.
            let is_free = clock.limit_hz.is_none_or(|limit| limit >= most);
            let is_fastest = is_free && clock.governor.as_deref() == Some("performance");
            let least = if is_fastest { THROTTLED } else { SLOW };
            (share < least && serves(*core, flow, view)).then_some((core, clock, share, least))
        });
    let Some((core, clock, share, least)) = slow else {
        return Outcome::ruled_out("no busy core of the connection runs far below its frequency");
    };
    // A buffer of the far end holds the sender back, however fast the sender's core is.
    let held = flow.sender.as_ref().filter(|_| flow.receiver.is_none()).map_or(0.0, |sender| {
        sender.window_limited().unwrap_or(0.0) + sender.buffer_limited().unwrap_or(0.0)
    });
    let ghz = |hz: Option<u64>| format!("{:.2} GHz", hz.unwrap_or(0) as f64 / 1e9);
    let governor = clock.governor.clone().unwrap_or_else(|| "unknown".to_owned());
    let limited = clock.limit_hz.zip(clock.most_hz).is_some_and(|(limit, most)| limit < most);
    let finding = Finding::new(format!(
        "the CPU's clock is the limit: core {core} is busy and runs at {} of {}",
        ghz(clock.now_hz),
        ghz(clock.most_hz)
    ))
    .seen_from("frequency of the core, of its maximum", percent(share), format!("below {}", percent(least)))
    .seen("governor", governor)
    .seen_if("limit set by the administrator", limited.then(|| ghz(clock.limit_hz)))
    .advise(match limited {
        true => Advice::new("Raise the limit").run(format!(
            "echo {} > /sys/devices/system/cpu/cpu{core}/cpufreq/scaling_max_freq",
            clock.most_hz.unwrap_or(0) / 1000
        )),
        false => Advice::new("Let the core run at its full frequency")
            .run("cpupower frequency-set -g performance")
            .not("It does not help if heat or power keeps the clock down: see `dmesg` and the board's sensors"),
    });
    // A slow clock is a limit only if no buffer holds the sender back.
    match held < HELD {
        true => finding.limits(),
        false => finding,
    }
    .holds()
}

/// Whether the core works for the flow. A machine with many cores runs each core below the
/// frequency of a single busy core, and most of the cores work for other flows.
fn serves(core: usize, flow: &Flow<'_>, view: &View<'_>) -> bool {
    let ends = [&flow.sender, &flow.receiver].into_iter().flatten();
    let places: Vec<usize> =
        ends.filter_map(|end| end.busiest(view)).filter_map(|task| task.core).collect();
    let interrupts = view.cores.get(&core).map_or(0.0, |shares| shares.interrupts());
    places.is_empty() || places.contains(&core) || interrupts >= INTERRUPTS
}

const BUSY: f64 = 0.8;
const SLOW: f64 = 0.8;
/// Share of its maximum frequency below which a core with the governor `performance` is slow: heat
/// or a limit of power slows the core.
const THROTTLED: f64 = 0.5;
/// Minimum share of interrupts in the time of a core that processes the flow's packets.
const INTERRUPTS: f64 = 0.3;
/// A sender that a buffer holds back for this share of the time does not need a faster core.
const HELD: f64 = 0.5;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use crate::recording::Clock;

    fn at(now: u64, busy: u64) -> Sketch {
        Sketch::new().core(0, [5, busy, 5, 0]).machine(|machine| {
            let clock = Clock {
                now_hz: Some(now),
                most_hz: Some(3_000_000_000),
                limit_hz: Some(3_000_000_000),
                governor: Some("powersave".to_owned()),
            };
            machine.clocks.insert(0, clock);
        })
    }

    #[test]
    fn a_slow_clock_of_a_busy_core_is_the_limit() {
        assert!(at(1_200_000_000, 85).holds(RULE) > 0.9);
    }

    #[test]
    fn a_core_that_shares_the_highest_frequency_of_its_machine_is_no_limit() {
        let fastest = |now: u64| {
            at(now, 85).machine(|machine| {
                machine.clocks.get_mut(&0).unwrap().governor = Some("performance".to_owned());
            })
        };
        fastest(2_100_000_000).holds_not(RULE);
        assert!(fastest(1_200_000_000).holds(RULE) > 0.9);
        let limited = fastest(2_100_000_000).machine(|machine| {
            machine.clocks.get_mut(&0).unwrap().limit_hz = Some(2_100_000_000);
        });
        assert!(limited.holds(RULE) > 0.9);
    }

    #[test]
    fn a_slow_core_of_another_flow_or_a_full_far_buffer_rules_out_the_clock() {
        at(1_200_000_000, 85).each(|_, sample| sample.tasks[0].core = Some(1)).holds_not(RULE);
        let held = at(1_200_000_000, 85).tcp(|at, tcp| {
            tcp.window_limited = Some(units::Span::from_millis(900 * at));
        });
        assert_eq!(held.judge(RULE).finding().unwrap().explains, None);
    }

    #[test]
    fn an_idle_core_with_a_slow_clock_is_no_limit() {
        at(1_200_000_000, 20).holds_not(RULE);
        at(2_500_000_000, 85).holds_not(RULE);
        assert!(matches!(Sketch::new().judge(RULE), Outcome::NotSeen(_)));
    }
}
