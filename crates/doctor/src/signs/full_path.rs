//! Signs about the rate, the round trip and the data in flight over time.

use crate::recording::Connection;
use crate::view::End;
use units::{Rate, Span};

/// Returns the rate of a full path: while the most data passes, further data in flight makes only
/// the round trip longer. The rate of a sender that its window limits follows the window, at the
/// same round trip. The sign needs no round trip of an empty path, which neither a short queue nor
/// a capture without a handshake shows. `None` if the sender leaves much of this rate unused.
pub(crate) fn full_rate(sender: &End<'_>) -> Option<Rate> {
    let mut points = points(sender);
    points.sort_by(|a, b| b.rate.total_cmp(&a.rate));
    // The median of the fastest third.
    let most = points.get(points.len() / 6)?.rate;
    let used = sender.acked()?.bits_per_second() as f64 / most.max(1.0);
    points.retain(|point| (point.rate - most).abs() <= most * ALIKE);
    if points.len() < FEWEST || points.len() * 3 < sender.all.len() || used < USED {
        return None;
    }
    points.sort_by(|a, b| a.flying.total_cmp(&b.flying));
    let (low, high) = points.split_at(points.len() / 2);
    let growth = |of: fn(&Point) -> f64| {
        let mean = |part: &[Point]| part.iter().map(of).sum::<f64>() / part.len() as f64;
        mean(high) / mean(low).max(f64::MIN_POSITIVE) - 1.0
    };
    let (flying, rtt) = (growth(|point| point.flying), growth(|point| point.rtt));
    let is_full = flying >= LEAST_GROWTH && rtt >= flying * FOLLOWS;
    is_full.then_some(Rate::from_bits_per_second(most as u64))
}

/// Whether the samples are too few for [`full_rate`]: a full path often looks like a path whose
/// rate follows the window.
pub(crate) fn has_few_samples(sender: &End<'_>) -> bool {
    points(sender).len() < ENOUGH
}

fn points(sender: &End<'_>) -> Vec<Point> {
    sender.values(|c| {
        let flying = c.tcp.unacked.filter(|flying| *flying >= FEWEST_FLYING)?;
        let rate = c.tcp.delivery_rate?.bits_per_second() as f64;
        Some(Point { flying: f64::from(flying), rate, rtt: c.tcp.rtt?.secs_f64() })
    })
}

/// Whether a queue makes the round trips longer than the shortest. Round trips that vary from
/// packet to packet, as on a radio link, have a mean above the shortest without any queue.
pub(crate) fn is_queue_steady(sender: &End<'_>) -> bool {
    let queue = sender.rtt().unwrap_or_default() - sender.tcp().min_rtt.unwrap_or_default();
    let varies = sender.median(|c| c.tcp.rttvar).unwrap_or_default();
    queue > varies * VARIES
}

/// Whether data arrives at one rate nearly all the time: losses that cut the sender's window would
/// lower the rate for a while.
pub(crate) fn arrives_steadily(receiver: &End<'_>) -> bool {
    let rate = |pair: &[(Span, &Connection)]| {
        let [(earlier, before), (later, now)] = pair else { return None };
        let bytes = now.tcp.bytes_received? - before.tcp.bytes_received?;
        Some(bytes.count() as f64 / (*later - *earlier).secs_f64().max(1e-9))
    };
    let mut rates: Vec<f64> = receiver.all.windows(2).filter_map(rate).collect();
    rates.sort_by(|a, b| b.total_cmp(a));
    let Some(most) = rates.get(rates.len() / 3) else { return false };
    let alike = rates.iter().filter(|rate| (**rate - most).abs() <= most * ALIKE).count();
    rates.len() >= FEWEST_INTERVALS && alike as f64 >= MOSTLY * rates.len() as f64
}

/// A sample of a sender.
struct Point {
    flying: f64,
    rate: f64,
    rtt: f64,
}

/// Fewer samples at the highest rate, or segments in flight, show no relation.
const FEWEST: usize = 4;
const FEWEST_FLYING: u32 = 8;
/// Minimum number of samples. In recordings of a full path with jitter, 55 to 77 % of all
/// selections of four samples did not show that the path is full, and 0.1 % of those of eight.
const ENOUGH: usize = 8;
/// Largest distance from the highest rate, as a share of that rate.
const ALIKE: f64 = 0.04;
/// Minimum mean rate as a share of the highest rate.
const USED: f64 = 0.87;
/// Minimum difference in the data in flight, between the half of the samples with little and the
/// half with much of it. A fixed window changes by 2 % (measured).
const LEAST_GROWTH: f64 = 0.04;
/// Minimum growth of the round trip, as a part of the growth of the data in flight. The estimate of
/// the round trip lags behind the data in flight.
const FOLLOWS: f64 = 0.6;
/// Fewer intervals between two samples show no steady rate.
const FEWEST_INTERVALS: usize = 6;
/// Minimum share of the intervals with about the same rate.
const MOSTLY: f64 = 0.6;
/// Minimum queueing delay in mean deviations of the round trip.
const VARIES: u64 = 6;
