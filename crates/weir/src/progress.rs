use crate::output;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use lab::hosts::SweepProgress;
use lab::{Outcome, Plan, PlannedCell, Progress, Verdict};
use results::{Axes, NOT_RUN};
use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use units::{foreign, shown};

/// A progress line on the terminal with the remaining time; nothing without a terminal.
#[derive(Debug)]
pub(crate) struct Bar {
    bar: ProgressBar,
    remaining: Arc<Mutex<Remaining>>,
    /// The notes already printed about cells that this machine cannot measure. A system has at most
    /// one note.
    told: HashSet<String>,
    /// The steps in progress, with their start and estimated time.
    begun: HashMap<usize, (Instant, Duration)>,
}

impl Bar {
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::hidden();
        if std::io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        let remaining = Arc::<Mutex<Remaining>>::default();
        let shown = Arc::clone(&remaining);
        let left = move |_: &ProgressState, out: &mut dyn Write| {
            let remaining = shown.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = out.write_str(&remaining.words(Instant::now()));
        };
        if let Ok(style) =
            ProgressStyle::with_template("{bar:16} {pos}/{len} turns, {left}  {wide_msg}")
        {
            bar.set_style(style.with_key("left", left));
        }
        Self { bar, remaining, told: HashSet::new(), begun: HashMap::new() }
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn change(&self, change: impl FnOnce(&mut Remaining)) {
        change(&mut self.remaining.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Progress for Bar {
    fn plan(&mut self, plan: &Plan, finished: usize, estimate: Duration) {
        let steps = plan.steps.len();
        self.bar.set_length(steps as u64);
        self.bar.set_position(finished as u64);
        let left = steps.saturating_sub(finished);
        self.change(|remaining| *remaining = Remaining::new(Instant::now(), left, estimate));
        self.bar.enable_steady_tick(Duration::from_millis(500));
        let cells = counted(plan.cells.len(), "cell");
        let times = match plan.repeats {
            1 => "once".to_owned(),
            count => format!("{count} times"),
        };
        let estimate = shown::seconds(estimate.as_secs_f64().ceil());
        Progress::note(self, &format!("{cells}, each {times}: about {estimate}"));
    }

    fn step(&mut self, number: usize, cell: &PlannedCell, estimate: Duration) {
        self.bar.set_message(place(&cell.system, &cell.axes));
        self.begun.insert(number, (Instant::now(), estimate));
    }

    fn done(&mut self, number: usize, outcome: &Outcome) {
        let now = Instant::now();
        self.change(|remaining| remaining.finish_one(now));
        self.bar.inc(1);
        let begun = self.begun.remove(&number);
        let took = begun.map(|(begun, estimate)| (now.saturating_duration_since(begun), estimate));
        if let Some(note) = took.and_then(|(took, estimate)| delay(outcome, took, estimate)) {
            Progress::note(self, &note);
        }
        if let Verdict::Failed(reason) = &outcome.verdict {
            // A program's reason may contain text from outside.
            let shown = foreign(reason).up_to(LONGEST_REASON);
            if !reason.starts_with(NOT_RUN) {
                Progress::note(self, &format!("{} failed: {shown}", outcome.system));
            } else if self.told.insert(format!("{} {reason}", outcome.system)) {
                Progress::note(self, &format!("{} {shown}", outcome.system));
            }
        }
    }

    fn note(&mut self, text: &str) {
        if self.bar.is_hidden() {
            output::note(text);
        } else {
            self.bar.println(text);
        }
    }
}

impl SweepProgress for Bar {
    fn begin(&mut self, turns: usize, finished: usize, estimate: Duration) {
        self.bar.set_length(turns as u64);
        self.bar.set_position(finished as u64);
        let left = turns.saturating_sub(finished);
        self.change(|remaining| *remaining = Remaining::new(Instant::now(), left, estimate));
        self.bar.enable_steady_tick(Duration::from_millis(500));
    }

    fn finished(&mut self, turns: usize, hosts: &str) {
        let before = usize::try_from(self.bar.position()).unwrap_or(turns);
        let now = Instant::now();
        for _ in before..turns {
            self.change(|remaining| remaining.finish_one(now));
        }
        self.bar.set_position(turns as u64);
        self.bar.set_message(foreign(hosts).up_to(LONGEST_REASON).to_string());
    }

    fn note(&mut self, text: &str) {
        Progress::note(self, &foreign(text).up_to(LONGEST_REASON).to_string());
    }
}

/// The remaining time of a run, from its estimate and from the steps measured so far.
#[derive(Debug, Clone, Copy, Default)]
struct Remaining {
    steps: Option<Steps>,
}

#[derive(Debug, Clone, Copy)]
struct Steps {
    begun: Instant,
    left: usize,
    finished: usize,
    estimated: Duration,
    /// The end of the last finished step.
    last: Instant,
}

impl Remaining {
    fn new(now: Instant, left: usize, estimate: Duration) -> Self {
        let estimated = estimate.div_f64(left.max(1) as f64);
        Self { steps: Some(Steps { begun: now, left, finished: 0, estimated, last: now }) }
    }

    fn finish_one(&mut self, now: Instant) {
        if let Some(steps) = &mut self.steps {
            (steps.left, steps.finished) = (steps.left.saturating_sub(1), steps.finished + 1);
            steps.last = now;
        }
    }

    /// Returns the remaining time; `None` without steps. The estimate counts as one measured step,
    /// so that each finished step lowers the estimate's weight.
    fn left(&self, now: Instant) -> Option<Duration> {
        let steps = self.steps.as_ref().filter(|steps| steps.left > 0)?;
        let measured = steps.last.saturating_duration_since(steps.begun);
        let each = (measured + steps.estimated).div_f64(steps.finished as f64 + 1.0);
        let current = now.saturating_duration_since(steps.last);
        Some(each.mul_f64(steps.left as f64).saturating_sub(current))
    }

    fn words(&self, now: Instant) -> String {
        match self.left(now) {
            None => "finishing".to_owned(),
            // The current step already takes longer than the previous steps.
            Some(left) if left < Duration::from_secs(1) => "a moment left".to_owned(),
            Some(left) => format!("{} left", shown::seconds(left.as_secs_f64().round())),
        }
    }
}

/// Returns a note on a turn that was repeated, or that took much longer than estimated.
fn delay(outcome: &Outcome, took: Duration, estimate: Duration) -> Option<String> {
    let place = place(&outcome.system, &outcome.axes);
    if let Verdict::Measured(measured) = &outcome.verdict
        && let Some(flaw) = measured.retried.first()
    {
        let reason = foreign(&flaw.to_string()).up_to(LONGEST_REASON).to_string();
        return Some(format!("{place}: measured again: {reason}"));
    }
    let seconds = |time: Duration| shown::seconds(time.as_secs_f64().ceil());
    (took > estimate * MANY_TIMES + LEAST_DELAY).then(|| {
        let (took, estimate) = (seconds(took), seconds(estimate));
        format!("{place}: the turn took {took}, the estimate was {estimate}")
    })
}

/// Formats a cell as `tcp-cubic at loss 1%`.
fn place(system: &str, axes: &Axes) -> String {
    let at: Vec<String> = axes.iter().map(|(axis, value)| format!("{axis} {value}")).collect();
    if at.is_empty() { system.to_owned() } else { format!("{system} at {}", at.join(", ")) }
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

const LONGEST_REASON: usize = 1024;
const MANY_TIMES: u32 = 3;
const LEAST_DELAY: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use lab::{Flaw, Measurement};

    #[test]
    fn the_remaining_time_follows_the_measured_steps() {
        let begun = Instant::now();
        let at = |seconds: u64| begun + Duration::from_secs(seconds);
        let mut remaining = Remaining::new(begun, 10, Duration::from_secs(20));
        assert_eq!(remaining.words(at(0)), "20 s left");
        assert_eq!(remaining.words(at(1)), "19 s left");
        // Steps take three times the estimated time.
        for step in 1..=5 {
            remaining.finish_one(at(6 * step));
        }
        assert_eq!(remaining.left(at(30)).unwrap().as_secs(), 26);
        // The last step is late: the estimate leaves no time, but the step is not over.
        for step in 6..=9 {
            remaining.finish_one(at(6 * step));
        }
        assert_eq!(remaining.words(at(70)), "a moment left");
        remaining.finish_one(at(71));
        assert_eq!(remaining.words(at(72)), "finishing");
        assert_eq!(Remaining::default().words(begun), "finishing");
    }

    #[test]
    fn a_note_names_a_turn_that_far_exceeded_its_estimate_and_the_known_reason() {
        let axes = Axes::from([("loss".to_owned(), "1%".to_owned())]);
        let outcome =
            |verdict| Outcome { system: "cubic".to_owned(), axes: axes.clone(), block: 0, verdict };
        let note = |verdict, took| {
            delay(&outcome(verdict), Duration::from_secs(took), Duration::from_secs(5))
        };
        let failed = || Verdict::Failed("no answer".to_owned());
        assert_eq!(note(failed(), 20), None);
        let expected = "cubic at loss 1%: the turn took 31 s, the estimate was 5.00 s";
        assert_eq!(note(failed(), 31).unwrap(), expected);
        let flaw = Flaw { what: "the link was late".to_owned(), detail: "310 µs".to_owned() };
        let measured = Measurement { retried: vec![flaw], ..Measurement::default() };
        let expected = "cubic at loss 1%: measured again: the link was late: 310 µs";
        assert_eq!(note(Verdict::Measured(Box::new(measured)), 12).unwrap(), expected);
    }
}
