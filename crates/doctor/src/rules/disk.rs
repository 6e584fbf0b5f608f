//! The application waits for its disk, not for the network.

use super::{Advice, Case, Finding, Outcome, Rule};
use crate::view::{Flow, View};
use crate::words::percent;

pub(super) const RULE: Rule = Rule::new("disk", "the disk").flow(judge);
pub(super) const ALL: Case = Case::new("the thread does little but wait for its disk");

fn judge(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let ends = [("sender", &flow.sender), ("receiver", &flow.receiver)];
    let tasks = ends.into_iter().filter_map(|(side, end)| Some((side, end.as_ref()?)));
    let worst = tasks
        .flat_map(|(side, end)| end.tasks(view).into_iter().map(move |task| (side, task)))
        .filter_map(|(side, task)| Some((side, task, task.blocked?)))
        .max_by(|(.., a), (.., b)| a.total_cmp(b));
    let Some((side, task, blocked)) = worst else {
        return Outcome::not_seen("the threads of the flow's processes");
    };
    let known = view.pressure("io").map(|(some, _)| some);
    if blocked < BLOCKED {
        return Outcome::ruled_out(format!(
            "threads of {} waited for block I/O {} of the observation",
            task.name,
            percent(blocked)
        ));
    }
    // A process is in the same state if a control group freezes it, or if it waits for a remote
    // file system.
    if let Some(pressure) = known.filter(|pressure| *pressure < blocked / 3.0) {
        return Outcome::ruled_out(format!(
            "{} was uninterruptible {} of the observation, and tasks waited for block I/O {} of the observation",
            task.name,
            percent(blocked),
            percent(pressure)
        ));
    }
    // A sender that reads ahead keeps its connection busy, and its disk costs no time.
    let busy = flow.sender.as_ref().and_then(|sender| sender.busy()).unwrap_or(0.0);
    let has_data = flow.sender.as_ref().is_some_and(|sender| sender.has_data());
    if side == "sender" && busy > 0.9 && has_data {
        return Outcome::ruled_out(format!(
            "data was ready to send {} of the observation",
            percent(busy)
        ));
    }
    Finding::new(format!(
        "the disk is the limit: {}, the {side}, waits for block I/O {} of the observation",
        task.name,
        percent(blocked)
    ))
    .limits_for(blocked)
    .case_if(task.waits_for_disk(), ALL)
    .seen_from(
        format!("thread {} waits for block I/O, of the observation", task.tid),
        percent(blocked),
        percent(BLOCKED),
    )
    .seen_if("time in which some task waited for I/O (PSI), of the observation", known.map(percent))
    .advise(
        Advice::new("Look at the disk's own load and latency")
            .run("iostat -x 1")
            .run("cat /proc/pressure/io")
            .not("Network settings, buffers and congestion control change nothing"),
    )
    .holds()
}

const BLOCKED: f64 = 0.2;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use crate::recording::Stall;
    use units::Span;

    /// Sets the share of the time in which some task waits for block I/O, in percent.
    fn pressed(percent: u64) -> Sketch {
        Sketch::new().each(move |at, sample| {
            let stall = Stall { some: Span::from_millis(10 * percent * at), full: None };
            sample.pressure.insert("io".to_owned(), stall);
        })
    }

    fn waiting(percent: u64, busy: u64) -> Sketch {
        pressed(percent)
            .each(move |at, sample| {
                sample.tasks[0].io_waited = Some(Span::from_millis(10 * percent * at));
            })
            .tcp(move |at, tcp| tcp.busy = Some(Span::from_millis(10 * busy * at)))
    }

    #[test]
    fn a_process_that_waits_for_its_disk_is_held_back() {
        assert!(waiting(60, 30).holds(RULE) > 0.9);
        let blocked = |pressure: u64| {
            pressed(pressure)
                .each(|_, sample| sample.tasks[0].state = "D".to_owned())
                .tcp(|at, tcp| tcp.busy = Some(Span::from_millis(100 * at)))
        };
        assert!(blocked(70).holds(RULE) > 0.9);
        // A control group freezes the process.
        blocked(1).holds_not(RULE);
    }

    #[test]
    fn a_kernel_without_psi_gives_no_evidence_about_pressure() {
        let unknown = waiting(60, 30).each(|_, sample| sample.pressure.clear());
        let outcome = unknown.judge(RULE);
        let finding = outcome.finding().unwrap();
        assert!(finding.evidence.iter().all(|one| !one.signal.contains("PSI")), "{finding:?}");
    }

    #[test]
    fn a_short_wait_or_ready_data_rules_out_the_disk() {
        waiting(15, 30).holds_not(RULE);
        waiting(60, 100).holds_not(RULE);
        // On a long path all written data is in flight all the time.
        let long = waiting(60, 100).tcp(|_, tcp| tcp.unsent = Some(units::Bytes::ZERO));
        assert!(long.holds(RULE) > 0.9);
    }
}
