//! The tables that the page and the Markdown share.

use perf::event::{CpuUse, End, Latency, LatencySource, StreamTotal};
use perf::options::{Direction, Protocol};
use perf::output::limits as limited;
use perf::output::outcome::{DirectionStreams, Outcome, directions};
use units::Bytes;

use super::Measurement;
use super::words::{mbit, millis, percent, size};
use crate::number;

/// A table with names in the first column and values in the other columns.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    pub(crate) heads: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// Builds the table of the counts of both ends: each stream, and the sum of each direction.
pub(crate) fn outcome(measurement: &Measurement) -> Table {
    let options = &measurement.started.options;
    let mut table = Table::with(&["stream", "sent, Mbit/s", "received, Mbit/s", "received"]);
    table.heads.extend(names(match options.protocol {
        Protocol::Tcp => &["retransmits", "sent again", "largest cwnd", "mean rtt"],
        Protocol::Udp => &["datagrams", "lost", "out of order", "duplicates", "jitter"],
    }));
    for direction in directions(measurement.started.role, &measurement.ended.streams) {
        if direction.streams.len() > 1 {
            for stream in &direction.streams {
                table.rows.push(row(measurement, &stream.id.to_string(), &direction, &[stream]));
            }
        }
        let all = match direction.streams.as_slice() {
            [one] => one.id.to_string(),
            _ => "all".to_owned(),
        };
        table.rows.push(row(measurement, &all, &direction, &direction.streams));
    }
    table
}

pub(crate) fn limits(measurement: &Measurement) -> Table {
    let mut table = Table::with(&[
        "stream",
        "full link",
        "congestion control",
        "receiver's window",
        "send buffer",
        "application",
    ]);
    let share = |share: units::Share| format!("{:.0} %", share.percent());
    for stream in &measurement.ended.streams {
        let path = stream.path.as_ref();
        if let Some(limits) = path.and_then(|path| limited::of(path, stream.sent.elapsed)) {
            let direction = if stream.sends { "from here" } else { "to here" };
            table.rows.push(vec![
                format!("{} {direction}", stream.id),
                share(limits.full_link),
                share(limits.congestion),
                share(limits.receive_window),
                share(limits.send_buffer),
                share(limits.application),
            ]);
        }
    }
    table
}

pub(crate) fn latency(measurement: &Measurement) -> Table {
    let mut table =
        Table::with(&["path", "p50", "p99", "longest", "answers", "lost", "measured by"]);
    let ended = &measurement.ended;
    let idle = measurement.idle.as_ref().or(ended.idle_latency.as_ref());
    for (name, latency) in [("idle", idle), ("under load", ended.loaded_latency.as_ref())] {
        if let Some(latency) = latency {
            table.rows.push(vec![
                name.to_owned(),
                millis(latency.p50),
                millis(latency.p99),
                millis(latency.max),
                latency.samples.to_string(),
                latency.lost.to_string(),
                source(latency, measurement.started.is_loopback()),
            ]);
        }
    }
    table
}

/// Builds the table of CPU use: of the test at both ends, then of each core.
pub(crate) fn cpu(measurement: &Measurement) -> Table {
    let mut table = Table::with(&["CPU, % of a core", "user", "system", "both", "of it softirq"]);
    let ended = &measurement.ended;
    for (end, cpu) in [("here", Some(&ended.local_cpu)), ("there", ended.remote_cpu.as_ref())] {
        let Some(cpu) = cpu else { continue };
        let figure = number::format;
        table.rows.push(vec![
            format!("the test, {end}"),
            figure(cpu.user),
            figure(cpu.system),
            figure(cpu.user + cpu.system),
            "–".to_owned(),
        ]);
        table.rows.extend(cores(end, cpu));
    }
    table
}

impl Table {
    fn with(heads: &[&str]) -> Self {
        Self { heads: names(heads).collect(), rows: Vec::new() }
    }
}

fn names(names: &[&str]) -> impl Iterator<Item = String> {
    names.iter().map(|name| (*name).to_owned())
}

fn cores(end: &str, cpu: &CpuUse) -> Vec<Vec<String>> {
    let row = |core: &perf::event::CoreUse| {
        vec![
            format!("core {} {end}, everything on it", core.core),
            "–".to_owned(),
            "–".to_owned(),
            number::format(core.busy),
            number::format(core.softirq),
        ]
    };
    cpu.cores.iter().map(row).collect()
}

fn row(
    measurement: &Measurement,
    name: &str,
    direction: &DirectionStreams<'_, StreamTotal>,
    streams: &[&StreamTotal],
) -> Vec<String> {
    let options = &measurement.started.options;
    let outcome = Outcome::of(streams);
    let direction = match (options.direction, direction.sends) {
        (Direction::Both, true) => " from here",
        (Direction::Both, false) => " to here",
        _ => "",
    };
    let known = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
    let rate =
        |end: End| known(end.is_known().then(|| number::format(mbit(end.bytes, end.elapsed))));
    let mut row = vec![
        format!("{name}{direction}"),
        rate(outcome.sent),
        rate(outcome.received),
        known(outcome.received.is_known().then(|| size(outcome.received.bytes))),
    ];
    if options.protocol == Protocol::Udp {
        let datagrams = outcome.datagrams.unwrap_or_default();
        let share = percent(datagrams.lost, datagrams.count);
        row.extend([
            outcome.datagrams_of_sender().to_string(),
            format!("{} ({share})", datagrams.lost),
            datagrams.reordered.to_string(),
            datagrams.duplicates.to_string(),
            millis(datagrams.jitter),
        ]);
        return row;
    }
    let again = outcome.bytes_retransmitted;
    let paths = || streams.iter().filter_map(|stream| stream.path);
    let cwnd = paths().filter_map(|path| path.max_cwnd).map(Bytes::count).max();
    let rtts: Vec<u64> = paths().filter_map(|path| path.mean_rtt).map(|rtt| rtt.nanos()).collect();
    let rtt = (!rtts.is_empty()).then(|| rtts.iter().sum::<u64>() / rtts.len() as u64);
    row.extend([
        known(outcome.retransmits.map(|count| count.to_string())),
        known(again.map(|bytes| percent(bytes.count(), outcome.sent.bytes.count()))),
        known(cwnd.map(|count| size(Bytes::new(count)))),
        known(rtt.map(|nanos| millis(units::Span::from_nanos(nanos)))),
    ]);
    row
}

fn source(latency: &Latency, is_loopback: bool) -> String {
    let by = match latency.by {
        LatencySource::Echo => "datagrams that our server sends back",
        LatencySource::Ping => "ICMP echo",
        LatencySource::TcpInfo => "the kernel, on the streams themselves",
    };
    if is_loopback { format!("{by}, over loopback") } else { by.to_owned() }
}
