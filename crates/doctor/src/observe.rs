//! Signals of this machine, read several times: nothing is sent and nothing is changed.

mod connections;
mod counters;
mod facts;
mod focus;
mod observer;
mod pace;
mod processes;
mod sockets;

pub use focus::Focus;
pub use observer::{Observer, Plan};

use crate::DoctorError;
use crate::recording::{Machine, Recording};
use probe::tree::Tree;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use units::Span;

/// Observes this machine for the plan's time. `stop` ends it early; the samples until then count.
pub fn machine(plan: &Plan, stop: &AtomicBool) -> Result<Recording, DoctorError> {
    let mut recording = Recording::new(Machine::default());
    recording.focus = (plan.focus != Focus::All).then(|| plan.focus.to_string());
    let mut observer = Observer::begin(Tree::here(), plan.clone());
    let end = Instant::now() + plan.time.as_duration();
    while Instant::now() < end && !stop.load(Ordering::Relaxed) {
        let left = end.saturating_duration_since(Instant::now());
        std::thread::sleep(left.min(observer.pause().as_duration()).max(Duration::from_millis(1)));
        observer.sample();
    }
    observer.finish("this machine", &mut recording);
    let is_empty = |recording: &Recording| {
        let mut samples = recording.periods.iter().flat_map(|period| &period.samples);
        samples.all(|sample| sample.connections.is_empty())
    };
    match &recording.focus {
        Some(focus) if is_empty(&recording) => Err(DoctorError::NoFlow(focus.clone())),
        _ => Ok(recording),
    }
}

/// The CPU time that the calling thread has used so far, for [`Plan::spent`].
pub fn own_cpu_time() -> Span {
    probe::clock::own_thread_cpu_time()
}

/// The CPUs that this machine uses; none if they cannot be seen.
pub fn cpus() -> Vec<usize> {
    facts::cores(&Tree::here()).unwrap_or_default()
}

/// Long enough for a rate, short enough to wait for.
pub const TIME: Span = Span::from_millis(3_000);
pub const INTERVAL: Span = Span::from_millis(250);
