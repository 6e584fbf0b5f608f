//! The process is ready to run and waits for a core, because other processes use the core.

use super::{Advice, Finding, Outcome, Rule};
use crate::bound;
use crate::view::{Flow, Occupancy, View};
use crate::words::percent;

pub(super) const RULE: Rule =
    Rule::new("cpu-contention", "other processes on the cores").flow(judge);

fn judge(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let ends = [("sender", &flow.sender), ("receiver", &flow.receiver)];
    let worst = ends
        .into_iter()
        .filter_map(|(side, end)| Some((side, end.as_ref()?.tasks(view))))
        .flat_map(|(side, tasks)| tasks.into_iter().map(move |task| (side, task)))
        .filter_map(|(side, task)| Some((side, task, task.waited?)))
        .max_by(|a, b| a.2.total_cmp(&b.2));
    let Some((side, task, waited)) = worst else {
        return Outcome::not_seen("the time that threads wait for a core (CONFIG_SCHED_INFO)");
    };
    let steal = view.steal().unwrap_or(0.0);
    if waited < WAITS || steal >= waited {
        return Outcome::ruled_out(format!(
            "threads of {} waited for a core {} of the observation",
            task.name,
            percent(waited)
        ));
    }
    // A thread also waits while its core works for the same connection: for the far end, if it is
    // on this machine, for the threads of the kernel that process the packets, for the process's
    // other threads. Other processes did not take that time.
    let found = Occupancy::of(flow, view, task.place());
    let theirs = found.wait_for_others(waited, task.cpu);
    if theirs < WAITS {
        return Outcome::ruled_out(format!(
            "threads of {} waited for a core {} of the observation, and other programs took {} of a core there: the rest is the connection's own work",
            task.name,
            percent(waited),
            percent(found.others)
        ));
    }
    let hogs: Vec<_> = found.named.iter().filter(|one| one.cpu >= HOG).take(3).collect();
    // The core has many small programs, and none that is large enough to name.
    let unnamed = hogs.is_empty();
    let named = hogs
        .iter()
        .map(|one| format!("{} (process {}, {} of a core)", one.name, one.pid, percent(one.cpu)))
        .collect::<Vec<_>>()
        .join(", ");
    let throttled = [&flow.sender, &flow.receiver]
        .into_iter()
        .flatten()
        .filter_map(|end| end.throttled(view))
        .any(|group| group.is_held_back());
    if throttled {
        return Outcome::Irrelevant;
    }
    let finding = Finding::new(format!(
        "other processes are the limit: {}, the {side}, is ready to run and waits for a core {} of the observation",
        task.name,
        percent(waited)
    ))
    .limits_for(share_of(theirs, waited + task.cpu))
    .allows(bound::of_resource(flow.rate(), 1.0 - theirs))
    .seen_from(format!("thread {} waits for other processes, of the observation", task.tid), percent(theirs), percent(WAITS))
    .seen("CPU time of the thread, of a core", percent(task.cpu))
    .seen("CPU time of other processes there", format!("{} of a core", percent(found.others)))
    .seen_if("the busiest of them", (!unnamed).then_some(named));
    let pressure = view.pressure("cpu").map(|(some, _)| percent(some));
    finding
        .seen_if("time in which some task waited for a core (PSI), of the observation", pressure)
        .advise(
            Advice::new("Give the process cores of its own, or the others less weight")
                .run(format!("taskset -pc CORES {}", task.pid))
                .run("systemctl set-property OTHER.service CPUWeight=20")
                .not("Network settings change nothing"),
        )
        .holds()
}

/// Returns the share of the wanted CPU time that other processes took. If other processes took more
/// than half, contention is the main cause, whatever other causes the connection shows.
fn share_of(theirs: f64, wanted: f64) -> f64 {
    let share = theirs / wanted.max(1e-9);
    match wanted >= WANTS_ALL {
        true if share >= 0.5 => 0.5 + share / 2.0,
        true => share,
        false => theirs,
    }
}

const WANTS_ALL: f64 = 0.8;
/// Minimum share of the time in which a thread waits for a core (measured).
const WAITS: f64 = 0.15;
const HOG: f64 = 0.2;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use crate::recording::Task;
    use units::Span;

    fn waiting(percent: u64) -> Sketch {
        Sketch::new().core(0, [70, 25, 5, 0]).each(move |at, sample| {
            sample.tasks[0].waited = Some(Span::from_millis(10 * percent * at));
            sample.processes.push(Task {
                pid: 99,
                name: "hog".to_owned(),
                user: Span::from_millis(750 * at),
                ..Task::default()
            });
        })
    }

    #[test]
    fn a_process_beside_a_busy_process_waits_for_its_core() {
        assert!(waiting(70).holds(RULE) > 0.8);
        let outcome = waiting(70).judge(RULE);
        let finding = outcome.finding().unwrap();
        assert!(finding.evidence.iter().any(|one| one.value.contains("hog")), "{finding:?}");
    }

    #[test]
    fn short_waits_or_stolen_time_rule_out_contention() {
        waiting(10).holds_not(RULE);
        let stolen = waiting(30).core(0, [0, 10, 0, 80]).core(1, [0, 10, 0, 80]);
        stolen.holds_not(RULE);
    }

    #[test]
    fn contention_explains_the_share_of_the_wanted_time_that_is_missing() {
        // The sketch's thread runs for 30 % of the time.
        assert!((waiting(20).holds(RULE) - 0.2).abs() < 0.01);
        let busy = waiting(20).each(|at, sample| {
            sample.tasks[0].ran = Some(Span::from_millis(780 * at));
        });
        assert!((busy.holds(RULE) - 20.0 / 98.0).abs() < 0.01);
    }

    /// The only core of a board: programs take 40 % of its time, and softirqs 60 %. Most of the
    /// softirqs run in a thread of the kernel, for which the program waits.
    #[test]
    fn softirqs_of_the_connections_own_packets_are_no_contention() {
        let board = |name: &'static str, user: u64| {
            let waits = Sketch::new().core(0, [10 + user, 30, 60 - user, 0]).task(7, 45);
            waits.each(move |at, sample| {
                sample.cores.remove(&1);
                sample.tasks[0].waited = Some(Span::from_millis(500 * at));
                sample.tasks[0].allowed = Some(vec![0]);
                sample.processes.push(Task {
                    pid: 99,
                    name: name.to_owned(),
                    user: Span::from_millis(10 * user * at),
                    system: Span::from_millis(10 * (45 - user) * at),
                    allowed: Some(vec![0]),
                    ..Task::default()
                });
            })
        };
        board("ksoftirqd/0", 0).holds_not(RULE);
        assert!(board("ksoftirqd/0", 0).holds(super::super::cpu::RULE) > 0.8);
        assert!(board("compiler", 45).holds(RULE) > 0.4);
    }
}
