//! What a tunnel is told: by its file, by flags of the same names, or both. Everything is checked, keys
//! read and rules understood, before anything starts.

mod check;
mod locate;
mod parts;
mod reload;
mod said;
mod tables;

#[cfg(test)]
mod tests;

pub use crate::confinement::Places;
pub use locate::ConfigError;
pub use said::{OneOrMore, Said};
pub use tables::{ClientTable, FarServerTable, File, ForwardTable, PeerTable, ServerTable};

use crate::access::Access;
use crate::congestion::Congestion;
use crate::identity::{Identity, ServerTrust, TrustedPeer};
use crate::target::{HostPort, Target};
use std::fmt::{Display, Formatter};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use units::{Bytes, Span};

/// A server, ready to start.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    pub listen_on: SocketAddr,
    pub identity: Identity,
    /// Who is let in.
    pub peers: Vec<TrustedPeer>,
    /// What they may do, by the same names.
    pub access: Access,
    /// The directories of its files and sockets.
    pub places: Places,
    pub settings: Settings,
}

/// A client, ready to start.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    pub identity: Identity,
    /// In the order of preference.
    pub servers: Vec<FarServer>,
    /// Listened on here, dialled there.
    pub forwards: Vec<Forward>,
    /// Listened on there, dialled here.
    pub reverses: Vec<Forward>,
    /// Parallel connections to the server, over which tunnels are spread.
    pub connections: usize,
    /// The directories of its files and sockets.
    pub places: Places,
    pub settings: Settings,
}

/// A server as its client knows it.
#[derive(Debug, Clone)]
pub struct FarServer {
    pub endpoint: HostPort,
    pub trust: ServerTrust,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forward {
    pub listen_on: Target,
    pub target: Target,
}

/// What both ends have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub congestion: Congestion,
    /// For all that is buffered, by all tunnels together.
    pub memory: Bytes,
    /// Silence after which a connection is asked whether it lives; three times as long, and it is dead.
    pub keepalive: Span,
    /// How long a target may take to accept, the look-up of its name included.
    pub dial_timeout: Span,
    /// Sockets on the same port, each with a thread of its own; as many as there are CPUs by default.
    pub endpoints: usize,
    /// Where Prometheus may look.
    pub metrics_on: Option<MetricsAddress>,
    /// Where `weir tunnel status` looks, if not at the usual place.
    pub status_socket: Option<PathBuf>,
    /// Whether the process keeps all its user's rights.
    pub unconfined: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetricsAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            congestion: Congestion::default(),
            memory: Bytes::kib(256 << 10),
            keepalive: Span::from_secs(5),
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

impl FromStr for MetricsAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.starts_with('/') && path.len() <= 107 {
                true => Ok(Self::Unix(path.into())),
                false => Err(format!("`{path}` is no absolute path of a UNIX socket")),
            };
        }
        let address: SocketAddr =
            text.parse().map_err(|_| format!("`{text}` is neither ADDRESS:PORT nor unix:/PATH"))?;
        if !address.ip().to_canonical().is_loopback() {
            return Err(format!(
                "{address} can be reached by others, and nothing there asks who they are: \
                 write 127.0.0.1:{} or unix:/PATH",
                address.port()
            ));
        }
        Ok(Self::Tcp(address))
    }
}

impl Display for MetricsAddress {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
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

/// What the reference has, so that firewalls need no change.
pub const DEFAULT_PORT: u16 = 7500;
/// Where `weir tunnel keys` puts keys, and both ends look for them.
pub const DEFAULT_DIRECTORY: &str = "/etc/weir/tunnel";
const MOST_ENDPOINTS: usize = 64;
const MOST_CONNECTIONS: usize = 16;
