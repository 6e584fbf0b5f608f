//! Time that other programs took from a switch's packet threads. Such a thread never sleeps, so
//! each moment in which it waits for its CPU belongs to others.

use crate::run::Flaw;
use probe::process::Task;
use probe::tree::Tree;
use std::time::Duration;
use units::{Span, shown};

/// The threads of a switch at one moment.
#[derive(Debug, Default)]
pub(super) struct Threads(Vec<Task>);

impl Threads {
    pub(super) fn of(pid: Option<u32>) -> Self {
        let read = |pid| Task::all_of(&Tree::here(), pid).ok();
        Self(pid.and_then(read).unwrap_or_default())
    }

    /// The reason why a window that began with `self` is invalid.
    pub(super) fn contended(&self, later: &Self, window: Duration) -> Option<Flaw> {
        let window = window.as_secs_f64();
        let waited = later.0.iter().filter_map(|task| {
            let same = |before: &&Task| (before.tid, before.started) == (task.tid, task.started);
            let before = self.0.iter().find(same)?;
            let part = |now: Option<Span>, then: Option<Span>| {
                Some(now?.secs_f64() - then?.secs_f64()).map(|seconds| seconds / window)
            };
            let waited = part(task.waited, before.waited)?;
            // Threads that sleep are not on the packets' way.
            let is_packet_thread = part(task.ran, before.ran)? + waited > BUSY;
            is_packet_thread.then_some(waited * 100.0)
        });
        let most = waited.max_by(f64::total_cmp)?;
        (most > MOST_WAITED_PERCENT).then(|| Flaw {
            what: "other programs took CPU time from a packet thread".to_owned(),
            detail: format!(
                "{} of the window; the bound is {MOST_WAITED_PERCENT} %",
                shown::percent(most)
            ),
        })
    }
}

/// The share of a window in which a packet thread runs or wants to.
const BUSY: f64 = 0.8;
const MOST_WAITED_PERCENT: f64 = 3.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ran: u64, waited: u64) -> Task {
        let (ran, waited) = (Span::from_millis(ran), Span::from_millis(waited));
        Task { tid: 7, ran: Some(ran), waited: Some(waited), ..Task::default() }
    }

    fn percent(ran: u64, waited: u64) -> Option<String> {
        let (before, after) = (Threads(vec![at(50, 9)]), Threads(vec![at(50 + ran, 9 + waited)]));
        before.contended(&after, Duration::from_secs(1)).map(|flaw| flaw.detail)
    }

    #[test]
    fn only_a_busy_thread_that_waited_for_long_spoils_a_window() {
        assert_eq!(percent(990, 10), None);
        assert_eq!(percent(800, 200).as_deref(), Some("20.0 % of the window; the bound is 3 %"));
        assert_eq!(percent(100, 200), None, "a thread that sleeps");
        let strange = Threads(vec![Task::default()]);
        assert_eq!(strange.contended(&Threads::of(None), Duration::from_secs(1)), None);
    }
}
