//! A signal has stopped a process of the connection (SIGSTOP, job control, a debugger, cpulimit),
//! or its control group is frozen (a paused container).

use super::{Advice, Case, Finding, Outcome, Rule};
use crate::recording::Tcp;
use crate::view::{End, Flow, View};
use crate::words::percent;
use std::collections::BTreeMap;
use units::Bytes;

pub(super) const RULE: Rule =
    Rule::new("stopped", "a stopped process").flow(of_flow).machine(of_machine);
pub(super) const AGAIN_AND_AGAIN: Case =
    Case::new("the process is stopped and continued again and again");

fn of_flow(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let ends = [("sender", &flow.sender), ("receiver", &flow.receiver)];
    let mut ends = ends.into_iter().filter_map(|(side, end)| Some((side, end.as_ref()?)));
    let stopped = stopped(view);
    let found = ends.find_map(|(side, end)| {
        let pid = end.pids().find(|pid| stopped.contains_key(pid))?;
        (!goes_on(end, &stopped)).then_some((side, pid))
    });
    match found {
        Some((side, pid)) => {
            stopped[&pid].finding(pid).limits().seen("it is", format!("the {side}")).holds()
        }
        None if view.tasks.is_empty() => Outcome::not_seen("the threads of the flow's processes"),
        None => again_and_again(flow, view).unwrap_or_else(|| {
            Outcome::ruled_out("no process of the connection is stopped or frozen")
        }),
    }
}

/// Whether another holder of the socket moves the data: the stopped process may be a child of the
/// program that inherited the descriptor.
fn goes_on(end: &End<'_>, stopped: &BTreeMap<u32, Stopped<'_>>) -> bool {
    let moved = |tcp: &Tcp| (tcp.bytes_acked, tcp.bytes_received);
    let middle = &end.all[end.all.len() / 2].1.tcp;
    end.pids().any(|pid| !stopped.contains_key(&pid)) && moved(middle) != moved(end.tcp())
}

/// Judges a process that a program such as cpulimit stops and continues many times a second.
fn again_and_again(flow: &Flow<'_>, view: &View<'_>) -> Option<Outcome> {
    let ends = [("sender", &flow.sender), ("receiver", &flow.receiver)];
    let waits = ends.into_iter().filter_map(|(side, end)| {
        let end = end.as_ref()?;
        // The kernel moves data while the process is stopped.
        let is_served = match side {
            "sender" => end.data_waits().unwrap_or(0.0) >= 0.5,
            _ => end.often(|c| c.receive_queue > Bytes::ZERO) < SOMETIMES,
        };
        (!is_served).then_some((side, end))
    });
    let (side, end, pid, share) = waits
        .flat_map(|(side, end)| end.pids().map(move |pid| (side, end, pid)))
        .map(|(side, end, pid)| (side, end, pid, stopped_share(view, pid)))
        // Another check of this rule covers processes that are stopped all the time.
        .filter(|(.., share)| (SOMETIMES..1.0).contains(share))
        .max_by(|a, b| a.3.total_cmp(&b.3))?;
    let finding = Finding::new(format!(
        "{}, the {side}, is stopped and continued again and again: a signal had stopped it in {} of the samples",
        name(end, pid),
        percent(share)
    ))
    .limits_for(share).case(AGAIN_AND_AGAIN)
    .seen_from("samples in which all its threads were stopped", percent(share), percent(SOMETIMES));
    let finding = finding.advise(
        Advice::new("Look for the program that sends the signals: cpulimit, or a debugger")
            .run("ps -eo pid,args | grep -w cpulimit")
            .run(format!("grep TracerPid /proc/{pid}/status"))
            .not("Nothing of the network is the reason"),
    );
    Some(finding.holds())
}

fn name(end: &End<'_>, pid: u32) -> String {
    let holder = end.last().holders.iter().find(|holder| holder.pid == pid);
    format!("{} (process {pid})", holder.map_or("a process", |holder| holder.name.as_str()))
}

/// Returns the share of the samples in which a signal had stopped all threads of a process.
fn stopped_share(view: &View<'_>, pid: u32) -> f64 {
    let (mut seen, mut stopped) = (0u32, 0u32);
    for sample in view.samples() {
        let mut threads = sample.tasks.iter().filter(|task| task.pid == pid).peekable();
        if threads.peek().is_some() {
            seen += 1;
            stopped += u32::from(threads.all(|task| is_stopped(&task.state)));
        }
    }
    f64::from(stopped) / f64::from(seen.max(1))
}

fn is_stopped(state: &str) -> bool {
    matches!(state, "T" | "t")
}

/// A stopped process moves no data, so its connection is no busy flow. The cause is a limit only if
/// the user asked about the connection: a suspended program of a terminal is no fault.
fn of_machine(view: &View<'_>) -> Outcome {
    if view.flows.iter().any(Flow::is_busy) {
        return Outcome::Irrelevant;
    }
    let asked = view.recording.focus.is_some();
    let mut stopped = stopped(view).into_iter().filter(|(_, how)| asked || how.frozen);
    match stopped.next() {
        Some((pid, how)) if asked => how.finding(pid).limits().holds(),
        // A user froze a whole group on purpose, and may have forgotten it.
        Some((pid, how)) => how.finding(pid).holds(),
        None => Outcome::Irrelevant,
    }
}

/// A process that a signal has stopped, or whose control group is frozen.
#[derive(Clone, Copy)]
struct Stopped<'a> {
    name: &'a str,
    /// Whether the control group is frozen. `false`: a signal stopped the process.
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

/// Returns the processes that are frozen, or whose threads were stopped in all samples.
fn stopped<'a>(view: &View<'a>) -> BTreeMap<u32, Stopped<'a>> {
    let period = view.period;
    let tasks = || period.samples.iter().flat_map(|sample| &sample.tasks);
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

/// Minimum share of the samples in which a process is stopped.
const SOMETIMES: f64 = 0.25;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;

    fn in_state(state: &'static str) -> Sketch {
        Sketch::new().each(move |_, sample| sample.tasks[0].state = state.to_owned())
    }

    #[test]
    fn a_process_that_a_signal_stopped_is_the_limit() {
        assert!(in_state("T").holds(RULE) > 0.95);
        in_state("S").holds_not(RULE);
        let once = in_state("T").each(|at, sample| {
            sample.tasks[0].state = if at == 2 { "R" } else { "T" }.to_owned();
        });
        once.holds_not(RULE);
    }

    /// The child, which inherited the socket, is stopped, and its parent sends.
    #[test]
    fn a_stopped_holder_of_a_socket_that_moves_data_is_no_limit() {
        let child = |unsent: u64, mbytes: u64| {
            in_state("T").sender(move |at, sender| {
                let (pid, name) = (9, "parent".to_owned());
                sender.holders.push(crate::recording::Holder { pid, name, ..Default::default() });
                sender.tcp.unsent = Some(Bytes::new(unsent));
                sender.tcp.bytes_acked = Some(Bytes::new(at * mbytes * 1_000_000));
            })
        };
        child(500_000, 50).holds_not(RULE);
        child(0, 50).holds_not(RULE);
        assert!(child(500_000, 0).holds(RULE) > 0.95);
    }

    /// cpulimit lets a sender run for a part of the time.
    #[test]
    fn a_process_that_is_stopped_again_and_again_is_the_limit() {
        let limited = |unsent: u64| {
            in_state("T")
                .each(|at, sample| {
                    if at == 2 {
                        sample.tasks[0].state = "R".to_owned();
                    }
                })
                .tcp(move |at, tcp| {
                    tcp.busy = Some(units::Span::from_millis(100 * at));
                    (tcp.unsent, tcp.unacked) = (Some(Bytes::new(unsent)), Some(0));
                })
        };
        assert!(limited(0).holds(RULE) > 0.95);
        let verdict = crate::diagnose(limited(0).recording(), crate::Question::Flow).verdict;
        assert_eq!(verdict.cause, Some("stopped"), "{verdict:?}");
        limited(500_000).holds_not(RULE);
        in_state("S").holds_not(RULE);
    }

    #[test]
    fn a_process_in_a_frozen_control_group_is_the_limit() {
        let frozen = || in_state("D").each(|_, sample| sample.tasks[0].frozen = true);
        assert!(frozen().holds(RULE) > 0.95);
        let idle = frozen().each(|_, sample| sample.connections.clear());
        assert_eq!(idle.on_machine(RULE).finding().unwrap().explains, None);
    }

    #[test]
    fn a_suspended_program_is_a_verdict_only_if_the_user_asks_about_it() {
        let idle = in_state("T").tcp(|_, tcp| {
            tcp.bytes_acked = Some(Bytes::new(7));
        });
        let idle = idle.sender(|_, sender| sender.send_queue = Bytes::ZERO);
        idle.machine_holds_not(RULE);
        let mut asked = idle.recording().clone();
        asked.focus = Some("process 7".to_owned());
        let verdict = crate::diagnose(&asked, crate::Question::Flow).verdict;
        assert_eq!(verdict.cause, Some("stopped"), "{verdict:?}");
    }
}
