use super::settings::{Settings, from_flag};
use crate::exit::Ending;
use crate::log::LogFormat;
use crate::output::note;
use clap::Args;
use std::path::{Path, PathBuf};
use tunnel::HostPort;
use tunnel::config::{
    ClientConfig, ClientTable, ConfigError, FarServerTable, Forward, ForwardTable, ListenOn,
    Located, OneOrMore, ReverseTable,
};
use tunnel::identity::Pin;

#[derive(Debug, Clone, Args)]
pub(crate) struct Client {
    /// The server, for example tokyo.example:7500; may be repeated: the next one is used if the one
    /// before cannot be reached
    #[arg(long, value_name = "HOST:PORT")]
    server: Vec<HostPort>,
    /// The server's TCP port, where UDP is blocked [default: the port of --server]
    #[arg(long, value_name = "PORT", requires = "server")]
    tcp_port: Option<u16>,
    /// Its pin, as `weir tunnel keys server` prints it there; may be repeated, and any of them is
    /// accepted
    #[arg(long, value_name = "PIN", requires = "server")]
    pin: Vec<Pin>,
    /// Listen here, reach the target from the server: tcp:ADDRESS:PORT, udp:ADDRESS:PORT or
    /// unix:/PATH on either side; may be repeated. Alone, socks5:ADDRESS:PORT or http:ADDRESS:PORT
    /// is a proxy whose applications name their targets
    #[arg(long, value_name = "LISTEN[=TARGET]")]
    forward: Vec<ForwardTable>,
    /// Names and passwords for the proxies of --forward, one NAME:PASSWORD a line
    #[arg(long, value_name = "FILE", requires = "forward")]
    users_file: Option<PathBuf>,
    /// Listen at the server, reach the target from here; may be repeated. With service:NAME the
    /// server opens no port: other clients reach the service by --forward LISTEN=service:NAME
    #[arg(long, value_name = "LISTEN=TARGET")]
    reverse: Vec<Forward>,
    /// Number of parallel connections; tunnels are spread over them [default: 2]
    #[arg(long, value_name = "N", help_heading = "Operation")]
    connections: Option<usize>,
    #[command(flatten)]
    settings: Settings,
}

pub(crate) fn run(arguments: Client) -> anyhow::Result<Ending> {
    let take_over = arguments.settings.take_over();
    let config = arguments.clone().config()?;
    tunnel::run::client(&config, take_over, || arguments.clone().config(), note)?;
    Ok(Ending::Fine)
}

impl Client {
    pub(super) fn log_format(&self) -> Option<LogFormat> {
        self.settings.log_format
    }

    /// Returns the status socket of an end with these flags that runs in `folder`, if the socket is
    /// not the default socket.
    pub(super) fn status_socket(&self, folder: &Path) -> Option<PathBuf> {
        self.settings.status_socket(false, !self.server.is_empty(), folder)
    }

    pub(super) fn config(self) -> Result<ClientConfig, ConfigError> {
        let file = self.settings.file(!self.server.is_empty())?;
        let pins = self.pin;
        let tcp_port = self.tcp_port;
        let server = |endpoint| {
            let pin = (!pins.is_empty()).then(|| OneOrMore(pins.clone()));
            let pin = from_flag("--pin", pin);
            let table = FarServerTable { endpoint, pin, certificate_name: None, tcp_port };
            Located::by_flag("--server", table)
        };
        let users_file = from_flag("--users-file", self.users_file);
        let forward = |mut table: ForwardTable| {
            if matches!(table.listen_on, ListenOn::Proxy(..)) {
                table.users_file.clone_from(&users_file);
            }
            Located::by_flag("--forward", table)
        };
        let reverse = |Forward { listen_on, target }| {
            Located::by_flag("--reverse", ReverseTable { listen_on, target })
        };
        let table = ClientTable {
            server: self.server.into_iter().map(server).collect(),
            forward: self.forward.into_iter().map(forward).collect(),
            reverse: self.reverse.into_iter().map(reverse).collect(),
            connections: from_flag("--connections", self.connections),
            ..ClientTable::default()
        };
        file.client_config(self.settings.into_client(table))
    }
}

pub(super) const EXAMPLES: &str = "\
Examples:
  weir tunnel client --server tokyo.example:7500 --pin sha256/… \\
      --forward tcp:127.0.0.1:2222=tcp:10.0.0.5:22
  weir tunnel client --server tokyo.example:7500 --pin sha256/… \\
      --forward udp:127.0.0.1:5353=udp:10.0.0.1:53 \\
      --forward unix:/run/db.sock=tcp:db.internal:5432
  weir tunnel client --server tokyo.example:7500 --pin sha256/… \\
      --forward socks5:127.0.0.1:1080 --forward http:127.0.0.1:3128
  weir tunnel client --server tokyo.example:7500 --pin sha256/… \\
      --reverse service:wiki=tcp:127.0.0.1:3000
  weir tunnel client --config /etc/weir/tunnel.toml

A file:
  [[client.server]]
  endpoint = \"tokyo.example:7500\"
  pin = \"sha256/…\"

  [[client.forward]]
  listen-on = \"tcp:127.0.0.1:2222\"
  target = \"tcp:10.0.0.5:22\"";
