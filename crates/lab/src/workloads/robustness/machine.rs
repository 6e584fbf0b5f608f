//! Measures one step: runs the traffic, sends the frames beside the traffic, and looks for signs of
//! harm.

use super::kernel_log::KernelLog;
use super::scene::Scene;
use super::settings::{Case, Load};
use super::storm::{self, Counts};
use crate::bench::machine::{MachineStep, Measured, Testbed};
use crate::model::Failure;
use crate::workloads::bulk;
use crate::workloads::bulk::Route;
use generator::malformed::Kind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Tells the sender of the frames that the traffic has ended, also if the measurement panicked.
struct EndOfTraffic<'a>(&'a AtomicBool);

impl Drop for EndOfTraffic<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

pub(super) fn measure(
    case: &Case,
    step: &MachineStep<'_>,
    testbed: &Testbed,
) -> Result<Measured, Failure> {
    let name = step.system.name();
    let load = Load::of(name);
    let load = load.ok_or_else(|| Failure::Workload(format!("no load `{name}`")))?;
    let mut log = KernelLog::open();
    let mut scene = Scene::build(case, step, testbed)?;
    let (over, counts) = (AtomicBool::new(false), Counts::default());
    let begun = Instant::now();
    let system = scene.system.as_ref().unwrap_or(step.system);
    let inner = MachineStep { system, ..*step };
    let route = Route { to: scene.traffic_to, rate: Some(case.rate) };
    let measured = std::thread::scope(|scope| {
        let pace = (case.frames_s, step.seed);
        let entries = &scene.entries;
        let (over, counts) = (&over, &counts);
        let sending = scope.spawn(move || storm::blow(entries, load, pace, over, counts));
        let end = EndOfTraffic(over);
        let measured = bulk::measure_over(&inner, testbed, route);
        drop(end);
        let sent = sending.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        measured.and_then(|measured| sent.map(|()| measured))
    });
    if matches!(measured, Err(Failure::Interrupted)) {
        return measured;
    }
    let elapsed = begun.elapsed().as_secs_f64();
    let after = format!("after {} frames of seed {}", counts.sent(), step.seed);
    // Report the exit of a program first, because the exit causes all other failures.
    if let Some(failure) = scene.harm() {
        return Err(Failure::Workload(format!("{failure} ({after})")));
    }
    let complaints = log.as_mut().map(KernelLog::complaints).unwrap_or_default();
    if let Some(first) = complaints.first() {
        let more = match complaints.len() {
            1 => String::new(),
            count => format!(" and {} more lines", count - 1),
        };
        return Err(Failure::Workload(format!("the kernel logged: {first}{more} ({after})")));
    }
    let mut measured = measured.map_err(|failure| match load {
        Load::Quiet => failure,
        _ => Failure::Workload(format!("{failure} ({after})")),
    })?;
    let result = &mut measured.result;
    if log.is_none() {
        let text = "the kernel's log could not be read, and its warnings are unknown: run as root";
        result.warnings.push(text.to_owned());
    }
    if load != Load::Quiet {
        result.record("frames", Some(counts.sent() as f64));
        result.record("frames_s", Some(counts.sent() as f64 / elapsed));
        result.record("frames_refused", Some(counts.refused() as f64));
    }
    if load == Load::Malformed {
        for kind in Kind::ALL {
            result.record(&format!("frames.{}", kind.name()), Some(counts.of(kind) as f64));
        }
    }
    Ok(measured)
}
