use super::{WebOptions, WebOutcome};
use crate::rounds::LatencySummary;
use std::fmt::Write as _;
use units::{foreign, shown};

/// Formats the results of a measurement as text. The first line has the main result.
pub fn text(options: &WebOptions, outcome: &WebOutcome) -> String {
    let mut out = answer(options, outcome);
    let connections = counted(options.connections.into(), "connection");
    let kind = if options.keep_alive { "kept open" } else { "one for each request" };
    let threads = counted(options.threads.into(), "thread");
    let _ = writeln!(
        out,
        "{}: {connections} ({kind}), {threads}, {:.1} s{}",
        foreign(options.address.to_string()),
        outcome.elapsed.secs_f64(),
        outcome.protocol.as_ref().map(|tls| format!(", {tls}")).unwrap_or_default(),
    );
    if outcome.responses > 0 {
        out.push('\n');
        let _ = writeln!(out, "{:14}{HEADS}", "");
        let named = match options.rate {
            Some(_) => vec![("latency", &outcome.latency), ("without waiting", &outcome.service)],
            None => vec![("latency", &outcome.latency)],
        };
        for (name, summary) in named.into_iter().chain([("connection", &outcome.connect)]) {
            if let Some(summary) = summary {
                let _ = writeln!(out, "{name:16}{}", percentiles(summary));
            }
        }
        let _ = writeln!(
            out,
            "\n{} responses, {} Mbit/s of bodies, {} of this program's CPU for each",
            outcome.responses,
            shown::significant(outcome.mbit_s()),
            outcome.cpu_us().map(|us| shown::seconds(us / 1e6)).unwrap_or_default(),
        );
    }
    for (fault, count) in &outcome.faults {
        let words = outcome.words.get(fault).map(|words| format!(" (first: {})", foreign(words)));
        let _ = writeln!(out, "{count} × {fault}: {}{}", fault.advice(), words.unwrap_or_default());
    }
    if outcome.statuses.len() > 1 {
        let each: Vec<String> =
            outcome.statuses.iter().map(|(status, count)| format!("{status} {count} ×")).collect();
        let _ = writeln!(out, "statuses: {}", each.join(", "));
    }
    // Status 304 is no redirect: the client already has the document.
    let redirects = outcome.statuses.range(300_u16..400).filter(|(status, _)| **status != 304);
    let redirects: u64 = redirects.map(|(_, count)| count).sum();
    if redirects > 0 {
        let _ = writeln!(
            out,
            "{redirects} × redirect: redirects are not followed; measure the URL that the answer's `Location` \
             names (curl -sI shows the answer)"
        );
    }
    if outcome.lags(options) {
        let _ = writeln!(
            out,
            "{} requests found no free connection until the end: the server is slower than --rate, or needs more \
             --connections",
            outcome.unsent
        );
    }
    out
}

fn answer(options: &WebOptions, outcome: &WebOutcome) -> String {
    let errors = match (outcome.errors(), outcome.faults.iter().max_by_key(|(_, count)| **count)) {
        (0, _) | (_, None) => "no errors".to_owned(),
        (all, Some((fault, _))) if outcome.faults.len() == 1 => {
            format!("{}: {fault}", counted(all, "error"))
        }
        (all, Some((fault, most))) => format!("{}, {most} of them {fault}", counted(all, "error")),
    };
    let Some(latency) = &outcome.latency else {
        let waiting = match outcome.errors() {
            0 => format!("; {} under way: raise --time", counted(outcome.unfinished, "request")),
            _ => String::new(),
        };
        return format!("no good response: {errors}{waiting}\n");
    };
    let at = |span: units::Span| shown::seconds(span.secs_f64());
    let asked = options.rate.map(|rate| format!(" of {}", shown::significant(rate)));
    format!(
        "{}{} requests/s, latency p50 {}, p99 {}, {errors}\n",
        shown::significant(outcome.requests_s()),
        asked.unwrap_or_default(),
        at(latency.p50),
        at(latency.p99),
    )
}

fn percentiles(summary: &LatencySummary) -> String {
    let LatencySummary { p50, p90, p99, p999, max, .. } = *summary;
    let cell = |span: units::Span| format!("{:>10}", shown::seconds(span.secs_f64()));
    [p50, p90, p99, p999, max].map(cell).concat()
}

fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

const HEADS: &str = "         p50       p90       p99     p99.9       max";
