use super::settings::{Settings, from_flag};
use crate::exit::Ending;
use crate::log::LogFormat;
use crate::output::note;
use clap::Args;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use tunnel::access::Rule;
use tunnel::config::{ConfigError, Located, OneOrMore, PeerTable, ServerConfig, ServerTable};
use tunnel::identity::{PeerName, Pin};

#[derive(Debug, Clone, Args)]
pub(crate) struct Server {
    /// The UDP address to serve [default: port 7500, over IPv6 and IPv4]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    listen_on: Option<SocketAddr>,
    /// The TCP address for clients whose network blocks UDP [default: the address of --listen-on]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    tcp_listen_on: Option<SocketAddr>,
    /// A client that may connect, as `weir tunnel keys client` prints it there; commas separate
    /// several pins of one client; may be repeated
    #[arg(long, value_name = "NAME=PIN[,PIN…]")]
    peer: Vec<NamedPins>,
    /// Targets that the peers of --peer may reach: tcp:HOST:PORTS, udp:HOST:PORTS, unix:/PATH, or
    /// service:NAME of another client; HOST is a name, *.name, an address or a prefix, PORTS 22 or
    /// 80,443 or 8000-8999 or *; may be repeated
    #[arg(long, value_name = "RULE", requires = "peer")]
    allow: Vec<Rule>,
    /// Also look up names that only a prefix of --allow could cover
    #[arg(long, requires = "peer")]
    resolve_names: bool,
    /// Addresses where they may make this end listen, and services that they may offer, written
    /// like --allow; may be repeated
    #[arg(long, value_name = "RULE", requires = "peer")]
    allow_reverse: Vec<Rule>,
    /// Write a JSON line for each tunnel that has ended to this file, which a reload opens again; -
    /// is standard output
    #[arg(long, value_name = "PATH", help_heading = "Monitoring")]
    access_log: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

pub(crate) fn run(arguments: Server) -> anyhow::Result<Ending> {
    let take_over = arguments.settings.take_over();
    let config = arguments.clone().config()?;
    tunnel::run::server(&config, take_over, || arguments.clone().config(), note)?;
    Ok(Ending::Fine)
}

fn address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse()
        .map_err(|_| "write an address of this host and a port, as in [::]:7500 or 10.0.0.1:7500")
}

impl Server {
    pub(super) fn log_format(&self) -> Option<LogFormat> {
        self.settings.log_format
    }

    /// Returns the status socket of an end with these flags that runs in `folder`, if the socket is
    /// not the default socket.
    pub(super) fn status_socket(&self, folder: &Path) -> Option<PathBuf> {
        self.settings.status_socket(true, !self.peer.is_empty(), folder)
    }

    pub(super) fn config(self) -> Result<ServerConfig, ConfigError> {
        let file = self.settings.file(!self.peer.is_empty())?;
        let (allow, reverse, resolve_names) = (self.allow, self.allow_reverse, self.resolve_names);
        let peer = |NamedPins { name, pins }| {
            let pin = from_flag("--peer", Some(OneOrMore(pins)));
            let (allow, reverse) = (allow.clone(), reverse.clone());
            let table = PeerTable {
                name,
                pin,
                certificate_name: None,
                allow,
                resolve_names,
                reverse,
                rate_limit: None,
                quota: None,
                sessions: None,
            };
            Located::by_flag("--peer", table)
        };
        let table = ServerTable {
            listen_on: from_flag("--listen-on", self.listen_on),
            tcp_listen_on: from_flag("--tcp-listen-on", self.tcp_listen_on),
            access_log: from_flag("--access-log", self.access_log),
            peer: self.peer.into_iter().map(peer).collect(),
            ..ServerTable::default()
        };
        file.server_config(self.settings.into_server(table))
    }
}

#[derive(Debug, Clone)]
struct NamedPins {
    name: PeerName,
    pins: Vec<Pin>,
}

impl FromStr for NamedPins {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (name, pins) = text
            .split_once('=')
            .ok_or_else(|| anyhow::anyhow!("write NAME=PIN, as in laptop=sha256/…"))?;
        let pins = pins.split(',').map(str::parse).collect::<Result<_, _>>()?;
        Ok(Self { name: name.parse()?, pins })
    }
}

pub(super) const EXAMPLES: &str = "\
Examples:
  weir tunnel server --peer laptop=sha256/… --allow tcp:10.0.0.5:22
  weir tunnel server --peer laptop=sha256/… --allow udp:10.0.0.1:53 \\
      --allow 'tcp:10.0.0.0/8:80,443'
  weir tunnel server --config /etc/weir/tunnel.toml

A target that is not listed is refused, and so are this machine itself (127.0.0.0/8, 0.0.0.0, its
interfaces' addresses), link-local and metadata addresses, unless a rule lists that very address:
tcp:127.0.0.1:5432.

A file:
  [server]
  listen-on = \"[::]:7500\"

  [[server.peer]]
  name = \"laptop\"
  pin = \"sha256/…\"
  allow = [\"tcp:10.0.0.0/8:22\", \"tcp:db.internal:5432\"]
  reverse = [\"tcp:127.0.0.1:8080\"]";
