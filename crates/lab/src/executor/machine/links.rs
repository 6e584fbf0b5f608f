//! Statistics of a cell's emulated links.

use super::validity::LatenessBound;
use crate::file::Ends;
use crate::run::{Flaw, Measurement};

use emu::{EmulatorStatistics, TracePoint};
use results::{Axes, Line, Series, Shape};
use units::Time;

/// Judges whether the emulation kept its bounds.
pub(crate) fn account(seen: &EmulatorStatistics, bound: &LatenessBound, result: &mut Measurement) {
    let (late, worst) = (seen.lateness.quantile(0.99), seen.lateness.max());
    let mean = seen.lateness.mean();
    result.record("lateness_us.mean", Some(mean.micros_f64()));
    result.record("lateness_us.p50", Some(seen.lateness.quantile(0.5).micros_f64()));
    result.record("lateness_us.p99", Some(late.micros_f64()));
    result.record("lateness_us.max", Some(worst.micros_f64()));
    result.record("lateness_rtt_percent.mean", bound.percent(mean));
    result.record("lateness_rtt_percent.p99", bound.percent(late));
    result.record("lateness_rtt_percent.max", bound.percent(worst));
    result.invalid.extend(bound.exceeded(seen));
    let busy = seen.worked.secs_f64() / seen.running.secs_f64().max(1e-9) * 100.0;
    result.record("emulator_busy_percent", Some(busy));
    for cable in &seen.cables {
        let lost = cable.forward.lost_outside_model + cable.backward.lost_outside_model;
        if lost > 0 {
            result.invalid.push(Flaw {
                what: "the emulator's ports lost frames that the model did not drop".to_owned(),
                detail: format!("{lost} on {}", cable.name),
            });
        }
    }
}

/// Records the queue in front of the bottleneck, on the sender's side.
pub(crate) fn account_queue(
    ends: &Ends,
    system: &str,
    axes: &Axes,
    window: &std::ops::Range<Time>,
    started: Time,
    seen: &EmulatorStatistics,
    result: &mut Measurement,
) {
    let points = queue(seen, &ends.from, &ends.to);
    if points.is_empty() {
        return;
    }
    let inside: Vec<f64> = points
        .iter()
        .filter(|point| window.contains(&(started + point.at)))
        .map(kilobytes)
        .collect();
    result.record_quantiles("queue_kbyte", &inside, &["p50", "p95", "p99", "max"]);
    let mean = inside.iter().sum::<f64>() / inside.len().max(1) as f64;
    result.record("queue_kbyte.mean", Some(mean).filter(|_| !inside.is_empty()));
    result.series.push(Series {
        name: "queue".to_owned(),
        system: system.to_owned(),
        axes: Axes::clone(axes),
        repeat: 0,
        block: 0,
        valid: true,
        shape: Shape::Lines,
        time_s: points.iter().map(|point| point.at.secs_f64()).collect(),
        lines: vec![Line {
            name: "waiting".to_owned(),
            unit: "kB".to_owned(),
            values: points.iter().map(|point| Some(kilobytes(point))).collect(),
        }],
    });
}

/// The queue in front of the link from one host to its neighbour over time.
pub(crate) fn queue<'a>(seen: &'a EmulatorStatistics, from: &str, to: &str) -> &'a [TracePoint] {
    let way = seen.cables.iter().find_map(|cable| match &cable.name {
        name if *name == format!("{from}-{to}") => Some(&cable.forward),
        name if *name == format!("{to}-{from}") => Some(&cable.backward),
        _ => None,
    });
    way.and_then(|way| way.trace.as_ref()).map_or(&[], emu::QueueTrace::points)
}

fn kilobytes(point: &TracePoint) -> f64 {
    point.queue.count() as f64 / 1000.0
}
