//! Sends requests to a web server over http or https.

mod server;

use super::benchmark::{Measuring, NOT_PINNED, PINNED, cpus_of, number, pinned};
use super::between::{Client, Exchange};
use super::{CellWorkload, Workload};
use crate::bench::hosts::Turn;
use crate::bench::machine::{MachineStep, Measured, Testbed};
use crate::model::file::{Document, FileError, Key, SystemKind, TO, bounded};
use crate::model::{Failure, Measurement};
use perf::web::Fault;
use results::Axes;
use serde_json::Value;
use server::{Program, Server};
use std::net::{IpAddr, SocketAddr};
use units::{Bytes, Span};

#[derive(Debug)]
pub(super) struct Web;

#[derive(Debug, Clone)]
pub(super) struct WebSettings {
    is_tls: bool,
    keep_alive: bool,
    connections: u32,
    size: Bytes,
    /// Requests a second of an open loop. `None`: a closed loop.
    rate: Option<u32>,
    timeout: Span,
    program: Program,
    pinned: bool,
}

impl Default for WebSettings {
    fn default() -> Self {
        Self {
            is_tls: false,
            keep_alive: true,
            connections: 16,
            size: Bytes::new(612),
            rate: None,
            timeout: Span::from_secs(2),
            program: Program::Any,
            pinned: false,
        }
    }
}

impl WebSettings {
    pub(super) fn usual(is_tls: bool, keep_alive: bool, pinned: bool) -> Self {
        Self { is_tls, keep_alive, pinned, ..Self::default() }
    }
}

impl Workload for Web {
    fn kind(&self) -> &'static str {
        "web"
    }

    fn systems(&self) -> &'static [SystemKind] {
        &[SystemKind::Tcp]
    }

    fn method(&self) -> Vec<(&'static str, String)> {
        METHOD.iter().map(|(term, text)| (*term, (*text).to_owned())).collect()
    }

    fn at(&self, document: &Document, axes: &Axes) -> Result<Box<dyn CellWorkload>, FileError> {
        let usual = WebSettings::default();
        let either = |text: &str, [yes, no]: [&str; 2]| match text {
            text if text == yes => Ok(true),
            text if text == no => Ok(false),
            other => Err(format!("`{other}`: write {yes} or {no}")),
        };
        let is_tls = document.workload_key(axes, SCHEME, |text| either(text, ["https", "http"]))?;
        let keep_alive = document
            .workload_key(axes, CONNECTION, |text| either(text, ["keep-alive", "short"]))?;
        let size = |text: &str| {
            bounded(text, Bytes::ZERO..=LARGEST, || format!("a body has at most {LARGEST}"))
        };
        let timeout = |text: &str| {
            let bounds = Span::from_millis(1)..=Span::from_secs(3600);
            bounded(text, bounds, || "`timeout` is from 1ms to 1h".to_owned())
        };
        Ok(Box::new(WebSettings {
            is_tls: is_tls.unwrap_or(usual.is_tls),
            keep_alive: keep_alive.unwrap_or(usual.keep_alive),
            connections: document
                .workload_count(axes, CONNECTIONS, 1..=1000)?
                .unwrap_or(usual.connections),
            size: document.workload_key(axes, SIZE, size)?.unwrap_or(usual.size),
            rate: document.workload_count(axes, RATE, 1..=10_000_000)?,
            timeout: document.workload_key(axes, TIMEOUT, timeout)?.unwrap_or(usual.timeout),
            program: document.workload_key(axes, SERVER, str::parse)?.unwrap_or(usual.program),
            pinned: pinned(document, axes)?,
        }))
    }

    fn keys(&self) -> &'static [Key] {
        &[SCHEME, CONNECTION, CONNECTIONS, SIZE, RATE, TIMEOUT, SERVER, PINNED]
    }

    fn port_on(&self, document: &Document, host: &str) -> Option<u16> {
        // If an axis or `via` names the host, each turn checks the port.
        (document.workload.get_ref().text(TO) == Some(host)).then_some(server::PORT)
    }

    fn refused_by_simulator(&self) -> Option<&'static str> {
        Some("this workload runs only on a machine")
    }
}

impl CellWorkload for WebSettings {
    fn measure(&self, step: &MachineStep<'_>, testbed: &Testbed) -> Result<Measured, Failure> {
        let (from, to) = (step.ends.from.as_str(), step.ends.to.as_str());
        let (near, far) = (testbed.namespace(from)?, testbed.namespace(to)?);
        let (client_cpus, server_cpus) = cpus_of(step, self.pinned);
        let address = testbed.address(to, from)?;
        let mut server = Server::start(self, step, &far, address, &server_cpus)?;
        let weir = step.weir.display().to_string();
        let mut argv = self.client(&weir, &self.url(address), step.duration, step.omit);
        if let Some(certificate) = server.certificate() {
            argv.extend(["--ca".to_owned(), certificate.display().to_string()]);
        }
        let used = server.program_name;
        let measuring = Measuring { step, server: Some(&mut server.program) };
        measuring.run(argv, &near, &client_cpus, testbed, |document, result| {
            account(document, result)?;
            result.labels.insert("server".to_owned(), used.to_owned());
            Ok(())
        })
    }

    fn between_machines(&self) -> Result<(), &'static str> {
        match self {
            Self { pinned: true, .. } => Err(NOT_PINNED),
            Self { program: Program::Nginx, size, .. } if *size > LARGEST_PLACED => Err(
                "the lab sends nginx its file through ssh; choose a `size` of at most 1MiB, or `server = \"weir\"`",
            ),
            _ => Ok(()),
        }
    }

    fn measure_between(&self, turn: &Turn<'_>) -> Result<Measurement, Failure> {
        let address = turn.addresses[1];
        let mut exchange = Exchange::new(turn);
        let mut argv = self.client(turn.near.weir(), &self.url(address), turn.duration, turn.omit);
        let (served, certificate) = server::on_host(self, turn.far, address)?;
        if let Some(certificate) = &certificate {
            let certificate = turn.near.place(server::CERTIFICATE, certificate)?;
            argv.extend(["--ca".to_owned(), certificate]);
        }
        exchange.serve(turn.far, served, server::PORT)?;
        let lasting = turn.omit + turn.duration;
        let client = Client { name: "weir perf web", host: turn.near, argv, lasting };
        exchange.run(client, account)
    }
}

impl WebSettings {
    /// Returns the URL of the file, for the client.
    fn url(&self, address: IpAddr) -> String {
        let scheme = if self.is_tls { "https" } else { "http" };
        format!("{scheme}://{}/file", SocketAddr::new(address, server::PORT))
    }

    /// Returns the command line of the client.
    fn client(&self, weir: &str, url: &str, duration: Span, omit: Span) -> Vec<String> {
        let seconds = |span: Span| format!("{}s", span.secs_f64());
        let mut argv: Vec<String> = [weir, "perf", "web", url].map(str::to_owned).into();
        let mut option = |name: &str, value: String| argv.extend([name.to_owned(), value]);
        option("--connections", self.connections.to_string());
        option("--time", seconds(duration));
        option("--omit", seconds(omit));
        option("--timeout", seconds(self.timeout));
        if let Some(rate) = self.rate {
            option("--rate", rate.to_string());
        }
        argv.push("--json".to_owned());
        if !self.keep_alive {
            argv.push("--short".to_owned());
        }
        argv
    }
}

/// Records the figures of `weir perf web`.
fn account(document: &Value, result: &mut Measurement) -> Result<(), Failure> {
    let responses = number(document, &["responses"]).unwrap_or(0.0);
    let errors = number(document, &["errors"]).unwrap_or(0.0);
    let kinds = Fault::ALL.iter().filter_map(|fault| {
        let count = number(document, &["errors_by_kind", fault.word()])?;
        (count > 0.0).then(|| format!("{fault} {count}"))
    });
    let kinds: Vec<String> = kinds.collect();
    if responses == 0.0 {
        let kinds =
            if kinds.is_empty() { "none was answered".to_owned() } else { kinds.join(", ") };
        return Err(Failure::Workload(format!("no request had a good response: {kinds}")));
    }
    result.record("requests_s", number(document, &["requests_s"]));
    for part in ["p50", "p90", "p99", "p99.9", "max"] {
        let name = if part == "p99.9" { "p999" } else { part };
        result.record(&format!("latency_us.{name}"), number(document, &["latency_us", part]));
    }
    result.record("connect_us.p50", number(document, &["connect_us", "p50"]));
    result.record("client_cpu_us", number(document, &["cpu_us_per_request"]));
    result.record("errors", Some(errors));
    for fault in Fault::ALL {
        let count = number(document, &["errors_by_kind", fault.word()]);
        result.record(&format!("errors.{}", fault.word()), count.filter(|count| *count > 0.0));
    }
    if errors > 0.0 {
        result.warnings.push(format!("requests failed: {}", kinds.join(", ")));
    }
    Ok(())
}

const SCHEME: Key = Key::text("scheme");
const CONNECTION: Key = Key::text("connection");
const CONNECTIONS: Key = Key::count("connections");
const SIZE: Key = Key::text("size");
const RATE: Key = Key::count("rate");
const TIMEOUT: Key = Key::text("timeout");
const SERVER: Key = Key::text("server");
const LARGEST: Bytes = Bytes::new(64 << 20);
/// Maximum size of a file that the lab writes to a host for each turn.
const LARGEST_PLACED: Bytes = Bytes::new(1 << 20);

pub(super) const METHOD: &[(&str, &str)] = &[
    (
        "requests",
        "`weir perf web` from the near host: GET over 16 connections unless the lab says otherwise, each with a \
         request under way at any time. `long` connections stay open; `short` connections carry one request, and \
         https has a full handshake for each. Only complete responses with a status below 400 count",
    ),
    (
        "the web server",
        "nginx with a worker for each of its CPUs, or `weir perf web-server` where nginx is not installed, and \
         between real machines unless the lab names nginx; for https a key on the curve P-256",
    ),
    (
        "latency of requests",
        "from sending a request (short: from opening its connection) to the end of its response. With `rate` from \
         the time at which the request was due (corrected for coordinated omission)",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn web_errors_are_counted_by_kind_and_give_a_warning() {
        let document = json!({
            "responses": 90, "requests_s": 45.0, "errors": 10,
            "errors_by_kind": {"reset": 7, "length": 3, "cut": 0},
            "latency_us": {"mean": 5.0, "p99.9": 9.0},
        });
        let mut result = Measurement::default();
        account(&document, &mut result).unwrap();
        let value = |name: &str| result.metrics.get(name).map(|metric| metric.value);
        assert_eq!(value("requests_s"), Some(45.0));
        assert_eq!(value("errors.reset"), Some(7.0));
        assert_eq!(value("errors.cut"), None);
        assert_eq!(value("latency_us.p999"), Some(9.0));
        assert_eq!(result.warnings, ["requests failed: reset 7, wrong length 3"]);
    }

    #[test]
    fn a_web_turn_without_a_good_response_fails() {
        let document = json!({"responses": 0, "errors": 4, "errors_by_kind": {"stalled": 4}});
        let failure = account(&document, &mut Measurement::default()).unwrap_err().to_string();
        assert_eq!(failure, "no request had a good response: stalled 4");
    }
}
