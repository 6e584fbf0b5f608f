//! Computes the figures of a simulated world.

use super::scene::Scene;
use super::world::{Ended, mean_goodput};
use super::{completion, convergence};
use crate::model::Measurement;
use crate::model::file::Shape;
use crate::workloads::flows::demand::Demand;
use sim::FlowOutcome;
use units::{Bytes, Rate, Share, Span, Time};

pub(super) fn of(scene: &Scene, ended: &Ended) -> Measurement {
    let mut result = Measurement::default();
    let (own, beside) = (ended.own(), ended.beside());
    let mbit = |flows: &[FlowOutcome]| mean_goodput(flows) * flows.len() as f64;
    if scene.is_endless() {
        result.record("goodput_mbit_s", Some(mbit(own)));
        sharing(scene, ended, &mut result);
    } else {
        result.record("goodput_mbit_s", carried(scene, ended));
        completion::record(scene, ended, &mut result);
    }
    let sum = |of: fn(&sim::FlowCount) -> Bytes| {
        let counts = ended.tested.clone().map(|flow| of(&ended.outcome.measured(flow)).count());
        counts.sum::<u64>() as f64
    };
    let (sent, again) = (sum(|count| count.sent), sum(|count| count.retransmitted));
    result.record("retransmit_percent", (sent > 0.0).then(|| again / sent * 100.0));
    if scene.asks_for_caqm {
        let tagged: u64 = own.iter().map(|flow| flow.tagged).sum();
        result.record("caqm_tagged_segments", Some(tagged as f64));
    }
    tunnel(ended, &mut result);
    queue(scene, ended, &mut result);
    if scene.topology.shape == Shape::Incast {
        port(scene, ended, &mut result);
    }
    if own.len() > 1 && scene.is_endless() {
        let rates: Vec<f64> = own.iter().map(|flow| flow.goodput.mbit_per_second()).collect();
        result.record("jain", Some(sim::jain(&rates)));
        let bound = |of: fn(f64, f64) -> f64| rates.iter().copied().reduce(of);
        result.record("flow_mbit_s.min", bound(f64::min));
        result.record("flow_mbit_s.max", bound(f64::max));
        result.record("fairness_rtts", convergence::to_fairness(scene, ended));
    }
    if beside.is_empty() && own.len() == 1 && scene.is_endless() {
        let peak = ended.outcome.opening_peak(ended.network.bottlenecks[0]);
        let waits = peak.zip(scene.rate()).map(|(peak, rate)| rate.time_for(peak).millis_f64());
        result.record("startup_queue_ms", waits);
    }
    result
}

/// Records the tunnel's retransmissions. A tunnel retransmits the data of the packets that it
/// counts as lost.
fn tunnel(ended: &Ended, result: &mut Measurement) {
    let sum = |of: fn(&sim::TunnelCount) -> u64| {
        ended.tunnels().map(|tunnel| of(&tunnel.measured)).sum::<u64>() as f64
    };
    let (sent, lost) = (sum(|count| count.packets), sum(|count| count.packets_lost));
    if sent > 0.0 {
        result.record("retransmit_percent", Some(lost / sent * 100.0));
    }
}

/// Records how flows without end share the link, and how soon they converge.
fn sharing(scene: &Scene, ended: &Ended, result: &mut Measurement) {
    let Some(ideal) = scene.ideal() else { return };
    let (own, beside) = (ended.own(), ended.beside());
    let total = |flows: &[FlowOutcome]| mean_goodput(flows) * flows.len() as f64;
    // The measured time is too short to know the mean of a random demand.
    if matches!(scene.flows.demand, Demand::OnOff { random: true, .. }) {
        return;
    }
    let flows = (own.len() + beside.len()) as f64;
    let used = match scene.topology.shape {
        Shape::Dumbbell | Shape::Incast => {
            let asked = asked(scene).filter(|_| beside.is_empty());
            (total(own) + total(beside)) / asked.map_or(ideal, |asked| asked.min(ideal))
        }
        // In a parking lot the flows under test cross every bottleneck.
        Shape::ParkingLot { hops } => {
            (total(own) * f64::from(hops) + total(beside)) / (ideal * f64::from(hops))
        }
        Shape::FatTree { .. } => {
            let hosts = (ended.network.ways() as f64).min(flows);
            (total(own) + total(beside)) / (ideal * hosts)
        }
    };
    result.record("share_of_ideal", Some(used));
    if scene.flows.demand != Demand::Bulk {
        return;
    }
    let fair = match scene.topology.shape {
        Shape::Dumbbell | Shape::Incast => ideal / flows,
        Shape::ParkingLot { hops } => {
            ideal / (own.len() as f64 + beside.len() as f64 / f64::from(hops))
        }
        // In a fat tree the flows meet at random links, so no ideal share exists.
        Shape::FatTree { .. } => return,
    };
    if !beside.is_empty() {
        result.record("fair_share", Some(mean_goodput(own) / fair));
    }
    result.record("convergence_rtts", convergence::from_the_start(scene, ended, fair));
    result.record("step_rtts", convergence::after_steps(scene, ended));
}

/// Returns the total demand of all applications under test in Mbit/s. `None` for an unlimited
/// demand.
fn asked(scene: &Scene) -> Option<f64> {
    let each = match scene.flows.demand {
        Demand::Bulk => return None,
        Demand::Pieces { size, every } => size.count() as f64 * 8.0 / every.secs_f64() / 1e6,
        Demand::OnOff { rate, on, off, .. } => {
            let rate = rate.of(scene.rate().unwrap_or_default()).mbit_per_second();
            rate * on.secs_f64() / (on + off).secs_f64()
        }
    };
    Some(each * f64::from(scene.flows.own))
}

/// Returns the carried rate in Mbit/s. For flows that have an end, the data counts from the first
/// flow's start to the last flow's end. For random arrivals, the data counts over the measured
/// time.
fn carried(scene: &Scene, ended: &Ended) -> Option<f64> {
    // Data that arrives after the measured time counts as demanded but not as carried.
    if scene.flows.arrivals.is_some() {
        return Some(mbit(ended.received_in_time(), scene.duration));
    }
    let received = |flow: usize| ended.outcome.measured(flow).received.count();
    let bytes = Bytes::new(ended.tested.clone().map(received).sum());
    let span = makespan(ended)?;
    (span > Span::ZERO).then(|| mbit(bytes, span))
}

fn makespan(ended: &Ended) -> Option<Span> {
    let begun = &ended.begun[ended.tested.clone()];
    let done = ended.own().iter().zip(begun).filter_map(|(flow, at)| Some(*at + flow.completion?));
    let first = begun.iter().min()?;
    done.max().map(|last| last.since(*first))
}

/// Records the bottleneck's queue and its contribution to the round-trip time.
fn queue(scene: &Scene, ended: &Ended, result: &mut Measurement) {
    let Some(link) = ended.worst_queue() else { return };
    let kilobytes = |bytes: Bytes| bytes.count() as f64 / 1000.0;
    let occupied = |percent| link.occupancy.quantile(part(percent));
    let waited = |percent| link.sojourns.quantile(part(percent));
    for (name, percent) in QUANTILES {
        result.record(&format!("queue_ms.{name}"), Some(waited(percent).millis_f64()));
    }
    for (name, percent) in QUANTILES {
        let value = kilobytes(occupied(percent));
        result.record(&format!("queue_kbyte.{name}"), Some(value));
    }
    result.record("queue_kbyte.mean", Some(link.occupancy.mean() / 1000.0));
    result.record("queue_kbyte.max", Some(kilobytes(link.occupancy.max())));
    let product = scene.rate().map(|rate| rate.bytes_in(scene.round_trip()));
    let product = product.map(|bytes| bytes.count() as f64).filter(|bytes| *bytes > 0.0);
    let share = product.map(|product| occupied(95.0).count() as f64 / product);
    result.record("queue_bdp.p95", share);
    let flows = ended.tested.len().min(ended.network.ways());
    let way = (0..flows).map(|number| ended.network.own(number).round_trip.micros_f64());
    let way = way.sum::<f64>() / flows.max(1) as f64;
    for (name, percent) in [("p50", 50.0), ("p99", 99.0)] {
        let micros = way + waited(percent).micros_f64();
        result.record(&format!("rtt_us.{name}"), Some(micros));
    }
}

/// Records the use and the drops of an incast's switch port.
fn port(scene: &Scene, ended: &Ended, result: &mut Measurement) {
    let Some(link) = ended.outcome.link(ended.network.bottlenecks[0]) else { return };
    result.record("drops", Some(link.dropped_measured as f64));
    let rate = scene.rate().unwrap_or_default().mbit_per_second();
    let carried = match scene.is_endless() {
        true => Some(link.throughput.mbit_per_second()),
        false => makespan(ended).map(|span| mbit(link.delivered.bytes, span)),
    };
    let used = carried.filter(|_| rate > 0.0).map(|carried| carried / rate);
    result.record("port_use", used);
    let access = scene.access().rate.mean_rate().unwrap_or_default().mbit_per_second();
    if scene.is_endless() && access > 0.0 {
        let refused = Bytes::new(link.dropped_measured * scene.mtu.count());
        let entered = link.throughput.mbit_per_second() + mbit(refused, scene.duration);
        result.record("ingress_use", Some(entered / access));
    }
}

fn mbit(bytes: Bytes, span: Span) -> f64 {
    bytes.count() as f64 * 8.0 / span.secs_f64().max(f64::MIN_POSITIVE) / 1e6
}

pub(super) fn part(percent: f64) -> Share {
    Share::from_percent(percent).unwrap_or_default()
}

/// Returns the completion time of `size` for a flow that is alone: the handshake, the path delay
/// and the transmission time.
pub(super) fn alone(scene: &Scene, rate: Rate, round_trip: Span, size: Bytes) -> Span {
    let frames = Bytes::new((size.count() as f64 / scene.payload_share()).round() as u64);
    round_trip + round_trip / 2 + rate.time_for(frames)
}

/// Converts a time to seconds since the world began.
pub(super) fn seconds(at: Time) -> f64 {
    at.nanos() as f64 / 1e9
}

const QUANTILES: [(&str, f64); 3] = [("p50", 50.0), ("p95", 95.0), ("p99", 99.0)];
