//! The results for which iperf3 has no key.

use super::{entry, number};
use crate::event::{CpuUse, Datagrams, Ended, Interval, Latency, LatencySource, PathFacts};
use crate::event::{Started, StreamInterval, StreamTotal};
use crate::observe::tcp::LimitedBy;
use crate::output::limits;
use crate::output::outcome::{Outcome, directions};
use probe::tcp::TcpInfo;
use serde_json::{Map, Value, json};
use units::{Bytes, Rate, Span};

pub(super) fn of_test(
    started: &Started,
    ended: &Ended,
    idle: Option<&Latency>,
) -> Map<String, Value> {
    let mut out = Map::new();
    entry(&mut out, "version", env!("CARGO_PKG_VERSION"));
    entry(&mut out, "peer_is_weir", started.peer_is_weir);
    entry(&mut out, "loopback", started.is_loopback());
    if let Some(version) = &started.peer_version {
        entry(&mut out, "peer_version", version.as_str());
    }
    if let Some(idle) = ended.idle_latency.as_ref().or(idle) {
        entry(&mut out, "idle_latency", latency(idle));
    }
    if let Some(loaded) = &ended.loaded_latency {
        entry(&mut out, "loaded_latency", latency(loaded));
    }
    for direction in directions(started.role, &ended.streams) {
        if let Some(limits) = Outcome::of(&direction.streams).limited_by {
            let key = if direction.forward { "limited_by" } else { "limited_by_reverse" };
            entry(&mut out, key, limited_by(&limits));
        }
    }
    entry(
        &mut out,
        "cpu",
        json!({ "local": cpu(&ended.local_cpu), "remote": ended.remote_cpu.as_ref().map(cpu) }),
    );
    let streams: Vec<Value> = ended.streams.iter().map(|one| stream(started, one)).collect();
    entry(&mut out, "streams", streams);
    if let Some(extras) = &ended.peer_extras {
        entry(&mut out, "peer", extras.clone());
    }
    if let Some(observed) = &ended.observed {
        entry(&mut out, "probe_cpu_seconds", number(observed.cost.secs_f64()));
        if let Some(cost) = &observed.probe_cost {
            entry(&mut out, "probe_cost", serde_json::to_value(cost).unwrap_or_default());
        }
        entry(&mut out, "series", serde_json::to_value(&observed.series).unwrap_or_default());
    }
    entry(&mut out, "warnings", ended.warnings.clone());
    out
}

pub(super) fn of_interval(interval: &Interval) -> Map<String, Value> {
    let mut out = Map::new();
    if let Some(used) = &interval.cpu {
        entry(&mut out, "cpu", cpu(used));
    }
    if let Some(loaded) = &interval.latency {
        entry(&mut out, "latency", latency(loaded));
    }
    let streams: Vec<Value> = interval.streams.iter().filter_map(stream_interval).collect();
    if !streams.is_empty() {
        entry(&mut out, "streams", streams);
    }
    out
}

pub(in crate::output) fn idle_value(idle: &Latency) -> Value {
    json!({ "idle_latency": latency(idle) })
}

fn stream_interval(stream: &StreamInterval) -> Option<Value> {
    let mut out = Map::new();
    entry(&mut out, "socket", stream.id);
    if let Some(counted) = &stream.datagrams {
        entry(&mut out, "datagrams", datagrams(counted));
    }
    if let Some(info) = &stream.tcp {
        entry(&mut out, "tcp_info", tcp_info(info));
    }
    (out.len() > 1).then_some(Value::Object(out))
}

fn stream(started: &Started, total: &StreamTotal) -> Value {
    let mut out = Map::new();
    entry(&mut out, "socket", total.id);
    entry(&mut out, "sends", total.sends);
    let facts = started.streams.iter().find(|facts| facts.id == total.id);
    if let Some(name) = facts.and_then(|facts| facts.congestion.as_deref()) {
        entry(&mut out, "congestion", name);
    }
    if let Some(counted) = &total.datagrams {
        entry(&mut out, "datagrams", datagrams(counted));
    }
    if let Some(facts) = &total.path {
        entry(&mut out, "path", path(facts));
        if let Some(limits) = limits::of(facts, total.sent.elapsed) {
            entry(&mut out, "limited_by", limited_by(&limits));
        }
    }
    Value::Object(out)
}

fn latency(latency: &Latency) -> Value {
    json!({
        "by": match latency.by {
            LatencySource::Echo => "echo",
            LatencySource::Ping => "ping",
            LatencySource::TcpInfo => "tcp_info",
        },
        "samples": latency.samples,
        "lost": latency.lost,
        "p50_us": number(latency.p50.micros_f64()),
        "p99_us": number(latency.p99.micros_f64()),
        "max_us": number(latency.max.micros_f64()),
    })
}

fn limited_by(limits: &LimitedBy) -> Value {
    json!({
        "application_percent": number(limits.application.percent()),
        "receive_window_percent": number(limits.receive_window.percent()),
        "send_buffer_percent": number(limits.send_buffer.percent()),
        "full_link_percent": number(limits.full_link.percent()),
        "congestion_percent": number(limits.congestion.percent()),
    })
}

fn cpu(cpu: &CpuUse) -> Value {
    let cores: Vec<Value> = cpu
        .cores
        .iter()
        .map(|core| {
            json!({
                "core": core.core,
                "busy_percent": number(core.busy),
                "softirq_percent": number(core.softirq),
            })
        })
        .collect();
    json!({
        "user_percent": number(cpu.user),
        "system_percent": number(cpu.system),
        "cores": cores,
    })
}

fn datagrams(counted: &Datagrams) -> Value {
    json!({
        "count": counted.count,
        "received": counted.received,
        "lost": counted.lost,
        "reordered": counted.reordered,
        "duplicates": counted.duplicates,
        "jitter_us": number(counted.jitter.micros_f64()),
    })
}

fn path(facts: &PathFacts) -> Value {
    known([
        ("min_rtt_us", micros(facts.min_rtt)),
        ("mean_rtt_us", micros(facts.mean_rtt)),
        ("max_rtt_us", micros(facts.max_rtt)),
        ("max_cwnd_bytes", bytes(facts.max_cwnd)),
        ("max_send_window_bytes", bytes(facts.max_send_window)),
        ("reorder_seen", facts.reorder_seen.map(Value::from)),
        ("busy_us", micros(facts.busy)),
        ("receive_window_limited_us", micros(facts.rwnd_limited)),
        ("send_buffer_limited_us", micros(facts.sndbuf_limited)),
        ("retransmitted_bytes", bytes(facts.bytes_retransmitted)),
        ("full_link_percent", facts.full_link.map(|share| number(share.percent()))),
    ])
}

fn tcp_info(info: &TcpInfo) -> Value {
    known([
        ("rtt_us", micros(info.rtt)),
        ("min_rtt_us", micros(info.min_rtt)),
        ("rto_us", micros(info.rto)),
        ("cwnd_bytes", bytes(info.cwnd())),
        ("ssthresh_segments", info.snd_ssthresh.map(Value::from)),
        ("delivery_rate_bits_per_second", rate(info.delivery_rate)),
        ("delivery_rate_app_limited", info.delivery_rate_app_limited.map(Value::from)),
        ("pacing_rate_bits_per_second", rate(info.pacing_rate)),
        ("unacked_segments", info.unacked.map(Value::from)),
        ("lost_segments", info.lost.map(Value::from)),
        ("notsent_bytes", bytes(info.notsent)),
        ("reorder_seen", info.reord_seen.map(Value::from)),
        ("timeouts", info.total_rto.map(Value::from)),
        ("retransmitted_bytes", bytes(info.bytes_retrans)),
        ("busy_us", micros(info.busy_time)),
        ("receive_window_limited_us", micros(info.rwnd_limited)),
        ("send_buffer_limited_us", micros(info.sndbuf_limited)),
    ])
}

fn known<const N: usize>(entries: [(&str, Option<Value>); N]) -> Value {
    let known = entries.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    Value::Object(known.collect())
}

fn micros(span: Option<Span>) -> Option<Value> {
    span.map(|span| number(span.micros_f64()))
}

fn bytes(bytes: Option<Bytes>) -> Option<Value> {
    bytes.map(|bytes| Value::from(bytes.count()))
}

/// Returns the rate in bits per second. The kernel's largest rate means "no limit" and gives
/// `None`.
fn rate(rate: Option<Rate>) -> Option<Value> {
    let rate = rate?.bits_per_second();
    (rate < u64::MAX / 8 * 8).then(|| Value::from(rate))
}
