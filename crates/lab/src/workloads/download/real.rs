//! Measures HTTP downloads between two real machines, from Weir's own web server.

use crate::bench::hosts::Turn;
use crate::bench::machine::PORT;
use crate::model::{Failure, Measurement};
use crate::workloads::benchmark::number;
use crate::workloads::between::{Client, Exchange};
use serde_json::Value;
use std::net::SocketAddr;
use units::{Bytes, Span};

/// Whether Weir's web server has files of this size.
pub(super) fn fits(size: Bytes) -> Result<(), &'static str> {
    match size > LARGEST {
        true => Err("the web server there has files of at most 64 MiB; choose a smaller `size`"),
        false => Ok(()),
    }
}

/// Measures downloads by the client on the host `to` from the web server on the host `from`.
pub(super) fn measure(size: Bytes, turn: &Turn<'_>) -> Result<Measurement, Failure> {
    let refused = |key: &str| {
        let text = format!(
            "`{key}` changes links of namespaces only: leave out `{key}` between real machines"
        );
        Err(Failure::Workload(text))
    };
    match turn.system {
        system if system.warmed_at.is_some() => return refused("warmed_at"),
        system if system.first_window().is_some() => return refused("first_window"),
        _ => {}
    }
    let (server, client) = (turn.near, turn.far);
    let address = SocketAddr::new(turn.addresses[0], PORT);
    let mut exchange = Exchange::new(turn);
    exchange.serve(server, self::server(server.weir(), address, size), PORT)?;
    let mut fetch = |duration: Span| {
        let client = Client {
            name: "weir perf download",
            host: client,
            argv: self::client(client.weir(), address, duration),
            // A download that has begun in time is completed after the time is over.
            lasting: duration + PATIENCE,
        };
        exchange.run(client, |document, result| account(size, document, result))
    };
    if turn.system.is_warm() {
        fetch(Span::ZERO)?;
    }
    fetch(turn.duration)
}

fn server(weir: &str, address: SocketAddr, size: Bytes) -> Vec<String> {
    let (ip, port) = (address.ip().to_string(), address.port().to_string());
    let size = format!("{}B", size.count());
    let words = [weir, "perf", "web-server", "--bind", &ip, "--port", &port, "--size", &size];
    words.map(str::to_owned).into()
}

fn client(weir: &str, address: SocketAddr, duration: Span) -> Vec<String> {
    let (url, time) = (format!("http://{address}/file"), format!("{}s", duration.secs_f64()));
    let patience = format!("{}s", PATIENCE.secs_f64());
    let words = [weir, "perf", "download", &url, "--time", &time, "--timeout", &patience, "--json"];
    words.map(str::to_owned).into()
}

fn account(size: Bytes, document: &Value, result: &mut Measurement) -> Result<(), Failure> {
    let list = |name: &str| document.get(name).and_then(Value::as_array).cloned();
    let (came, failed) = (list("downloads"), list("failed").unwrap_or_default());
    let reasons: Vec<String> = failed
        .iter()
        .filter_map(Value::as_str)
        .map(|reason| units::foreign(reason).to_string())
        .collect();
    let came = came.unwrap_or_default();
    let bytes = |one: &Value| one.get("bytes").and_then(Value::as_u64);
    if let Some(other) = came.iter().filter_map(bytes).find(|bytes| *bytes != size.count()) {
        let text = format!("got {} instead of {size}", Bytes::new(other));
        return Err(Failure::Workload(text));
    }
    if came.is_empty() {
        let reason = reasons.first().map_or("it printed no figures", String::as_str);
        return Err(Failure::Workload(format!("no download was complete: {reason}")));
    }
    result.warnings.extend(reasons);
    result.record("kbyte_s", number(document, &["kbyte_s"]));
    result.record("transfer_kbyte_s", number(document, &["transfer_kbyte_s"]));
    result.record("availability_percent", number(document, &["availability_percent"]));
    Ok(())
}

/// Maximum time of a download between real machines.
const PATIENCE: Span = Span::from_secs(120);
const LARGEST: Bytes = Bytes::new(64 << 20);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn failed_downloads_lower_the_availability_and_are_named() {
        let size = Bytes::new(640);
        let document = json!({
            "kbyte_s": 5.0, "transfer_kbyte_s": 6.0, "availability_percent": 50.0,
            "downloads": [{"bytes": 640}], "failed": ["reset \u{1b}[2J"],
        });
        let mut result = Measurement::default();
        account(size, &document, &mut result).unwrap();
        assert_eq!(result.metrics["availability_percent"].value, 50.0);
        assert_eq!(result.warnings, [r"reset \x1b[2J"]);
        let cut = json!({"downloads": [{"bytes": 639}]});
        let error = account(size, &cut, &mut result).unwrap_err().to_string();
        assert!(error.starts_with("got 639"), "{error}");
        let none = json!({"downloads": [], "failed": ["refused"]});
        let error = account(size, &none, &mut result).unwrap_err().to_string();
        assert_eq!(error, "no download was complete: refused");
    }
}
