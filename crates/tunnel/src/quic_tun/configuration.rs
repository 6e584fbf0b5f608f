//! Makes a configuration from the settings of quic-tun. By default quic-tun admits any client, and
//! lets clients reach any target. Without [`INSECURE`], these defaults are errors that name the
//! setting to add. [`SKIP_VERIFY`] permits a client to trust any server, and nothing else.

use super::TunnelsAt;
use super::settings::{Given, INSECURE, Role, SKIP_VERIFY, Settings};
use super::source::{SourceKind, TokenSource};
use super::token::Cleartext;
use crate::access::{Access, Rights, Rule};
use crate::account::Quota;
use crate::config::{
    ClientConfig, ConfigError, ConfinedPaths, DEFAULT_DIRECTORY, FarServer, MetricsAddress,
    ServerConfig, Settings as TunnelSettings, TokenForward, everywhere, usable,
};
use crate::identity::{
    Authorities, Identity, IdentityError, PeerName, Pin, Proof, ServerTrust, TrustedPeer,
};
use crate::server::TcpAt;
use crate::target::{HostPort, Target};
use crate::transport::Carrier;
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

/// Builds the configuration of `quictun-server`.
pub fn server_config(settings: &Settings) -> Result<ServerConfig, ConfigError> {
    let insecure = settings.is_set(INSECURE)?;
    let listen_on = match settings.given("listen-on") {
        Some(given) => udp_address(given)?,
        None => everywhere(),
    };
    plugin(settings, "token-parser-plugin", &["Cleartext"])?;
    let tokens = match settings.given("token-parser-key") {
        Some(given) => given.text().parse().map_err(|message: String| given.error(message))?,
        None => Cleartext::Plain,
    };
    let mut confined_paths = confined_paths(settings);
    let peers = peers(settings, insecure, &mut confined_paths)?;
    let dial = rules(settings)?;
    let mut missing = Vec::new();
    if peers.is_empty() {
        missing.push(WHO);
    }
    if dial.is_empty() && !insecure {
        missing.push(WHERE);
    }
    if !missing.is_empty() {
        return Err(ConfigError::Incomplete(format!(
            "quic-tun lets anyone in, and to every address that this host reaches; Weir does not \
             unless asked:\n{}\n  or keep quic-tun's defaults:\n    --{INSECURE}",
            missing.join("\n")
        )));
    }
    let everything = dial.is_empty();
    for rule in &dial {
        if let Rule::Path(socket) | Rule::Directory(socket) = rule {
            confined_paths.connects(socket);
        }
    }
    if everything {
        confined_paths.connects_anywhere();
    }
    if peers.iter().any(|peer| matches!(peer.proof, Proof::Anyone)) {
        tracing::warn!(%listen_on, "no verification: anyone who reaches this address may use the tunnel");
    }
    if everything {
        tracing::warn!(
            "open targets: clients reach every address that this host reaches, its own included; \
             --allow restricts them"
        );
    }
    let identity = identity(settings, insecure, &mut confined_paths)?;
    let rights = Rights { dial, everything, ..Rights::default() };
    let access = Access::new(peers.iter().map(|peer| (peer.name.clone(), rights.clone())));
    let tunnels_at = tunnels_at(settings, insecure, &mut confined_paths)?;
    usable(&confined_paths)?;
    Ok(ServerConfig {
        listen_on: Some(listen_on),
        tcp: TcpAt::Nowhere,
        identity,
        quotas: peers.iter().map(|peer| (peer.name.clone(), Quota::default())).collect(),
        access_log: None,
        peers,
        access,
        tunnels_at,
        confined_paths,
        settings: TunnelSettings::default(),
        tokens: Some(tokens),
    })
}

/// Builds the configuration of `quictun-client`.
pub fn client_config(settings: &Settings) -> Result<ClientConfig, ConfigError> {
    let insecure = settings.is_set(INSECURE)?;
    let mut confined_paths = confined_paths(settings);
    let listen_on = match settings.given("listen-on") {
        Some(given) => listener(given)?,
        None => Target::Tcp(HostPort::from(SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)))),
    };
    if let Target::Unix(path) = &listen_on {
        confined_paths.binds(path);
    }
    let endpoint = required(settings, "server-endpoint", "the server: example.org:7500")?;
    let endpoint: HostPort = parsed(endpoint)?;
    let kind = plugin(settings, "token-source-plugin", &["Fixed", "File", "Http"])?;
    let given = required(settings, "token-source", "the target: tcp:10.0.0.5:22")?;
    let kind = match kind {
        "File" => {
            confined_paths.reads(&given.path());
            SourceKind::File(given.path())
        }
        "Http" => SourceKind::Http(parsed(given)?),
        _ => SourceKind::Fixed(given.text().to_owned()),
    };
    let source = TokenSource::new(kind).map_err(|error| given.error(error.to_string()))?;
    let trust = trust(settings, insecure, &endpoint, &mut confined_paths)?;
    let identity = identity(settings, insecure, &mut confined_paths)?;
    let tunnels_at = tunnels_at(settings, insecure, &mut confined_paths)?;
    usable(&confined_paths)?;
    Ok(ClientConfig {
        identity,
        servers: vec![FarServer { endpoint, trust, tcp_port: None }],
        forwards: Vec::new(),
        proxies: Vec::new(),
        tokens: vec![TokenForward { listen_on, source: Arc::new(source) }],
        reverses: Vec::new(),
        connections: CONNECTIONS,
        carrier: Carrier::Udp,
        tunnels_at,
        confined_paths,
        settings: TunnelSettings::default(),
    })
}

/// Returns the clients that a server admits.
fn peers(
    settings: &Settings,
    insecure: bool,
    confined_paths: &mut ConfinedPaths,
) -> Result<Vec<TrustedPeer>, ConfigError> {
    let verify = settings.is_set("verify-remote-endpoint")?;
    let mut peers: Vec<TrustedPeer> = Vec::new();
    let mut taken = HashSet::new();
    for text in settings.texts("peer") {
        let wrong = |message: String| error_of(settings, "peer", message);
        let (name, pin) = text
            .split_once('=')
            .ok_or_else(|| wrong(format!("`{text}` is no NAME=PIN, as in laptop=sha256/…")))?;
        let name: PeerName =
            name.parse().map_err(|error: IdentityError| wrong(error.to_string()))?;
        let pin: Pin = pin.parse().map_err(|error: IdentityError| wrong(error.to_string()))?;
        if !taken.insert(name.clone()) {
            return Err(wrong(format!("two peers have the name {name}: rename one")));
        }
        peers.push(TrustedPeer { name, proof: Proof::Pins(vec![pin]) });
    }
    match settings.given("ca-file") {
        // quic-tun ignores the authorities' file unless its user asks for verification. Weir
        // verifies unless the user forbids verification.
        Some(given) if verify || !insecure => {
            let authorities = authorities(given, confined_paths)?;
            peers.push(TrustedPeer {
                name: named("certified")?,
                proof: Proof::CertifiedWhoever { authorities },
            });
        }
        None if verify => {
            return Err(error_of(
                settings,
                "verify-remote-endpoint",
                "name the authority that signs the clients' certificates: --ca-file FILE (the \
                 system's authorities certify strangers, too)"
                    .to_owned(),
            ));
        }
        _ => {}
    }
    if peers.is_empty() && insecure {
        peers.push(TrustedPeer { name: named("anyone")?, proof: Proof::Anyone });
    }
    Ok(peers)
}

fn named(name: &str) -> Result<PeerName, ConfigError> {
    name.parse().map_err(|error: IdentityError| ConfigError::Incomplete(error.to_string()))
}

fn rules(settings: &Settings) -> Result<Vec<Rule>, ConfigError> {
    let rule = |text: &str| {
        text.parse::<Rule>().map_err(|error| error_of(settings, "allow", error.to_string()))
    };
    settings.texts("allow").map(rule).collect()
}

/// Returns the proof by which a client recognises its server.
fn trust(
    settings: &Settings,
    insecure: bool,
    endpoint: &HostPort,
    confined_paths: &mut ConfinedPaths,
) -> Result<ServerTrust, ConfigError> {
    let verify = settings.is_set("verify-remote-endpoint")?;
    let insecure = insecure || settings.is_set(SKIP_VERIFY)?;
    let pin = |text: &str| {
        text.parse::<Pin>().map_err(|error| error_of(settings, "pin", error.to_string()))
    };
    let pins: Vec<Pin> = settings.texts("pin").map(pin).collect::<Result<_, _>>()?;
    if !pins.is_empty() {
        return Ok(ServerTrust::Pins(pins));
    }
    let certified =
        |authorities| ServerTrust::Certified { authorities, name: endpoint.host().to_owned() };
    match settings.given("ca-file") {
        Some(given) if verify || !insecure => Ok(certified(authorities(given, confined_paths)?)),
        None if verify => {
            let system = system_authorities(Path::exists);
            confined_paths.reads(system);
            usable(confined_paths)?;
            let read = Authorities::load(system, &[]);
            read.map(certified).map_err(|error| {
                let message = format!("the system's authorities: {error}; name some by --ca-file");
                error_of(settings, "verify-remote-endpoint", message)
            })
        }
        _ if insecure => {
            tracing::warn!(server = %endpoint, "no verification: any server at this address is trusted");
            Ok(ServerTrust::Anyone)
        }
        _ => Err(ConfigError::Incomplete(format!(
            "quic-tun trusts any server that answers; Weir does not unless asked. Name the server's \
             identity:\n{SERVER}\n  or keep quic-tun's default:\n    --{INSECURE}"
        ))),
    }
}

fn system_authorities(exists: impl Fn(&Path) -> bool) -> &'static Path {
    let found = SYSTEM_AUTHORITIES.map(Path::new).into_iter().find(|path| exists(path));
    found.unwrap_or(Path::new(SYSTEM_AUTHORITIES[0]))
}

fn authorities(
    given: &Given,
    confined_paths: &mut ConfinedPaths,
) -> Result<Arc<Authorities>, ConfigError> {
    confined_paths.reads(&given.path());
    usable(confined_paths)?;
    Authorities::load(&given.path(), &[]).map_err(|error| given.error(error.to_string()))
}

/// Loads the key that the settings name, or else the key of `weir tunnel keys`. Generates a key
/// that only this process has if neither exists.
fn identity(
    settings: &Settings,
    insecure: bool,
    confined_paths: &mut ConfinedPaths,
) -> Result<Identity, ConfigError> {
    let role = settings.role.name();
    let (certificate, key) = match (settings.given("cert-file"), settings.given("key-file")) {
        (Some(certificate), Some(key)) => (certificate.path(), key.path()),
        (Some(given), None) => return Err(given.error("the certificate's key: --key-file FILE")),
        (None, Some(given)) => return Err(given.error("the key's certificate: --cert-file FILE")),
        (None, None) => {
            let file = |ending| Path::new(DEFAULT_DIRECTORY).join(format!("{role}.{ending}"));
            let (certificate, key): (PathBuf, PathBuf) = (file("crt"), file("key"));
            if !certificate.exists() {
                return passing(settings.role, insecure);
            }
            (certificate, key)
        }
    };
    confined_paths.reads(&certificate);
    confined_paths.reads(&key);
    usable(confined_paths)?;
    Identity::load(&certificate, &key).map_err(|error| match settings.given("cert-file") {
        Some(given) => given.error(error.to_string()),
        None => ConfigError::Incomplete(error.to_string()),
    })
}

/// Generates a key that only this process has. No other end can pin this key in advance.
fn passing(role: Role, insecure: bool) -> Result<Identity, ConfigError> {
    static MADE: OnceLock<Identity> = OnceLock::new();
    let name = role.name();
    if role == Role::Server && !insecure {
        return Err(ConfigError::Incomplete(format!(
            "this server has no key: `weir tunnel keys {name}` makes one in {DEFAULT_DIRECTORY} and \
             prints its pin for the clients, or name one by --cert-file and --key-file"
        )));
    }
    if let Some(made) = MADE.get() {
        return Ok(made.clone());
    }
    let made = Identity::generate(name, DAYS);
    let (identity, _) = made.map_err(|error| ConfigError::Incomplete(error.to_string()))?;
    tracing::info!(
        "no key in {DEFAULT_DIRECTORY}: this {name} uses a new one until it ends, which no other end \
         can pin; `weir tunnel keys {name}` makes a lasting one"
    );
    Ok(MADE.get_or_init(|| identity).clone())
}

/// Returns the API's address. By default only this machine reaches the API; quic-tun's default
/// address is open to other hosts.
fn tunnels_at(
    settings: &Settings,
    insecure: bool,
    confined_paths: &mut ConfinedPaths,
) -> Result<Option<TunnelsAt>, ConfigError> {
    const KEY: &str = "httpd-listen-on";
    let Some(given) = settings.given(KEY) else {
        let address = MetricsAddress::Tcp((Ipv4Addr::LOCALHOST, API_PORT).into());
        return Ok(Some(TunnelsAt { address, is_required: false }));
    };
    if given.text().starts_with("unix:") {
        let address: MetricsAddress =
            given.text().parse().map_err(|message: String| given.error(message))?;
        if let MetricsAddress::Unix(path) = &address {
            confined_paths.binds(path);
        }
        return Ok(Some(TunnelsAt { address, is_required: true }));
    }
    let address = address(given.text())
        .ok_or_else(|| given.error("write ADDRESS:PORT or unix:/PATH, as in 127.0.0.1:8086"))?;
    if !address.ip().to_canonical().is_loopback() && !insecure {
        return Err(given.error(format!(
            "{} can be reached from other hosts, and GET /tunnels needs no login: write \
             127.0.0.1:{} or unix:/PATH, or add --{INSECURE}",
            given.text(),
            address.port()
        )));
    }
    Ok(Some(TunnelsAt { address: MetricsAddress::Tcp(address), is_required: true }))
}

/// Returns the chosen plugin, or the first one by default.
fn plugin(
    settings: &Settings,
    key: &str,
    known: &[&'static str],
) -> Result<&'static str, ConfigError> {
    let Some(given) = settings.given(key) else { return Ok(known[0]) };
    let found = known.iter().find(|plugin| given.text().eq_ignore_ascii_case(plugin));
    found.copied().ok_or_else(|| {
        given.error(format!("there is no plugin `{}`: choose {}", given.text(), known.join(", ")))
    })
}

fn required<'a>(
    settings: &'a Settings,
    key: &str,
    example: &str,
) -> Result<&'a Given, ConfigError> {
    settings
        .given(key)
        .ok_or_else(|| ConfigError::Incomplete(format!("--{key} is missing: write {example}")))
}

fn parsed<T: FromStr<Err: std::fmt::Display>>(given: &Given) -> Result<T, ConfigError> {
    given.text().parse().map_err(|error: T::Err| given.error(error.to_string()))
}

fn udp_address(given: &Given) -> Result<SocketAddr, ConfigError> {
    let wrong = || given.error("write ADDRESS:PORT, as in 0.0.0.0:7500: an address, not a name");
    address(given.text()).ok_or_else(wrong)
}

/// Parses a client's listener, `tcp:ADDRESS:PORT` or `unix:/PATH`.
fn listener(given: &Given) -> Result<Target, ConfigError> {
    let wrong = || {
        given.error("write tcp:ADDRESS:PORT or unix:/PATH, as in tcp:127.0.0.1:6500: no other name")
    };
    let (network, rest) = given.text().split_once(':').ok_or_else(wrong)?;
    match network.to_ascii_lowercase().as_str() {
        "tcp" | "tcp6" => Ok(Target::Tcp(address(rest).ok_or_else(wrong)?.into())),
        "tcp4" => Ok(Target::Tcp(exact_address(rest).ok_or_else(wrong)?.into())),
        "unix" => format!("unix:{rest}").parse().map_err(|_| wrong()),
        _ => Err(wrong()),
    }
}

/// Parses a listening address. As in Go, 0.0.0.0 and a missing address mean every address, those of
/// IPv6 included.
fn address(text: &str) -> Option<SocketAddr> {
    let address = exact_address(text)?;
    Some(match address.ip() == IpAddr::V4(Ipv4Addr::UNSPECIFIED) {
        true => SocketAddr::new(everywhere().ip(), address.port()),
        false => address,
    })
}

fn exact_address(text: &str) -> Option<SocketAddr> {
    if let Some(port) = text.strip_prefix(':') {
        return Some((Ipv4Addr::UNSPECIFIED, port.parse().ok()?).into());
    }
    if let Some(port) = text.strip_prefix("localhost:") {
        return Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port.parse().ok()?));
    }
    text.parse().ok()
}

fn confined_paths(settings: &Settings) -> ConfinedPaths {
    let mut confined_paths = ConfinedPaths::default();
    settings.file.iter().for_each(|file| confined_paths.reads(file));
    confined_paths
}

fn error_of(settings: &Settings, key: &str, message: String) -> ConfigError {
    match settings.given(key) {
        Some(given) => given.error(message),
        None => ConfigError::Incomplete(message),
    }
}

const WHO: &str = "  name the clients:
    --peer NAME=PIN, as `weir tunnel keys client` prints it on each client, or
    --ca-file FILE --verify-remote-endpoint, if an authority certifies them";
const WHERE: &str = "  name the targets:
    --allow tcp:HOST:PORT, which may be repeated";
const SERVER: &str = "    --pin PIN, as `weir tunnel keys server` prints it on the server, or
    --verify-remote-endpoint --ca-file FILE, if an authority certifies it";
const PORT: u16 = 6500;
const API_PORT: u16 = 8086;
const CONNECTIONS: usize = 2;
const DAYS: u32 = 365;
/// The files of certificate authorities on Debian and Arch, on Fedora, on openSUSE and on Alpine.
const SYSTEM_AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(role: Role, flags: &[(&str, &str)]) -> Settings {
        let flags: Vec<(&str, Vec<String>)> =
            flags.iter().map(|(key, text)| (*key, vec![(*text).to_owned()])).collect();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("empty.yaml");
        std::fs::write(&file, "").unwrap();
        Settings::collect(role, &flags, |_| None, Some(&file)).unwrap()
    }

    fn server(flags: &[(&str, &str)]) -> Result<ServerConfig, String> {
        server_config(&settings(Role::Server, flags)).map_err(|error| error.to_string())
    }

    fn client(flags: &[(&str, &str)]) -> Result<ClientConfig, String> {
        client_config(&settings(Role::Client, flags)).map_err(|error| error.to_string())
    }

    #[test]
    fn an_unsafe_default_needs_the_flag_that_permits_unsafe_defaults() {
        let refused = server(&[]).unwrap_err();
        assert!(refused.contains("--peer NAME=PIN") && refused.contains("--allow"), "{refused}");
        assert!(refused.ends_with(&format!("--{INSECURE}")), "{refused}");
        let pin = format!("a=sha256/{}", "A".repeat(43));
        let half = server(&[("peer", &pin)]).unwrap_err();
        assert!(!half.contains("--peer NAME") && half.contains("--allow"), "{half}");
        let half = server(&[("allow", "tcp:10.0.0.1:22")]).unwrap_err();
        assert!(half.contains("--peer NAME") && !half.contains("--allow"), "{half}");
        let open = server(&[(INSECURE, "true")]).unwrap();
        assert_eq!(open.listen_on, Some(everywhere()));
        assert!(matches!(open.peers[0].proof, Proof::Anyone));
        assert!(open.access.rights(&open.peers[0].name).unwrap().everything);
        assert_eq!(open.tokens, Some(Cleartext::Plain));
        // With the flag, the given rules and peers still apply.
        let half = server(&[(INSECURE, "true"), ("allow", "tcp:10.0.0.1:22"), ("peer", &pin)]);
        let half = half.unwrap();
        assert!(!half.access.rights(&half.peers[0].name).unwrap().everything);
        assert!(matches!(half.peers[..], [TrustedPeer { proof: Proof::Pins(_), .. }]));
        let to =
            [("server-endpoint", "192.168.26.129:7500"), ("token-source", "tcp:127.0.0.1:5201")];
        let refused = client(&to).unwrap_err();
        assert!(refused.contains("--pin PIN") && refused.contains(INSECURE), "{refused}");
        let trusting = client(&[&to[..], &[(INSECURE, "true")]].concat()).unwrap();
        assert!(matches!(trusting.servers[0].trust, ServerTrust::Anyone));
        // The report's flag names the default that it permits, and a pin comes before the flag.
        let skipping = client(&[&to[..], &[(SKIP_VERIFY, "true")]].concat()).unwrap();
        assert!(matches!(skipping.servers[0].trust, ServerTrust::Anyone));
        let refused = client(&[&to[..], &[(SKIP_VERIFY, "false")]].concat()).unwrap_err();
        assert!(refused.contains("--pin PIN"), "{refused}");
        assert_eq!(trusting.tokens[0].listen_on.to_string(), "tcp:127.0.0.1:6500");
        let pin = format!("sha256/{}", "A".repeat(43));
        let pinned =
            client(&[&to[..], &[("pin", pin.as_str()), (SKIP_VERIFY, "1")]].concat()).unwrap();
        assert!(matches!(pinned.servers[0].trust, ServerTrust::Pins(_)));
    }

    #[test]
    fn other_hosts_reach_the_api_only_if_the_settings_say_so() {
        let at = |flags: &[(&str, &str)]| {
            server(&[&[(INSECURE, "true")], flags].concat()).unwrap().tunnels_at.unwrap()
        };
        let usual = at(&[]);
        assert_eq!(
            (usual.address.to_string().as_str(), usual.is_required),
            ("127.0.0.1:8086", false)
        );
        let everywhere = SocketAddr::new(everywhere().ip(), 18086).to_string();
        for text in [":18086", "0.0.0.0:18086"] {
            assert_eq!(at(&[("httpd-listen-on", text)]).address.to_string(), everywhere);
        }
        let pin = format!("a=sha256/{}", "A".repeat(43));
        let safe = [("peer", pin.as_str()), ("allow", "tcp:10.0.0.1:22")];
        let refused = server(&[&safe[..], &[("httpd-listen-on", "0.0.0.0:8086")]].concat());
        // On a machine without a server's key, the missing key is the first error.
        let refused = refused.unwrap_err();
        assert!(
            refused.contains("write 127.0.0.1:8086") || refused.contains("has no key"),
            "{refused}"
        );
    }

    #[test]
    fn the_address_of_all_hosts_includes_ipv6_as_in_go() {
        let all = |port| SocketAddr::new(everywhere().ip(), port);
        for (text, address) in [
            ("0.0.0.0:7501", all(7501)),
            (":7501", all(7501)),
            ("10.0.0.1:7501", "10.0.0.1:7501".parse().unwrap()),
            ("localhost:7501", "127.0.0.1:7501".parse().unwrap()),
        ] {
            let server = server(&[(INSECURE, "true"), ("listen-on", text)]).unwrap();
            assert_eq!(server.listen_on, Some(address), "{text}");
        }
        let to = [("server-endpoint", "a:7500"), ("token-source", "tcp:b:1"), (INSECURE, "1")];
        for (text, address) in [
            ("tcp:0.0.0.0:6500", all(6500)),
            ("TCP::6500", all(6500)),
            ("tcp4:0.0.0.0:6500", "0.0.0.0:6500".parse().unwrap()),
            ("tcp:127.0.0.1:6500", "127.0.0.1:6500".parse().unwrap()),
        ] {
            let client = client(&[&to[..], &[("listen-on", text)]].concat()).unwrap();
            assert_eq!(client.tokens[0].listen_on, Target::Tcp(address.into()), "{text}");
        }
    }

    #[test]
    fn the_systems_authorities_are_found_where_the_distribution_has_them() {
        let found = |present: &'static str| system_authorities(|path| path == Path::new(present));
        assert!(found("/etc/pki/tls/certs/ca-bundle.crt").starts_with("/etc/pki"));
        // The error names Debian's file if there is none.
        assert_eq!(found("/nowhere"), Path::new("/etc/ssl/certs/ca-certificates.crt"));
    }

    #[test]
    fn the_error_of_a_wrong_setting_names_the_accepted_values() {
        for (key, value, reported) in [
            ("listen-on", "host:7500", "an address, not a name"),
            ("token-parser-plugin", "Aes", "choose Cleartext"),
            ("token-parser-key", "aes", "base64"),
            ("allow", "10.0.0.1:22", "tcp:HOST:PORTS"),
            ("peer", "a", "NAME=PIN"),
            ("cert-file", "a.crt", "--key-file"),
            ("ca-file", "/nowhere/ca.pem", "cannot read /nowhere/ca.pem"),
            ("verify-remote-endpoint", "true", "--ca-file"),
            ("httpd-listen-on", "host", "ADDRESS:PORT"),
        ] {
            let flags = [("verify-remote-endpoint", "true"), (INSECURE, "true"), (key, value)];
            let flags = if key == "ca-file" { &flags[..] } else { &flags[1..] };
            let error = server(flags).unwrap_err();
            assert!(error.contains(reported), "{key}: {error}");
        }
        let to = [("server-endpoint", "a:7500"), ("token-source", "tcp:b:1"), (INSECURE, "1")];
        for (key, value, reported) in [
            ("listen-on", "127.0.0.1:6500", "tcp:ADDRESS:PORT"),
            ("listen-on", "udp:127.0.0.1:6500", "tcp:ADDRESS:PORT"),
            ("server-endpoint", "a", "HOST:PORT"),
            ("token-source-plugin", "Vault", "choose Fixed, File, Http"),
            ("token-source", "a\nb", "printable"),
            ("pin", "x", "is not a pin"),
        ] {
            let error = client(&[&to[..], &[(key, value)]].concat()).unwrap_err();
            assert!(error.contains(reported), "{key}: {error}");
        }
        let error = client(&[("server-endpoint", "a:7500")]).unwrap_err();
        assert!(error.contains("--token-source is missing"), "{error}");
        let http = [("token-source-plugin", "Http"), ("token-source", "https://a/")];
        let error = client(&[&to[..1], &to[2..], &http].concat()).unwrap_err();
        assert!(error.contains("https is not supported"), "{error}");
    }
}
