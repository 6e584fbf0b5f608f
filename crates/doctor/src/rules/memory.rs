//! The machine, or a control group, lacks memory: its processes wait until the kernel frees pages
//! or reads them back from the disk.

use super::{Advice, Finding, Outcome, Rule};
use crate::view::{Flow, View};
use crate::words::percent;

pub(super) const RULE: Rule =
    Rule::new("memory", "a lack of memory").flow(of_flow).machine(of_machine);

fn of_flow(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let (some, full) = match pressure(view) {
        Ok(pressure) => pressure,
        Err(outcome) => return outcome,
    };
    let ends = [("sender", &flow.sender), ("receiver", &flow.receiver)];
    let tasks = ends.into_iter().filter_map(|(side, end)| Some((side, end.as_ref()?)));
    let worst = tasks
        .flat_map(|(side, end)| end.tasks(view).into_iter().map(move |task| (side, task)))
        .filter_map(|(side, task)| Some((side, task, task.blocked?)))
        .max_by(|(.., a), (.., b)| a.total_cmp(b));
    match worst {
        Some((side, task, blocked)) if blocked >= BLOCKED => finding(some, full)
            .seen_from(
                format!(
                    "thread {} of {}, the {side}, waits, of the observation",
                    task.tid, task.name
                ),
                percent(blocked),
                percent(BLOCKED),
            )
            .limits()
            .holds(),
        _ => Outcome::ruled_out(format!(
            "tasks waited for memory {} of the observation, and none of this connection",
            percent(some)
        )),
    }
}

fn of_machine(view: &View<'_>) -> Outcome {
    match pressure(view) {
        Ok((some, full)) if some >= MUCH => finding(some, full).limits().holds(),
        Ok((some, full)) => finding(some, full).holds(),
        Err(outcome) => outcome,
    }
}

fn pressure(view: &View<'_>) -> Result<(f64, f64), Outcome> {
    let Some((some, full)) = view.pressure("memory") else {
        return Err(Outcome::not_seen("the time that tasks wait for memory (PSI)"));
    };
    match some >= WAITS {
        true => Ok((some, full)),
        false => Err(Outcome::ruled_out(format!(
            "tasks waited for memory {} of the observation",
            percent(some)
        ))),
    }
}

fn finding(some: f64, full: f64) -> Finding {
    Finding::new(format!(
        "a lack of memory is the limit: programs wait {} of the observation until memory is freed, or read back from the disk",
        percent(some)
    ))
    .seen_from("time in which some task waited for memory (PSI), of the observation", percent(some), percent(WAITS))
    .seen("time in which all tasks waited, of the observation", percent(full))
    .advise(
        Advice::new("Find the program or the control group that takes the memory, and give it less or more")
            .run("cat /proc/pressure/memory; free -m; vmstat 1 5")
            .run("systemd-cgtop -m   (memory.high and memory.max of the groups)")
            .not("Network settings, buffers and congestion control change nothing; larger buffers make it worse"),
    )
}

/// Minimum share of the time in which some task waits for memory.
const WAITS: f64 = 0.1;
const MUCH: f64 = 0.3;
const BLOCKED: f64 = 0.2;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use crate::recording::Stall;
    use units::Span;

    fn short(percent: u64) -> Sketch {
        Sketch::new().each(move |at, sample| {
            let stall = Stall { some: Span::from_millis(10 * percent * at), full: None };
            sample.pressure.insert("memory".to_owned(), stall);
        })
    }

    #[test]
    fn a_process_that_waits_for_memory_is_held_back() {
        let waits = short(40).each(|_, sample| sample.tasks[0].state = "D".to_owned());
        assert!(waits.holds(RULE) > 0.95);
        short(40).holds_not(RULE);
        assert!(short(40).holds_machine(RULE).is_some_and(|share| share > 0.4));
        assert_eq!(short(15).holds_machine(RULE), Some(0.0));
    }

    #[test]
    fn free_memory_rules_out_a_lack_of_memory() {
        let waits = short(3).each(|_, sample| sample.tasks[0].state = "D".to_owned());
        waits.holds_not(RULE);
        short(3).machine_holds_not(RULE);
    }
}
