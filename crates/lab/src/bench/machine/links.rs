//! Statistics of a cell's emulated links.

use super::validity::LatenessBound;
use crate::model::file::Ends;
use crate::model::{Flaw, Measurement};

use emu::{CableStatistics, DirectionStatistics, EmulatorStatistics, TracePoint};
use link::Capacity;
use results::{Axes, Line, Series, Shape};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use units::{Span, Time};

/// The figures of emulated links by which a turn is judged.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Emulation {
    pub(crate) running: Span,
    pub(crate) worked: Span,
    /// Mean and quantiles of the frames' lateness.
    pub(crate) mean: Span,
    pub(crate) p50: Span,
    pub(crate) p99: Span,
    pub(crate) max: Span,
    pub(crate) cables: Vec<Carried>,
}

/// Frame counts of one emulated link.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Carried {
    pub(crate) name: String,
    /// Number of frames that arrived at the link, by direction.
    pub(crate) arrived: [u64; 2],
    /// Number of frames that the emulator's ports lost.
    pub(crate) lost: u64,
}

impl Emulation {
    pub(crate) fn of(seen: &EmulatorStatistics) -> Self {
        let carried = |cable: &CableStatistics| {
            let (forward, backward) = (&cable.forward, &cable.backward);
            Carried {
                name: cable.name.clone(),
                arrived: [forward.arrived.frames, backward.arrived.frames],
                lost: forward.lost_outside_model.saturating_add(backward.lost_outside_model),
            }
        };
        Self {
            running: seen.running,
            worked: seen.worked,
            mean: seen.lateness.mean(),
            p50: seen.lateness.quantile(0.5),
            p99: seen.lateness.quantile(0.99),
            max: seen.lateness.max(),
            cables: seen.cables.iter().map(carried).collect(),
        }
    }

    /// Replaces the links' names: another machine may have sent any name, and any number of links.
    pub(crate) fn named(mut self, names: impl Iterator<Item = String>) -> Self {
        let mut cables = std::mem::take(&mut self.cables).into_iter();
        let own = |name| Carried { name, ..cables.next().unwrap_or_default() };
        self.cables = names.map(own).collect();
        self
    }
}

/// Judges whether the emulation kept its bounds.
pub(crate) fn account(seen: &Emulation, bound: &LatenessBound, result: &mut Measurement) {
    let Emulation { mean, p99: late, max: worst, .. } = *seen;
    result.record("lateness_us.mean", Some(mean.micros_f64()));
    result.record("lateness_us.p50", Some(seen.p50.micros_f64()));
    result.record("lateness_us.p99", Some(late.micros_f64()));
    result.record("lateness_us.max", Some(worst.micros_f64()));
    result.record("lateness_rtt_percent.mean", bound.percent(mean));
    result.record("lateness_rtt_percent.p99", bound.percent(late));
    result.record("lateness_rtt_percent.max", bound.percent(worst));
    result.invalid.extend(bound.exceeded(seen));
    let busy = seen.worked.secs_f64() / seen.running.secs_f64().max(1e-9) * 100.0;
    result.record("emulator_busy_percent", Some(busy));
    for cable in &seen.cables {
        let lost = cable.lost;
        if lost > 0 {
            result.invalid.push(Flaw {
                what: "the emulator's ports lost frames that the model did not drop".to_owned(),
                detail: format!("{lost} on {}", cable.name),
            });
        }
    }
}

/// Records the statistics of the bottleneck's queue in the sending direction.
pub(crate) fn account_queue(
    ends: &Ends,
    system: &str,
    axes: &Axes,
    window: &Range<Time>,
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

/// Records the use of an incast's port and of the access links, and the port's drops. `rates`: the
/// rate of the port, and of one access link. The use of the access links is the sum of their rates,
/// divided by the rate of one link.
pub(crate) fn account_port(
    cable: &CableStatistics,
    window: &Range<Time>,
    started: Time,
    rates: [&Capacity; 2],
    result: &mut Measurement,
) {
    let inside = |way: &DirectionStatistics| {
        let points = way.trace.as_ref().map_or(&[][..], emu::QueueTrace::points);
        let mut inside = points.iter().filter(|point| window.contains(&(started + point.at)));
        let first = *inside.next()?;
        let last = *inside.next_back()?;
        (last.at > first.at).then_some((first, last))
    };
    let carried = |(first, last): (TracePoint, TracePoint)| {
        let bits = (last.delivered.count() - first.delivered.count()) as f64 * 8.0;
        bits / (last.at - first.at).secs_f64()
    };
    let rate = |capacity: &Capacity| {
        let rate = capacity.mean_rate()?.bits_per_second();
        (rate > 0).then_some(rate as f64)
    };
    let port = inside(&cable.forward);
    let used = port.map(carried).zip(rate(rates[0])).map(|(carried, rate)| carried / rate);
    result.record("port_use", used);
    let dropped = port.map(|(first, last)| (last.dropped - first.dropped) as f64);
    result.record("drops", dropped);
    let entered: Option<f64> = cable.access.iter().map(|way| inside(way).map(carried)).sum();
    let used = entered.zip(rate(rates[1])).map(|(entered, rate)| entered / rate);
    result.record("ingress_use", used);
}

/// Returns the statistics of the link between two hosts.
pub(crate) fn cable<'a>(
    seen: &'a EmulatorStatistics,
    from: &str,
    to: &str,
) -> Option<&'a CableStatistics> {
    let names = [format!("{from}-{to}"), format!("{to}-{from}")];
    seen.cables.iter().find(|cable| names.contains(&cable.name))
}

/// Returns the length of the queue in front of the link from one host to its neighbour, over time.
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
