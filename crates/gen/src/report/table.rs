use std::fmt::Write;

use units::Span;

use crate::Plan;
use crate::run::{LaneCounts, Outcome, Snapshot, StreamCounts};

/// Formats TRex's table of a running test, with the rates since the snapshot `before`.
pub fn live_table(plan: &Plan, multiplier: f64, before: &Snapshot, now: &Snapshot) -> String {
    let span = now.elapsed.saturating_sub(before.elapsed).secs_f64().max(1e-9);
    let rate = |of: fn(&LaneCounts) -> u64| {
        let change = |(now, before): (&LaneCounts, &LaneCounts)| of(now).saturating_sub(of(before));
        now.lanes.iter().zip(&before.lanes).map(change).sum::<u64>() as f64 / span
    };
    let mut out = String::new();
    let per_port: Vec<f64> = now
        .lanes
        .iter()
        .zip(&before.lanes)
        .map(|(now, before)| (now.sent_bytes - before.sent_bytes) as f64 * 8.0 / span)
        .collect();
    ports(&mut out, &now.lanes, &per_port);
    let busy = now.busy.saturating_sub(before.busy).secs_f64() / span * 100.0;
    let (clients, servers) = plan.hosts();
    let active = now.active;
    let (tx, rx) = (rate(|lane| lane.sent_bytes) * 8.0, rate(|lane| lane.received_bytes) * 8.0);
    let flows = now.opened.saturating_sub(before.opened) as f64 / span;
    let expected = plan.bit_rate(multiplier).bits_per_second() as f64;
    let expected_packets = plan.packet_rate(multiplier).events();
    let expected_flows = plan.flow_rate(multiplier).events();
    let left = now.duration.saturating_sub(now.elapsed).secs_f64();
    let per_client = active as f64 / (clients.max(1)) as f64;
    let _ = write!(
        out,
        "\n-Global stats enabled \n \
         Cpu Utilization : {busy:.1}  %\n \
         Platform_factor : 1.0  \n \
         Total-Tx        : {}  \n \
         Total-Rx        : {}  \n \
         Total-PPS       : {}  \n \
         Total-CPS       : {}  \n\n \
         Expected-PPS    : {}  \n \
         Expected-CPS    : {}  \n \
         Expected-BPS    : {}  \n\n \
         Active-flows    : {active:8}  Clients : {clients:8}   Socket-util : {:.4} %    \n \
         Open-flows      : {:8}  Servers : {servers:8}   Socket : {active:8} Socket/Clients :  {per_client:.1} \n \
         drop-rate       : {}   \n \
         current time    : {:.1} sec  \n \
         test duration   : {left:.1} sec  \n",
        human(tx, "bps"),
        human(rx, "bps"),
        human(rate(|lane| lane.sent), "pps"),
        human(flows, "cps"),
        human(expected_packets, "pps"),
        human(expected_flows, "cps"),
        human(expected, "bps"),
        per_client * 100.0 / 64_000.0,
        now.opened,
        human((tx - rx).max(0.0), "bps"),
        now.elapsed.secs_f64(),
    );
    out
}

/// Formats the summary: the result, the lines that TRex prints at the end of a test, and facts
/// that TRex does not print.
pub fn summary(outcome: &Outcome) -> String {
    let mut out = answer(outcome);
    let span = outcome.actual.secs_f64().max(1e-9);
    let rates: Vec<f64> =
        outcome.lanes.iter().map(|lane| lane.sent_bytes as f64 * 8.0 / span).collect();
    ports(&mut out, &outcome.lanes, &rates);
    let sum = |of: fn(&LaneCounts) -> u64| outcome.lanes.iter().map(of).sum::<u64>();
    let (tx, rx) = (outcome.sent(), outcome.received());
    let (tx_bytes, rx_bytes) = (sum(|lane| lane.sent_bytes), sum(|lane| lane.received_bytes));
    let errors = sum(|lane| lane.send_errors);
    let _ = write!(
        out,
        "\n summary stats \n -------------- \n Total-pkt-drop       : {} pkts \n",
        tx.saturating_sub(rx)
    );
    if rx as f64 > tx as f64 * 1.01 {
        out.push_str(" Warning : number of rx packets exceeds 101% of tx packets!\n");
    }
    let _ = write!(
        out,
        " Total-tx-bytes       : {tx_bytes} bytes \n \
         Total-tx-sw-bytes    : {tx_bytes} bytes \n \
         Total-rx-bytes       : {rx_bytes} byte \n \n \
         Total-tx-pkt         : {tx} pkts \n \
         Total-rx-pkt         : {rx} pkts \n \
         Total-sw-tx-pkt      : {tx} pkts \n \
         Total-sw-err         : {errors} pkts \n \
         Total ARP sent       : {} pkts \n \
         Total ARP received   : {} pkts \n",
        sum(|lane| lane.arp_sent),
        sum(|lane| lane.arp_received),
    );
    if !outcome.streams.is_empty() {
        latency(&mut out, &outcome.streams);
    }
    let _ = write!(
        out,
        "\n offered rate         : {} \n \
         planned time         : {} \n \
         actual time          : {} \n",
        outcome.offered(),
        seconds(outcome.planned),
        seconds(outcome.actual),
    );
    if errors > 0 {
        let _ = writeln!(
            out,
            " WARNING: the ports refused {errors} packets: the other end of one may be gone, or its \
             MTU too small"
        );
    }
    if outcome.retries > 0 {
        let _ = writeln!(out, " waits for a full port: {}", outcome.retries);
    }
    if let drops @ 1.. = outcome.sink_drops() {
        let _ = writeln!(
            out,
            " WARNING: this machine dropped {drops} packets before they were counted; the loss is \
             not the device's alone"
        );
    }
    if let times @ 1.. = outcome.sink_full() {
        let _ = writeln!(
            out,
            " WARNING: the receiving port may have been full {times} times; a loss may not be the \
             device's alone"
        );
    }
    if let Some(text) = missed(outcome) {
        let _ = writeln!(out, " WARNING: {text}");
    }
    if let Some(error) = &outcome.error {
        let _ = writeln!(out, " ERROR: {error}");
    }
    out
}

fn answer(outcome: &Outcome) -> String {
    let span = outcome.actual.secs_f64().max(1e-9);
    let (sent, received) = (outcome.sent(), outcome.received());
    let bytes: u64 = outcome.lanes.iter().map(|lane| lane.sent_bytes).sum();
    let lost = sent.saturating_sub(received);
    let missed = outcome.missed().len();
    let kept = match missed {
        0 => String::new(),
        _ => format!(
            "; the offered rate was not kept in {missed} of {} seconds",
            outcome.seconds.len()
        ),
    };
    format!(
        "{sent} packets were sent in {} ({}, {}), and {lost} did not arrive ({:.2} %){kept}.\n\n",
        seconds(outcome.actual),
        human(sent as f64 / span, "pps").trim(),
        human(bytes as f64 * 8.0 / span, "bps").trim(),
        lost as f64 * 100.0 / sent.max(1) as f64,
    )
}

/// Describes the seconds in which the generator did not keep the offered rate; `None` if the
/// generator kept the rate in every second.
pub(super) fn missed(outcome: &Outcome) -> Option<String> {
    let missed = outcome.missed();
    let first = outcome.seconds.get(*missed.first()?)?;
    Some(format!(
        "the offered rate was not kept within 0.5 % in {} of {} seconds; second {}: {:.0} packets \
         planned, {} sent; the longest lag was {:.1} ms",
        missed.len(),
        outcome.seconds.len(),
        missed[0] + 1,
        first.planned,
        first.sent,
        outcome.longest_lag.millis_f64(),
    ))
}

fn ports(out: &mut String, lanes: &[LaneCounts], rates: &[f64]) {
    out.push_str("-Per port stats table \n      ports ");
    for number in 0..lanes.len() {
        let _ = write!(out, "| {number:15} ");
    }
    let _ = writeln!(out, "\n {}", "-".repeat(11 + 18 * lanes.len()));
    let rows: [(&str, Count); 6] = [
        ("opackets", |lane| lane.sent),
        ("obytes", |lane| lane.sent_bytes),
        ("ipackets", |lane| lane.received),
        ("ibytes", |lane| lane.received_bytes),
        ("ierrors", |lane| lane.receive_errors + lane.sink_drops),
        ("oerrors", |lane| lane.send_errors),
    ];
    for (name, of) in rows {
        let _ = write!(out, " {name:>10} ");
        for lane in lanes {
            let _ = write!(out, "| {:15} ", of(lane));
        }
        out.push('\n');
    }
    let _ = write!(out, " {:>10} ", "Tx Bw");
    for rate in rates {
        let _ = write!(out, "| {:>15} ", human(*rate, "bps").trim_start());
    }
    out.push('\n');
}

fn latency(out: &mut String, streams: &[StreamCounts]) {
    let longest = streams.iter().map(|stream| stream.latency.max()).max().unwrap_or(0);
    let count: u64 = streams.iter().map(|stream| stream.latency.len()).sum();
    let sum: f64 =
        streams.iter().map(|stream| stream.latency.mean() * stream.latency.len() as f64).sum();
    let mean = if count > 0 { sum / count as f64 / 1e3 } else { 0.0 };
    let is_bad = |stream: &StreamCounts| stream.lost() + stream.duplicates + stream.reordered > 0;
    let state = if streams.iter().any(is_bad) { "ERROR" } else { "OK" };
    let _ = write!(
        out,
        " maximum-latency   : {:.0} usec \n \
         average-latency   : {mean:.0} usec \n \
         latency-any-error : {state}  \n\n stream |       sent |   received |     lost |  reorder |      dup |  \
         p50 usec |  p99 usec |  max usec | jitter\n",
        longest as f64 / 1e3,
    );
    for stream in streams {
        let at = |quantile: f64| stream.latency.value_at_quantile(quantile) as f64 / 1e3;
        let _ = writeln!(
            out,
            " {:6} | {:10} | {:10} | {:8} | {:8} | {:8} | {:9.1} | {:9.1} | {:9.1} | {:.1}",
            stream.stream,
            stream.sent,
            stream.received,
            stream.lost(),
            stream.reordered,
            stream.duplicates,
            at(0.5),
            at(0.99),
            stream.latency.max() as f64 / 1e3,
            stream.jitter.micros_f64(),
        );
    }
}

fn seconds(span: Span) -> String {
    format!("{:.3} s", span.secs_f64())
}

/// Formats a number as TRex's `double_to_human_str` does, in powers of 1000.
fn human(value: f64, unit: &str) -> String {
    let (scaled, prefix) = match value {
        value if value >= 1e9 => (value / 1e9, "G"),
        value if value >= 1e6 => (value / 1e6, "M"),
        value if value >= 1e3 => (value / 1e3, "K"),
        value => (value, " "),
    };
    format!("{scaled:10.2} {prefix}{unit}")
}

type Count = fn(&LaneCounts) -> u64;
