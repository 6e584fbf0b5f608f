use crate::identity::Secret;
use quic::Congestion;
use std::time::Duration;
use units::Bytes;

/// Connection settings. Each end has its own settings. The ends negotiate the settings that must be
/// equal.
#[derive(Debug, Clone)]
pub struct Tuning {
    pub congestion: Congestion,
    /// Interval of keepalives to a silent peer. After three intervals of silence, the peer counts
    /// as dead.
    pub keepalive: Duration,
    /// Timeout of a handshake.
    pub handshake: Duration,
    /// Maximum UDP payload to probe for, in bytes.
    pub largest_packet: u16,
    /// The size of each socket's receive buffer in the kernel.
    pub socket_buffer: Bytes,
    /// Memory budget of all connections of this end for data that is out of order or not yet
    /// consumed.
    pub memory: Bytes,
    /// How long a thread that wakes up repeatedly pauses before it polls again. A poll then takes a
    /// dozen packets, at a fraction of the cost of a dozen polls.
    pub gather: Duration,
    /// Maximum number of streams that may be open at once in a connection.
    pub streams: u32,
    /// The secret with which a restarted server proves its restart to clients whose connections it
    /// has lost.
    pub secret: Option<Secret>,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            congestion: Congestion::default(),
            keepalive: Duration::from_secs(1),
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
