//! A result of `weir perf`, which uses iperf3's keys, or of iperf3 `-J`. Each interval is a sample.

use super::figures::{at, bytes, count, list, micros, number, rate, share, small, span, text};
use super::{begin_cores, unseen};
use crate::recording::{
    Attempt, Connection, CoreTimes, FarEnd, Holder, Machine, Origin, Period, Recording, Sample,
    Task, Tcp,
};
use serde_json::Value;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use units::{Bytes, Span};

pub(super) fn read(document: &Value) -> Result<Recording, String> {
    if text(document, &["start", "test_start", "protocol"]) == Some("UDP") {
        return Err(
            "it is a test of UDP, whose sender has no window: judge a test of TCP".to_owned()
        );
    }
    let streams = streams(document);
    if streams.is_empty() {
        let why = text(document, &["error"]).unwrap_or("no stream was connected");
        return Err(format!("its test has no result ({why}): run it again"));
    }
    let is_weir = document.get("weir").is_some();
    let program = if is_weir { "weir perf" } else { "iperf3" };
    let mut samples = vec![first(&streams, program)];
    if is_weir {
        // The kernel's counts of limited time begin at zero.
        for one in samples[0].connections.iter_mut().zip(&streams) {
            let (connection, stream) = one;
            let zero = stream.sends.then_some(Span::ZERO);
            let tcp = &mut connection.tcp;
            (tcp.busy, tcp.window_limited, tcp.buffer_limited) = (zero, zero, zero);
        }
    }
    let intervals = list(document, &["intervals"]);
    let (mut entries, mut judged) = (0, 0);
    for (place, interval) in intervals.iter().enumerate().take(MOST_INTERVALS) {
        judged = place + 1;
        // The counters begin at zero again after omitted intervals.
        if at(interval, &["sum", "omitted"]).and_then(Value::as_bool) == Some(true) {
            continue;
        }
        let before = samples.last().expect("there is a first sample");
        if let Some(sample) = after(before, interval, &streams, document) {
            entries += sample.connections.len() + sample.cores.len();
            samples.push(sample);
        }
        // Each sample has all connections and cores, also those that its interval does not repeat.
        if entries >= MOST_ENTRIES {
            break;
        }
    }
    if samples.len() < 2 {
        return Err("it has no interval with a duration: run the test with -i 1".to_owned());
    }
    begin_cores(&mut samples);
    // The start of a connection has other limits than the later intervals.
    if samples.len() > FEW {
        samples.remove(0);
    }
    let mut recording = Recording::new(Machine::default());
    recording.origin = Origin::Saved;
    recording.focus = Some(format!("the test of {program}"));
    recording.note = Some(format!("made of the result that {program} saved"));
    let cores: Vec<usize> = samples.iter().flat_map(|s| s.cores.keys().copied()).collect();
    recording.machine.cores = cores;
    recording.machine.cores.sort_unstable();
    recording.machine.cores.dedup();
    if let Some(kernel) = text(document, &["start", "system_info"]) {
        recording.machine.kernel = kernel.split_whitespace().nth(2).unwrap_or(kernel).to_owned();
    }
    let attempt = attempt(document, &streams, is_weir);
    let label = "the saved test".to_owned();
    recording.periods.push(Period { label, samples, attempt: Some(attempt), ..Period::default() });
    recording.unseen =
        NEVER.iter().map(|what| unseen(what, "a saved result has none of this")).collect();
    if !is_weir {
        let reason = "iperf3 does not save it; weir perf does";
        recording.unseen.push(unseen("limits of the sender, and the cores", reason));
    } else {
        let reason = "only the sum was saved; it is divided as the test's own CPU time is";
        recording.unseen.push(unseen("user and system time of each core", reason));
    }
    if judged < intervals.len() {
        let reason = format!("only the first {judged} of {} intervals are judged", intervals.len());
        recording.unseen.push(unseen("the end of the test", &reason));
    }
    if list(document, &["start", "connected"]).len() > MOST_STREAMS {
        let reason = format!("only the first {MOST_STREAMS} connections of a test are judged");
        recording.unseen.push(unseen("further connections", &reason));
    }
    if intervals.iter().take(judged).any(|interval| reported_cores(interval).len() > MOST_CORES) {
        let reason = format!("only the first {MOST_CORES} cores of an interval are judged");
        recording.unseen.push(unseen("further cores", &reason));
    }
    recording.unseen.sort();
    Ok(recording)
}

/// A connection of the test, as the result lists it.
struct Stream {
    socket: u64,
    sends: bool,
    local: SocketAddr,
    remote: SocketAddr,
}

fn streams(document: &Value) -> Vec<Stream> {
    let totals = list(document, &["end", "streams"]).iter().rev();
    let totals = totals.filter_map(|one| Some((count(one, &["sender", "socket"])?, one)));
    let totals: HashMap<u64, &Value> = totals.collect();
    let sends = |socket: u64| at(totals.get(&socket)?, &["sender", "sender"])?.as_bool();
    let address = |one: &Value, end: &str| -> Option<SocketAddr> {
        let host: IpAddr = text(one, &[&format!("{end}_host")])?.parse().ok()?;
        Some(SocketAddr::new(host, u16::try_from(count(one, &[&format!("{end}_port")])?).ok()?))
    };
    let connected = list(document, &["start", "connected"]).iter().take(MOST_STREAMS);
    let streams = connected.filter_map(|one| {
        let socket = count(one, &["socket"])?;
        let (local, remote) = (address(one, "local")?, address(one, "remote")?);
        Some(Stream { socket, sends: sends(socket).unwrap_or(true), local, remote })
    });
    streams.collect()
}

/// Builds the first sample: all counters are zero, and no gauge is known yet.
fn first(streams: &[Stream], program: &str) -> Sample {
    let connections = streams.iter().map(|stream| Connection {
        local: stream.local,
        remote: stream.remote,
        state: Default::default(),
        cookie: stream.socket,
        holders: vec![Holder { pid: 0, name: program.to_owned(), ..Holder::default() }],
        receive_queue: Bytes::ZERO,
        send_queue: Bytes::ZERO,
        receive_limit: None,
        send_limit: None,
        retransmits: 0,
        probing: false,
        drops: 0,
        beside: false,
        congestion: None,
        tcp: Tcp {
            bytes_acked: Some(Bytes::ZERO),
            bytes_received: Some(Bytes::ZERO),
            data_segments_out: stream.sends.then_some(0),
            retransmitted: stream.sends.then_some(0),
            ..Tcp::default()
        },
    });
    let tasks = match streams {
        [_] => vec![Task { name: program.to_owned(), ..Task::default() }],
        // The CPU time of several threads is saved as one sum.
        _ => Vec::new(),
    };
    Sample { connections: connections.collect(), tasks, ..Sample::default() }
}

fn after(before: &Sample, interval: &Value, streams: &[Stream], whole: &Value) -> Option<Sample> {
    let entries = list(interval, &["streams"]);
    let seconds = entries.iter().find_map(|one| number(one, &["seconds"]))?;
    let length = span(seconds).filter(|length| *length > Span::ZERO)?;
    let mut sample = Sample { at: before.at + length, ..before.clone() };
    let (entries, extras) = (by_socket(entries), by_socket(list(interval, &["weir", "streams"])));
    for (connection, stream) in sample.connections.iter_mut().zip(streams) {
        let Some(entry) = entries.get(&stream.socket) else { continue };
        let extra = extras.get(&stream.socket).copied().unwrap_or(&Value::Null);
        advance(connection, stream.sends, entry, extra, whole);
    }
    add_cpu(&mut sample, interval, length, whole);
    Some(sample)
}

/// Returns the first entry of each socket.
fn by_socket(entries: &[Value]) -> HashMap<u64, &Value> {
    let known = entries.iter().rev().filter_map(|one| Some((count(one, &["socket"])?, one)));
    known.collect()
}

fn advance(one: &mut Connection, sends: bool, entry: &Value, extra: &Value, whole: &Value) {
    let moved = bytes(entry, &["bytes"]).unwrap_or_default();
    let more = |total: Option<Bytes>| Some(total.unwrap_or_default() + moved);
    let tcp = &mut one.tcp;
    if !sends {
        tcp.bytes_received = more(tcp.bytes_received);
        return;
    }
    tcp.bytes_acked = more(tcp.bytes_acked);
    let mss = count(whole, &["start", "tcp_mss_default"])
        .or(count(whole, &["start", "tcp_mss"]))
        .filter(|mss| *mss > 0)
        .unwrap_or(USUAL_MSS);
    tcp.mss = Some(Bytes::new(mss));
    // The number of segments was not saved. Assumes full segments.
    let total = tcp.bytes_acked.unwrap_or_default().count() / mss;
    tcp.data_segments_out = u32::try_from(total).ok();
    let again = small(entry, &["retransmits"]).unwrap_or(0);
    tcp.retransmitted = tcp.retransmitted.map(|before| before.saturating_add(again));
    let info = |key: &'static str| ["tcp_info", key];
    tcp.rtt = micros(extra, &info("rtt_us")).or(micros(entry, &["rtt"]));
    tcp.rttvar = micros(entry, &["rttvar"]);
    let least = micros(extra, &info("min_rtt_us")).or(tcp.rtt.filter(|rtt| *rtt > Span::ZERO));
    tcp.min_rtt = match (tcp.min_rtt, least) {
        (Some(before), Some(now)) => Some(before.min(now)),
        (before, now) => now.or(before),
    };
    tcp.rto = micros(extra, &info("rto_us"));
    let window = count(entry, &["snd_cwnd"]).or(count(extra, &info("cwnd_bytes")));
    tcp.cwnd = window.and_then(|window| u32::try_from(window / mss).ok()).filter(|cwnd| *cwnd > 0);
    tcp.peer_window = bytes(entry, &["snd_wnd"]).filter(|window| *window > Bytes::ZERO);
    tcp.path_mtu = bytes(entry, &["pmtu"]).filter(|mtu| *mtu > Bytes::ZERO);
    tcp.ssthresh = small(extra, &info("ssthresh_segments"));
    tcp.unacked = small(extra, &info("unacked_segments"));
    tcp.lost = small(extra, &info("lost_segments"));
    tcp.unsent = bytes(extra, &info("notsent_bytes"));
    tcp.delivery_rate = rate(extra, &info("delivery_rate_bits_per_second"));
    tcp.pacing_rate = rate(extra, &info("pacing_rate_bits_per_second"));
    tcp.application_limited =
        at(extra, &info("delivery_rate_app_limited")).and_then(Value::as_bool);
    tcp.reordered = small(extra, &info("reorder_seen"));
    tcp.timeouts = small(extra, &info("timeouts")).and_then(|count| u16::try_from(count).ok());
    tcp.busy = micros(extra, &info("busy_us"));
    tcp.window_limited = micros(extra, &info("receive_window_limited_us"));
    tcp.buffer_limited = micros(extra, &info("send_buffer_limited_us"));
    let waits = tcp.unsent.unwrap_or_default().count();
    let flying = u64::from(tcp.unacked.unwrap_or(0)).saturating_mul(mss);
    one.send_queue = Bytes::new(waits + flying);
    one.congestion = text(whole, &["end", "sender_tcp_congestion"]).map(str::to_owned);
}

fn add_cpu(sample: &mut Sample, interval: &Value, length: Span, whole: &Value) {
    let part = |percent: f64| span(length.secs_f64() * percent / 100.0).unwrap_or_default();
    let of_test = |key: &str| number(whole, &["end", "cpu_utilization_percent", key]);
    let user = number(interval, &["weir", "cpu", "user_percent"]).or(of_test("host_user"));
    let system = number(interval, &["weir", "cpu", "system_percent"]).or(of_test("host_system"));
    let (user, system) = (user.unwrap_or(0.0), system.unwrap_or(0.0));
    for task in &mut sample.tasks {
        task.user = task.user + part(user);
        task.system = task.system + part(system);
    }
    for core in reported_cores(interval).iter().take(MOST_CORES) {
        let read = || {
            let index = usize::try_from(count(core, &["core"])?).ok()?;
            let busy = number(core, &["busy_percent"])?.min(100.0);
            Some((index, busy, number(core, &["softirq_percent"]).unwrap_or(0.0).min(busy)))
        };
        let Some((index, busy, softirq)) = read() else { continue };
        let times: &mut CoreTimes = sample.cores.entry(index).or_default();
        let in_user = (busy - softirq) * user / (user + system).max(1e-9);
        times.user = times.user + part(in_user);
        times.system = times.system + part(busy - softirq - in_user);
        times.softirq = times.softirq + part(softirq);
        times.idle = times.idle + part(100.0 - busy);
    }
    // If the test's thread fills a core, this is the busiest core.
    let busiest = sample.cores.iter().max_by_key(|(_, times)| times.user + times.system);
    let busiest = busiest.map(|(core, _)| *core);
    sample.tasks.iter_mut().for_each(|task| task.core = busiest);
}

fn reported_cores(interval: &Value) -> &[Value] {
    list(interval, &["weir", "cpu", "cores"])
}

fn attempt(document: &Value, streams: &[Stream], is_weir: bool) -> Attempt {
    let sends = streams[0].sends;
    let far = FarEnd {
        weir: at(document, &["weir", "peer_is_weir"]).and_then(Value::as_bool).unwrap_or(false),
        user: share(document, &["end", "cpu_utilization_percent", "remote_user"]),
        system: share(document, &["end", "cpu_utilization_percent", "remote_system"]),
        busiest: list(document, &["weir", "cpu", "remote", "cores"])
            .iter()
            .filter_map(|core| {
                Some((share(core, &["busy_percent"])?, share(core, &["softirq_percent"])?))
            })
            .max_by(|a, b| a.0.fraction().total_cmp(&b.0.fraction())),
        bytes: bytes(document, &["end", "sum_sent", "bytes"]).filter(|_| !sends),
        retransmits: count(document, &["end", "sum_sent", "retransmits"]).filter(|_| !sends),
        congestion: text(document, &["end", "sender_tcp_congestion"]).map(str::to_owned),
        ..of_far_sender(document)
    };
    Attempt {
        host: text(document, &["start", "connecting_to", "host"]).unwrap_or_default().to_owned(),
        connections: streams
            .iter()
            .filter(|stream| stream.sends == sends)
            .map(|stream| (stream.local, stream.remote))
            .collect(),
        sends,
        far: (is_weir || far.user.is_some()).then_some(far),
        ..Attempt::default()
    }
}

/// Returns the far sender's own limits, if it reported them.
fn of_far_sender(document: &Value) -> FarEnd {
    let far = list(document, &["weir", "streams"]).iter().find(|one| {
        at(one, &["sends"]).and_then(Value::as_bool) == Some(false) && one.get("path").is_some()
    });
    let time = |key: &str| micros(far?, &["path", key]);
    FarEnd {
        busy: time("busy_us"),
        window_limited: time("receive_window_limited_us"),
        buffer_limited: time("send_buffer_limited_us"),
        mean_rtt: time("mean_rtt_us"),
        min_rtt: time("min_rtt_us"),
        ..FarEnd::default()
    }
}

const NEVER: [&str; 4] = [
    "interfaces and queueing disciplines",
    "counters of IP, TCP and UDP",
    "other processes and control groups",
    "socket queues and limits",
];
/// The segment size of TCP with timestamps over an Ethernet of 1500 bytes.
const USUAL_MSS: u64 = 1448;
/// With more intervals than this, the first interval is left out, because it contains the start of
/// the connection.
const FEW: usize = 3;
const MOST_INTERVALS: usize = 4000;
/// Maximum number of connections and cores of all samples.
const MOST_ENTRIES: usize = 1 << 19;
const MOST_STREAMS: usize = 256;
const MOST_CORES: usize = 4096;
