//! The status of a running end: one JSON document, served over a UNIX socket to `weir tunnel
//! status` and over HTTP to Prometheus.

mod directory;
mod http;
mod manage;
mod page;
mod prometheus;
mod sessions;
mod text;
mod top;

pub(crate) use directory::take_over;
pub use directory::{
    Answer, Directory, Handing, Manage, StatusError, StatusListener, StatusSource, ask, at, listen,
    request,
};
pub(crate) use http::Shared as SharedSocket;
pub use http::{MetricsListener, serve_metrics};
pub(crate) use http::{is_addressed, serve_http};
pub use manage::{KickedSession, Reply, Request};
pub use top::{Packets, top};

use crate::access::Access;
use crate::account::{AccountFigures, SessionFigures};
use crate::client::{Client, LinkStatus};
use crate::congestion::Reading;
use crate::counters::Counted;
use crate::health::Health;
use crate::identity::Certificate;
use crate::peer_key::{KeyUse, PeerKey};
use crate::server::{PeerStatus, Server};
use crate::transport::Statistics;
use rustls::pki_types::UnixTime;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use units::{Bytes, Share, foreign};

/// The status document. All units are bytes, bits per second and seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// `server` or `client`.
    pub role: String,
    pub version: String,
    pub pid: u32,
    pub up_seconds: f64,
    pub listens_on: Vec<String>,
    pub congestion: String,
    /// The expiry of this end's certificate, in seconds since 1970.
    pub certificate_expires: u64,
    /// Whether the certificate expires within 30 days.
    #[serde(default)]
    pub certificate_is_due: bool,
    /// The key that this end proves to new connections.
    #[serde(default)]
    pub key: String,
    /// Memory in use for data that peers sent or did not acknowledge.
    #[serde(default)]
    pub memory_held: u64,
    /// Memory granted to busy connections.
    pub memory_granted: u64,
    pub memory_limit: u64,
    pub counters: BTreeMap<String, u64>,
    /// Whether a thread has not run its tasks for 10 s.
    #[serde(default)]
    pub has_stalled: bool,
    /// Whether this end drains: it accepts no new sessions and tunnels, and ends with its last
    /// tunnel.
    #[serde(default)]
    pub is_draining: bool,
    /// While draining: the time until this end ends its last tunnels.
    #[serde(default)]
    pub drain_seconds: f64,
    /// The number of reloads that were requested.
    #[serde(default)]
    pub reloads: u64,
    /// The reason for which the last reload failed and changed nothing; empty if it succeeded.
    #[serde(default)]
    pub reload_refused: String,
    /// Requests that this end's rules refused, by reason.
    pub refused: BTreeMap<String, u64>,
    pub connections: Vec<ConnectionStatus>,
    /// The keys of each peer that has several keys, and how many connections use each key.
    #[serde(default)]
    pub peer_keys: Vec<PeerKeyStatus>,
    /// At a server: the accounts of the identities.
    #[serde(default)]
    pub accounts: Vec<AccountStatus>,
    /// At a server: the services and the clients that offer them.
    #[serde(default)]
    pub services: BTreeMap<String, String>,
    /// At a client: its servers, in their order.
    #[serde(default)]
    pub servers: Vec<ServerStatus>,
}

/// A server that a client may connect to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerStatus {
    pub endpoint: String,
    /// The number of connections that take new tunnels.
    pub connections: u64,
    /// Whether the server has refused this client's key lately, so that other servers come first.
    #[serde(default)]
    pub is_refusing: bool,
    /// The reason for which the last attempt to connect failed; empty if the attempt did not fail.
    pub failure: String,
}

/// The bytes that an identity has carried, and its limits; 0 means no limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountStatus {
    pub peer: String,
    pub sessions: u64,
    pub sessions_limit: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// The rates of the last second.
    pub rate_in: u64,
    pub rate_out: u64,
    /// The rate limit of each direction.
    pub rate_limit: u64,
    /// Bytes in the present period of the quota, and their limit.
    pub quota_used: u64,
    pub quota: u64,
    /// `hour`, `day` or `month`.
    pub quota_period: String,
    /// The end of the period, in seconds since 1970.
    pub quota_renews: u64,
}

/// The number of connections that use one of a peer's keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerKeyStatus {
    pub peer: String,
    pub key: String,
    pub connections: u64,
}

/// The status of one connection, for diagnosis of its speed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ConnectionStatus {
    /// At a server the client's name, at a client the server's endpoint.
    pub peer: String,
    /// Empty while there is no connection.
    pub remote: String,
    /// A number that distinguishes the connections of one peer. A new connection may get the number
    /// of an ended connection.
    #[serde(default)]
    pub number: u64,
    /// A number that distinguishes all connections of a process; 0 while there is no connection.
    #[serde(default)]
    pub session: u64,
    /// The start of the connection, in seconds since 1970.
    #[serde(default)]
    pub since: u64,
    #[serde(default)]
    pub seconds: f64,
    /// Bytes from the tunnels to local sockets, and from local sockets to the tunnels.
    #[serde(default)]
    pub bytes_in: u64,
    #[serde(default)]
    pub bytes_out: u64,
    /// The rates of the sent and received bytes in the last second.
    #[serde(default)]
    pub rate_in: u64,
    #[serde(default)]
    pub rate_out: u64,
    pub tunnels: u64,
    /// The key that the peer has proved.
    #[serde(default)]
    pub key: String,
    /// The time at which the peer's certificate expires, in seconds since 1970; 0 if unknown.
    #[serde(default)]
    pub key_expires: u64,
    /// Whether another connection has replaced this connection, which takes no new tunnels.
    #[serde(default)]
    pub is_retiring: bool,
    /// `udp` or `tcp`; empty while there is no connection.
    #[serde(default)]
    pub carrier: String,
    /// At a client: the reason for which TCP carries the connection.
    #[serde(default)]
    pub carrier_reason: String,
    pub rtt_seconds: f64,
    pub min_rtt_seconds: f64,
    pub cwnd: u64,
    pub inflight: u64,
    /// The rate that congestion control allows; 0 if only the window limits it.
    pub pacing_rate: u64,
    /// The delivery rate, measured while the application did not limit the sender.
    pub delivery_rate: u64,
    pub mtu: u64,
    pub sent: u64,
    pub received: u64,
    pub packets_sent: u64,
    pub packets_lost: u64,
    /// Packets that arrived after packets with a higher number.
    #[serde(default)]
    pub packets_late: u64,
    /// The path's random loss, as estimated by congestion control. Congestion control reduces its
    /// rate only for loss above this estimate.
    #[serde(default)]
    pub path_loss: f64,
    pub limited_by: String,
}

/// The parts of the status document that the process supplies and not the end. A reload may change
/// these parts.
#[derive(Debug, Clone)]
pub struct Facts {
    pub version: &'static str,
    pub congestion: String,
    pub certificate: Certificate,
    pub memory: Bytes,
    pub began: Instant,
    /// The time at which the requested drain ends.
    pub drain_until: Option<Instant>,
    pub reloads: u64,
    pub reload_refused: String,
}

impl Status {
    /// Parses the document that an end writes.
    pub fn from_json(document: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(document)
    }

    /// Returns the name of this end's socket in the directory of its user.
    pub(crate) fn socket_name(&self) -> String {
        directory::socket_name(&foreign(&self.role).to_string(), self.pid)
    }

    pub fn of_server(server: &Server, access: &Access, facts: &Facts) -> Self {
        let refused = access.refused().map(|(reason, count)| (reason.to_owned(), count)).collect();
        Self {
            role: "server".to_owned(),
            listens_on: server.listens_on(),
            refused,
            connections: server.peers().iter().map(ConnectionStatus::of_peer).collect(),
            peer_keys: server.keys().into_iter().map(PeerKeyStatus::from).collect(),
            accounts: server.accounts().into_iter().map(AccountStatus::from).collect(),
            services: server
                .services()
                .into_iter()
                .map(|(name, peer)| (name, peer.to_string()))
                .collect(),
            has_stalled: server.health() != Health::Good,
            ..Self::of(facts, server.counted(), [server.memory_held(), server.memory_granted()])
        }
    }

    pub fn of_client(client: &Client, facts: &Facts) -> Self {
        Self {
            role: "client".to_owned(),
            listens_on: client.listens_on(),
            connections: client.links().iter().enumerate().map(ConnectionStatus::of_link).collect(),
            peer_keys: client.keys().into_iter().map(PeerKeyStatus::from).collect(),
            servers: client
                .servers()
                .into_iter()
                .map(|server| ServerStatus {
                    endpoint: server.address.to_string(),
                    connections: server.connections as u64,
                    is_refusing: server.is_refusing,
                    failure: server.failure.unwrap_or_default(),
                })
                .collect(),
            has_stalled: client.health() != Health::Good,
            ..Self::of(facts, client.counted(), [client.memory_held(), client.memory_granted()])
        }
    }

    /// Whether this end can carry tunnels now.
    pub fn is_ready(&self) -> bool {
        let has_connection = || self.connections.iter().any(|one| !one.remote.is_empty());
        !self.is_draining && (self.role == "server" || has_connection())
    }

    fn of(facts: &Facts, counted: Counted, [held, granted]: [Bytes; 2]) -> Self {
        Self {
            role: String::new(),
            version: facts.version.to_owned(),
            pid: std::process::id(),
            up_seconds: facts.began.elapsed().as_secs_f64(),
            listens_on: Vec::new(),
            congestion: facts.congestion.clone(),
            certificate_expires: facts.certificate.valid_until().as_secs(),
            certificate_is_due: facts.certificate.is_due(UnixTime::now()),
            key: facts.certificate.pin.to_string(),
            has_stalled: false,
            is_draining: facts.drain_until.is_some(),
            drain_seconds: facts
                .drain_until
                .map_or(0.0, |until| until.saturating_duration_since(Instant::now()).as_secs_f64()),
            memory_held: held.count(),
            memory_granted: granted.count(),
            memory_limit: facts.memory.count(),
            counters: by_name(counted),
            reloads: facts.reloads,
            reload_refused: facts.reload_refused.clone(),
            refused: BTreeMap::new(),
            connections: Vec::new(),
            peer_keys: Vec::new(),
            accounts: Vec::new(),
            services: BTreeMap::new(),
            servers: Vec::new(),
        }
    }
}

impl From<AccountFigures> for AccountStatus {
    fn from(figures: AccountFigures) -> Self {
        let (quota, volume) = (figures.quota, figures.quota.volume);
        Self {
            peer: figures.peer.to_string(),
            sessions: figures.sessions as u64,
            sessions_limit: quota.sessions.unwrap_or_default() as u64,
            bytes_in: figures.bytes_in,
            bytes_out: figures.bytes_out,
            rate_in: figures.rate_in,
            rate_out: figures.rate_out,
            rate_limit: quota.rate.map_or(0, |rate| rate.bits_per_second()),
            quota_used: figures.used,
            quota: volume.map_or(0, |volume| volume.bytes.count()),
            quota_period: volume.map(|volume| volume.period.to_string()).unwrap_or_default(),
            quota_renews: figures.renews,
        }
    }
}

/// A server that listens on `[::]` gets IPv4 addresses inside IPv6 addresses.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

impl From<KeyUse> for PeerKeyStatus {
    fn from(KeyUse { peer, pin, connections }: KeyUse) -> Self {
        Self { peer, key: pin.to_string(), connections: connections as u64 }
    }
}

impl ConnectionStatus {
    fn of_peer(status: &PeerStatus) -> Self {
        let (peer, remote) = (status.peer.to_string(), canonical(status.remote).to_string());
        let (number, tunnels) = (status.number as u64, status.tunnels as u64);
        let carrier = if status.is_over_tcp { "tcp" } else { "udp" }.to_owned();
        Self { peer, remote, number, tunnels, carrier, ..Self::of(&status.statistics) }
            .with_key(status.key)
            .with_figures(status.figures)
    }

    fn with_figures(self, figures: SessionFigures) -> Self {
        let SessionFigures { session, since, seconds, bytes_in, bytes_out, rate_in, rate_out } =
            figures;
        Self { session, since, seconds, bytes_in, bytes_out, rate_in, rate_out, ..self }
    }

    fn with_key(self, key: Option<PeerKey>) -> Self {
        let (pin, expires) =
            key.map_or_else(Default::default, |key| (key.pin.to_string(), key.expires));
        Self { key: pin, key_expires: expires, ..self }
    }

    fn of_link((number, status): (usize, &LinkStatus)) -> Self {
        let text = |some: Option<String>| some.unwrap_or_default();
        Self {
            peer: text(status.server.as_ref().map(ToString::to_string)),
            remote: text(status.remote.as_ref().map(ToString::to_string)),
            number: number as u64,
            tunnels: status.tunnels as u64,
            is_retiring: status.is_retiring,
            carrier: match (&status.remote, &status.over_tcp) {
                (None, _) => String::new(),
                (Some(_), None) => "udp".to_owned(),
                (Some(_), Some(_)) => "tcp".to_owned(),
            },
            carrier_reason: status.over_tcp.clone().unwrap_or_default(),
            ..Self::of(&status.statistics)
        }
        .with_key(status.key)
        .with_figures(status.figures)
    }

    fn of(statistics: &Statistics) -> Self {
        let reading = &statistics.reading;
        Self {
            rtt_seconds: statistics.rtt.secs_f64(),
            min_rtt_seconds: reading.min_rtt.secs_f64(),
            cwnd: reading.cwnd.count(),
            inflight: reading.inflight.count(),
            pacing_rate: reading.pacing_rate.map_or(0, |rate| rate.bits_per_second()),
            delivery_rate: reading.delivery_rate.bits_per_second(),
            mtu: statistics.mtu.count(),
            sent: statistics.sent.count(),
            received: statistics.received.count(),
            packets_sent: statistics.packets_sent,
            packets_lost: statistics.packets_lost,
            packets_late: statistics.packets_late,
            path_loss: reading.path_loss.map_or(0.0, Share::fraction),
            limited_by: limit(reading).to_owned(),
            ..Self::default()
        }
    }

    /// Returns the packet loss in percent of the sent packets.
    pub fn loss_percent(&self) -> f64 {
        100.0 * self.packets_lost as f64 / self.packets_sent.max(1) as f64
    }
}

/// Returns the name of what limits this end's sending rate, judged from one sample.
fn limit(reading: &Reading) -> &'static str {
    let (inflight, cwnd) = (reading.inflight.count(), reading.cwnd.count());
    // The bytes that the pacing rate sends in one round trip.
    let paced = reading.pacing_rate.map(|rate| rate.bytes_in(reading.rtt).count());
    match paced {
        _ if cwnd == 0 => "",
        _ if inflight * 10 >= cwnd * 9 => "window",
        Some(paced) if inflight * 10 >= paced * 8 => "pacing",
        _ => "application",
    }
}

fn by_name(counted: Counted) -> BTreeMap<String, u64> {
    match serde_json::to_value(counted) {
        Ok(serde_json::Value::Object(all)) => {
            all.into_iter().filter_map(|(name, count)| Some((name, count.as_u64()?))).collect()
        }
        _ => BTreeMap::new(),
    }
}

/// Time without a request after which a client loses its slot.
const PATIENCE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn status() -> Status {
        let connection = ConnectionStatus {
            peer: "laptop".to_owned(),
            remote: "192.0.2.1:5555".to_owned(),
            rtt_seconds: 0.02,
            packets_sent: 1000,
            packets_lost: 10,
            path_loss: 0.0095,
            pacing_rate: 600_000_000,
            ..ConnectionStatus::default()
        };
        Status {
            role: "server".to_owned(),
            version: "0".to_owned(),
            pid: 1,
            up_seconds: 3.5,
            listens_on: vec!["0.0.0.0:7500".to_owned()],
            congestion: "tcpa".to_owned(),
            certificate_expires: 1_900_000_000,
            certificate_is_due: false,
            key: "sha256/own".to_owned(),
            has_stalled: false,
            is_draining: false,
            drain_seconds: 0.0,
            memory_held: 0,
            memory_granted: 1,
            memory_limit: 2,
            counters: [("bytes_in".to_owned(), 7), ("tunnels".to_owned(), 3)].into(),
            reloads: 1,
            reload_refused: String::new(),
            refused: [("not-listed".to_owned(), 2)].into(),
            connections: vec![connection],
            peer_keys: Vec::new(),
            accounts: vec![AccountStatus {
                peer: "laptop".to_owned(),
                sessions: 1,
                bytes_out: 1_930_000_000,
                rate_limit: 50_000_000,
                quota_used: 1_930_000_000,
                quota: 100_000_000_000,
                quota_period: "month".to_owned(),
                ..AccountStatus::default()
            }],
            services: BTreeMap::new(),
            servers: Vec::new(),
        }
    }

    #[test]
    fn an_ipv4_address_inside_an_ipv6_address_is_shown_as_ipv4() {
        for (address, text) in [
            ("[::ffff:192.0.2.7]:5555", "192.0.2.7:5555"),
            ("192.0.2.7:5555", "192.0.2.7:5555"),
            ("[2001:db8::1]:5555", "[2001:db8::1]:5555"),
        ] {
            assert_eq!(canonical(address.parse().unwrap()).to_string(), text);
        }
    }

    #[test]
    fn an_error_about_several_ends_lists_their_sockets() {
        let mut other = status();
        (other.role, other.pid) = ("client".to_owned(), 17);
        let said = crate::run::RunError::several(&[status(), other]).to_string();
        assert!(said.starts_with("2 ends run here: name one by --status-socket: "), "{said}");
        assert!(said.contains("/server-1.sock, ") && said.ends_with("/client-17.sock"), "{said}");
    }

    #[tokio::test]
    async fn the_owner_of_the_status_socket_gets_the_whole_status() {
        use std::os::unix::fs::PermissionsExt;
        let home = tempfile::tempdir().unwrap();
        let directory = Directory::at(home.path().join("weir/tunnel"));
        let listener = directory.listen("server").unwrap();
        let file = directory.sockets().unwrap().remove(0);
        let path = file.path().to_owned();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(matches!(listen(&path), Err(StatusError::Taken(_))));
        let serving = tokio::spawn(listener.serve(
            std::sync::Arc::new(|| Some(status())),
            std::sync::Arc::new(|asked: Request| Reply::Refused(format!("{asked:?}"))),
            None,
        ));
        let facts = ask(&file, None).await.unwrap().unwrap().status;
        assert_eq!(facts, Status { pid: std::process::id(), ..status() });
        let text = facts.to_string();
        assert!(
            text.contains("lost 1.00 % of packets (0.95 % by the path itself)\n")
                && text.contains("pacing 600 Mbit/s"),
            "{text}"
        );
        assert!(text.contains("not allowed: not-listed 2"), "{text}");
        let kick = Request::Kick { session: "laptop/1".to_owned() };
        let (reply, process) = request(&file, &kick).await.unwrap().unwrap();
        assert_eq!(reply, Reply::Refused(format!("{kick:?}")));
        assert_eq!(process.pid(), std::process::id());
        assert_eq!(directory.sockets().unwrap().len(), 1);
        serving.abort();
        let _ = serving.await;
        assert!(!path.exists());
        // A killed process leaves its socket file behind.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(ask(&file, None).await.unwrap().is_none());
        listen(&path).unwrap();
    }
}
