use super::{Fault, WebOptions, WebOutcome};
use crate::rounds::LatencySummary;
use serde_json::{Map, Value, json};

pub fn document(options: &WebOptions, outcome: &WebOutcome) -> Value {
    let count = |fault: Fault| outcome.faults.get(&fault).copied().unwrap_or(0);
    let errors: Map<String, Value> =
        Fault::ALL.iter().map(|fault| (fault.word().to_owned(), count(*fault).into())).collect();
    let words: Map<String, Value> = outcome
        .words
        .iter()
        .map(|(fault, words)| (fault.word().to_owned(), units::foreign(words).to_string().into()))
        .collect();
    let statuses: Map<String, Value> =
        outcome.statuses.iter().map(|(status, n)| (status.to_string(), (*n).into())).collect();
    json!({
        "weir": env!("CARGO_PKG_VERSION"),
        "url": options.address.to_string(),
        "connections": options.connections,
        "threads": options.threads,
        "keep_alive": options.keep_alive,
        "loop": if options.rate.is_some() { "open" } else { "closed" },
        "rate": options.rate,
        "tls": outcome.protocol,
        "seconds": outcome.elapsed.secs_f64(),
        "responses": outcome.responses,
        "requests_s": outcome.requests_s(),
        "body_bytes": outcome.body,
        "goodput_mbit_s": outcome.mbit_s(),
        "latency_us": outcome.latency.map(LatencySummary::micros),
        "latency_corrected": options.rate.is_some(),
        "service_us": outcome.service.map(LatencySummary::micros),
        "connect_us": outcome.connect.map(LatencySummary::micros),
        "errors": outcome.errors(),
        "errors_by_kind": errors,
        "statuses": statuses,
        "first_errors": words,
        "unfinished": outcome.unfinished,
        "unsent": outcome.unsent,
        "cpu_us_per_request": outcome.cpu_us(),
    })
}
