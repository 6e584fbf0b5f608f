//! The path memory of flows under test, and the cost of a wrong memory.

use super::scene::Scene;
use super::world::Ended;
use crate::bench::Job;
use crate::bench::simulator::carrier::Carrier;
use crate::model::{Failure, Measurement};
use crate::workloads::flows::demand::Demand;
use crate::workloads::flows::settings::FlowsSettings;
use cc::Memory;
use units::Rate;

/// Returns the memory of a flow that had just used the path alone, with its rate scaled by the
/// cell's factor. `None` if the cell sets no memory or the algorithm keeps no memory.
pub(super) fn of(
    scene: &Scene,
    carrier: Carrier,
    job: &Job<'_>,
) -> Result<Option<Memory>, Failure> {
    let Some(factor) = scene.flows.memory else { return Ok(None) };
    // A tunnel keeps no path memory.
    let Carrier::Tcp(_) = carrier else { return Ok(None) };
    let flows = FlowsSettings {
        own: 1,
        beside: None,
        size: None,
        arrivals: None,
        demand: Demand::Bulk,
        ..scene.flows.clone()
    };
    let before = Scene { flows, traced: false, ..scene.clone() };
    let noted = before.play(carrier, None, job)?.own()[0].noted;
    Ok(noted.map(|noted| {
        let rate = noted.rate.bits_per_second() as f64 * factor;
        Memory { rate: Rate::from_bits_per_second(rate as u64), ..noted }
    }))
}

/// Records the queue that a wrong memory adds during the opening, in round trips: the difference to
/// a world without memory.
pub(super) fn record(
    scene: &Scene,
    ended: &Ended,
    carrier: Carrier,
    job: &Job<'_>,
    result: &mut Measurement,
) -> Result<(), Failure> {
    let without = Scene { traced: false, first_data: None, ..scene.clone() };
    let without = without.play(carrier, None, job)?;
    let peak = |ended: &Ended| {
        let peak = ended.outcome.opening_peak(ended.network.bottlenecks[0])?;
        Some(scene.rate()?.time_for(peak).secs_f64() / scene.round_trip().secs_f64())
    };
    let more = peak(ended).zip(peak(&without)).map(|(with, without)| with - without);
    result.record("memory_queue_rtts", more.filter(|more| more.is_finite()));
    Ok(())
}
