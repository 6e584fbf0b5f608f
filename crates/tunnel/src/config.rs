//! A tunnel's configuration, from its file, from flags of the same names, or both. An end checks
//! all of it, including keys and rules, before the end opens a socket.

mod check;
mod located;
mod parts;
mod proxies;
mod reload;
mod source;
mod tables;

#[cfg(test)]
mod tests;

pub(crate) use check::{everywhere, usable};
pub use host::ConfinedPaths;
pub use host::MetricsAddress;
pub use located::Located;
pub use proxies::{ListenOn, Proxy, ProxyKind};
pub use settings::{Leaf, OneOrMore};
pub use source::ConfigError;
pub use tables::{
    ClientTable, FarServerTable, File, ForwardTable, PeerTable, ReverseTable, ServerTable,
};

use crate::access::Access;
use crate::access_log::AccessLogAt;
use crate::account::Quota;
use crate::congestion::Congestion;
use crate::identity::{Identity, PeerName, ServerTrust, TrustedPeer};
use crate::quic_tun::TunnelsAt;
use crate::quic_tun::source::TokenSource;
use crate::quic_tun::token::Cleartext;
use crate::server::TcpAt;
use crate::target::{HostPort, Target};
use crate::transport::Carrier;
use std::fmt::{Display, Formatter};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use units::{Bytes, Span};

/// A complete server configuration.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// The address on which the server listens on UDP; `None` serves TCP alone.
    pub listen_on: Option<SocketAddr>,
    pub tcp: TcpAt,
    pub identity: Identity,
    /// The peers that the server admits.
    pub peers: Vec<TrustedPeer>,
    /// The rights of the peers, by name.
    pub access: Access,
    /// The quotas of the peers that have a quota.
    pub quotas: Vec<(PeerName, Quota)>,
    /// The file or pipe to which the server writes a line for each tunnel that has ended.
    pub access_log: Option<AccessLogAt>,
    /// The directories of the server's files and sockets.
    pub confined_paths: ConfinedPaths,
    pub settings: Settings,
    /// The encoding of the tokens that quic-tun's clients send; `None` refuses tokens.
    pub tokens: Option<Cleartext>,
    /// The address of quic-tun's HTTP API.
    pub tunnels_at: Option<TunnelsAt>,
}

/// A complete client configuration.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    pub identity: Identity,
    /// The servers in order of preference.
    pub servers: Vec<FarServer>,
    /// Forwards that listen at this client and dial at the server.
    pub forwards: Vec<Forward>,
    /// Listeners whose applications name their own targets.
    pub proxies: Vec<Proxy>,
    /// Listeners whose targets the server derives from a token.
    pub tokens: Vec<TokenForward>,
    /// Forwards that listen at the server and dial at this client.
    pub reverses: Vec<Forward>,
    /// Parallel connections to the server, over which tunnels are spread.
    pub connections: usize,
    pub carrier: Carrier,
    /// The directories of the client's files and sockets.
    pub confined_paths: ConfinedPaths,
    pub settings: Settings,
    /// The address of quic-tun's HTTP API.
    pub tunnels_at: Option<TunnelsAt>,
}

/// A server as configured at its client.
#[derive(Debug, Clone)]
pub struct FarServer {
    pub endpoint: HostPort,
    pub trust: ServerTrust,
    /// The port of TLS over TCP, if it differs from the endpoint's.
    pub tcp_port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forward {
    pub listen_on: Target,
    pub target: Target,
}

/// A listener of quic-tun's client: a path or a TCP address.
#[derive(Debug, Clone)]
pub struct TokenForward {
    pub listen_on: Target,
    pub source: Arc<TokenSource>,
}

/// Settings common to both ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub congestion: Congestion,
    /// Memory budget for the buffers of all tunnels together.
    pub memory: Bytes,
    /// The silence after which an end probes a connection. After three times this silence, the
    /// connection counts as dead.
    pub keepalive: Span,
    /// Maximum time that a target may take to accept a connection, including the look-up of its
    /// name.
    pub dial_timeout: Span,
    /// The number of sockets on the same port, each with its own thread. The default is one per
    /// CPU.
    pub endpoints: usize,
    /// The address that serves metrics to Prometheus.
    pub metrics_on: Option<MetricsAddress>,
    /// The socket for `weir tunnel status`, if it is not the default socket.
    pub status_socket: Option<PathBuf>,
    /// Whether the process keeps all rights of its user instead of confining itself.
    pub unconfined: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            congestion: Congestion::default(),
            memory: Bytes::kib(256 << 10),
            keepalive: Span::from_secs(1),
            dial_timeout: Span::from_secs(10),
            endpoints: std::thread::available_parallelism()
                .map_or(1, usize::from)
                .min(MOST_ENDPOINTS),
            metrics_on: None,
            status_socket: None,
            unconfined: false,
        }
    }
}

/// `LISTEN=TARGET`, as in `tcp:127.0.0.1:2222=tcp:db.internal:22`.
impl FromStr for Forward {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (listen_on, target) = text.split_once('=').ok_or_else(|| {
            format!("`{text}` is no LISTEN=TARGET, as in tcp:127.0.0.1:2222=tcp:10.0.0.5:22")
        })?;
        let parse = |text: &str| text.parse::<Target>().map_err(|error| error.to_string());
        Ok(Self { listen_on: parse(listen_on)?, target: parse(target)? })
    }
}

impl Display for Forward {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}={}", self.listen_on, self.target)
    }
}

/// The default port of the reference implementation, so that firewalls need no change.
pub const DEFAULT_PORT: u16 = 7500;
/// The directory where `weir tunnel keys` writes keys and both ends look for them.
pub const DEFAULT_DIRECTORY: &str = "/etc/weir/tunnel";
const MOST_ENDPOINTS: usize = 64;
const MOST_CONNECTIONS: usize = 16;
/// Maximum number of sessions of one identity.
const MOST_SESSIONS: usize = 4096;
