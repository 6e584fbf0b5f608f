use clap::Args;
use std::path::PathBuf;
use tunnel::config::{ConfigError, File, MetricsAddress, OneOrMore, Said};
use tunnel::congestion::Congestion;
use units::{Bytes, Span};

/// What both ends take, with the names it has in the file.
#[derive(Debug, Clone, Args)]
pub(super) struct Settings {
    /// A TOML file with these flags' names as keys; flags come first
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// This end's certificate [default: /etc/weir/tunnel/{server,client}.crt]
    #[arg(long, value_name = "FILE", requires = "key_file")]
    pub(super) cert_file: Option<PathBuf>,
    /// Its key [default: /etc/weir/tunnel/{server,client}.key]
    #[arg(long, value_name = "FILE", requires = "cert_file")]
    pub(super) key_file: Option<PathBuf>,
    /// Certificates of authorities that vouch for the other end, where it is not pinned
    #[arg(long, value_name = "FILE")]
    pub(super) ca_file: Option<PathBuf>,
    /// Their revocation lists, in PEM or DER form, one of each authority; may be repeated
    #[arg(long, value_name = "FILE")]
    crl_file: Vec<PathBuf>,
    /// tcpa, bbr, cubic, or "fixed RATE": that rate whatever is lost, for a path that is yours [default: tcpa]
    #[arg(long, value_name = "NAME", help_heading = "Working")]
    congestion: Option<Congestion>,
    /// For all that is buffered, by all tunnels together [default: 256MiB]
    #[arg(long, value_name = "SIZE", help_heading = "Working")]
    memory: Option<Bytes>,
    /// Silence after which the other end is asked whether it lives; after three it is dead [default: 5s]
    #[arg(long, value_name = "TIME", help_heading = "Working")]
    keepalive: Option<Span>,
    /// How long a target may take to accept, the look-up of its name included [default: 10s]
    #[arg(long, value_name = "TIME", help_heading = "Working")]
    dial_timeout: Option<Span>,
    /// Threads, each with a socket of its own [default: as many as CPUs]
    #[arg(long, value_name = "N", help_heading = "Working")]
    endpoints: Option<usize>,
    /// Where Prometheus may look: 127.0.0.1:PORT or unix:/PATH, where nothing or a dead socket may be; /healthz and
    /// /readyz are there, too
    #[arg(long, value_name = "ADDRESS", help_heading = "Watching")]
    metrics_on: Option<MetricsAddress>,
    /// Where `weir tunnel status` looks [default: a place of its own for each process]. Nothing or a dead socket may
    /// be there
    #[arg(long, value_name = "PATH", help_heading = "Watching")]
    status_socket: Option<PathBuf>,
    /// Keep all rights of the user: without it Landlock and seccomp take what an end never needs
    #[arg(long, help_heading = "Working")]
    unconfined: bool,
}

impl Settings {
    pub(super) fn file(&self) -> Result<File, ConfigError> {
        self.config.as_deref().map_or_else(|| Ok(File::default()), File::read)
    }
}

/// Fills those fields of a table that both ends have.
macro_rules! fill {
    ($table:expr, $settings:expr) => {{
        let (mut table, settings) = ($table, $settings);
        table.cert_file = said("--cert-file", settings.cert_file);
        table.key_file = said("--key-file", settings.key_file);
        table.ca_file = said("--ca-file", settings.ca_file);
        let lists = (!settings.crl_file.is_empty()).then_some(OneOrMore(settings.crl_file));
        table.crl_file = said("--crl-file", lists);
        table.congestion = said("--congestion", settings.congestion);
        table.memory = said("--memory", settings.memory);
        table.keepalive = said("--keepalive", settings.keepalive);
        table.dial_timeout = said("--dial-timeout", settings.dial_timeout);
        table.endpoints = said("--endpoints", settings.endpoints);
        table.metrics_on = said("--metrics-on", settings.metrics_on);
        table.status_socket = said("--status-socket", settings.status_socket);
        table.unconfined = said("--unconfined", settings.unconfined.then_some(true));
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

pub(super) fn said<T>(flag: &'static str, value: Option<T>) -> Option<Said<T>> {
    value.map(|value| Said::by_flag(flag, value))
}
