//! The figures of a world.

use super::flows::{Ended, Scene, mean_goodput, part};
use crate::executor::Job;
use crate::outcome::Measurement;
use report::{Line, Series, Shape};
use sim::{FlowOutcome, Trace};
use units::Bytes;

pub(super) fn of(
    scene: &Scene,
    ended: &Ended,
    own: &[FlowOutcome],
    beside: &[FlowOutcome],
) -> Measurement {
    let mut result = Measurement::default();
    let mbit = |flows: &[FlowOutcome]| mean_goodput(flows) * flows.len() as f64;
    result.record("goodput_mbit_s", "Mbit/s", Some(mbit(own)));
    // What could arrive at an application: the rate without headers and without what the medium loses.
    let ideal = scene.there.rate.mean_rate().map(|rate| {
        rate.mbit_per_second() * scene.payload_share() * (1.0 - scene.there.loss.mean().fraction())
    });
    let ideal = ideal.filter(|ideal| *ideal > 0.0);
    let endless = scene.flows.size.is_none();
    if endless {
        let share = ideal.map(|ideal| (mbit(own) + mbit(beside)) / ideal);
        result.record("share_of_ideal", "", share);
    }
    let sum = |of: fn(&FlowOutcome) -> Bytes| own.iter().map(|f| of(f).count()).sum::<u64>() as f64;
    let (sent, again) = (sum(|flow| flow.sent), sum(|flow| flow.retransmitted));
    result.record("retransmit_percent", "%", (sent > 0.0).then(|| again / sent * 100.0));
    queue(scene, ended, &mut result);
    if own.len() > 1 && endless {
        let rates: Vec<f64> = own.iter().map(|flow| flow.goodput.mbit_per_second()).collect();
        result.record("jain", "", Some(sim::jain(&rates)));
    }
    if !beside.is_empty() && endless {
        let fair = ideal.map(|ideal| ideal / (own.len() + beside.len()) as f64);
        result.record("fair_share", "", fair.map(|fair| mean_goodput(own) / fair));
    }
    let times: Vec<f64> =
        own.iter().filter_map(|flow| Some(flow.completion?.millis_f64())).collect();
    result.record_quantiles("fct_ms", "ms", &times, &["p50", "p99"]);
    result
}

/// The bottleneck's queue and what it adds to the round trip.
fn queue(scene: &Scene, ended: &Ended, result: &mut Measurement) {
    let Some(link) = ended.outcome.link(ended.bottleneck) else { return };
    let kilobytes = |bytes: Bytes| bytes.count() as f64 / 1000.0;
    let quantile = |percent| link.occupancy.quantile(part(percent));
    for (name, percent) in [("p50", 50.0), ("p95", 95.0), ("p99", 99.0)] {
        let value = kilobytes(quantile(percent));
        result.record(&format!("queue_kbyte.{name}"), "kB", Some(value));
    }
    result.record("queue_kbyte.max", "kB", Some(kilobytes(link.occupancy.max())));
    let product = scene.there.rate.mean_rate().map(|rate| rate.bytes_in(scene.round_trip()));
    let product = product.map(|bytes| bytes.count() as f64).filter(|bytes| *bytes > 0.0);
    let share = product.map(|product| quantile(95.0).count() as f64 / product);
    result.record("queue_bdp.p95", "BDP", share);
    for (name, percent) in [("p50", 50.0), ("p99", 99.0)] {
        let micros = (scene.round_trip() + link.sojourns.quantile(part(percent))).micros_f64();
        result.record(&format!("rtt_us.{name}"), "µs", Some(micros));
    }
}

/// Windows, round-trip times and the queue along the time; of few flows only, or nothing can be seen.
pub(super) fn curves(job: &Job<'_>, ended: &Ended, others: usize) -> Vec<Series> {
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
    let line = |name: String, unit: &str, values: Vec<Option<f64>>| Line {
        name,
        unit: unit.to_owned(),
        values,
    };
    let mut curves = Vec::new();
    let queue = ended.outcome.link(ended.bottleneck).and_then(|link| link.trace.as_ref());
    if let Some(queue) = queue {
        let points = queue.points();
        let values = points.iter().map(|p| Some(p.queued.count() as f64 / 1000.0)).collect();
        let times = points.iter().map(|p| seconds(p.at)).collect();
        curves.push(series("queue", times, vec![line("waiting".to_owned(), "kB", values)]));
    }
    let flows = &ended.outcome.flows;
    let traces: Vec<(String, &Trace<sim::FlowPoint>)> = flows
        .iter()
        .enumerate()
        .filter_map(|(number, flow)| {
            let name = match number < others {
                true => format!("beside {}", number + 1),
                false => format!("flow {}", number - others + 1),
            };
            Some((name, flow.trace.as_ref()?))
        })
        .take(MOST_LINES)
        .collect();
    let Some((_, first)) = traces.first() else { return curves };
    let times: Vec<f64> = first.points().iter().map(|p| seconds(p.at)).collect();
    let along = |value: fn(&sim::FlowPoint) -> Option<f64>, unit: &str| -> Vec<Line> {
        traces
            .iter()
            .map(|(name, trace)| {
                let mut values: Vec<Option<f64>> = trace.points().iter().map(value).collect();
                values.resize(times.len(), None);
                line(name.clone(), unit, values)
            })
            .collect()
    };
    let window = along(|p| Some(p.window.count() as f64 / 1000.0), "kB");
    curves.push(series("window", times.clone(), window));
    let rtt = along(|p| Some(p.rtt?.millis_f64()), "ms");
    curves.push(series("rtt", times.clone(), rtt));
    curves
}

fn seconds(at: units::Time) -> f64 {
    at.nanos() as f64 / 1e9
}

const MOST_LINES: usize = 6;
