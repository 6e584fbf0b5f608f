//! Turns parsed tables into a complete configuration, or reports the first error.

use super::source::{ConfigError, Origin};
use super::tables::{
    ClientTable, Common, FarServerTable, File, ForwardTable, PeerTable, ReverseTable, ServerTable,
};
use super::{
    ClientConfig, ConfinedPaths, DEFAULT_DIRECTORY, DEFAULT_PORT, FarServer, Forward, ListenOn,
    Located, MOST_CONNECTIONS, MOST_ENDPOINTS, MOST_SESSIONS, MetricsAddress, OneOrMore, Proxy,
    ProxyKind, ServerConfig, Settings, proxies,
};
use crate::access::{Access, Rights, Rule};
use crate::access_log::AccessLogAt;
use crate::account::Quota;
use crate::identity::{Authorities, Identity, IdentityError, Pin, Proof, ServerTrust, TrustedPeer};
use crate::server::TcpAt;
use crate::target::Target;
use crate::transport::Carrier;
use std::collections::HashSet;
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use units::{Bytes, Rate, Span};

pub(super) fn server(file: &File, table: &ServerTable) -> Result<ServerConfig, ConfigError> {
    let listen_on = table.listen_on.as_ref().map_or_else(everywhere, |value| value.value);
    let (listen_on, tcp) = carriers(file, table, listen_on)?;
    let common = Common::from(table);
    let settings = settings(file, &common)?;
    if table.peer.is_empty() {
        return Err(ConfigError::Incomplete(
            "no peers are configured: add one by --peer NAME=PIN or [[server.peer]]; \
             `weir tunnel keys client` on the client prints what to write"
                .to_owned(),
        ));
    }
    let mut confined_paths = confined_paths(file, "server", &common, &settings);
    for rule in table.peer.iter().flat_map(|peer| &peer.value.reverse) {
        match rule {
            Rule::Path(socket) => confined_paths.binds(socket),
            Rule::Directory(directory) => confined_paths.binds_in(directory),
            Rule::Tcp(..) | Rule::Udp(..) | Rule::Service(_) | Rule::Services(_) => {}
        }
    }
    for rule in table.peer.iter().flat_map(|peer| &peer.value.allow) {
        if let Rule::Path(socket) | Rule::Directory(socket) = rule {
            confined_paths.connects(socket);
        }
    }
    let access_log = table.access_log.as_ref().map(|value| match value.value.as_os_str() == "-" {
        true => AccessLogAt::StandardOutput,
        false => AccessLogAt::File(path(file, value)),
    });
    if let Some(AccessLogAt::File(log)) = &access_log {
        confined_paths.writes(log);
    }
    usable(&confined_paths)?;
    let identity = identity(file, "server", &common)?;
    let authorities = authorities(file, &common)?;
    let (mut peers, mut rights) = (Vec::new(), Vec::new());
    let mut quotas = Vec::new();
    let (mut names, mut pins) = (HashSet::new(), HashSet::new());
    for Located { value: peer, origin } in &table.peer {
        once(file, *origin, &mut names, &peer.name, "two peers have this name: rename one")?;
        for pin in peer.pin.iter().flat_map(|pins| &pins.value.0) {
            once(file, *origin, &mut pins, pin, "another peer has this pin already: drop one")?;
        }
        let proof = proof(file, *origin, peer, authorities.as_ref())?;
        if peer.allow.is_empty() && peer.reverse.is_empty() {
            let name = &peer.name;
            tracing::warn!(
                "peer {name} has no rights: add --allow or --allow-reverse, or `allow` or \
                 `reverse` in the file"
            );
        }
        peers.push(TrustedPeer { name: peer.name.clone(), proof });
        quotas.push((peer.name.clone(), quota(file, peer)?));
        let own = Rights {
            dial: peer.allow.clone(),
            resolve_names: peer.resolve_names,
            everything: false,
            listen: peer.reverse.clone(),
        };
        rights.push((peer.name.clone(), own));
    }
    let access = Access::new(rights);
    Ok(ServerConfig {
        listen_on,
        tcp,
        identity,
        peers,
        access,
        quotas,
        access_log,
        confined_paths,
        settings,
        tokens: None,
        tunnels_at: None,
    })
}

fn quota(file: &File, peer: &PeerTable) -> Result<Quota, ConfigError> {
    let rates = Rate::from_bits_per_second(8_000)..=Rate::from_bits_per_second(1_000_000_000_000);
    Ok(Quota {
        rate: within(file, &peer.rate_limit, rates)?,
        volume: peer.quota.as_ref().map(|quota| quota.value),
        sessions: within(file, &peer.sessions, 1..=MOST_SESSIONS)?,
    })
}

/// Returns the addresses on which the server listens on UDP and TCP.
fn carriers(
    file: &File,
    table: &ServerTable,
    listen_on: SocketAddr,
) -> Result<(Option<SocketAddr>, TcpAt), ConfigError> {
    let carrier = table.carrier.as_ref().map_or(Carrier::Auto, |value| value.value);
    let tcp = table.tcp_listen_on.as_ref().map(|value| value.value);
    match (carrier, tcp) {
        (Carrier::Udp, None) => Ok((Some(listen_on), TcpAt::Nowhere)),
        (Carrier::Udp, Some(_)) => {
            let message =
                "`tcp-listen-on` needs the carrier tcp or auto: remove one of the two keys";
            let origin = table.tcp_listen_on.as_ref().map_or(Origin::Default, |value| value.origin);
            Err(file.source.error(origin, message))
        }
        (Carrier::Tcp, tcp) => Ok((None, TcpAt::Address(tcp.unwrap_or(listen_on)))),
        (Carrier::Auto, None) => Ok((Some(listen_on), TcpAt::SameAsUdp)),
        (Carrier::Auto, Some(tcp)) => Ok((Some(listen_on), TcpAt::Address(tcp))),
    }
}

/// Returns the address that listens on IPv6 and IPv4 through one socket, or on IPv4 alone if the
/// kernel has no IPv6.
pub(crate) fn everywhere() -> SocketAddr {
    let all = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
    match std::net::UdpSocket::bind(all) {
        Ok(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, DEFAULT_PORT)),
        Err(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, DEFAULT_PORT)),
    }
}

pub(super) fn client(file: &File, table: &ClientTable) -> Result<ClientConfig, ConfigError> {
    let common = Common::from(table);
    let settings = settings(file, &common)?;
    if table.server.is_empty() {
        return Err(ConfigError::Incomplete(
            "there is no server to connect to: add --server HOST:PORT or [[client.server]]"
                .to_owned(),
        ));
    }
    if table.forward.is_empty() && table.reverse.is_empty() {
        return Err(ConfigError::Incomplete(
            "there is nothing to carry: add --forward or --reverse LISTEN=TARGET, or their tables"
                .to_owned(),
        ));
    }
    let mut confined_paths = confined_paths(file, "client", &common, &settings);
    for forward in &table.forward {
        if let ListenOn::Target(Target::Unix(socket)) = &forward.value.listen_on {
            confined_paths.binds(socket);
        }
        forward.value.users_file.iter().for_each(|value| confined_paths.reads(&path(file, value)));
    }
    for reverse in &table.reverse {
        if let Target::Unix(socket) = &reverse.value.target {
            confined_paths.connects(socket);
        }
    }
    usable(&confined_paths)?;
    let authorities = authorities(file, &common)?;
    let servers = table.server.iter().map(|value| far_server(file, value, authorities.as_ref()));
    let servers = servers.collect::<Result<_, _>>()?;
    let (mut near, mut far) = (HashSet::new(), HashSet::new());
    let (mut forwards, mut proxies) = (Vec::new(), Vec::new());
    for Located { value: table, origin } in &table.forward {
        match &table.listen_on {
            ListenOn::Proxy(kind, at) => {
                proxies.push(proxy(file, *origin, table, (*kind, *at), &mut near)?);
            }
            ListenOn::Target(listen_on) => {
                forwards.push(of_forward(file, *origin, table, listen_on, &mut near)?);
            }
        }
    }
    let reverse = |Located { value: ReverseTable { listen_on, target }, origin }: &Located<_>| {
        if let Target::Service(_) = target {
            let message = format!(
                "{target} is a service at the server: name an address or a path of this side"
            );
            return Err(file.source.error(*origin, message));
        }
        forward(file, *origin, listen_on, target, &mut far)
    };
    let reverses = table.reverse.iter().map(reverse).collect::<Result<_, _>>()?;
    let connections = within(file, &table.connections, 1..=MOST_CONNECTIONS)?.unwrap_or(2);
    let identity = identity(file, "client", &common)?;
    Ok(ClientConfig {
        identity,
        servers,
        forwards,
        proxies,
        tokens: Vec::new(),
        reverses,
        connections,
        carrier: table.carrier.as_ref().map_or(Carrier::Auto, |value| value.value),
        confined_paths,
        settings,
        tunnels_at: None,
    })
}

fn settings(file: &File, table: &Common<'_>) -> Result<Settings, ConfigError> {
    let usual = Settings::default();
    let memory = within(file, table.memory, Bytes::kib(8 << 10)..=Bytes::kib(1 << 30))?;
    let keepalive = within(file, table.keepalive, Span::from_millis(100)..=Span::from_secs(60))?;
    let patience = within(file, table.dial_timeout, Span::from_millis(10)..=Span::from_secs(120))?;
    let endpoints = within(file, table.endpoints, 1..=MOST_ENDPOINTS)?;
    Ok(Settings {
        congestion: table.congestion.as_ref().map_or(usual.congestion, |value| value.value.0),
        memory: memory.unwrap_or(usual.memory),
        keepalive: keepalive.unwrap_or(usual.keepalive),
        dial_timeout: patience.unwrap_or(usual.dial_timeout),
        endpoints: endpoints.unwrap_or(usual.endpoints),
        metrics_on: table.metrics_on.as_ref().map(|value| value.value.0.clone()),
        status_socket: table.status_socket.as_ref().map(|value| path(file, value)),
        unconfined: table.unconfined.as_ref().is_some_and(|value| value.value),
    })
}

/// Returns the directories of the files and sockets that servers and clients both use.
fn confined_paths(
    file: &File,
    role: &str,
    table: &Common<'_>,
    settings: &Settings,
) -> ConfinedPaths {
    let mut confined_paths = ConfinedPaths::default();
    if let Some(config) = &file.path {
        confined_paths.reads(config);
    }
    confined_paths.reads(&own_file(file, table.cert_file, role, "crt"));
    confined_paths.reads(&own_file(file, table.key_file, role, "key"));
    table.ca_file.iter().for_each(|value| confined_paths.reads(&path(file, value)));
    lists(file, table).iter().for_each(|list| confined_paths.reads(list));
    settings.status_socket.iter().for_each(|socket| confined_paths.binds(socket));
    if let Some(MetricsAddress::Unix(socket)) = &settings.metrics_on {
        confined_paths.binds(socket);
    }
    confined_paths
}

/// Checks that a running end has not given up a directory that the new configuration needs.
pub(crate) fn usable(confined_paths: &ConfinedPaths) -> Result<(), ConfigError> {
    match confined_paths.given_up() {
        Some(directory) => Err(ConfigError::OutOfReach(directory.to_owned())),
        None => Ok(()),
    }
}

/// Returns the files of certificate revocation lists.
fn lists(file: &File, table: &Common<'_>) -> Vec<PathBuf> {
    let named = table.crl_file.iter();
    named.flat_map(|value| value.value.0.iter().map(|one| under(file, value.origin, one))).collect()
}

/// Loads the configured certificate and key; by default the files of `weir tunnel keys`.
fn identity(file: &File, role: &str, table: &Common<'_>) -> Result<Identity, ConfigError> {
    let certificate = own_file(file, table.cert_file, role, "crt");
    let key = own_file(file, table.key_file, role, "key");
    let at = table.cert_file.as_ref().map_or(Origin::Default, |value| value.origin);
    if at == Origin::Default && !certificate.exists() {
        return Err(ConfigError::Incomplete(format!(
            "there is no {}: `weir tunnel keys {role}` makes it, or name another by --cert-file \
             and --key-file",
            certificate.display()
        )));
    }
    let identity = Identity::load(&certificate, &key);
    identity.map_err(|error| file.source.error(at, error.to_string()))
}

/// Returns the path of the certificate (`crt`) or the key (`key`) of an end.
pub(super) fn own_file(
    file: &File,
    value: &Option<Located<PathBuf>>,
    role: &str,
    ending: &str,
) -> PathBuf {
    let usual = || Path::new(DEFAULT_DIRECTORY).join(format!("{role}.{ending}"));
    value.as_ref().map_or_else(usual, |value| path(file, value))
}

fn authorities(file: &File, table: &Common<'_>) -> Result<Option<Arc<Authorities>>, ConfigError> {
    let Some(value) = table.ca_file else {
        return match table.crl_file {
            Some(lists) => {
                let message =
                    "`crl-file` requires `ca-file`, the authority that signs the revocation list";
                Err(file.source.error(lists.origin, message))
            }
            None => Ok(None),
        };
    };
    let lists = lists(file, table);
    let read = Authorities::load(&path(file, value), &lists);
    read.map(Some).map_err(|error| {
        let of_list = match &error {
            IdentityError::RevocationList { .. } => true,
            IdentityError::File { path, .. } => lists.contains(path),
            _ => false,
        };
        let origin =
            table.crl_file.as_ref().filter(|_| of_list).map_or(value.origin, |value| value.origin);
        file.source.error(origin, error.to_string())
    })
}

fn proof(
    file: &File,
    origin: Origin,
    peer: &PeerTable,
    authorities: Option<&Arc<Authorities>>,
) -> Result<Proof, ConfigError> {
    match (pins(&peer.pin), &peer.certificate_name, authorities) {
        (Some(pins), None, _) => Ok(Proof::Pins(pins)),
        (None, Some(name), Some(authorities)) => {
            Ok(Proof::Certified { authorities: Arc::clone(authorities), name: name.value.clone() })
        }
        (None, Some(name), None) => {
            let message =
                "`certificate-name` requires `ca-file`, the authority that signs its certificate";
            Err(file.source.error(name.origin, message))
        }
        (Some(_), Some(name), _) => {
            let message = "give a peer either a pin or a certificate name, not both";
            Err(file.source.error(name.origin, message))
        }
        (None, None, _) => {
            let message =
                "this peer has no identity: give its `pin`, or `certificate-name` and `ca-file`";
            Err(file.source.error(origin, message))
        }
    }
}

fn far_server(
    file: &File,
    Located { value: server, origin }: &Located<FarServerTable>,
    authorities: Option<&Arc<Authorities>>,
) -> Result<FarServer, ConfigError> {
    let endpoint = server.endpoint.clone();
    if endpoint.port() == 0 {
        let message = "no server has port 0: write its UDP port, 7500 by default";
        return Err(file.source.error(*origin, message));
    }
    let name = server.certificate_name.as_ref();
    let trust = match (pins(&server.pin), name, authorities) {
        (Some(pins), None, _) => ServerTrust::Pins(pins),
        (None, name, Some(authorities)) => ServerTrust::Certified {
            authorities: Arc::clone(authorities),
            name: name.map_or_else(|| endpoint.host().to_owned(), |name| name.value.clone()),
        },
        (Some(_), Some(name), _) => {
            let message = "give a server either a pin or a certificate name, not both";
            return Err(file.source.error(name.origin, message));
        }
        (None, _, None) => {
            let message = "give this server's identity: its pin, which `weir tunnel keys server` \
                           prints there (--pin), or its authorities (--ca-file)";
            return Err(file.source.error(*origin, message));
        }
    };
    if server.tcp_port == Some(0) {
        let message = "no server has port 0: write its TCP port, or leave `tcp-port` out";
        return Err(file.source.error(*origin, message));
    }
    Ok(FarServer { endpoint, trust, tcp_port: server.tcp_port })
}

fn of_forward(
    file: &File,
    origin: Origin,
    table: &ForwardTable,
    listen_on: &Target,
    taken: &mut HashSet<Target>,
) -> Result<Forward, ConfigError> {
    let Some(target) = &table.target else {
        let message = format!(
            "{listen_on} needs a `target`; only socks5: and http: listeners let applications name it"
        );
        return Err(file.source.error(origin, message));
    };
    if let Some(users) = &table.users_file {
        let message = "`users-file` belongs to a socks5: or http: listener: remove the key";
        return Err(file.source.error(users.origin, message));
    }
    if let Target::Service(name) = listen_on {
        let message = format!(
            "a client listens on addresses and paths: offer the service by --reverse service:{name}=TARGET"
        );
        return Err(file.source.error(origin, message));
    }
    forward(file, origin, listen_on, target, taken)
}

fn proxy(
    file: &File,
    origin: Origin,
    table: &ForwardTable,
    (kind, listen_on): (ProxyKind, SocketAddr),
    taken: &mut HashSet<Target>,
) -> Result<Proxy, ConfigError> {
    let wrong = |message: String| Err(file.source.error(origin, message));
    let shown = ListenOn::Proxy(kind, listen_on);
    if let Some(target) = &table.target {
        return wrong(format!(
            "applications of {shown} name their targets themselves: remove the target {target}"
        ));
    }
    if listen_on.port() != 0 {
        let again = format!("{shown} is the address of two listeners: change one listener");
        once(file, origin, taken, &Target::Tcp(listen_on.into()), &again)?;
    }
    let users = match &table.users_file {
        Some(value) => {
            let users = proxies::users(&path(file, value));
            Some(Arc::new(users.map_err(|error| file.source.error(value.origin, error))?))
        }
        None if listen_on.ip().to_canonical().is_loopback() => None,
        None => {
            return wrong(format!(
                "{shown} would serve anyone who reaches that address: listen on 127.0.0.1:{}, or give \
                 a `users-file` (--users-file) with the names and passwords of those who may",
                listen_on.port()
            ));
        }
    };
    Ok(Proxy { kind, listen_on, users })
}

fn forward(
    file: &File,
    origin: Origin,
    listen_on: &Target,
    target: &Target,
    taken: &mut HashSet<Target>,
) -> Result<Forward, ConfigError> {
    let wrong = |message: String| Err(file.source.error(origin, message));
    if let Target::Tcp(host) | Target::Udp(host) = listen_on
        && host.host().parse::<IpAddr>().is_err()
    {
        return wrong(format!("{listen_on} cannot be listened on: write an address, not a name"));
    }
    if port(target) == Some(0) {
        return wrong(format!("{target}: there is no port 0: write the target's"));
    }
    if listen_on.is_datagrams() != target.is_datagrams() {
        return wrong(format!("{listen_on} cannot lead to {target}: datagrams only go to udp:"));
    }
    if port(listen_on) != Some(0) {
        let again = format!("{listen_on} is the address of two listeners: change one listener");
        once(file, origin, taken, listen_on, &again)?;
    }
    Ok(Forward { listen_on: listen_on.clone(), target: target.clone() })
}

fn port(target: &Target) -> Option<u16> {
    match target {
        Target::Tcp(host) | Target::Udp(host) => Some(host.port()),
        Target::Unix(_) | Target::Service(_) => None,
    }
}

fn pins(value: &Option<Located<OneOrMore<Pin>>>) -> Option<Vec<Pin>> {
    value.as_ref().map(|pins| pins.value.0.clone()).filter(|pins| !pins.is_empty())
}

/// Resolves a path: one from a file is relative to the file's directory, one from a flag to the
/// working directory.
pub(super) fn path(file: &File, value: &Located<PathBuf>) -> PathBuf {
    under(file, value.origin, &value.value)
}

fn under(file: &File, origin: Origin, path: &Path) -> PathBuf {
    match origin {
        Origin::Byte(_) => file.directory.join(path),
        _ => path.to_owned(),
    }
}

fn within<T: Copy + PartialOrd + std::fmt::Display>(
    file: &File,
    value: &Option<Located<T>>,
    range: RangeInclusive<T>,
) -> Result<Option<T>, ConfigError> {
    match value {
        Some(value) if !range.contains(&value.value) => {
            let (least, most) = range.into_inner();
            let message = format!("{} is out of range: {least} to {most}", value.value);
            Err(file.source.error(value.origin, message))
        }
        value => Ok(value.as_ref().map(|value| value.value)),
    }
}

fn once<T: Clone + Eq + Hash>(
    file: &File,
    origin: Origin,
    taken: &mut HashSet<T>,
    one: &T,
    message: &str,
) -> Result<(), ConfigError> {
    if taken.insert(one.clone()) { Ok(()) } else { Err(file.source.error(origin, message)) }
}
