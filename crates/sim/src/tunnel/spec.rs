use crate::{Node, SimError, TcpConfig};
use quic::Congestion;
use std::sync::Arc;
use units::{Bytes, Span, Time};

/// A QUIC tunnel between two hosts. The tunnel carries each flow whose [`Traffic::Tunnelled`] names
/// the tunnel, in one stream per flow. An application's TCP connection ends at the tunnel on its
/// own host.
///
/// [`Traffic::Tunnelled`]: crate::Traffic::Tunnelled
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunnelSpec {
    /// The client, which connects and sends.
    pub from: Node,
    /// The server, which accepts the connection and receives.
    pub to: Node,
    /// The time at which the client connects.
    pub start: Time,
    /// The congestion control of both ends.
    pub congestion: Congestion,
    /// Maximum size of an IP packet on the path, which drops larger packets.
    pub mtu: Bytes,
    /// The interval at which an end processes arrived packets, as the tunnel's threads gather them.
    pub gather: Span,
    /// The delay from an application to the tunnel on its host.
    pub local_delay: Span,
    /// The TCP connections within the hosts.
    pub local: Arc<TcpConfig>,
}

impl TunnelSpec {
    /// Creates a tunnel that exists from the beginning of the world, on a path with an MTU of 1500
    /// and with Linux's loopback in the hosts.
    pub fn new(from: Node, to: Node, congestion: Congestion) -> Self {
        Self {
            from,
            to,
            start: Time::ZERO,
            congestion,
            mtu: Bytes::new(1500),
            gather: Span::ZERO,
            local_delay: Span::from_micros(20),
            local: Arc::new(local()),
        }
    }

    pub(crate) fn validate(&self, nodes: u32) -> Result<(), SimError> {
        for node in [self.from.0, self.to.0] {
            if node >= nodes {
                return Err(SimError::NoNode { node, nodes });
            }
        }
        let refuse = |setting, advice| Err(SimError::Setting { setting, advice });
        if self.from == self.to {
            return refuse("tunnel", "it joins two hosts: give it another end");
        }
        if self.mtu < LEAST_MTU {
            return refuse("tunnel.mtu", "QUIC needs 1228 bytes (RFC 9000, section 14)");
        }
        if self.local_delay == Span::ZERO {
            return refuse("tunnel.local_delay", "give a time above 0; 20us is usual");
        }
        self.local.validate()
    }
}

/// Returns hosts on Linux's loopback interface, which has an MTU of 65536 bytes and loses nothing.
fn local() -> TcpConfig {
    TcpConfig {
        mss: Bytes::new(65_000),
        delayed_ack: None,
        receive_window: crate::ReceiveWindow::Fixed(Bytes::kib(1024)),
        send_buffer: Some(Bytes::kib(4096)),
        burst_max: Bytes::kib(256),
        ..TcpConfig::default()
    }
}

const LEAST_MTU: Bytes = Bytes::new(1228);
