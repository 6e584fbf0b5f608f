use crate::config_file;
use crate::log::LogFormat;
use clap::Args;
use std::path::{Path, PathBuf};
use tunnel::config::{ConfigError, File, Leaf, Located, MetricsAddress, OneOrMore};
use tunnel::congestion::Congestion;
use tunnel::run::TakeOver;
use tunnel::transport::Carrier;
use units::{Bytes, Span};

/// Flags of both ends, with the names that they have in the file.
#[derive(Debug, Clone, Args)]
pub(super) struct Settings {
    /// A TOML file with these flags' names as keys; flags take precedence [default:
    /// $XDG_CONFIG_HOME/weir/tunnel.toml or /etc/weir/tunnel.toml, if neither peers nor servers are
    /// given by flags]
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// This end's certificate [default: /etc/weir/tunnel/{server,client}.crt]
    #[arg(long, value_name = "FILE", requires = "key_file")]
    pub(super) cert_file: Option<PathBuf>,
    /// Its key [default: /etc/weir/tunnel/{server,client}.key]
    #[arg(long, value_name = "FILE", requires = "cert_file")]
    pub(super) key_file: Option<PathBuf>,
    /// Certificates of authorities that certify the other end, if it is not pinned
    #[arg(long, value_name = "FILE")]
    pub(super) ca_file: Option<PathBuf>,
    /// Their revocation lists, in PEM or DER form, one for each authority; may be repeated
    #[arg(long, value_name = "FILE")]
    crl_file: Vec<PathBuf>,
    /// tcpa, bbr, cubic, or "fixed RATE": that rate whatever the loss, for a path that nobody else
    /// uses [default: tcpa]
    #[arg(long, value_name = "NAME", help_heading = "Operation")]
    congestion: Option<Congestion>,
    /// auto, udp (QUIC) or tcp (TLS). With auto a server offers both, and a client uses TCP only
    /// where UDP does not answer [default: auto]
    #[arg(long, value_name = "NAME", help_heading = "Operation")]
    carrier: Option<Carrier>,
    /// Memory limit for the buffers of all tunnels together [default: 256MiB]
    #[arg(long, value_name = "SIZE", help_heading = "Operation")]
    memory: Option<Bytes>,
    /// Silence after which the other end is probed; after three times this, over TCP nine times,
    /// the other end counts as dead [default: 1s]
    #[arg(long, value_name = "TIME", help_heading = "Operation")]
    keepalive: Option<Span>,
    /// Time limit for a target to accept, including the lookup of its name [default: 10s]
    #[arg(long, value_name = "TIME", help_heading = "Operation")]
    dial_timeout: Option<Span>,
    /// Number of threads, each with its own socket [default: one per CPU]
    #[arg(long, value_name = "N", help_heading = "Operation")]
    endpoints: Option<usize>,
    /// Listener for Prometheus: 127.0.0.1:PORT, or unix:/PATH where nothing or a dead socket is; it
    /// also serves /healthz, /readyz and, at /, a page of sessions, rates and limits
    #[arg(long, value_name = "ADDRESS", help_heading = "Monitoring")]
    metrics_on: Option<MetricsAddress>,
    /// Form of the log on standard error: text, or json with one object a line [default: text]
    #[arg(long, value_name = "FORM", help_heading = "Monitoring")]
    pub(super) log_format: Option<LogFormat>,
    /// Socket for `weir tunnel status` [default: a separate path for each process]. The path must
    /// be free or hold a dead socket
    #[arg(long, value_name = "PATH", help_heading = "Monitoring")]
    status_socket: Option<PathBuf>,
    /// Keep all rights of the user; otherwise Landlock and seccomp remove those that an end never
    /// needs
    #[arg(long, help_heading = "Operation")]
    unconfined: bool,
    /// Take the sockets over from the end of this role that runs here, and has the same
    /// --status-socket: no session ends. The former process carries its last sessions, for at most
    /// this time [default: 1h]. If no such end runs, this one starts as usual
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true,
        default_missing_value = "1h", help_heading = "Operation")]
    take_over: Option<Span>,
    /// The process to take over from, if several ends of this role run here
    #[arg(
        long,
        value_name = "PID",
        require_equals = true,
        requires = "take_over",
        help_heading = "Operation"
    )]
    take_over_from: Option<u32>,
}

impl Settings {
    /// Returns which end this process is to take over from, if any.
    pub(super) fn take_over(&self) -> Option<TakeOver> {
        // Fetches the former process's key: this end's certificate may belong to that key.
        if let (Some(_), Some(socket)) = (self.take_over, &self.status_socket) {
            tunnel::run::fetch_key(socket);
        }
        let within = self.take_over?.as_duration();
        Some(TakeOver { within, from: self.take_over_from })
    }

    /// Returns the status socket that an end with these flags has, if it runs in `folder` and the
    /// socket is not the default socket.
    pub(super) fn status_socket(
        &self,
        is_server: bool,
        by_flags: bool,
        folder: &Path,
    ) -> Option<PathBuf> {
        if let Some(socket) = &self.status_socket {
            return Some(folder.join(socket));
        }
        let config = self.config.as_ref().map(|file| folder.join(file));
        Self { config, ..self.clone() }.file(by_flags).ok()?.status_socket(is_server)
    }

    /// Reads the settings. `by_flags`: the flags suffice, so no default file is searched for.
    pub(super) fn file(&self, by_flags: bool) -> Result<File, ConfigError> {
        let found = match (&self.config, by_flags) {
            (Some(named), _) => Some(named.clone()),
            (None, true) => None,
            (None, false) => config_file::find("tunnel.toml"),
        };
        found.as_deref().map_or_else(|| Ok(File::default()), File::read)
    }
}

/// Fills the fields that the tables of both ends have.
macro_rules! fill {
    ($table:expr, $settings:expr) => {{
        let (mut table, settings) = ($table, $settings);
        table.cert_file = from_flag("--cert-file", settings.cert_file);
        table.key_file = from_flag("--key-file", settings.key_file);
        table.ca_file = from_flag("--ca-file", settings.ca_file);
        let lists = (!settings.crl_file.is_empty()).then_some(OneOrMore(settings.crl_file));
        table.crl_file = from_flag("--crl-file", lists);
        table.carrier = from_flag("--carrier", settings.carrier);
        table.congestion = from_flag("--congestion", settings.congestion.map(Leaf));
        table.memory = from_flag("--memory", settings.memory);
        table.keepalive = from_flag("--keepalive", settings.keepalive);
        table.dial_timeout = from_flag("--dial-timeout", settings.dial_timeout);
        table.endpoints = from_flag("--endpoints", settings.endpoints);
        table.metrics_on = from_flag("--metrics-on", settings.metrics_on.map(Leaf));
        table.status_socket = from_flag("--status-socket", settings.status_socket);
        table.unconfined = from_flag("--unconfined", settings.unconfined.then_some(true));
        table
    }};
}

impl Settings {
    pub(super) fn into_server(
        self,
        table: tunnel::config::ServerTable,
    ) -> tunnel::config::ServerTable {
        fill!(table, self)
    }

    pub(super) fn into_client(
        self,
        table: tunnel::config::ClientTable,
    ) -> tunnel::config::ClientTable {
        fill!(table, self)
    }
}

pub(super) fn from_flag<T>(flag: &'static str, value: Option<T>) -> Option<Located<T>> {
    value.map(|value| Located::by_flag(flag, value))
}
