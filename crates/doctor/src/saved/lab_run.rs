//! The directory of `weir lab run`: a period for each cell, made of its first valid turn.

use super::figures::{at, list, number, span, text};
use super::{begin_cores, unseen};
use crate::recording::{
    Connection, CoreTimes, Holder, Machine, Origin, Period, Recording, Sample, Tcp,
};
use serde_json::Value;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use units::{Bytes, Rate, Span};

pub(super) fn read(results: &Value, journal: Option<&str>) -> Result<Recording, String> {
    let lab = text(results, &["lab"]).unwrap_or("a lab").to_owned();
    let Some(journal) = journal else {
        return Err(format!("the run of {lab} has no journal.jsonl beside it: name its directory"));
    };
    let turns: Vec<Value> =
        journal.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let mut recording = Recording::new(Machine::default());
    recording.origin = Origin::Saved;
    recording.focus = Some(format!("the cells of {lab}"));
    recording.note = Some(format!(
        "made of the figures that a run of {lab} saved, the first valid turn of each cell"
    ));
    let machine = &mut recording.machine;
    machine.kernel = text(results, &["environment", "kernel_release"]).unwrap_or("").to_owned();
    machine.cores = cores(results);
    for (address, name) in [(FROM, "sender"), (TO, "receiver")] {
        machine.names.insert(address, name.to_owned());
    }
    let mut failed = 0;
    for cell in list(results, &["cells"]).iter().take(MOST_CELLS) {
        match turns.iter().find(|turn| is_of(turn, cell)).and_then(|turn| period(turn, results)) {
            Some(period) => recording.periods.push(period),
            None => failed += 1,
        }
    }
    if recording.periods.is_empty() {
        return Err(format!("no cell of {lab} has a valid turn with a rate"));
    }
    if failed > 0 {
        let what = format!("{failed} cells");
        recording.unseen.push(unseen(&what, "they have no valid turn with a rate"));
    }
    recording.unseen.extend(NEVER.iter().map(|what| unseen(what, "a run does not save it")));
    recording.unseen.sort();
    Ok(recording)
}

/// A valid turn of the cell.
fn is_of(turn: &Value, cell: &Value) -> bool {
    let same = |key: &str| turn.get(key) == cell.get(key);
    same("system")
        && same("axes")
        && turn.get("measured").is_some()
        && list(turn, &["measured", "invalid"]).is_empty()
}

fn period(turn: &Value, results: &Value) -> Option<Period> {
    let measured = turn.get("measured")?;
    let goodput = number(measured, &["metrics", "goodput_mbit_s", "value"])?;
    let omitted = method_time(results, "left out at the start").unwrap_or(0.0);
    let length = method_time(results, "measured for").unwrap_or(1.0).max(1e-3);
    let series = Series::of(measured, omitted);
    let times = match series.times.len() {
        0 | 1 => vec![0.0, length],
        _ => series.times.clone(),
    };
    let mut samples =
        vec![Sample { connections: vec![connection(turn, measured)], ..Sample::default() }];
    if series.value("limited_by", "send buffer", 1).is_some() {
        let tcp = &mut samples[0].connections[0].tcp;
        (tcp.busy, tcp.window_limited, tcp.buffer_limited) =
            (Some(Span::ZERO), Some(Span::ZERO), Some(Span::ZERO));
    }
    for (place, pair) in times.windows(2).enumerate().take(MOST_SAMPLES) {
        let seconds = pair[1] - pair[0];
        let Some(passed) = span(seconds).filter(|passed| *passed > Span::ZERO) else { continue };
        let mut sample = samples.last()?.clone();
        sample.at = sample.at + passed;
        let tcp = &mut sample.connections[0].tcp;
        let mbit = series.value("throughput", "acknowledged", place + 1).unwrap_or(goodput);
        advance(tcp, &series, place + 1, seconds, mbit, measured);
        for core in cores(results) {
            add_core(sample.cores.entry(core).or_default(), measured, results, passed);
        }
        samples.push(sample);
    }
    begin_cores(&mut samples);
    let nothing_else_ran = true;
    (samples.len() > 1).then(|| Period {
        label: label(turn),
        samples,
        nothing_else_ran,
        ..Period::default()
    })
}

fn connection(turn: &Value, measured: &Value) -> Connection {
    let name = text(turn, &["system"]).unwrap_or("the sender").to_owned();
    let trips = at(turn, &["axes", "rtt"]).and_then(Value::as_str);
    Connection {
        local: SocketAddr::new(FROM, 0),
        remote: SocketAddr::new(TO, 0),
        state: Default::default(),
        cookie: 0,
        holders: vec![Holder { pid: 0, name, ..Holder::default() }],
        receive_queue: Bytes::ZERO,
        send_queue: Bytes::ZERO,
        receive_limit: None,
        send_limit: None,
        retransmits: 0,
        probing: false,
        drops: 0,
        congestion: text(measured, &["congestion_control"]).map(str::to_owned),
        tcp: Tcp {
            bytes_acked: Some(Bytes::ZERO),
            bytes_received: Some(Bytes::ZERO),
            mss: Some(Bytes::new(USUAL_MSS)),
            // The path's own round trip, without any queue.
            min_rtt: trips.and_then(|text| text.parse().ok()).filter(|rtt| *rtt > Span::ZERO),
            ..Tcp::default()
        },
    }
}

fn advance(
    tcp: &mut Tcp,
    series: &Series<'_>,
    place: usize,
    seconds: f64,
    mbit: f64,
    measured: &Value,
) {
    let moved = (mbit * 1e6 / 8.0 * seconds).clamp(0.0, 1e15) as u64;
    let total = tcp.bytes_acked.unwrap_or_default() + Bytes::new(moved);
    tcp.bytes_acked = Some(total);
    tcp.delivery_rate = Some(Rate::from_bits_per_second((mbit * 1e6).clamp(0.0, 1e18) as u64));
    let again = number(measured, &["metrics", "retransmit_percent", "value"]);
    if let Some(again) = again {
        let segments = total.count() / USUAL_MSS;
        tcp.data_segments_out = u32::try_from(segments).ok();
        tcp.retransmitted = u32::try_from((segments as f64 * again / 100.0) as u64).ok();
    }
    let trip = series.value("rtt", "smoothed", place).and_then(|millis| span(millis / 1e3));
    tcp.rtt = trip.or(tcp.rtt);
    tcp.min_rtt = match (tcp.min_rtt, tcp.rtt) {
        (Some(least), Some(rtt)) => Some(least.min(rtt)),
        (least, _) => least,
    };
    let window = series.value("cwnd", "congestion window", place);
    tcp.cwnd = window
        .map(|kilobytes| (kilobytes * 1e3 / USUAL_MSS as f64).clamp(1.0, 1e9) as u32)
        .or(tcp.cwnd);
    let limit = |line: &str| series.value("limited_by", line, place);
    let shares = limit("congestion control")
        .zip(limit("receiver's window"))
        .zip(limit("send buffer"))
        .map(|((congestion, window), buffer)| (congestion + window + buffer, window, buffer));
    if let Some((busy, window, buffer)) = shares {
        let more = |before: Option<Span>, percent: f64| {
            Some(before.unwrap_or_default() + span(seconds * percent / 100.0)?)
        };
        tcp.busy = more(tcp.busy, busy);
        tcp.window_limited = more(tcp.window_limited, window);
        tcp.buffer_limited = more(tcp.buffer_limited, buffer);
    }
}

/// The workload's cores were not saved one by one: each has their mean.
fn add_core(times: &mut CoreTimes, measured: &Value, results: &Value, passed: Span) {
    let metric = |name: &str| number(measured, &["metrics", name, "value"]);
    let Some(idle) = metric("idle_percent") else { return };
    let steal = metric("steal_percent").unwrap_or(0.0);
    let all = list(results, &["environment", "cores_online"]).len().max(1) as f64;
    let busy = (100.0 - idle - steal).clamp(0.0, 100.0);
    let softirq = (metric("cpu_softirq_percent").unwrap_or(0.0) / all).min(busy);
    let part = |percent: f64| span(passed.secs_f64() * percent / 100.0).unwrap_or_default();
    times.idle = times.idle + part(idle.min(100.0));
    times.steal = times.steal + part(steal);
    times.softirq = times.softirq + part(softirq);
    times.system = times.system + part(busy - softirq);
}

/// The lines over time of a turn, from the time on that counts.
struct Series<'v> {
    all: &'v [Value],
    times: Vec<f64>,
    skipped: usize,
}

impl<'v> Series<'v> {
    fn of(measured: &'v Value, omitted: f64) -> Self {
        let all = list(measured, &["series"]);
        let throughput = all.iter().find(|one| text(one, &["name"]) == Some("throughput"));
        let times = throughput.map_or(&[][..], |one| list(one, &["time_s"]));
        let times: Vec<f64> = times.iter().filter_map(Value::as_f64).collect();
        let skipped = times.iter().take_while(|time| **time < omitted).count();
        let times = times.into_iter().skip(skipped).collect();
        Self { all, times, skipped }
    }

    fn value(&self, name: &str, line: &str, place: usize) -> Option<f64> {
        if self.times.len() < 2 {
            return None;
        }
        let series = self.all.iter().find(|one| text(one, &["name"]) == Some(name))?;
        let line =
            list(series, &["lines"]).iter().find(|one| text(one, &["name"]) == Some(line))?;
        list(line, &["values"])
            .get(self.skipped + place)?
            .as_f64()
            .filter(|value| value.is_finite() && *value >= 0.0)
    }
}

fn label(turn: &Value) -> String {
    let system = text(turn, &["system"]).unwrap_or_default();
    let axes = turn.get("axes").and_then(Value::as_object);
    let each = axes.into_iter().flatten().map(|(name, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{name} {value}")
    });
    let each = each.collect::<Vec<_>>().join(", ");
    if each.is_empty() { system.to_owned() } else { format!("{system}, {each}") }
}

fn cores(results: &Value) -> Vec<usize> {
    let known = |key: &str| list(results, &["environment", key]);
    let own = known("workload_cpus");
    let cores = if own.is_empty() { known("cores_usable") } else { own };
    let cores = cores.iter().filter_map(|core| usize::try_from(core.as_u64()?).ok());
    cores.take(MOST_CORES).collect()
}

fn method_time(results: &Value, name: &str) -> Option<f64> {
    Some(text(results, &["method", name])?.parse::<Span>().ok()?.secs_f64())
}

const FROM: IpAddr = IpAddr::V4(Ipv4Addr::new(0, 0, 0, 1));
const TO: IpAddr = IpAddr::V4(Ipv4Addr::new(0, 0, 0, 2));
const USUAL_MSS: u64 = 1448;
const MOST_CELLS: usize = 1000;
const MOST_SAMPLES: usize = 4000;
const MOST_CORES: usize = 4096;
const NEVER: [&str; 6] = [
    "interfaces and queueing disciplines",
    "counters of IP, TCP and UDP",
    "threads, other processes and control groups",
    "user time of cores, which counts as system time here",
    "socket queues, limits and unsent data",
    "the segments of the connections, which are computed from bytes",
];
