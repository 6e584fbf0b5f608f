//! Tracked connections, as commands print them and as requests name them.

use std::net::IpAddr;

/// The addresses and ports of one direction of a connection. For ICMP, the source port is the
/// identifier, and the destination port has type and code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuple {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub source_port: u16,
    pub destination_port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    pub protocol: u8,
    pub original: Tuple,
    pub reply: Tuple,
    pub zone: u16,
    pub mark: u32,
    pub labels: u128,
    /// The state of a TCP connection: `ESTABLISHED`.
    pub state: Option<&'static str>,
    /// The name of the connection's helper: `ftp`.
    pub helper: Option<&'static str>,
}

/// A connection tuple of `dpctl/flush-conntrack`. A field that is `None` matches any value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TupleMatch {
    pub source: Option<IpAddr>,
    pub destination: Option<IpAddr>,
    pub protocol: Option<u8>,
    /// Ports; `None` for ICMP.
    pub source_port: Option<u16>,
    pub destination_port: Option<u16>,
    pub icmp_id: Option<u16>,
    pub icmp_type: Option<u8>,
    pub icmp_code: Option<u8>,
}

impl TupleMatch {
    /// Whether the tuple names one connection: it has both addresses, the protocol and, except for
    /// ICMP, both ports.
    #[must_use]
    pub fn names_connection(&self) -> bool {
        let ports = [self.source_port, self.destination_port];
        self.source.is_some()
            && self.destination.is_some()
            && self.protocol.is_some_and(|protocol| {
                matches!(protocol, ICMP | ICMPV6)
                    || ports.iter().all(|port| port.is_some_and(|port| port != 0))
            })
    }
}

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
