use super::{Cpu, Kind, LatencySummary, RoundsOptions, RoundsOutcome, Run};
use crate::PerfError;
use serde_json::{Value, json};

/// Returns the measurements as a JSON document, with the error if they ended early.
pub fn document(
    options: &RoundsOptions,
    outcomes: &[RoundsOutcome],
    error: Option<&PerfError>,
) -> Value {
    let confidence = options.confidence.map(|asked| {
        json!({
            "level_percent": asked.level.percent(),
            // Width of the whole interval, as in netperf's -I.
            "width_percent": asked.width.percent(),
        })
    });
    json!({
        "weir": env!("CARGO_PKG_VERSION"),
        "test": options.kind.to_string(),
        "host": options.host,
        "port": options.port,
        "connections": options.connections,
        "depth": options.depth,
        "seconds": options.time.secs_f64(),
        "repeats": {"least": options.repeats.least, "most": options.repeats.most},
        "confidence": confidence,
        "results": outcomes.iter().map(result).collect::<Vec<_>>(),
        "error": error.map(ToString::to_string),
    })
}

fn result(outcome: &RoundsOutcome) -> Value {
    let (name, unit) = rate_name(outcome.kind);
    let rate = &outcome.rate;
    let interval =
        rate.half_width.map(|half| [(rate.mean - half) / unit, (rate.mean + half) / unit]);
    let confidence = outcome.confidence.map(|confidence| {
        json!({
            "met": confidence.met,
            "level_percent": confidence.asked.level.percent(),
            "asked_half_width_percent": confidence.asked.width.percent() / 2.0,
            "reached_half_width_percent": rate.relative_half_width().map(|half| half * 100.0),
        })
    });
    let mut value = json!({
        "request": outcome.size.request.count(),
        "response": outcome.kind.has_latency().then(|| outcome.size.response.count()),
        "repeats": outcome.runs.len(),
        "confidence": confidence,
        "latency_us": outcome.latency.map(LatencySummary::micros),
        "lost": outcome.lost(),
        "late": outcome.late(),
        "loss_percent": outcome.loss().map(|loss| loss.percent()),
        "cpu": {
            "client": outcome.client().map(|used| cpu(outcome, &used)),
            "server": outcome.server().map(|used| cpu(outcome, &used)),
        },
        "runs": outcome.runs.iter().map(|one| run(outcome.kind, one)).collect::<Vec<_>>(),
    });
    value[name] = json!({
        "mean": rate.mean / unit,
        "deviation": rate.deviation.map(|deviation| deviation / unit),
        "interval": interval,
    });
    value
}

fn run(kind: Kind, run: &Run) -> Value {
    let (name, unit) = rate_name(kind);
    let mut value = json!({
        "seconds": run.elapsed.secs_f64(),
        "count": run.count,
        "bytes_sent": run.bytes_sent,
        "bytes_received": run.bytes_received,
        "lost": run.lost,
        "late": run.late,
        "latency_us": run.latency.map(LatencySummary::micros),
    });
    value[name] = json!(run.rate / unit);
    value
}

fn cpu(outcome: &RoundsOutcome, cpu: &Cpu) -> Value {
    let cores = cpu.used.cores.iter().map(|core| {
        json!({
            "core": core.core,
            "busy_percent": core.busy,
            "softirq_percent": core.softirq,
        })
    });
    json!({
        "user_percent": cpu.used.user,
        "system_percent": cpu.used.system,
        // Per transaction, or per KiB of a stream.
        "demand_us": outcome.demand(cpu.threads()),
        "machine_demand_us": outcome.demand(cpu.machine()),
        "cores": cores.collect::<Vec<_>>(),
    })
}

/// Returns the key of the rate, and the divisor that converts [`Run::rate`] to the key's unit.
fn rate_name(kind: Kind) -> (&'static str, f64) {
    if kind.has_latency() { ("requests_s", 1.0) } else { ("goodput_mbit_s", 1e6) }
}
