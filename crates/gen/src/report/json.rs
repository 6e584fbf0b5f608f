use serde_json::{Value, json};
use units::Span;

use super::table::missed;
use crate::Plan;
use crate::run::{LaneCounts, Outcome, StreamCounts};

pub fn document(plan: &Plan, multiplier: f64, outcome: &Outcome) -> Value {
    let (sent, received) = (outcome.sent(), outcome.received());
    json!({
        "planned_pps": plan.packet_rate(multiplier).events(),
        "planned_cps": plan.flow_rate(multiplier).events(),
        "planned_bps": plan.bit_rate(multiplier).bits_per_second(),
        "planned_s": outcome.planned.secs_f64(),
        "actual_s": outcome.actual.secs_f64(),
        "offered_pps": outcome.offered().events(),
        "rate_kept": outcome.missed().is_empty(),
        "rate_problem": missed(outcome),
        "packets": {
            "planned": outcome.packets_planned,
            "sent": sent,
            "received": received,
            "drop": sent.saturating_sub(received),
        },
        "flows": outcome.flows,
        "sink_drops": outcome.sink_drops(),
        "longest_lag_us": outcome.longest_lag.micros_f64(),
        "cpu_percent": outcome.busy * 100.0,
        "send_retries": outcome.retries,
        "cancelled": outcome.cancelled,
        "error": outcome.error,
        "ports": outcome.lanes.iter().map(port).collect::<Vec<_>>(),
        "streams": outcome.streams.iter().map(stream).collect::<Vec<_>>(),
        "seconds": outcome.seconds.iter()
            .map(|second| json!({ "planned": second.planned, "sent": second.sent }))
            .collect::<Vec<_>>(),
        "notes": plan.notes(),
    })
}

pub fn planned(plan: &Plan, multiplier: f64, duration: Span) -> Value {
    let packets = plan.packet_rate(multiplier);
    json!({
        "valid": true,
        "planned_pps": packets.events(),
        "planned_cps": plan.flow_rate(multiplier).events(),
        "planned_bps": plan.bit_rate(multiplier).bits_per_second(),
        "planned_s": duration.secs_f64(),
        "packets": { "planned": packets.times(duration.secs_f64()).events().round() as u64 },
        "notes": plan.notes(),
    })
}

fn port(lane: &LaneCounts) -> Value {
    json!({
        "name": lane.name,
        "opackets": lane.sent,
        "obytes": lane.sent_bytes,
        "oerrors": lane.send_errors,
        "ring_full": lane.ring_full,
        "ipackets": lane.received,
        "ibytes": lane.received_bytes,
        "ierrors": lane.receive_errors,
        "sink_drops": lane.sink_drops,
        "sink_full": lane.sink_full,
        "arp_sent": lane.arp_sent,
        "arp_received": lane.arp_received,
        "housekeeping": lane.housekeeping,
    })
}

pub(crate) fn stream(stream: &StreamCounts) -> Value {
    let at = |quantile: f64| stream.latency.value_at_quantile(quantile) as f64 / 1e3;
    json!({
        "stream": stream.stream,
        "sent": stream.sent,
        "received": stream.received,
        "lost": stream.lost(),
        "duplicates": stream.duplicates,
        "reordered": stream.reordered,
        "too_late": stream.too_late,
        "returned": stream.returned,
        "jitter_us": stream.jitter.micros_f64(),
        "latency_us": {
            "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "p99.9": at(0.999),
            "max": stream.latency.max() as f64 / 1e3,
            "mean": stream.latency.mean() / 1e3,
        },
    })
}
