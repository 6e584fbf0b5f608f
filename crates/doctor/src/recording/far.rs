use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use units::{Bytes, Rate, Share, Span};

/// A test with a far end: its outcome, or the reason why the test was not possible.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Attempt {
    pub host: String,
    pub port: u16,
    /// The data connections, as this end has them.
    pub connections: Vec<(SocketAddr, SocketAddr)>,
    /// Whether this machine sends, and the far end receives.
    pub sends: bool,
    pub bytes: Bytes,
    pub elapsed: Span,
    pub rate: Option<Rate>,
    pub refusal: Option<Refusal>,
    /// The message of the error that ended the test.
    pub message: Option<String>,
    pub idle_rtt: Option<Span>,
    pub loaded_rtt: Option<Span>,
    pub far: Option<FarEnd>,
}

/// The reason why no test was possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Refusal {
    /// The name has no address.
    Unknown,
    /// The peer answered with a reset.
    Refused,
    /// The peer sent no answer.
    Silent,
    /// This machine has no route, or a router reported that the router has no route.
    Unreachable,
    /// No local port is left.
    NoPort,
    /// The server accepted the connection, but serves other clients or refuses this test.
    Busy,
    /// The server accepted the connection, and then sent nothing or closed the connection.
    Broken,
    /// Another program listens at the port.
    Foreign,
    /// This machine failed.
    Local,
}

/// The far end's metrics; `None` for metrics that the far end did not report.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FarEnd {
    /// Whether the far end is a `weir perf server`, which reports more than a stock iperf3.
    pub weir: bool,
    pub user: Option<Share>,
    pub system: Option<Share>,
    /// The busy share and the softirq share of the far end's busiest core.
    pub busiest: Option<(Share, Share)>,
    pub cores: Option<u32>,
    pub bytes: Option<Bytes>,
    pub retransmits: Option<u64>,
    /// The time with data to send, if the far end sent.
    pub busy: Option<Span>,
    pub window_limited: Option<Span>,
    pub buffer_limited: Option<Span>,
    pub mean_rtt: Option<Span>,
    pub min_rtt: Option<Span>,
    pub congestion: Option<String>,
}
