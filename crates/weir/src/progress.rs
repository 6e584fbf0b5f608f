use crate::output;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lab::{Outcome, Plan, PlannedCell, Progress, Verdict};
use std::io::IsTerminal;
use std::time::Duration;
use units::foreign;

/// A line on the terminal with the time left; nothing if there is no terminal.
#[derive(Debug)]
pub(crate) struct Bar(ProgressBar);

impl Bar {
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::hidden();
        if std::io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        if let Ok(style) =
            ProgressStyle::with_template("{bar:24} {pos}/{len} cells, {eta} left  {msg}")
        {
            bar.set_style(style);
        }
        Self(bar)
    }

    pub(crate) fn finish(&self) {
        self.0.finish_and_clear();
    }
}

impl Progress for Bar {
    fn plan(&mut self, plan: &Plan, finished: usize, estimate: Duration) {
        self.0.set_length(plan.steps.len() as u64);
        self.0.set_position(finished as u64);
        self.0.reset_eta();
        self.0.enable_steady_tick(Duration::from_millis(500));
        let cells = counted(plan.cells.len(), "cell");
        let times = match plan.repeats {
            1 => "once".to_owned(),
            count => format!("{count} times"),
        };
        let estimate = report::number::duration(estimate.as_secs_f64());
        self.note(&format!("{cells}, each {times}: about {estimate}"));
    }

    fn step(&mut self, _number: usize, cell: &PlannedCell) {
        let at: Vec<String> =
            cell.axes.iter().map(|(axis, value)| format!("{axis} {value}")).collect();
        self.0.set_message(format!("{} at {}", cell.system, at.join(", ")));
    }

    fn done(&mut self, _number: usize, outcome: &Outcome) {
        self.0.inc(1);
        if let Verdict::Failed(reason) = &outcome.verdict {
            // A program's reason may contain text from outside.
            let reason = foreign(reason).up_to(LONGEST_REASON);
            self.note(&format!("{} failed: {reason}", outcome.system));
        }
    }

    fn note(&mut self, text: &str) {
        if self.0.is_hidden() {
            output::note(text);
        } else {
            self.0.println(text);
        }
    }
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

const LONGEST_REASON: usize = 1024;
