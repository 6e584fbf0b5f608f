//! Both ends of a tunnel on the loopback. Each end trusts the key of its peer.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

pub mod raw;
pub mod verifier;
pub mod wire;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tunnel::access::{Access, Rights, SystemResolver};
use tunnel::client::{Client, ClientLimits, ClientParts, ListenAt, Listener, ServerAt};
use tunnel::identity::{Identity, Proof, ServerTrust, TrustedPeer};
use tunnel::server::{Guard, Limits, Server, ServerParts, TcpAt};
use tunnel::transport::{Carrier, Tuning};

pub struct Keys {
    pub server: Identity,
    pub client: Identity,
}

impl Keys {
    pub fn new() -> Self {
        // Print the log when a test fails.
        let _ = tracing_subscriber::fmt().with_test_writer().try_init();
        let own = |name| Identity::generate(name, 1).unwrap().0;
        Self { server: own("server"), client: own("client") }
    }

    pub fn guard(&self, dial: &[&str], listen: &[&str]) -> Guard {
        guard_of(&[("client", &self.client)], dial, listen)
    }

    pub fn server_parts(&self, guard: Guard) -> ServerParts {
        ServerParts {
            listen: Some("127.0.0.1:0".parse().unwrap()),
            tcp: TcpAt::Nowhere,
            tls: tunnel::identity::server_config(&self.server, &guard.trusted).unwrap(),
            guard,
            resolver: Arc::new(SystemResolver),
            tuning: tuning(),
            limits: Limits::default(),
            quotas: Vec::new(),
            access_log: None,
            shards: Some(2),
            tokens: None,
            tunnels: None,
        }
    }

    pub fn client_parts(&self, servers: &[SocketAddr], listeners: Vec<Listener>) -> ClientParts {
        let trust = ServerTrust::Pins(vec![self.server.pin()]);
        let server = |address: &SocketAddr| ServerAt {
            address: address.to_string().parse().unwrap(),
            tls: tunnel::identity::client_config(&self.client, &trust).unwrap(),
            trust: trust.clone(),
            tcp_port: None,
        };
        ClientParts {
            servers: servers.iter().map(server).collect(),
            listeners,
            reverse: Vec::new(),
            resolver: Arc::new(SystemResolver),
            tuning: tuning(),
            limits: ClientLimits { patience: Duration::from_secs(5), ..ClientLimits::default() },
            connections: 2,
            carrier: Carrier::Udp,
            shards: Some(2),
            tunnels: None,
        }
    }
}

/// Returns a guard that gives all of `peers` the same rights.
pub fn guard_of(peers: &[(&str, &Identity)], dial: &[&str], listen: &[&str]) -> Guard {
    let rules = |rules: &[&str]| rules.iter().map(|rule| rule.parse().unwrap()).collect();
    let rights = || Rights { dial: rules(dial), listen: rules(listen), ..Rights::default() };
    let trusted = peers.iter().map(|(name, identity)| TrustedPeer {
        name: name.parse().unwrap(),
        proof: Proof::Pins(vec![identity.pin()]),
    });
    let access = Access::new(peers.iter().map(|(name, _)| (name.parse().unwrap(), rights())));
    Guard { trusted: trusted.collect(), access }
}

pub fn tuning() -> Tuning {
    Tuning { keepalive: Duration::from_secs(1), ..Tuning::default() }
}

/// Starts a client and a server, with one listener for each of `targets`.
pub async fn pair(targets: &[SocketAddr]) -> (Server, Client, Vec<SocketAddr>) {
    let keys = Keys::new();
    let server = Server::start(keys.server_parts(keys.guard(&["tcp:127.0.0.0/8:*"], &[]))).unwrap();
    let listeners = targets.iter().map(|target| to_tcp(*target)).collect();
    let parts = keys.client_parts(&[server.local_addr().unwrap()], listeners);
    let client = Client::start(parts).await.unwrap();
    client.connected().await;
    let listener_addresses = client.bound().iter().map(tcp_of).collect();
    (server, client, listener_addresses)
}

/// Starts a client and a server with a UDP proxy between them, and one listener for each of
/// `targets`.
pub async fn pair_over_wire(
    targets: &[SocketAddr],
) -> (Server, Client, Vec<SocketAddr>, wire::Wire) {
    tuned_pair_over_wire(targets, &tuning()).await
}

pub async fn tuned_pair_over_wire(
    targets: &[SocketAddr],
    tuning: &Tuning,
) -> (Server, Client, Vec<SocketAddr>, wire::Wire) {
    let keys = Keys::new();
    let mut parts = keys.server_parts(keys.guard(&["tcp:127.0.0.0/8:*"], &[]));
    parts.tuning = tuning.clone();
    let server = Server::start(parts).unwrap();
    let wire = wire::Wire::to(server.local_addr().unwrap()).await;
    let listeners = targets.iter().map(|target| to_tcp(*target)).collect();
    let mut parts = keys.client_parts(&[wire.address], listeners);
    parts.tuning = tuning.clone();
    let client = Client::start(parts).await.unwrap();
    client.connected().await;
    let listener_addresses = client.bound().iter().map(tcp_of).collect();
    (server, client, listener_addresses, wire)
}

/// Waits for an event. Panics if the event takes longer than three keepalives of a second and the
/// delay of a busy machine, unless the machine was disturbed.
pub async fn soon<T>(event: impl Future<Output = T>) -> T {
    let watch = testing::Watch::start();
    let happened = tokio::time::timeout(Duration::from_secs(60), event).await.unwrap();
    testing::within("event within keepalives", Duration::from_secs(8), watch);
    happened
}

/// Waits until the condition holds.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < end, "{what}: not within a minute");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Sends without pause, and reads nothing.
pub async fn write_endlessly(mut stream: TcpStream) {
    // All writers share one buffer: a buffer for each writer would take more memory than the
    // tunnels.
    static PIECE: [u8; 64 * 1024] = [7; 64 * 1024];
    while stream.write_all(&PIECE).await.is_ok() {}
}

/// Echoes the bytes of every connection.
pub async fn echo(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let (mut reading, mut writing) = stream.split();
            let _ = tokio::io::copy(&mut reading, &mut writing).await;
        });
    }
}

pub fn to_tcp(target: SocketAddr) -> Listener {
    Listener {
        listen: ListenAt::Tcp("127.0.0.1:0".parse().unwrap()),
        route: format!("tcp:{target}").parse().unwrap(),
    }
}

pub fn tcp_of(bound: &ListenAt) -> SocketAddr {
    match bound {
        ListenAt::Tcp(address) | ListenAt::Udp(address) => *address,
        ListenAt::Unix(path) => panic!("not a TCP address: {}", path.display()),
    }
}

pub async fn target() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

pub async fn through(listener_address: SocketAddr) -> TcpStream {
    TcpStream::connect(listener_address).await.unwrap()
}

/// Returns the error with which the client refuses a connection. The error comes from connect(2) or
/// from a read, because a reset may arrive before connect(2) returns.
pub async fn refusal(listener_address: SocketAddr) -> ErrorKind {
    match TcpStream::connect(listener_address).await {
        Ok(mut stream) => stream.read(&mut [0; 1]).await.unwrap_err().kind(),
        Err(error) => error.kind(),
    }
}

/// Returns pseudo-random bytes: the same seed gives the same bytes.
pub fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut out = vec![0; length];
    Pattern::new(seed).fill(&mut out);
    out
}

/// The bytes that the function `bytes` returns, in chunks of any length.
pub struct Pattern {
    state: u64,
    word: [u8; 8],
    used: usize,
}

impl Pattern {
    pub fn new(seed: u64) -> Self {
        Self { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, word: [0; 8], used: 8 }
    }

    pub fn fill(&mut self, out: &mut [u8]) {
        for byte in out {
            if self.used == 8 {
                // xorshift64 (Marsaglia 2003).
                self.state ^= self.state << 13;
                self.state ^= self.state >> 7;
                self.state ^= self.state << 17;
                self.word = self.state.to_le_bytes();
                self.used = 0;
            }
            *byte = self.word[self.used];
            self.used += 1;
        }
    }
}
