//! Measures a switch for one window: the time between two readings of the switch's counters.

use super::case::Case;
use super::contention::Threads;
use super::place::{Loaded, Place, pause};
use super::pushed;
use crate::bench::machine::{MachineStep, Measured, Roles, Watch};
use crate::model::{Failure, Measurement};
use crate::workloads::switches::Counts;
use probe::process::Resident;
use results::Form;
use std::ops::Range;
use std::time::{Duration, Instant};
use units::Time;

pub(super) fn measure(case: &Case, step: &MachineStep<'_>) -> Result<Measured, Failure> {
    let online = host::online_cpus().len();
    if let Some(reason) = case.not_run(online) {
        return Err(Failure::Workload(reason));
    }
    let mut place = Place::of(case, step)?;
    let measured = window(case, step, &mut place);
    // Keep the switch even after a failure, so that the next step need not load the rules again.
    step.kept.put(place);
    measured
}

fn window(case: &Case, step: &MachineStep<'_>, place: &mut Place) -> Result<Measured, Failure> {
    // The search runs once in a cell, because it takes half a minute. The search runs before the
    // windows: in a window the switch polls its port and leaves no CPU idle.
    if step.form == Form::Full && place.pushed.is_none() {
        place.pushed = Some(push(case, step, place)?);
    }
    let (mut result, taken) = pulled(step, place.switch(step)?)?;
    if let Some(pushed) = &mut place.pushed {
        result.warnings.extend(pushed.warnings.iter().cloned());
        // The lab discards the figures of an invalid window, so the figures of the pushed ports
        // wait for a valid window.
        if result.invalid.is_empty() {
            result.metrics.extend(std::mem::take(&mut pushed.metrics));
            result.missing.extend(std::mem::take(&mut pushed.missing));
        } else {
            result.missing.extend(pushed.missing.iter().cloned());
        }
    }
    Ok(Measured::between_ends(step, taken, result))
}

/// Measures the pushed ports, or records why there are no figures. The lab measures the capacity in
/// both cases.
fn push(case: &Case, step: &MachineStep<'_>, place: &Place) -> Result<Measurement, Failure> {
    let mut result = Measurement::default();
    match pushed::measure(case, step, place, &mut result) {
        Ok(()) => {}
        Err(Failure::Interrupted) => return Err(Failure::Interrupted),
        Err(failure) => result.miss(&pushed::METRICS, failure.to_string(), true),
    }
    Ok(result)
}

fn pulled(step: &MachineStep<'_>, loaded: &Loaded) -> Result<(Measurement, Range<Time>), Failure> {
    let mut result = Measurement::default();
    let switch = &loaded.switch;
    let roles = Roles { server: switch.pid().into_iter().collect(), ..Roles::default() };
    switch.clear_counts()?;
    let before = Watch::read(&roles)?;
    let threads = Threads::of(switch.pid());
    let (begun, first) = (Instant::now(), switch.counts()?);
    pause(step, step.duration.as_duration())?;
    let (last, elapsed) = (switch.counts()?, begun.elapsed());
    result.invalid.extend(threads.contended(&Threads::of(switch.pid()), elapsed));
    let after = Watch::read(&roles)?;
    // A packet thread fills its CPU by design.
    after.account_polling(&before, step.cpus, None, &mut result);
    account(&first, &last, elapsed, &mut result)?;
    describe(loaded, &mut result);
    Ok((result, before.taken()..after.taken()))
}

/// Records the figures of a window whose source has frames at any time: the switch takes frames as
/// fast as the switch can.
fn account(
    first: &Counts,
    last: &Counts,
    elapsed: Duration,
    result: &mut Measurement,
) -> Result<(), Failure> {
    let sent = last.sent.saturating_sub(first.sent);
    let received = last.received.saturating_sub(first.received);
    if sent == 0 {
        let reason = "the switch forwarded nothing in the window".to_owned();
        return Err(Failure::Workload(reason));
    }
    result.record("capacity_pps", Some(sent as f64 / elapsed.as_secs_f64()));
    let lost = received.saturating_sub(sent);
    // Up to this difference the frames were in flight between the two counters, and are not lost.
    result.record("drops", Some(if lost <= BETWEEN_COUNTERS { 0.0 } else { lost as f64 }));
    if last.cycles > 0.0 {
        result.record("cycles", Some(last.cycles));
    }
    for (stage, cycles) in &last.stages {
        result.record(&format!("cycles.{stage}"), Some(*cycles));
    }
    Ok(())
}

fn describe(loaded: &Loaded, result: &mut Measurement) {
    let switch = &loaded.switch;
    result.record("load_s", Some(switch.loading().as_secs_f64()));
    result.record("connections", loaded.connections.map(|count| count as f64));
    let resident = switch.pid().and_then(|pid| Resident::tree(pid).ok());
    result.record("memory_mib.server", resident.map(|memory| memory.now.count() as f64 / MIB));
    result.warnings.extend(switch.remark().map(str::to_owned));
    if loaded.is_restless {
        result.warnings.push(
            "the switch still sent flows to its slow path after the warm-up: its cache does not \
             hold them all"
                .to_owned(),
        );
    }
}

const BETWEEN_COUNTERS: u64 = 4096;
const MIB: f64 = 1024.0 * 1024.0;
