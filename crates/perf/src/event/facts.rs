use crate::observe::Observed;
use crate::options::TestOptions;
use probe::tcp::TcpInfo;
use serde_json::Value;
use std::net::SocketAddr;
use std::time::SystemTime;
use units::{Bytes, Share, Span};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Client,
    Server,
}

#[derive(Debug, Clone)]
pub struct Listening {
    pub address: SocketAddr,
}

#[derive(Debug, Clone)]
pub struct Started {
    pub role: Role,
    pub at: SystemTime,
    pub cookie: String,
    /// The peer as the user named it.
    pub peer: String,
    /// The control connection's addresses.
    pub local: SocketAddr,
    pub remote: SocketAddr,
    /// The control connection's segment size.
    pub mss: Option<Bytes>,
    /// The version that the peer reported; `None` for a stock iperf3 server, which reports no
    /// version.
    pub peer_version: Option<String>,
    pub peer_is_weir: bool,
    pub options: TestOptions,
    pub streams: Vec<StreamFacts>,
}

impl Started {
    pub fn is_loopback(&self) -> bool {
        is_loopback(self.local, self.remote)
    }
}

#[derive(Debug, Clone)]
pub struct StreamFacts {
    /// iperf3's stream number (1, 3, 4, …), the same at client and server.
    pub id: u32,
    pub sends: bool,
    pub local: SocketAddr,
    pub remote: SocketAddr,
    /// Congestion control, as read back from the socket.
    pub congestion: Option<String>,
    pub send_buffer: Bytes,
    pub receive_buffer: Bytes,
}

#[derive(Debug, Clone)]
pub struct Interval {
    /// Start of the interval, since the test began or, after the omitted time, since the omitted
    /// time ended.
    pub start: Span,
    pub end: Span,
    /// True if the interval lies in the omitted time.
    pub omitted: bool,
    pub streams: Vec<StreamInterval>,
    pub cpu: Option<CpuUse>,
    pub latency: Option<Latency>,
}

#[derive(Debug, Clone)]
pub struct StreamInterval {
    pub id: u32,
    pub sends: bool,
    pub bytes: Bytes,
    pub retransmits: Option<u64>,
    pub datagrams: Option<Datagrams>,
    /// TCP_INFO at the interval's end.
    pub tcp: Option<TcpInfo>,
}

/// Datagram counts of a stream, in an interval or in the whole test. A sender fills only `count`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Datagrams {
    /// Datagrams sent. A receiver derives this number from the sequence numbers.
    pub count: u64,
    /// Distinct datagrams that arrived.
    pub received: u64,
    pub lost: u64,
    pub reordered: u64,
    pub duplicates: u64,
    /// Smoothed as in RFC 3550.
    pub jitter: Span,
}

/// The result of a test: this side's measurements, and the results that the peer reported.
#[derive(Debug, Clone)]
pub struct Ended {
    /// The measured time, without the omitted time.
    pub duration: Span,
    pub streams: Vec<StreamTotal>,
    pub local_cpu: CpuUse,
    /// `None` if the peer did not report its CPU use.
    pub remote_cpu: Option<CpuUse>,
    pub local_congestion: Option<String>,
    pub remote_congestion: Option<String>,
    pub idle_latency: Option<Latency>,
    pub loaded_latency: Option<Latency>,
    pub server_output: Option<ServerOutput>,
    /// A weir peer's additions: its `weir` results.
    pub peer_extras: Option<Value>,
    /// This end's measurements beside the streams, over time.
    pub observed: Option<Observed>,
    /// Warnings about the results: for example a saturated CPU, or a probe without replies.
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone)]
pub struct StreamTotal {
    pub id: u32,
    pub sends: bool,
    pub sent: End,
    pub received: End,
    pub retransmits: Option<u64>,
    /// The sender's count. The sender's count exceeds the receiver's count if the last datagrams
    /// are lost.
    pub datagrams_sent: Option<u64>,
    /// The receiver's count.
    pub datagrams: Option<Datagrams>,
    /// Facts of the sender's kernel about the path, if this side is the sender or the peer reported
    /// the facts.
    pub path: Option<PathFacts>,
}

/// The count of a stream by its sender or receiver. The count is unknown if the time is zero
/// ([`Self::is_known`]).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct End {
    pub bytes: Bytes,
    pub elapsed: Span,
}

impl End {
    /// False if the peer did not report this count.
    pub fn is_known(&self) -> bool {
        self.elapsed > Span::ZERO
    }
}

/// TCP_INFO of one stream over the measured time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PathFacts {
    pub min_rtt: Option<Span>,
    pub mean_rtt: Option<Span>,
    pub max_rtt: Option<Span>,
    pub max_cwnd: Option<Bytes>,
    pub max_send_window: Option<Bytes>,
    pub reorder_seen: Option<u32>,
    pub busy: Option<Span>,
    pub rwnd_limited: Option<Span>,
    pub sndbuf_limited: Option<Span>,
    pub bytes_retransmitted: Option<Bytes>,
    /// Share of the samples that show a saturated link: a standing queue on the path, or data
    /// delivered at the sender's pacing rate. `None` if the samples permit no conclusion.
    pub full_link: Option<Share>,
}

/// CPU utilisation over a period, in percent of one core.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CpuUse {
    pub user: f64,
    pub system: f64,
    /// Utilisation of each core of the host, in total and in softirqs.
    pub cores: Vec<CoreUse>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CoreUse {
    pub core: usize,
    pub busy: f64,
    pub softirq: f64,
}

/// Round-trip times of a probe flow.
#[derive(Debug, Clone, PartialEq)]
pub struct Latency {
    pub by: LatencySource,
    pub samples: u64,
    pub lost: u64,
    pub p50: Span,
    pub p99: Span,
    pub max: Span,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LatencySource {
    /// Datagrams that a weir server echoes.
    Echo,
    /// ICMP echo, for a peer that is not weir.
    Ping,
    /// The kernel's smoothed round-trip time of the data streams, for a peer that replies to no
    /// probe.
    TcpInfo,
}

#[derive(Debug, Clone)]
pub enum ServerOutput {
    Text(String),
    Json(Value),
}

pub(crate) fn is_loopback(local: SocketAddr, remote: SocketAddr) -> bool {
    let (local, remote) = (local.ip().to_canonical(), remote.ip().to_canonical());
    remote.is_loopback() || local == remote
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_to_an_own_address_is_a_loopback_connection() {
        let between = |local: &str, remote: &str| {
            is_loopback(local.parse().unwrap(), remote.parse().unwrap())
        };
        assert!(between("127.0.0.1:4000", "127.0.0.1:5201"));
        assert!(between("[::ffff:127.0.0.1]:4000", "127.9.0.1:5201"));
        assert!(between("[::1]:1", "[::1]:2"));
        assert!(between("10.0.0.7:4000", "10.0.0.7:5201"));
        assert!(!between("10.0.0.7:4000", "10.0.0.8:4000"));
        assert!(!between("[fe80::1]:1", "[fe80::2]:1"));
    }
}
