//! Runs a bench's steps, one after the other or in parallel.

use crate::bench::{Bench, Job};
use crate::model::{LabError, Outcome, Verdict};
use crate::runs::Progress;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// Measures every job, and passes each outcome to `keep` at once. Returns `false` after an
/// interruption, which loses only the outcomes of the current steps.
pub(crate) fn measure(
    bench: &dyn Bench,
    jobs: &[Job<'_>],
    progress: &mut dyn Progress,
    keep: &mut dyn FnMut(Outcome) -> Result<(), LabError>,
) -> Result<bool, LabError> {
    if bench.threads() < 2 {
        // Measure on this thread, because namespaces belong to threads.
        for (number, job) in jobs.iter().enumerate() {
            progress.step(number, job.cell, estimate(bench, job));
            let Some(verdict) = bench.measure(job)? else { return Ok(false) };
            let outcome = outcome(job, verdict);
            progress.done(number, &outcome);
            keep(outcome)?;
        }
        return Ok(true);
    }
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (sender, receiver) = channel();
    let work = |sender: Sender<News>| {
        while !stop.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(number) else { return };
            // Ignore the error: the receiver is gone only if the run has already failed.
            let _ = sender.send(News::Begun(number));
            let _ = sender.send(News::Ended(number, Box::new(bench.measure(job))));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..bench.threads().min(jobs.len()) {
            let sender = sender.clone();
            scope.spawn(|| work(sender));
        }
        drop(sender);
        let mut whole = true;
        for news in receiver {
            let (number, verdict) = match news {
                News::Begun(number) => {
                    let job = &jobs[number];
                    progress.step(number, job.cell, estimate(bench, job));
                    continue;
                }
                News::Ended(number, verdict) => (number, *verdict),
            };
            let kept = match verdict {
                Ok(Some(verdict)) => {
                    let outcome = outcome(&jobs[number], verdict);
                    progress.done(number, &outcome);
                    keep(outcome)
                }
                Ok(None) => {
                    whole = false;
                    Ok(())
                }
                Err(error) => Err(error),
            };
            if kept.is_err() || !whole {
                stop.store(true, Ordering::Relaxed);
            }
            kept?;
        }
        Ok(whole)
    })
}

fn estimate(bench: &dyn Bench, job: &Job<'_>) -> Duration {
    bench.estimate(job.plan, &[job.step])
}

enum News {
    Begun(usize),
    Ended(usize, Box<Result<Option<Verdict>, LabError>>),
}

fn outcome(job: &Job<'_>, verdict: Verdict) -> Outcome {
    Outcome {
        system: job.cell.system.clone(),
        axes: job.cell.axes.clone(),
        block: job.step.block,
        verdict,
    }
}
