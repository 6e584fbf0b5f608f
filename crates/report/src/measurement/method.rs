//! How and where a measurement was made.

use perf::event::LatencySource;
use perf::options::{Amount, Protocol};
use units::{Bytes, Span};

use super::Measurement;
use crate::number;

/// Returns options, ends and versions, as pairs of name and text.
pub(crate) fn how(measurement: &Measurement) -> Vec<(String, String)> {
    let Measurement { started, ended, .. } = measurement;
    let options = &started.options;
    let udp = options.protocol == Protocol::Udp;
    let mut rows: Vec<(&str, Option<String>)> = vec![
        ("this end", Some(format!("{}, weir {}", started.local, env!("CARGO_PKG_VERSION")))),
        ("far end", Some(far_end(measurement))),
        ("begun", Some(http_date(measurement))),
        ("asked for", Some(amount(options.amount, udp))),
        ("left out at the start", some_span(options.omit)),
        ("streams each way", Some(options.streams.to_string())),
        ("bytes a write", Some(Bytes::new(options.block_bytes() as u64).to_string())),
        ("rate of each stream", options.rate.map(|rate| rate.to_string())),
        ("kernel pacing", options.kernel_rate.map(|rate| rate.to_string())),
        ("socket buffers asked for", options.window.map(|window| window.to_string())),
        ("segment size asked for", options.mss.map(|mss| format!("{mss} B"))),
        ("segment size of the control connection", started.mss.map(|mss| mss.to_string())),
        ("algorithm here, read back", ended.local_congestion.clone().filter(|_| !udp)),
        ("algorithm there, as reported", ended.remote_congestion.clone().filter(|_| !udp)),
    ];
    if let Some(stream) = started.streams.first() {
        let buffers =
            format!("{} to send, {} to receive", stream.send_buffer, stream.receive_buffer);
        rows.push(("socket buffers at the start", Some(buffers)));
    }
    let tos = options.type_of_service;
    rows.push(("type of service", (tos != 0).then(|| format!("{tos:#04x}"))));
    for (name, is) in [
        ("small segments held back", options.no_delay),
        ("data copied as it is sent", options.zero_copy),
        ("data copied as it is received", options.skip_receive_copy),
    ] {
        rows.push((name, is.then(|| "no".to_owned())));
    }
    rows.push(("round trips", Some(round_trips(measurement))));
    if let Some(observed) = &ended.observed {
        let seconds = number::format(observed.cost.secs_f64());
        rows.push(("CPU time of the observation", Some(format!("{seconds} s"))));
        let cost = observed.probe_cost.map(|cost| cost.to_string());
        rows.push(("cost of the probes", cost));
    }
    rows.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text?))).collect()
}

/// Returns the machine of this end, as pairs of name and text.
pub(crate) fn environment(measurement: &Measurement) -> Vec<(String, String)> {
    let machine = measurement.machine.as_ref();
    let Some(serde_json::Value::Object(facts)) =
        machine.and_then(|machine| serde_json::to_value(machine).ok())
    else {
        return Vec::new();
    };
    let mut rows = Vec::new();
    for (name, value) in facts.iter().filter(|(_, value)| !value.is_null()) {
        crate::method::flatten(name, value, &mut rows);
    }
    rows
}

/// Explains the numbers in everyday language.
pub(crate) fn meaning() -> [&'static str; 4] {
    [
        "The receiving end counts the received data, over its own time. The sent data is the data that \
         the sender passed to its kernel. The time omitted at the start appears in the series over time \
         and in no other number.",
        "The kernel reports the limits on a sender (tcp_info). The application limits the time without \
         anything to send. The receiver's window and the own send buffer are counted separately. \
         Congestion control limits the rest, by its window or its pacing. Where packets wait in a \
         queue on the path, or arrive as fast as the sender paces, the full link counts instead.",
        "The round-trip times of the streams are the kernel's smoothed estimate. A separate flow, which \
         waits in the same queues, measures the latency under load. Each point of its chart is the \
         longest latency of its time.",
        "CPU is in percent of one core, so 200 % are two cores. The figure of a core includes everything \
         that ran on it, whether for this test or not.",
    ]
}

fn far_end(measurement: &Measurement) -> String {
    let started = &measurement.started;
    let version = perf::output::peer_program(started);
    match started.peer.as_str() {
        "" => format!("{}, {version}", started.remote),
        name => format!("{name} ({}), {version}", started.remote),
    }
}

/// Formats the date with the same text as in the JSON document.
fn http_date(measurement: &Measurement) -> String {
    httpdate::fmt_http_date(measurement.started.at)
}

fn amount(amount: Amount, udp: bool) -> String {
    match amount {
        Amount::Time(Span::ZERO) => "until the user ended the test".to_owned(),
        Amount::Time(span) => number::duration(span.secs_f64()),
        Amount::Bytes(count) => Bytes::new(count).to_string(),
        Amount::Blocks(count) if udp => format!("{count} datagrams"),
        Amount::Blocks(count) => format!("{count} blocks"),
    }
}

fn some_span(span: Span) -> Option<String> {
    (span > Span::ZERO).then(|| number::duration(span.secs_f64()))
}

fn round_trips(measurement: &Measurement) -> String {
    let ended = &measurement.ended;
    let by = ended.loaded_latency.as_ref().or(ended.idle_latency.as_ref()).map(|one| one.by);
    match by {
        Some(LatencySource::Echo) => "by datagrams that our server sends back, beside the streams",
        Some(LatencySource::Ping) => "by ICMP echo, beside the streams",
        Some(LatencySource::TcpInfo) => "by the kernel's estimate of the streams themselves",
        None => "not measured",
    }
    .to_owned()
}
