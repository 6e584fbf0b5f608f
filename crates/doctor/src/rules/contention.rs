//! The process is ready to run and waits for a core, because others run.

use super::{Advice, Finding, Outcome, Rule};
use crate::bound;
use crate::view::{Flow, View};
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
            "threads of {} waited for a core {} of the time",
            task.name,
            percent(waited)
        ));
    }
    let of_flow: Vec<u32> = [&flow.sender, &flow.receiver]
        .into_iter()
        .flatten()
        .flat_map(|end| end.last().holders.iter().map(|holder| holder.pid))
        .collect();
    let hogs: Vec<_> = view
        .processes
        .iter()
        .filter(|one| one.cpu >= HOG && !of_flow.contains(&one.pid))
        .take(3)
        .collect();
    // Threads of the same process, or the two ends, may also wait for one another.
    let own = hogs.is_empty();
    let named = hogs
        .iter()
        .map(|one| format!("{} (process {}, {} of a core)", one.name, one.pid, percent(one.cpu)))
        .collect::<Vec<_>>()
        .join(", ");
    let throttled = [&flow.sender, &flow.receiver]
        .into_iter()
        .flatten()
        .filter_map(|end| end.throttled(view))
        .any(|group| group.throttled_share() > 0.1);
    if throttled {
        return Outcome::Irrelevant;
    }
    let finding = Finding::new(match own {
        true => format!(
            "too few cores are the limit: a thread of {}, the {side}, waits for a core {} of the time",
            task.name,
            percent(waited)
        ),
        false => format!(
            "other processes are the limit: {}, the {side}, is ready to run and waits for a core {} of the time",
            task.name,
            percent(waited)
        ),
    })
    .explains(share_of(waited, task.cpu))
    .allows(bound::of_resource(flow.rate(), 1.0 - waited))
    .seen_from(format!("thread {} waits for a core", task.tid), percent(waited), percent(WAITS))
    .seen("CPU time that it had", percent(task.cpu))
    .seen_if("busiest other processes", (!own).then_some(named));
    let pressure = view.pressure("cpu").map(|(some, _)| percent(some));
    finding
        .seen_if("time in which some task waited for a core (PSI)", pressure)
        .advise(
            Advice::new("Give the process cores of its own, or the others less weight")
                .run(format!("taskset -pc CORES {}", task.pid))
                .run("systemctl set-property OTHER.service CPUWeight=20")
                .not("Network settings change nothing"),
        )
        .holds()
}

/// The share of the time that the thread wanted and did not get. If that is more than it got, the
/// others are the main cause, whatever else its connection shows meanwhile.
fn share_of(waited: f64, ran: f64) -> f64 {
    let share = waited / (waited + ran).max(1e-9);
    match waited + ran >= WANTS_ALL {
        true if share >= 0.5 => 0.5 + share / 2.0,
        true => share,
        false => waited,
    }
}

const WANTS_ALL: f64 = 0.8;
/// Measured.
const WAITS: f64 = 0.15;
const HOG: f64 = 0.2;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use crate::recording::Task;
    use units::Span;

    fn waiting(percent: u64) -> Sketch {
        Sketch::new().each(move |at, sample| {
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
    fn a_process_beside_a_hog() {
        assert!(waiting(70).holds(RULE) > 0.8);
        let outcome = waiting(70).judge(RULE);
        let finding = outcome.finding().unwrap();
        assert!(finding.evidence.iter().any(|one| one.value.contains("hog")), "{finding:?}");
    }

    #[test]
    fn short_waits_and_stolen_time_are_something_else() {
        waiting(10).holds_not(RULE);
        let stolen = waiting(30).core(0, [0, 10, 0, 80]).core(1, [0, 10, 0, 80]);
        stolen.holds_not(RULE);
    }

    #[test]
    fn it_explains_the_share_of_the_wanted_time_that_is_missing() {
        // The sketch's thread runs for 30 % of the time.
        assert!((waiting(20).holds(RULE) - 0.2).abs() < 0.01);
        let busy = waiting(20).each(|at, sample| {
            sample.tasks[0].ran = Some(Span::from_millis(780 * at));
        });
        assert!((busy.holds(RULE) - 20.0 / 98.0).abs() < 0.01);
    }
}
