//! The stock iperf3 as the maker of traffic: its command lines and what its JSON says.

use serde::Deserialize;
use std::net::SocketAddr;
use units::Span;

pub(super) const PROGRAM: &str = "iperf3";

/// One client run.
#[derive(Debug)]
pub(super) struct Client<'a> {
    pub(super) to: SocketAddr,
    pub(super) duration: Span,
    pub(super) omit: Span,
    pub(super) streams: u32,
    pub(super) congestion: Option<&'a str>,
}

impl Client<'_> {
    pub(super) fn argv(&self) -> Vec<String> {
        let mut argv: Vec<String> = [PROGRAM, "--json", "--interval", "1"].map(String::from).into();
        let mut option = |name: &str, value: String| argv.extend([name.to_owned(), value]);
        option("--client", self.to.ip().to_string());
        option("--port", self.to.port().to_string());
        option("--time", whole_seconds(self.duration).to_string());
        option("--omit", whole_seconds(self.omit).to_string());
        option("--parallel", self.streams.to_string());
        option("--connect-timeout", "10000".to_owned());
        if let Some(congestion) = self.congestion {
            option("--congestion", congestion.to_owned());
        }
        argv
    }
}

/// One run for one client, then the server ends.
pub(super) fn server_argv(address: SocketAddr) -> Vec<String> {
    let (ip, port) = (address.ip().to_string(), address.port().to_string());
    [PROGRAM, "--server", "--one-off", "--bind", &ip, "--port", &port].map(String::from).into()
}

/// iperf3 counts in whole seconds.
pub(super) fn whole_seconds(span: Span) -> u64 {
    span.nanos().div_ceil(1_000_000_000)
}

/// What the client prints with `--json`; only what is used here, and all of it may be missing.
#[derive(Debug, Deserialize)]
pub(super) struct Output {
    pub(super) error: Option<String>,
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

impl Output {
    /// The client's JSON; `Err` holds what it said instead.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let output: Self = serde_json::from_str(text)
            .map_err(|error| format!("iperf3 printed no JSON that can be read: {error}"))?;
        match output.error {
            Some(error) => Err(format!("iperf3: {error}")),
            None => Ok(output),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_an_error_and_figures_are_figures() {
        let refused = r#"{"start":{},"intervals":[],"end":{},"error":"unable to connect"}"#;
        assert_eq!(Output::parse(refused).unwrap_err(), "iperf3: unable to connect");
        assert!(Output::parse("").unwrap_err().contains("no JSON"));
        let fine = r#"{"end":{"streams":[],"sum_sent":{"seconds":2.0,"bits_per_second":5e8,"retransmits":7},
            "sum_received":{"seconds":2.0,"bits_per_second":4.9e8},"sender_tcp_congestion":"cubic"}}"#;
        let end = Output::parse(fine).unwrap().end;
        assert_eq!(end.sum_received.unwrap().bits_per_second, 4.9e8);
        assert_eq!(end.sum_sent.unwrap().seconds, 2.0);
    }

    #[test]
    fn seconds_are_whole() {
        assert_eq!(whole_seconds(Span::from_millis(2500)), 3);
        assert_eq!(whole_seconds(Span::ZERO), 0);
    }
}
