//! Traffic generators: their command lines and their JSON output. All use iperf3's keys.

use crate::model::file::Traffic;
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::Path;
use units::{Rate, Span};

/// The programs that generate the traffic of one step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Programs<'a> {
    pub(super) traffic: Traffic,
    /// Path of the `weir` program.
    pub(super) weir: &'a Path,
}

/// The options of the client's command line.
#[derive(Debug)]
pub(super) struct Order<'a> {
    pub(super) to: SocketAddr,
    pub(super) duration: Span,
    pub(super) omit: Span,
    pub(super) streams: u32,
    pub(super) congestion: Option<&'a str>,
    pub(super) rate: Option<Rate>,
}

impl Programs<'_> {
    /// Returns the name of the client's program for messages.
    pub(super) fn name(&self) -> &'static str {
        match self.traffic {
            Traffic::Perf | Traffic::PerfBare | Traffic::PerfBlocks => "weir perf",
            Traffic::Iperf3 => "iperf3",
            Traffic::Iperf3Latest => "iperf3-latest",
            Traffic::Sockets => "weir perf plain-client",
        }
    }

    /// Returns the duration that the program gives a phase of `span`: iperf3 counts whole seconds.
    pub(super) fn lasting(&self, span: Span) -> Span {
        match self.traffic {
            Traffic::Iperf3 | Traffic::Iperf3Latest => Span::from_secs(whole_seconds(span)),
            Traffic::Perf | Traffic::PerfBare | Traffic::PerfBlocks | Traffic::Sockets => span,
        }
    }

    /// Whether the server program ends after its first client.
    pub(super) fn serves_once(&self) -> bool {
        self.traffic != Traffic::Sockets
    }

    pub(super) fn server(&self, address: SocketAddr) -> Vec<String> {
        let (ip, port) = (address.ip().to_string(), address.port().to_string());
        let place = ["--bind", &ip, "--port", &port];
        let words: &[&str] = match self.traffic {
            // Without a time limit in the server, because the lab itself limits the duration of its
            // steps.
            Traffic::Perf | Traffic::PerfBlocks => {
                &["perf", "server", "--one-off", "--max-time", "0"]
            }
            Traffic::PerfBare => &["perf", "server", "--one-off", "--max-time", "0", "--no-probes"],
            Traffic::Iperf3 | Traffic::Iperf3Latest => &["--server", "--one-off"],
            Traffic::Sockets => &["perf", "plain-server"],
        };
        self.line(words.iter().chain(&place).map(|word| (*word).to_owned()))
    }

    pub(super) fn client(&self, order: &Order<'_>) -> Vec<String> {
        let words: &[&str] = match self.traffic {
            // The lab samples the connections itself and needs no probe of the idle path.
            Traffic::Perf => &["perf", "client", "--json", "--idle-probe", "0s"],
            Traffic::PerfBare => &["perf", "client", "--json", "--no-probes"],
            Traffic::PerfBlocks => {
                &["perf", "client", "--json", "--idle-probe", "0s", "--length", IPERF3_BLOCK]
            }
            Traffic::Iperf3 | Traffic::Iperf3Latest => &["--json", "--client"],
            Traffic::Sockets => &["perf", "plain-client"],
        };
        let mut words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        words.push(order.to.ip().to_string());
        let mut option = |name: &str, value: String| words.extend([name.to_owned(), value]);
        option("--port", order.to.port().to_string());
        option("--parallel", order.streams.to_string());
        match self.traffic {
            Traffic::Perf | Traffic::PerfBare | Traffic::PerfBlocks => {
                option("--time", seconds(order.duration));
                option("--omit", seconds(order.omit));
            }
            Traffic::Iperf3 | Traffic::Iperf3Latest => {
                option("--time", whole_seconds(order.duration).to_string());
                option("--omit", whole_seconds(order.omit).to_string());
            }
            Traffic::Sockets => option("--time", seconds(order.omit + order.duration)),
        }
        if self.traffic != Traffic::Sockets {
            option("--interval", "1".to_owned());
            option("--connect-timeout", "10000".to_owned());
        }
        // `weir perf plain-client` always sends as fast as it can.
        if let Some(rate) = order.rate.filter(|_| self.traffic != Traffic::Sockets) {
            option("--bitrate", rate.bits_per_second().to_string());
        }
        if let Some(congestion) = order.congestion {
            option("--congestion", congestion.to_owned());
        }
        self.line(words)
    }

    fn line(&self, words: impl IntoIterator<Item = String>) -> Vec<String> {
        let weir = || self.weir.display().to_string();
        let program = self.traffic.peer().map_or_else(weir, str::to_owned);
        [program].into_iter().chain(words).collect()
    }

    /// Parses the client's JSON. `Err` holds the client's own error message instead.
    pub(super) fn output(&self, text: &str) -> Result<Output, String> {
        let name = self.name();
        let output: Output = serde_json::from_str(text)
            .map_err(|error| format!("{name} printed no JSON that can be read: {error}"))?;
        match output.error {
            Some(error) => Err(format!("{name}: {error}")),
            None => Ok(output),
        }
    }
}

/// Rounds up to whole seconds, in which iperf3 counts.
fn whole_seconds(span: Span) -> u64 {
    span.nanos().div_ceil(1_000_000_000)
}

fn seconds(span: Span) -> String {
    format!("{}s", span.secs_f64())
}

/// The fields of the client's JSON output that the lab reads. Any of these fields may be missing.
#[derive(Debug, Deserialize)]
pub(super) struct Output {
    error: Option<String>,
    #[serde(default)]
    pub(super) end: End,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct End {
    pub(super) sum_sent: Option<Sum>,
    pub(super) sum_received: Option<Sum>,
    #[serde(default)]
    pub(super) streams: Vec<Stream>,
    pub(super) sender_tcp_congestion: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Stream {
    pub(super) receiver: Option<Sum>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Sum {
    pub(super) bits_per_second: f64,
    pub(super) seconds: f64,
}

/// Size of the block that iperf3 writes in each call.
const IPERF3_BLOCK: &str = "128KiB";

#[cfg(test)]
mod tests {
    use super::*;

    fn programs(traffic: Traffic) -> Programs<'static> {
        Programs { traffic, weir: Path::new("/opt/weir") }
    }

    #[test]
    fn traffic_client_errors_and_goodput_are_parsed() {
        let refused = r#"{"start":{},"intervals":[],"end":{},"error":"unable to connect"}"#;
        let iperf3 = programs(Traffic::Iperf3);
        assert_eq!(iperf3.output(refused).unwrap_err(), "iperf3: unable to connect");
        let perf = programs(Traffic::Perf);
        assert!(perf.output("").unwrap_err().starts_with("weir perf printed no JSON"));
        let fine = r#"{"end":{"streams":[],"sum_sent":{"seconds":2.0,"bits_per_second":5e8,"retransmits":7},
            "sum_received":{"seconds":2.0,"bits_per_second":4.9e8},"sender_tcp_congestion":"cubic"}}"#;
        let end = perf.output(fine).unwrap().end;
        assert_eq!(end.sum_received.unwrap().bits_per_second, 4.9e8);
        assert_eq!(end.sum_sent.unwrap().seconds, 2.0);
    }

    #[test]
    fn only_iperf3_needs_whole_seconds() {
        let lasting = |traffic, millis| programs(traffic).lasting(Span::from_millis(millis));
        assert_eq!(lasting(Traffic::Iperf3, 2500), Span::from_secs(3));
        assert_eq!(lasting(Traffic::Iperf3, 0), Span::ZERO);
        assert_eq!(lasting(Traffic::Perf, 2500), Span::from_millis(2500));
    }

    #[test]
    fn each_traffic_generator_gets_its_own_options() {
        let order = Order {
            to: "10.0.0.2:5201".parse().unwrap(),
            duration: Span::from_millis(1500),
            omit: Span::from_millis(500),
            streams: 2,
            congestion: Some("cubic"),
            rate: None,
        };
        let line = |traffic| programs(traffic).client(&order).join(" ");
        let end = "--interval 1 --connect-timeout 10000 --congestion cubic";
        assert_eq!(
            line(Traffic::Iperf3),
            format!(
                "iperf3 --json --client 10.0.0.2 --port 5201 --parallel 2 --time 2 --omit 1 {end}"
            )
        );
        assert_eq!(
            line(Traffic::PerfBare),
            format!(
                "/opt/weir perf client --json --no-probes 10.0.0.2 --port 5201 --parallel 2 \
                 --time 1.5s --omit 0.5s {end}"
            )
        );
        assert!(line(Traffic::Iperf3Latest).starts_with("iperf3-latest --json --client 10.0.0.2"));
        let blocks = line(Traffic::PerfBlocks);
        assert!(
            blocks.contains("perf client --json --idle-probe 0s --length 128KiB 10.0.0.2"),
            "{blocks}"
        );
        assert_eq!(
            line(Traffic::Sockets),
            "/opt/weir perf plain-client 10.0.0.2 --port 5201 --parallel 2 --time 2s --congestion cubic"
        );
        let server = programs(Traffic::Perf).server("0.0.0.0:5201".parse().unwrap());
        let expected = "/opt/weir perf server --one-off --max-time 0 --bind 0.0.0.0 --port 5201";
        assert_eq!(server.join(" "), expected);
    }
}
