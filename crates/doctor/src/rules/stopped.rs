//! A process of the connection is stopped by a signal (SIGSTOP, job control, a debugger), or its
//! control group is frozen (a container that is paused).

use super::{Advice, Finding, Outcome, Rule};
use crate::view::{Flow, View};
use std::collections::BTreeMap;

pub(super) const RULE: Rule =
    Rule::new("stopped", "a stopped process").flow(of_flow).machine(of_machine);

fn of_flow(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let ends = [("sender", &flow.sender), ("receiver", &flow.receiver)];
    let mut ends = ends.into_iter().filter_map(|(side, end)| Some((side, end.as_ref()?)));
    let stopped = stopped(view);
    let found = ends.find_map(|(side, end)| {
        let pid = end.pids().find(|pid| stopped.contains_key(pid))?;
        Some((side, pid))
    });
    match found {
        Some((side, pid)) => {
            stopped[&pid].finding(pid).explains(1.0).seen("it is", format!("the {side}")).holds()
        }
        None if view.tasks.is_empty() => Outcome::not_seen("the threads of the flow's processes"),
        None => Outcome::ruled_out("no process of the connection is stopped or frozen"),
    }
}

/// A stopped process moves no data, so that its connection is no busy flow. It is of interest only
/// to somebody who asks about it: a suspended program of a terminal is no fault.
fn of_machine(view: &View<'_>) -> Outcome {
    if view.flows.iter().any(Flow::is_busy) {
        return Outcome::Irrelevant;
    }
    let asked = view.recording.focus.is_some();
    let mut stopped = stopped(view).into_iter().filter(|(_, how)| asked || how.frozen);
    match stopped.next() {
        Some((pid, how)) if asked => how.finding(pid).explains(1.0).holds(),
        // Somebody froze a whole group on purpose, and may have forgotten it.
        Some((pid, how)) => how.finding(pid).holds(),
        None => Outcome::Irrelevant,
    }
}

/// A process that does not run.
#[derive(Clone, Copy)]
struct Stopped<'a> {
    name: &'a str,
    /// By its control group, and not by a signal.
    frozen: bool,
}

impl Stopped<'_> {
    fn finding(self, pid: u32) -> Finding {
        let name = self.name;
        let finding = Finding::new(match self.frozen {
            false => format!(
                "{name} (process {pid}) is stopped: a signal or a debugger keeps it from running"
            ),
            true => format!(
                "{name} (process {pid}) is frozen: its control group, or its container, is paused"
            ),
        });
        let not = "Nothing of the network is the reason";
        match self.frozen {
            false => finding.seen("state of its threads in all samples", "T").advise(
                Advice::new("Look who stopped it, and let it go on")
                    .run(format!("kill -CONT {pid}"))
                    .run(format!("grep TracerPid /proc/{pid}/status"))
                    .not(not),
            ),
            true => finding.seen("its control group", "frozen").advise(
                Advice::new("Look who paused it, and let it go on")
                    .run("docker unpause CONTAINER   (or: systemctl thaw UNIT)")
                    .run(format!("cat /proc/{pid}/cgroup   (cgroup.freeze, or freezer.state)"))
                    .not(not),
            ),
        }
    }
}

/// The processes whose threads were stopped in all samples, or that are frozen.
fn stopped<'a>(view: &View<'a>) -> BTreeMap<u32, Stopped<'a>> {
    let period = view.period;
    let tasks = || period.samples.iter().flat_map(|sample| &sample.tasks);
    let is_stopped = |state: &str| matches!(state, "T" | "t");
    let mut found: BTreeMap<u32, Stopped<'a>> = BTreeMap::new();
    for task in tasks().filter(|task| is_stopped(&task.state)) {
        found.insert(task.pid, Stopped { name: &task.name, frozen: false });
    }
    for task in tasks().filter(|task| !is_stopped(&task.state)) {
        found.remove(&task.pid);
    }
    for task in view.last().tasks.iter().filter(|task| task.frozen) {
        found.insert(task.pid, Stopped { name: &task.name, frozen: true });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;

    fn in_state(state: &'static str) -> Sketch {
        Sketch::new().each(move |_, sample| sample.tasks[0].state = state.to_owned())
    }

    #[test]
    fn a_process_that_a_signal_stopped() {
        assert!(in_state("T").holds(RULE) > 0.95);
        in_state("S").holds_not(RULE);
        let once = in_state("T").each(|at, sample| {
            sample.tasks[0].state = if at == 2 { "R" } else { "T" }.to_owned();
        });
        once.holds_not(RULE);
    }

    #[test]
    fn a_process_whose_control_group_is_frozen() {
        let frozen = || in_state("D").each(|_, sample| sample.tasks[0].frozen = true);
        assert!(frozen().holds(RULE) > 0.95);
        let idle = frozen().each(|_, sample| sample.connections.clear());
        assert_eq!(idle.on_machine(RULE).finding().unwrap().explains, None);
    }

    #[test]
    fn a_suspended_program_is_no_fault_unless_somebody_asks_about_it() {
        let idle = in_state("T").tcp(|_, tcp| {
            tcp.bytes_acked = Some(units::Bytes::new(7));
        });
        let idle = idle.sender(|_, sender| sender.send_queue = units::Bytes::ZERO);
        idle.machine_holds_not(RULE);
        let mut asked = idle.recording().clone();
        asked.focus = Some("process 7".to_owned());
        let verdict = crate::diagnose(&asked, crate::Question::Flow).verdict;
        assert_eq!(verdict.cause, Some("stopped"), "{verdict:?}");
    }
}
