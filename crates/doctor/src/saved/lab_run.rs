//! Reads the directory of `weir lab run`: a period for each cell, from its valid run with the
//! median rate.

use super::figures::{at, list, number, span, text};
use super::{begin_cores, unseen};
use crate::recording::{
    Attempt, Connection, CoreTimes, FarEnd, Holder, Interface, InterfaceCounters, Machine, Origin,
    Path, Period, Recording, Sample, Task, Tcp,
};
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use units::{Bytes, Rate, Share, Span};

/// Reads a lab. `results` is null if the run was stopped before it wrote any.
pub(super) fn read(results: &Value, journal: Option<&str>) -> Result<Recording, String> {
    let lab = text(results, &["lab"]).unwrap_or("a lab").to_owned();
    let Some(journal) = journal else {
        return Err(format!("the run of {lab} has no journal.jsonl beside it: name its directory"));
    };
    let mut lines = journal.lines();
    let turns = lines.by_ref().take(MOST_TURNS);
    let turns: Vec<Value> =
        turns.filter_map(|line| serde_json::from_str(line).ok()).map(shown).collect();
    let unread = lines.count();
    let mut recording = Recording::new(Machine::default());
    recording.origin = Origin::Saved;
    recording.focus = Some(format!("the cells of {lab}"));
    recording.note = Some(match results.is_null() {
        false => format!(
            "made of the figures that a run of {lab} saved, of each cell the valid turn with the median rate"
        ),
        true => "made of the turns of a run that was stopped, of each cell the valid one with the median rate".to_owned(),
    });
    let machine = &mut recording.machine;
    machine.kernel = text(results, &["environment", "kernel_release"]).unwrap_or("").to_owned();
    machine.cores = cores(results);
    let mut links = Links::default();
    let (mut failed, mut have_tunnels, mut room) = (Vec::new(), false, MOST_ENTRIES);
    let mut cut = 0;
    let (cells, has_all_cells) = cells(results, &turns);
    for cell in cells {
        let of_cell = || turns.iter().filter(|turn| is_of(turn, &cell));
        let turn = median(of_cell().filter(|turn| is_valid(turn)).collect());
        // Each sample has all cores.
        let entries = recording.machine.cores.len() + 1;
        let most = (room / entries).clamp(1, MOST_SAMPLES);
        match turn.and_then(|turn| period(turn, results, links.of(&cell), most)) {
            Some((period, is_whole)) => {
                room = room.saturating_sub(period.samples.len() * entries);
                recording.periods.push(period);
                cut += u64::from(!is_whole);
            }
            None => failed.push((label(&cell), of_cell().find_map(flaw))),
        }
        have_tunnels |= is_tunnel(results, &cell);
    }
    if recording.periods.is_empty() {
        let why = failed.iter().find_map(|(_, flaw)| flaw.clone());
        let why = why.map_or_else(String::new, |flaw| format!(": {flaw}"));
        return Err(format!("no cell of {lab} has a valid turn with a rate{why}"));
    }
    links.add_to(&mut recording.machine);
    if !failed.is_empty() {
        let told = failed.iter().take(MOST_TOLD).map(|(label, flaw)| match flaw {
            Some(flaw) => format!("{label} ({flaw})"),
            None => label.clone(),
        });
        let told: Vec<String> = told.collect();
        let more = if failed.len() > MOST_TOLD { ", and others" } else { "" };
        let reason = format!("no valid turn with a rate: {}{more}", told.join(", "));
        let what = crate::words::counted(failed.len() as u64, "cell", "cells");
        recording.unseen.push(unseen(&what, &reason));
    }
    if cut > 0 {
        let what = format!("the end of {}", crate::words::counted(cut, "cell", "cells"));
        recording.unseen.push(unseen(&what, "the run has too many samples"));
    }
    if unread > 0 {
        let what = format!("the last {}", crate::words::counted(unread as u64, "turn", "turns"));
        let reason = format!("only the first {MOST_TURNS} turns of a run are read");
        recording.unseen.push(unseen(&what, &reason));
    }
    if !has_all_cells {
        let reason = format!("only the first {MOST_CELLS} cells of a run are judged");
        recording.unseen.push(unseen("further cells", &reason));
    }
    if known_cores(results).len() > MOST_CORES {
        let reason = format!("only the first {MOST_CORES} cores of a run are judged");
        recording.unseen.push(unseen("further cores", &reason));
    }
    if have_tunnels {
        let reason = "a run saves the connections that end at the tunnel's own client";
        recording.unseen.push(unseen("connections between tunnels", reason));
    }
    recording.unseen.extend(NEVER.iter().map(|what| unseen(what, "a run does not save it")));
    recording.unseen.sort();
    Ok(recording)
}

fn shown(mut turn: Value) -> Value {
    units::foreign_json(&mut turn, super::LONGEST_TEXT);
    turn
}

/// Returns the cells of the results, and whether these are all. If the lab was stopped, returns the
/// cells that its runs name.
fn cells(results: &Value, turns: &[Value]) -> (Vec<Value>, bool) {
    let known = list(results, &["cells"]);
    let mut cells: Vec<Value> = known.iter().take(MOST_CELLS).cloned().collect();
    let unnamed = if results.is_null() { turns } else { &[] };
    for turn in unnamed {
        if cells.iter().any(|cell| is_of(turn, cell)) {
            continue;
        }
        if cells.len() >= MOST_CELLS {
            return (cells, false);
        }
        cells.push(json!({"system": turn.get("system"), "axes": turn.get("axes")}));
    }
    (cells, known.len() <= MOST_CELLS)
}

fn is_of(turn: &Value, cell: &Value) -> bool {
    let same =
        |key: &str| turn.get(key).unwrap_or(&Value::Null) == cell.get(key).unwrap_or(&Value::Null);
    same("system") && same("axes")
}

fn is_valid(turn: &Value) -> bool {
    turn.get("measured").is_some() && list(turn, &["measured", "invalid"]).is_empty()
}

/// Returns the reason why a run does not count.
fn flaw(turn: &Value) -> Option<String> {
    let what = |flaw: &Value| text(flaw, &["what"]).map(str::to_owned);
    list(turn, &["measured", "invalid"])
        .iter()
        .find_map(what)
        .or_else(|| text(turn, &["failed"]).map(str::to_owned))
}

fn goodput(turn: &Value) -> Option<f64> {
    number(turn, &["measured", "metrics", "goodput_mbit_s", "value"])
}

/// Returns the run with the median rate.
fn median(turns: Vec<&Value>) -> Option<&Value> {
    let mut ranked: Vec<_> =
        turns.into_iter().filter_map(|turn| Some((goodput(turn)?, turn))).collect();
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
    ranked.get(ranked.len().saturating_sub(1) / 2).map(|(_, turn)| *turn)
}

/// Whether the system carries the workload's connection. The sender's kernel then sees only the
/// part to the system's own client.
fn is_tunnel(results: &Value, cell: &Value) -> bool {
    let system = text(cell, &["system"]).unwrap_or_default();
    at(results, &["environment", "systems", system, "connect"]).is_some()
}

/// The emulated links by their rates, each with an address behind it.
#[derive(Default)]
struct Links {
    rates: Vec<Rate>,
}

impl Links {
    /// Returns the rate of a cell's link, and the address behind it.
    fn of(&mut self, cell: &Value) -> (Option<Rate>, IpAddr) {
        let rate = at(cell, &["axes", "rate"]).and_then(Value::as_str);
        let rate = rate.and_then(|text| text.parse::<Rate>().ok());
        let Some(rate) = rate.filter(|rate| rate.bits_per_second() > 0) else {
            return (None, TO);
        };
        let known = self.rates.iter().position(|one| *one == rate);
        let place = known.unwrap_or(self.rates.len());
        if known.is_none() {
            self.rates.push(rate);
        }
        (Some(rate), Self::address(place))
    }

    fn address(place: usize) -> IpAddr {
        let [.., a, b] = (place as u32).to_be_bytes();
        IpAddr::V4(Ipv4Addr::new(0, 1, a, b))
    }

    fn add_to(&self, machine: &mut Machine) {
        machine.names.insert(FROM, "sender".to_owned());
        machine.names.insert(TO, "receiver".to_owned());
        for (place, rate) in self.rates.iter().enumerate() {
            let name = link_name(*rate);
            let facts = Interface {
                enabled: true,
                state: "up".to_owned(),
                device: true,
                speed: Some(*rate),
                ..Interface::default()
            };
            machine.interfaces.insert(name.clone(), facts);
            let path = Path { interface: Some(name), ..Path::default() };
            machine.paths.insert(Self::address(place), path);
            machine.names.insert(Self::address(place), "receiver".to_owned());
        }
    }
}

fn link_name(rate: Rate) -> String {
    format!("the lab's link of {}", crate::words::rate(rate))
}

/// Returns the period, and whether the period has all samples of the turn. `most`: maximum number
/// of samples after the first.
fn period(
    turn: &Value,
    results: &Value,
    link: (Option<Rate>, IpAddr),
    most: usize,
) -> Option<(Period, bool)> {
    let measured = turn.get("measured")?;
    let goodput = goodput(turn)?;
    let omitted = method_time(results, "left out at the start").unwrap_or(0.0);
    let length = method_time(results, "measured for").unwrap_or(1.0).max(1e-3);
    let series = Series::of(measured, omitted);
    let times = match series.times.len() {
        0 | 1 => vec![0.0, length],
        _ => series.times.clone(),
    };
    let is_tunnel = is_tunnel(results, turn);
    let mut first = connection(turn, measured);
    first.remote = SocketAddr::new(link.1, 0);
    let mut samples = vec![Sample { connections: vec![first], ..Sample::default() }];
    if !is_tunnel && series.value("limited_by", "send buffer", 1).is_some() {
        let tcp = &mut samples[0].connections[0].tcp;
        (tcp.busy, tcp.window_limited, tcp.buffer_limited) =
            (Some(Span::ZERO), Some(Span::ZERO), Some(Span::ZERO));
    }
    samples[0].tasks.extend(only_thread(turn, "client").map(|_| Task {
        name: text(turn, &["system"]).unwrap_or("the sender").to_owned() + " (sending side)",
        ..Task::default()
    }));
    let all_cores = cores(results);
    for (place, pair) in times.windows(2).enumerate().take(most) {
        let seconds = pair[1] - pair[0];
        let Some(passed) = span(seconds).filter(|passed| *passed > Span::ZERO) else { continue };
        let mut sample = samples.last()?.clone();
        sample.at = sample.at + passed;
        let tcp = &mut sample.connections[0].tcp;
        let mbit = series.value("throughput", "acknowledged", place + 1).unwrap_or(goodput);
        match is_tunnel {
            true => {
                tcp.bytes_acked =
                    Some(tcp.bytes_acked.unwrap_or_default() + carried(goodput, seconds))
            }
            false => advance(tcp, &series, place + 1, seconds, mbit, measured),
        }
        for core in &all_cores {
            add_core(sample.cores.entry(*core).or_default(), measured, results, passed);
        }
        for task in &mut sample.tasks {
            let percent = only_thread(turn, "client").unwrap_or(0.0);
            task.system = task.system + span(seconds * percent / 100.0).unwrap_or_default();
        }
        samples.push(sample);
    }
    begin_cores(&mut samples);
    if let Some(rate) = link.0 {
        // The workload's other connections share the link.
        for sample in &mut samples {
            let payload = carried(goodput, sample.at.secs_f64()).count();
            let frames = payload / USUAL_MSS;
            let sent = Bytes::new(payload + frames * HEADERS);
            let counters = InterfaceCounters { sent, sent_packets: frames, ..Default::default() };
            sample.interfaces.insert(link_name(rate), counters);
        }
    }
    let ends = &samples[0].connections[0];
    let connections = vec![(ends.local, ends.remote)];
    let attempt = far(turn).map(|far| Attempt {
        connections,
        sends: true,
        far: Some(far),
        ..Attempt::default()
    });
    let nothing_else_ran = true;
    let is_whole = times.len() <= most + 1;
    (samples.len() > 1).then(|| {
        let label = label(turn);
        (Period { label, samples, nothing_else_ran, attempt, ..Period::default() }, is_whole)
    })
}

/// Returns the share of a core, in percent, that a side used if a single thread did its work.
fn only_thread(turn: &Value, side: &str) -> Option<f64> {
    let metric =
        |name: &str| number(turn, &["measured", "metrics", &format!("{name}.{side}"), "value"]);
    let threads = metric("threads_at_work")?;
    (threads > 0.0 && threads < TWO_THREADS).then(|| metric("cpu_percent")).flatten()
}

/// Returns the load of the far end's core: at least that of the receiving side's only thread.
fn far(turn: &Value) -> Option<FarEnd> {
    let busy = Share::from_percent(only_thread(turn, "server")?.min(100.0))?;
    let (user, system) = (Some(Share::ZERO), Some(busy));
    Some(FarEnd { user, system, busiest: Some((busy, Share::ZERO)), ..FarEnd::default() })
}

fn carried(mbit: f64, seconds: f64) -> Bytes {
    Bytes::new((mbit * 1e6 / 8.0 * seconds).clamp(0.0, 1e15) as u64)
}

fn connection(turn: &Value, measured: &Value) -> Connection {
    let name = text(turn, &["system"]).unwrap_or("the sender").to_owned();
    let counts = number(measured, &["metrics", "retransmit_percent", "value"]).map(|_| 0);
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
        beside: false,
        // Some runs do not state the algorithm, but the name of their system does.
        congestion: text(measured, &["congestion_control"])
            .or(text(turn, &["system"]).filter(|name| ALGORITHMS.contains(name)))
            .map(str::to_owned),
        tcp: Tcp {
            bytes_acked: Some(Bytes::ZERO),
            bytes_received: Some(Bytes::ZERO),
            data_segments_out: counts,
            retransmitted: counts,
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
    let total = tcp.bytes_acked.unwrap_or_default() + carried(mbit, seconds);
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

/// Adds CPU times, which were not saved per core: each core gets the mean.
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

/// A run's time series, without the omitted time.
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
    let cores = known_cores(results).iter();
    let cores = cores.filter_map(|core| usize::try_from(core.as_u64()?).ok());
    cores.take(MOST_CORES).collect()
}

/// Returns the workload's cores as the results list them.
fn known_cores(results: &Value) -> &[Value] {
    let known = |key: &str| list(results, &["environment", key]);
    let own = known("workload_cpus");
    if own.is_empty() { known("cores_usable") } else { own }
}

fn method_time(results: &Value, name: &str) -> Option<f64> {
    Some(text(results, &["method", name])?.parse::<Span>().ok()?.secs_f64())
}

const FROM: IpAddr = IpAddr::V4(Ipv4Addr::new(0, 0, 0, 1));
const TO: IpAddr = IpAddr::V4(Ipv4Addr::new(0, 0, 0, 2));
const USUAL_MSS: u64 = 1448;
/// Bytes of the headers of Ethernet, IP and TCP with timestamps.
const HEADERS: u64 = 66;
const ALGORITHMS: [&str; 4] = ["cubic", "reno", "bbr", "tcpa"];
const TWO_THREADS: f64 = 1.5;
const MOST_TOLD: usize = 4;
const MOST_CELLS: usize = 1000;
const MOST_SAMPLES: usize = 4000;
/// Each core has the mean of all.
const MOST_CORES: usize = 512;
/// Maximum number of turns. The largest lab has some thousand.
const MOST_TURNS: usize = 65_536;
/// Maximum number of connections and cores of all samples, apart from two samples for each cell.
const MOST_ENTRIES: usize = 1 << 22;
const NEVER: [&str; 6] = [
    "interfaces and queueing disciplines",
    "counters of IP, TCP and UDP",
    "threads, other processes and control groups",
    "user time of cores, which counts as system time here",
    "socket queues, limits and unsent data",
    "the segments of the connections, which are computed from bytes",
];
