use serde::{Deserialize, Serialize};
use std::fmt;

/// What is measured, in netperf's words TCP_RR, TCP_CRR, UDP_RR, TCP_STREAM and UDP_STREAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Requests and responses over standing TCP connections.
    Rr,
    /// A TCP connection for each request and its response.
    Crr,
    /// Requests and responses as datagrams. What is lost is counted.
    UdpRr,
    /// Messages over TCP, as fast as they go.
    TcpStream,
    /// Datagrams, as fast as they go. What is lost is counted.
    UdpStream,
}

impl Kind {
    /// Each request has a response, and its latency is known.
    pub fn has_latency(self) -> bool {
        matches!(self, Self::Rr | Self::Crr | Self::UdpRr)
    }

    pub fn is_udp(self) -> bool {
        matches!(self, Self::UdpRr | Self::UdpStream)
    }

    /// What one unit of work may carry.
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

/// What IPv4 and UDP leave of 65535.
const MOST_UDP_BYTES: u64 = 65_507;
const MOST_TCP_BYTES: u64 = 16 << 20;
