//! Convergence times: how soon flows reach their fair rates.

use super::scene::Scene;
use super::world::Ended;
use sim::{FlowPoint, Trace};
use units::{Span, Time};

/// Returns the convergence time of the newest flow in round trips. The convergence time runs from
/// the flow's start until its goodput first reaches 90 % of `fair` (Mbit/s). If the goodput never
/// reaches this value, returns all the remaining time.
pub(super) fn from_the_start(scene: &Scene, ended: &Ended, fair: f64) -> Option<f64> {
    let newest = ended.tested.end.checked_sub(1)?;
    let points = ended.outcome.flows[newest].trace.as_ref()?.points();
    let curve: Vec<(Time, f64)> = points.iter().map(received).collect();
    let round_trip = ended.way_of(newest).round_trip;
    let (from, until) = (ended.begun[newest], first_step(scene).unwrap_or(scene.until()));
    let enough = |rate: f64| rate >= (1.0 - BAND) * fair;
    Some(first(&curve, from, until, round_trip, enough).div(round_trip))
}

/// Returns the convergence time in round trips. The convergence time runs from the last flow's
/// start until the flows under test first share the link fairly over a few round trips. If the
/// flows never share the link fairly, returns all the remaining time.
pub(super) fn to_fairness(scene: &Scene, ended: &Ended) -> Option<f64> {
    let curves: Option<Vec<&[FlowPoint]>> =
        ended.own().iter().map(|flow| Some(flow.trace.as_ref()?.points())).collect();
    let curves = curves.filter(|curves| curves.len() > 1)?;
    let from = *ended.begun[ended.tested.clone()].iter().max()?;
    let until = first_step(scene).unwrap_or(scene.until());
    // Curves whose points are further apart than a round trip cannot show shorter times.
    let step = scene.round_trip().max(ended.spacing);
    let window = step * ROUND_TRIPS_OF_FAIRNESS;
    let mut passed = vec![(0, 0); curves.len()];
    let mut at = from + window;
    while at <= until {
        let rates = curves.iter().zip(&mut passed).map(|(points, (begin, end))| {
            let by = |index: &mut usize, time: Time| {
                *index += points[*index..].partition_point(|point| point.at <= time);
                index.checked_sub(1).map_or(0, |last| points[last].received.count())
            };
            (by(end, at) - by(begin, at - window)) as f64
        });
        if sim::jain(&rates.collect::<Vec<_>>()) >= FAIR {
            break;
        }
        at += step;
    }
    Some(at.min(until).since(from).div(scene.round_trip()))
}

/// Returns the convergence time after a rate change in round trips. The convergence time runs until
/// the goodput of all flows is within a tenth of the goodput that the new rate allows. With several
/// changes, returns the longest time.
pub(super) fn after_steps(scene: &Scene, ended: &Ended) -> Option<f64> {
    let steps = &scene.there.steps;
    let curve = of_all(ended)?;
    let round_trip = scene.round_trip();
    steps
        .iter()
        .enumerate()
        .map(|(number, (after, rate))| {
            let from = scene.measured_from() + *after;
            let next = steps.get(number + 1).map(|(next, _)| scene.measured_from() + *next);
            let (until, ideal) = (next.unwrap_or(scene.until()), scene.ideal_of(*rate));
            let near = |rate: f64| (rate - ideal).abs() <= BAND * ideal;
            first(&curve, from, until, round_trip, near).div(round_trip)
        })
        .max_by(f64::total_cmp)
}

/// Returns the time from `from` until the rate over the last round trips, in Mbit/s, is `good`.
fn first(
    curve: &[(Time, f64)],
    from: Time,
    until: Time,
    round_trip: Span,
    good: impl Fn(f64) -> bool,
) -> Span {
    let window = round_trip * ROUND_TRIPS;
    let mut behind = 0;
    for (at, bytes) in curve.iter().take_while(|(at, _)| *at <= until) {
        // The window excludes the time before `from`.
        while curve[behind].0 + window < *at || curve[behind].0 < from && curve[behind].0 < *at {
            behind += 1;
        }
        let (since, before) = curve[behind];
        let lasted = at.since(since);
        // Accept a window shorter by a round trip, because points are up to half a round trip
        // apart.
        if *at >= from && lasted + round_trip >= window {
            let mbit = (bytes - before) * 8.0 / lasted.secs_f64() / 1e6;
            if lasted > Span::ZERO && good(mbit) {
                return at.since(from);
            }
        }
    }
    until.since(from)
}

/// Returns the sum of the bytes that all TCP flows have received by each time of the longest curve.
fn of_all(ended: &Ended) -> Option<Vec<(Time, f64)>> {
    let flows = &ended.outcome.flows[..ended.tested.end];
    let curves: Vec<&Trace<FlowPoint>> = flows.iter().filter_map(|f| f.trace.as_ref()).collect();
    let longest = curves.iter().max_by_key(|curve| curve.points().len())?;
    let by = |curve: &Trace<FlowPoint>, at: Time| {
        let points = curve.points();
        let passed = points.partition_point(|point| point.at <= at);
        passed.checked_sub(1).map_or(0.0, |last| points[last].received.count() as f64)
    };
    let times = longest.points().iter().map(|point| point.at);
    Some(times.map(|at| (at, curves.iter().map(|curve| by(curve, at)).sum())).collect())
}

fn first_step(scene: &Scene) -> Option<Time> {
    scene.there.steps.first().map(|(after, _)| scene.measured_from() + *after)
}

fn received(point: &FlowPoint) -> (Time, f64) {
    (point.at, point.received.count() as f64)
}

trait InRoundTrips {
    fn div(self, round_trip: Span) -> f64;
}

impl InRoundTrips for Span {
    fn div(self, round_trip: Span) -> f64 {
        self.secs_f64() / round_trip.secs_f64().max(SHORTEST)
    }
}

const ROUND_TRIPS_OF_FAIRNESS: u64 = 10;
/// Minimum value of Jain's index for fair shares.
const FAIR: f64 = 0.98;
/// The goodput is averaged over this many round trips.
const ROUND_TRIPS: u64 = 4;
const BAND: f64 = 0.1;
const SHORTEST: f64 = 1e-6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn convergence_is_timed_from_a_rate_change() {
        // 1 Mbit/s for one second, then 2 Mbit/s, with a point every 10 ms.
        let mut bytes = 0.0;
        let curve: Vec<(Time, f64)> = (0..200)
            .map(|n| {
                let point = (Time::from_nanos(n * 10_000_000), bytes);
                bytes += if n < 100 { 1250.0 } else { 2500.0 };
                point
            })
            .collect();
        let (rtt, until) = (Span::from_millis(20), Time::from_nanos(2_000_000_000));
        let from = |from| first(&curve, Time::ZERO + from, until, rtt, |rate| rate > 1.9);
        let seconds = from(Span::ZERO).secs_f64();
        assert!((1.05..=1.08).contains(&seconds), "{seconds}");
        // From the change on, the rate converges within the averaging window.
        let seconds = from(Span::from_secs(1)).secs_f64();
        assert!((0.06..=0.08).contains(&seconds), "{seconds}");
        let never = first(&curve, Time::ZERO, until, rtt, |rate| rate > 3.0);
        assert_eq!(never, Span::from_secs(2));
    }
}
