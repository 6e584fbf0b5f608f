//! The tables of the configuration file. Flags fill the same tables.

use super::check::own_file;
use super::located::Located;
use super::source::{ConfigError, Source};
use super::{ListenOn, MetricsAddress, check};
use crate::access::Rule;
use crate::account::Volume;
use crate::congestion::Congestion;
use crate::identity::{PeerName, Pin};
use crate::target::{HostPort, Target};
use crate::transport::Carrier;
use settings::{Leaf, OneOrMore, table};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use units::{Bytes, Rate, Span};

table! {
    /// The configuration file of both ends. Each end reads its own table.
    #[derive(Debug, Clone, Default)]
    pub struct File {
        pub server: Option<ServerTable>,
        pub client: Option<ClientTable>,
    }
    beside {
        pub(super) source: Source,
        /// The directory to which relative paths in the file refer.
        pub(super) directory: PathBuf,
        pub(super) path: Option<PathBuf>,
    }
}

table! {
    #[derive(Debug, Clone, Default)]
    pub struct ServerTable in kebab {
        pub listen_on: Option<Located<SocketAddr>>,
        pub tcp_listen_on: Option<Located<SocketAddr>>,
        pub carrier: Option<Located<Carrier>>,
        pub cert_file: Option<Located<PathBuf>>,
        pub key_file: Option<Located<PathBuf>>,
        pub ca_file: Option<Located<PathBuf>>,
        pub crl_file: Option<Located<OneOrMore<PathBuf>>>,
        pub peer: Vec<Located<PeerTable>> = vec![],
        /// The destination of the access log; `-` is standard output.
        pub access_log: Option<Located<PathBuf>>,
        pub congestion: Option<Located<Leaf<Congestion>>>,
        pub memory: Option<Located<Bytes>>,
        pub keepalive: Option<Located<Span>>,
        pub dial_timeout: Option<Located<Span>>,
        pub endpoints: Option<Located<usize>>,
        pub metrics_on: Option<Located<Leaf<MetricsAddress>>>,
        pub status_socket: Option<Located<PathBuf>>,
        pub unconfined: Option<Located<bool>>,
    }
}

table! {
    #[derive(Debug, Clone)]
    pub struct PeerTable in kebab {
        pub name: PeerName,
        pub pin: Option<Located<OneOrMore<Pin>>>,
        /// The DNS name in its certificate, which an authority of `ca-file` signed.
        pub certificate_name: Option<Located<String>>,
        pub allow: Vec<Rule> = vec![],
        /// Whether to look up names that only a prefix in `allow` could cover.
        pub resolve_names: bool = false,
        pub reverse: Vec<Rule> = vec![],
        /// The rate limit of each direction.
        pub rate_limit: Option<Located<Rate>>,
        /// Maximum number of bytes of both directions in a period.
        pub quota: Option<Located<Volume>>,
        /// Maximum number of connections at a time.
        pub sessions: Option<Located<usize>>,
    }
}

table! {
    #[derive(Debug, Clone, Default)]
    pub struct ClientTable in kebab {
        pub cert_file: Option<Located<PathBuf>>,
        pub key_file: Option<Located<PathBuf>>,
        pub ca_file: Option<Located<PathBuf>>,
        pub crl_file: Option<Located<OneOrMore<PathBuf>>>,
        pub server: Vec<Located<FarServerTable>> = vec![],
        pub forward: Vec<Located<ForwardTable>> = vec![],
        pub reverse: Vec<Located<ReverseTable>> = vec![],
        pub connections: Option<Located<usize>>,
        pub carrier: Option<Located<Carrier>>,
        pub congestion: Option<Located<Leaf<Congestion>>>,
        pub memory: Option<Located<Bytes>>,
        pub keepalive: Option<Located<Span>>,
        pub dial_timeout: Option<Located<Span>>,
        pub endpoints: Option<Located<usize>>,
        pub metrics_on: Option<Located<Leaf<MetricsAddress>>>,
        pub status_socket: Option<Located<PathBuf>>,
        pub unconfined: Option<Located<bool>>,
    }
}

table! {
    #[derive(Debug, Clone)]
    pub struct FarServerTable in kebab {
        pub endpoint: HostPort,
        pub pin: Option<Located<OneOrMore<Pin>>>,
        /// The name in its certificate, if it differs from the endpoint's host.
        pub certificate_name: Option<Located<String>>,
        /// The port of TLS over TCP, if it differs from the endpoint's.
        pub tcp_port: Option<u16>,
    }
}

table! {
    #[derive(Debug, Clone)]
    pub struct ForwardTable in kebab {
        pub listen_on: ListenOn,
        /// The target; `None` if applications name their own targets.
        pub target: Option<Target>,
        /// The names and passwords with which applications log in to a proxy.
        pub users_file: Option<Located<PathBuf>>,
    }
}

table! {
    #[derive(Debug, Clone)]
    pub struct ReverseTable in kebab {
        pub listen_on: Target,
        pub target: Target,
    }
}

impl File {
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = host::read_regular_file(path).map_err(|reason| ConfigError::Unreadable {
            file: path.display().to_string(),
            reason,
        })?;
        Self::parse(path, &text)
    }

    /// Checks only the syntax. [`Self::server_config`] and [`Self::client_config`] check the rest.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let source = Source::new(path, text);
        let mut file: Self = settings::parse(text).map_err(|mistake| source.malformed(&mistake))?;
        file.source = source;
        file.directory = path.parent().map(Path::to_owned).unwrap_or_default();
        file.path = Some(path.to_owned());
        Ok(file)
    }

    /// Returns the paths of the certificate and key that a server (or a client) with this file
    /// uses.
    pub fn identity_files(&self, is_server: bool) -> [PathBuf; 2] {
        let (role, [certificate, key]) = match is_server {
            true => {
                let table = self.server.clone().unwrap_or_default();
                ("server", [table.cert_file, table.key_file])
            }
            false => {
                let table = self.client.clone().unwrap_or_default();
                ("client", [table.cert_file, table.key_file])
            }
        };
        [own_file(self, &certificate, role, "crt"), own_file(self, &key, role, "key")]
    }

    /// Returns the status socket that this file names for a server (or a client).
    pub fn status_socket(&self, is_server: bool) -> Option<PathBuf> {
        let server = self.server.as_ref().and_then(|table| table.status_socket.as_ref());
        let client = self.client.as_ref().and_then(|table| table.status_socket.as_ref());
        let value = if is_server { server } else { client };
        value.map(|value| check::path(self, value))
    }

    pub fn memory(&self, is_server: bool) -> Bytes {
        let server = self.server.as_ref().and_then(|table| table.memory.as_ref());
        let client = self.client.as_ref().and_then(|table| table.memory.as_ref());
        let value = if is_server { server } else { client };
        value.map_or(super::Settings::default().memory, |value| value.value)
    }

    /// Returns the server configuration from this file and from flags, which take precedence.
    pub fn server_config(&self, flags: ServerTable) -> Result<super::ServerConfig, ConfigError> {
        let mut table = self.server.clone().unwrap_or_default();
        table.take(flags);
        check::server(self, &table)
    }

    /// Returns the client configuration from this file and from flags, which take precedence.
    pub fn client_config(&self, flags: ClientTable) -> Result<super::ClientConfig, ConfigError> {
        let mut table = self.client.clone().unwrap_or_default();
        table.take(flags);
        check::client(self, &table)
    }
}

macro_rules! over {
    ($here:ident, $flags:ident, $($key:ident),*) => {
        $(if $flags.$key.is_some() { $here.$key = $flags.$key; })*
    };
}

impl ServerTable {
    fn take(&mut self, flags: Self) {
        over!(
            self,
            flags,
            listen_on,
            tcp_listen_on,
            access_log,
            carrier,
            cert_file,
            key_file,
            ca_file,
            crl_file
        );
        over!(
            self,
            flags,
            congestion,
            memory,
            keepalive,
            dial_timeout,
            endpoints,
            metrics_on,
            status_socket,
            unconfined
        );
        self.peer.extend(flags.peer);
    }
}

impl ClientTable {
    fn take(&mut self, flags: Self) {
        over!(
            self,
            flags,
            carrier,
            cert_file,
            key_file,
            ca_file,
            crl_file,
            connections,
            congestion,
            memory
        );
        over!(
            self,
            flags,
            keepalive,
            dial_timeout,
            endpoints,
            metrics_on,
            status_socket,
            unconfined
        );
        self.server.extend(flags.server);
        self.forward.extend(flags.forward);
        self.reverse.extend(flags.reverse);
    }
}

/// The keys that both tables have in common, without peers and servers.
pub(super) struct Common<'a> {
    pub(super) cert_file: &'a Option<Located<PathBuf>>,
    pub(super) key_file: &'a Option<Located<PathBuf>>,
    pub(super) ca_file: &'a Option<Located<PathBuf>>,
    pub(super) crl_file: &'a Option<Located<OneOrMore<PathBuf>>>,
    pub(super) congestion: &'a Option<Located<Leaf<Congestion>>>,
    pub(super) memory: &'a Option<Located<Bytes>>,
    pub(super) keepalive: &'a Option<Located<Span>>,
    pub(super) dial_timeout: &'a Option<Located<Span>>,
    pub(super) endpoints: &'a Option<Located<usize>>,
    pub(super) metrics_on: &'a Option<Located<Leaf<MetricsAddress>>>,
    pub(super) status_socket: &'a Option<Located<PathBuf>>,
    pub(super) unconfined: &'a Option<Located<bool>>,
}

macro_rules! common {
    ($table:ident) => {
        Common {
            cert_file: &$table.cert_file,
            key_file: &$table.key_file,
            ca_file: &$table.ca_file,
            crl_file: &$table.crl_file,
            congestion: &$table.congestion,
            memory: &$table.memory,
            keepalive: &$table.keepalive,
            dial_timeout: &$table.dial_timeout,
            endpoints: &$table.endpoints,
            metrics_on: &$table.metrics_on,
            status_socket: &$table.status_socket,
            unconfined: &$table.unconfined,
        }
    };
}

impl<'a> From<&'a ServerTable> for Common<'a> {
    fn from(table: &'a ServerTable) -> Self {
        common!(table)
    }
}

impl<'a> From<&'a ClientTable> for Common<'a> {
    fn from(table: &'a ClientTable) -> Self {
        common!(table)
    }
}
