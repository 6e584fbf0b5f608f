//! The CPU time that other programs took from a switch's packet threads. A packet thread never
//! sleeps, so another program uses the CPU of a packet thread that waits.

use crate::model::Flaw;
use probe::process::Task;
use probe::tree::Tree;
use std::time::Duration;
use units::{Span, shown};

/// The CPU times of a switch's threads at one moment.
#[derive(Debug, Default)]
pub(super) struct Threads(Vec<Task>);

impl Threads {
    pub(super) fn of(pid: Option<u32>) -> Self {
        let read = |pid| Task::all_of(&Tree::here(), pid).ok();
        Self(pid.and_then(read).unwrap_or_default())
    }

    /// Returns the flaw of a window from `self` to `later` if a busy packet thread waited too long
    /// for its CPU.
    pub(super) fn contended(&self, later: &Self, window: Duration) -> Option<Flaw> {
        let window = window.as_secs_f64();
        let waited = later.0.iter().filter_map(|task| {
            let same = |before: &&Task| (before.tid, before.started) == (task.tid, task.started);
            let before = self.0.iter().find(same)?;
            let part = |now: Option<Span>, then: Option<Span>| {
                Some(now?.secs_f64() - then?.secs_f64()).map(|seconds| seconds / window)
            };
            let waited = part(task.waited, before.waited)?;
            // Only the wait of a busy packet thread counts. The switch's other threads, such as
            // Open vSwitch's revalidators, may be busy all the time and share one CPU.
            let is_packet_thread =
                task.name.starts_with(PACKET_THREAD) && part(task.ran, before.ran)? + waited > BUSY;
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

/// The prefix of the names of both switches' packet threads.
const PACKET_THREAD: &str = "pmd";
/// The minimum share of a window in which a busy packet thread runs or waits for its CPU.
const BUSY: f64 = 0.8;
const MOST_WAITED_PERCENT: f64 = 3.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ran: u64, waited: u64) -> Task {
        let (ran, waited) = (Span::from_millis(ran), Span::from_millis(waited));
        let name = "pmd-c01/id:8".to_owned();
        Task { tid: 7, name, ran: Some(ran), waited: Some(waited), ..Task::default() }
    }

    fn percent(ran: u64, waited: u64) -> Option<String> {
        let (before, after) = (Threads(vec![at(50, 9)]), Threads(vec![at(50 + ran, 9 + waited)]));
        before.contended(&after, Duration::from_secs(1)).map(|flaw| flaw.detail)
    }

    #[test]
    fn only_a_long_wait_of_a_busy_packet_thread_makes_a_window_invalid() {
        assert_eq!(percent(990, 10), None);
        assert_eq!(percent(800, 200).as_deref(), Some("20.0 % of the window; the bound is 3 %"));
        assert_eq!(percent(100, 200), None, "the thread slept most of the time");
        let revalidator = |ran, waited| {
            Threads(vec![Task { name: "revalidator9".to_owned(), ..at(ran, waited) }])
        };
        let (before, after) = (revalidator(0, 0), revalidator(700, 300));
        assert_eq!(before.contended(&after, Duration::from_secs(1)), None, "a revalidator");
        let strange = Threads(vec![Task::default()]);
        assert_eq!(strange.contended(&Threads::of(None), Duration::from_secs(1)), None);
    }
}
