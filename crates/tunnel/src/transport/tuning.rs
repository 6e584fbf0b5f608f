use crate::identity::Secret;
use quic::Congestion;
use std::time::Duration;
use units::Bytes;

/// How connections are carried. Both ends have their own; what they must agree on they negotiate.
#[derive(Debug, Clone)]
pub struct Tuning {
    pub congestion: Congestion,
    /// A silent peer is asked this often; after three times as long it counts as dead.
    pub keepalive: Duration,
    /// How long a connection may take to be made.
    pub handshake: Duration,
    /// The largest UDP payload that is tried.
    pub largest_packet: u16,
    /// The kernel's buffer of each socket, for what comes while nobody reads.
    pub socket_buffer: Bytes,
    /// What all connections of this end may hold of what came out of order or was not taken yet.
    pub memory: Bytes,
    /// How long a thread that is woken again and again waits before it looks what else has come: packets are
    /// then taken by the dozen, at a fraction of the price.
    pub gather: Duration,
    /// Streams that a peer may have open at once.
    pub streams: u32,
    /// A server that has one is recognised after a restart by clients that it has forgotten.
    pub secret: Option<Secret>,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            congestion: Congestion::default(),
            keepalive: Duration::from_secs(5),
            handshake: Duration::from_secs(10),
            largest_packet: 1472,
            socket_buffer: Bytes::kib(7680),
            memory: Bytes::kib(256 * 1024),
            gather: Duration::from_micros(200),
            streams: 16_384,
            secret: None,
        }
    }
}
