//! Curves over time: windows, rates, round-trip times and the queue.

use super::metrics::seconds;
use super::world::Ended;
use crate::bench::Job;
use results::{Line, Series, Shape};
use sim::{FlowPoint, Trace};
use units::Time;

/// Draws only a few flows, because many curves would be unreadable.
pub(super) fn of(job: &Job<'_>, ended: &Ended) -> Vec<Series> {
    let series = |name: &str, time_s: Vec<f64>, lines: Vec<Line>| Series {
        name: name.to_owned(),
        system: job.cell.system.clone(),
        axes: job.cell.axes.clone(),
        repeat: 0,
        block: 0,
        valid: true,
        shape: Shape::Lines,
        time_s,
        lines,
    };
    let mut curves = Vec::new();
    let queue = ended.worst_queue().and_then(|link| link.trace.as_ref());
    if let Some(queue) = queue {
        let points = thinned(ended, queue.points(), |point| point.at);
        let values = points.iter().map(|p| Some(p.queued.count() as f64 / 1000.0)).collect();
        let times = points.iter().map(|p| seconds(p.at)).collect();
        curves.push(series("queue", times, vec![line("waiting", "kB", values)]));
    }
    // Put the flows under test first, because a chart with many flows shows only the first flows.
    let flows = ended.tested.clone().chain(0..ended.tested.start);
    let traces: Vec<(String, Vec<FlowPoint>)> = flows
        .filter_map(|number| {
            let name = match number.checked_sub(ended.tested.start) {
                Some(own) => format!("flow {}", own + 1),
                None => format!("beside {}", number + 1),
            };
            let trace: &Trace<FlowPoint> = ended.outcome.flows[number].trace.as_ref()?;
            Some((name, thinned(ended, trace.points(), |point| point.at)))
        })
        .take(MOST_LINES)
        .collect();
    // Flows begin at different times, so a common time axis has gaps.
    let mut times: Vec<u64> =
        traces.iter().flat_map(|(_, points)| points.iter().map(|p| p.at.nanos())).collect();
    times.sort_unstable();
    times.dedup();
    if times.is_empty() {
        return curves;
    }
    let along = |unit: &str, value: fn(Option<&FlowPoint>, &FlowPoint) -> Option<f64>| {
        let values = |points: &[FlowPoint]| {
            let mut next = 0;
            times
                .iter()
                .map(|at| {
                    let point = points.get(next).filter(|point| point.at.nanos() == *at)?;
                    next += 1;
                    value(next.checked_sub(2).map(|before| &points[before]), point)
                })
                .collect()
        };
        traces.iter().map(|(name, points)| line(name, unit, values(points))).collect::<Vec<_>>()
    };
    let time_s: Vec<f64> = times.iter().map(|at| *at as f64 / 1e9).collect();
    let kilobytes = along("kB", |_, point| Some(point.window.count() as f64 / 1000.0));
    curves.push(series("window", time_s.clone(), kilobytes));
    let rtt = along("ms", |_, point| Some(point.rtt?.millis_f64()));
    curves.push(series("rtt", time_s.clone(), rtt));
    let goodput = along("Mbit/s", |before, point| {
        let before = before?;
        let bits = (point.received - before.received).count() as f64 * 8.0;
        Some(bits / point.at.since(before.at).secs_f64() / 1e6)
    });
    curves.push(series("goodput", time_s.clone(), goodput));
    let pacing = along("Mbit/s", |_, point| Some(point.rate?.mbit_per_second()));
    if pacing.iter().flat_map(|line| &line.values).any(Option::is_some) {
        curves.push(series("pacing rate", time_s, pacing));
    }
    curves
}

fn line(name: &str, unit: &str, values: Vec<Option<f64>>) -> Line {
    Line { name: name.to_owned(), unit: unit.to_owned(), values }
}

/// Thins out a curve to as many points as a chart shows, at the same times for every flow.
fn thinned<P: Copy>(ended: &Ended, points: &[P], at: fn(&P) -> Time) -> Vec<P> {
    let number = |time: Time| time.nanos() / ended.spacing.nanos().max(1);
    let stride = number(ended.outcome.at).div_ceil(MOST_POINTS).max(1);
    points.iter().copied().filter(|point| number(at(point)).is_multiple_of(stride)).collect()
}

const MOST_LINES: usize = 6;
const MOST_POINTS: u64 = 500;
