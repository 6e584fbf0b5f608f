use serde::{Deserialize, Serialize};
use std::fmt;

/// Kinds of tests; in netperf's terms TCP_RR, TCP_CRR, UDP_RR, TCP_STREAM and UDP_STREAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Requests and responses over persistent TCP connections.
    Rr,
    /// A TCP connection for each request and its response.
    Crr,
    /// Requests and responses as datagrams. Lost datagrams are counted.
    UdpRr,
    /// Messages over TCP, as fast as the path takes them.
    TcpStream,
    /// Datagrams, as fast as the socket takes them. Lost datagrams are counted.
    UdpStream,
}

impl Kind {
    /// True if each request has a response, so that latency is measured.
    pub fn has_latency(self) -> bool {
        matches!(self, Self::Rr | Self::Crr | Self::UdpRr)
    }

    pub fn is_udp(self) -> bool {
        matches!(self, Self::UdpRr | Self::UdpStream)
    }

    /// Returns the maximum size of a request, a response or a message.
    pub fn most_bytes(self) -> u64 {
        if self.is_udp() { MOST_UDP_BYTES } else { MOST_TCP_BYTES }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Rr => "rr",
            Self::Crr => "crr",
            Self::UdpRr => "udp-rr",
            Self::TcpStream => "tcp-stream",
            Self::UdpStream => "udp-stream",
        })
    }
}

/// 65535 less the headers of IPv4 and UDP.
const MOST_UDP_BYTES: u64 = 65_507;
const MOST_TCP_BYTES: u64 = 16 << 20;
