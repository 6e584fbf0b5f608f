use super::columns::Columns;
use super::{ConfidenceOutcome, Cpu, RoundsOptions, RoundsOutcome};
use crate::output::TextFormat;
use units::{Span, shown};

/// Formats the measurements: a row for each size, and prominent warnings about unreliable results.
pub fn table(options: &RoundsOptions, outcomes: &[RoundsOutcome], format: &TextFormat) -> String {
    let mut columns = Columns::default();
    let has_latency = options.kind.has_latency();
    columns.head("", if has_latency { "request/response" } else { "message" });
    columns.head("", "repeats");
    columns.head("", if has_latency { "trans/s" } else { "Mbit/s" });
    columns.head("", if format.unicode { "±%" } else { "+-%" });
    if has_latency {
        for title in ["mean", "p50", "p90", "p99", "p99.9", "max"] {
            columns.head(if format.unicode { "latency in µs" } else { "latency in us" }, title);
        }
    }
    let counts_loss = has_latency || options.kind.is_udp();
    if counts_loss {
        columns.head("", if has_latency { "lost" } else { "lost %" });
    }
    for title in ["client", "server"] {
        columns.head("CPU %", title);
    }
    for title in ["client", "server"] {
        columns.head(demand_words(has_latency, format.unicode), title);
    }
    for outcome in outcomes {
        columns.row(row(outcome, counts_loss));
        if let Some(confidence) = outcome.confidence.filter(|confidence| !confidence.met) {
            columns.remark(warning(outcome, &confidence, format.unicode));
        }
    }
    let answer = answer(outcomes, format.unicode);
    format!("{answer}{}\n{}", heading(options, format.unicode), columns.render(format))
}

/// Builds the first line: the rate, and the latency of transactions, for the first and the last
/// size.
fn answer(outcomes: &[RoundsOutcome], unicode: bool) -> String {
    let of_one = |outcome: &RoundsOutcome| {
        let size = outcome.size;
        if !outcome.kind.has_latency() {
            return format!("{} in messages of {size} B", shown::rate(outcome.rate.mean));
        }
        let rate = format!("{} transactions/s of {size} B", figure(outcome.rate.mean));
        let at = |span: Span| {
            let text = shown::seconds(span.secs_f64());
            if unicode { text } else { text.replace('µ', "u") }
        };
        match &outcome.latency {
            Some(all) => format!("{rate}, latency p50 {}, p99 {}", at(all.p50), at(all.p99)),
            None => rate,
        }
    };
    match outcomes {
        [] => String::new(),
        [one] => format!("summary     {}\n", of_one(one)),
        [first, .., last] => format!("summary     {}; {}\n", of_one(first), of_one(last)),
    }
}

/// Describes the missed confidence in one sentence, with netperf's three exclamation marks.
fn warning(outcome: &RoundsOutcome, confidence: &ConfidenceOutcome, unicode: bool) -> String {
    let sign = if unicode { "±" } else { "+-" };
    let reached = match outcome.rate.relative_half_width() {
        Some(half) => format!("{sign}{} %", figure(half * 100.0)),
        None => "no accuracy".to_owned(),
    };
    let asked = confidence.asked;
    format!(
        "!!! NOT SURE: the rate at size {} is known to {reached} at {} % after {} repeats, and {sign}{} % was \
         asked: something disturbs the measurement; measure longer (--time) or more often (--repeats)",
        outcome.size,
        asked.level.percent(),
        outcome.rate.count,
        asked.width.percent() / 2.0,
    )
}

fn heading(options: &RoundsOptions, unicode: bool) -> String {
    let RoundsOptions { kind, host, port, connections, depth, time, .. } = options;
    let mut out = format!("{kind} to {host}, port {port}, {time} a repeat");
    if *connections > 1 {
        out += &format!(", {connections} connections");
    }
    if *depth > 1 {
        out += &format!(", {depth} requests under way on each");
    }
    if let Some(confidence) = options.confidence {
        let wish = confidence.to_string();
        let wish = if unicode { wish } else { wish.replace('±', "+-") };
        out +=
            &format!(", {} repeats for {wish}", options.repeats.to_string().replace(',', " to "));
    }
    out
}

fn row(outcome: &RoundsOutcome, counts_loss: bool) -> Vec<String> {
    let has_latency = outcome.kind.has_latency();
    let or_none = |value: Option<f64>| value.map_or_else(|| NONE.to_owned(), figure);
    let size = outcome.size;
    let size = match has_latency {
        true => format!("{}/{}", size.request.count(), size.response.count()),
        false => size.request.count().to_string(),
    };
    let rate = outcome.rate.mean / if has_latency { 1.0 } else { 1e6 };
    let half = outcome.rate.relative_half_width().map(|half| half * 100.0);
    let mut cells = vec![size, outcome.runs.len().to_string(), figure(rate), or_none(half)];
    if has_latency {
        cells.extend(match &outcome.latency {
            Some(all) => [all.mean, all.p50, all.p90, all.p99, all.p999, all.max]
                .map(|span| figure(span.micros_f64())),
            None => [NONE; 6].map(str::to_owned),
        });
    }
    if counts_loss {
        let share = outcome.loss().map(|loss| loss.percent());
        cells.push(if has_latency { outcome.lost().to_string() } else { or_none(share) });
    }
    let ends = [outcome.client(), outcome.server()];
    for cpu in &ends {
        cells.push(or_none(cpu.as_ref().map(|cpu| cpu.used.user + cpu.used.system)));
    }
    for cpu in &ends {
        let time = cpu.as_ref().map(Cpu::threads).unwrap_or(Span::ZERO);
        cells.push(or_none(outcome.demand(time)));
    }
    cells
}

fn demand_words(of_transactions: bool, unicode: bool) -> &'static str {
    match (of_transactions, unicode) {
        (true, true) => "CPU µs/trans",
        (true, false) => "CPU us/trans",
        (false, true) => "CPU µs/KiB",
        (false, false) => "CPU us/KiB",
    }
}

/// Formats a number with three digits, or with all digits before the decimal point.
fn figure(value: f64) -> String {
    let decimals = match value.abs() {
        100.0.. => 0,
        10.0.. => 1,
        1.0.. => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

const NONE: &str = "-";

#[cfg(test)]
mod tests {
    use super::super::{Confidence, Kind, Latencies, Run, document};
    use super::*;
    use crate::event::CpuUse;
    use std::time::Duration;

    fn outcome(rates: &[f64]) -> RoundsOutcome {
        let mut latencies = Latencies::default();
        (1..=100).for_each(|micros| latencies.add(Duration::from_micros(micros)));
        let used = CpuUse { user: 10.0, system: 40.0, cores: Vec::new() };
        let cpu = Cpu { elapsed: Span::from_secs(1), used };
        let run = |rate: &f64| Run {
            rate: *rate,
            elapsed: Span::from_secs(1),
            count: *rate as u64,
            bytes_sent: *rate as u64,
            bytes_received: *rate as u64,
            lost: 1,
            late: 0,
            latency: latencies.summary(),
            client: cpu.clone(),
            server: cpu.clone(),
        };
        let runs = rates.iter().map(run).collect();
        let size = "1/128".parse().unwrap();
        let asked = Some(Confidence::usual());
        RoundsOutcome::of((Kind::UdpRr, size), (1, 1), (runs, &latencies), asked).unwrap()
    }

    #[test]
    fn only_unreliable_results_are_marked() {
        let options = RoundsOptions {
            confidence: Some(Confidence::usual()),
            ..RoundsOptions::new("host", Kind::UdpRr)
        };
        let format = TextFormat { colour: true, ..TextFormat::plain() };
        let sure = outcome(&[10_000.0, 10_010.0, 9_990.0]);
        let text = table(&options, std::slice::from_ref(&sure), &format);
        let first = "summary     10000 transactions/s of 1/128 B, latency p50 50.0 us, p99 99.0 us";
        assert_eq!(text.lines().next(), Some(first), "{text}");
        assert!(!text.contains("!!!") && text.contains("1/128"), "{text}");
        assert!(text.contains("+-2.5 % at 99 %") && !text.contains('±'), "{text}");
        let unsure = outcome(&[10_000.0, 20_000.0, 15_000.0]);
        let text = table(&options, &[sure.clone(), unsure.clone()], &format);
        assert!(
            text.contains("\x1b[1;31m!!! NOT SURE: the rate at size 1/128 is known to +-191 %")
        );

        let json = document(&options, &[sure, unsure], None);
        let results = json["results"].as_array().unwrap();
        assert_eq!(results[0]["confidence"]["met"], true);
        assert_eq!(results[1]["confidence"]["met"], false);
        assert_eq!(results[1]["requests_s"]["mean"], 15_000.0);
        assert_eq!(results[0]["latency_us"]["samples"], 100);
        // 0.5 s of CPU for 10000 transactions.
        assert_eq!(results[0]["cpu"]["client"]["demand_us"], 50.0);
    }

    #[test]
    fn numbers_in_the_table_have_three_digits() {
        let figures = [0.0, 0.1234, 1.234, 12.34, 123.4, 123_456.7].map(figure);
        assert_eq!(figures, ["0.000", "0.123", "1.23", "12.3", "123", "123457"]);
    }
}
