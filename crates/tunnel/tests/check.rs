//! Tests of the checks that a client makes before it starts.
#![allow(clippy::unwrap_used)]

mod ends;

use ends::Keys;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use testing::Attempt;
use tokio::net::UdpSocket;
use tunnel::check::Finding;
use tunnel::config::{ClientConfig, ConfinedPaths, FarServer, Settings};
use tunnel::identity::ServerTrust;
use tunnel::server::Server;
use tunnel::transport::Carrier;
use units::Span;

/// The path delays packets until the handshake is complete, like ends that are slow to compute the
/// handshake.
#[test]
fn the_round_trip_is_measured_after_the_handshake() {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    // Repeat the test after a disturbance of the machine, which lengthens the measured round trip.
    testing::undisturbed("round trip of a check", |_| {
        let text = runtime.block_on(findings());
        let delay = Span::from(DELAY);
        match figure(&text, "handshake ") >= delay && figure(&text, "round trip ") < delay {
            true => Attempt::Right(()),
            false => Attempt::Wrong(text),
        }
    });
}

/// Checks a server behind the path that delays packets. Returns the findings as text.
async fn findings() -> String {
    let keys = Keys::new();
    let server = Server::start(keys.server_parts(keys.guard(&[], &[]))).unwrap();
    let address = slow_until_connected(server.local_addr().unwrap()).await;
    let config = ClientConfig {
        identity: keys.client.clone(),
        servers: vec![FarServer {
            endpoint: address.to_string().parse().unwrap(),
            trust: ServerTrust::Pins(vec![keys.server.pin()]),
            tcp_port: None,
        }],
        forwards: Vec::new(),
        proxies: Vec::new(),
        tokens: Vec::new(),
        reverses: Vec::new(),
        connections: 1,
        carrier: Carrier::Udp,
        confined_paths: ConfinedPaths::default(),
        settings: Settings::default(),
        tunnels_at: None,
    };
    let checked = tokio::task::spawn_blocking(move || tunnel::check::client(&config, false));
    let findings = checked.await.unwrap().unwrap();
    let text = findings.iter().map(Finding::to_string).collect::<Vec<_>>().join("\n");
    assert!(!findings.iter().any(Finding::is_failure), "{text}");
    text
}

fn figure(text: &str, name: &str) -> Span {
    let (_, rest) = text.split_once(name).unwrap_or_else(|| panic!("no {name}: {text}"));
    let (figure, _) = rest.split_once(',').unwrap();
    figure.replace(' ', "").parse().unwrap()
}

/// Starts a proxy to `server` and returns the proxy's address. The proxy delays each packet by
/// `DELAY` in both directions, until three times `DELAY` have passed since the client's first
/// packet with a short header.
async fn slow_until_connected(server: SocketAddr) -> SocketAddr {
    let near = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
    let far = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
    far.connect(server).await.unwrap();
    let address = near.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut up, mut down) = (vec![0; 65_536], vec![0; 65_536]);
        let (mut client, mut connected) = (None, None);
        loop {
            let (packet, socket, to) = tokio::select! {
                Ok((count, from)) = near.recv_from(&mut up) => {
                    client = Some(from);
                    // Packets after the handshake have a short header (RFC 9000, 17.3).
                    if up[0] & 0x80 == 0 {
                        connected.get_or_insert_with(Instant::now);
                    }
                    (up[..count].to_vec(), Arc::clone(&far), server)
                }
                Ok(count) = far.recv(&mut down) => {
                    let Some(client) = client else { continue };
                    (down[..count].to_vec(), Arc::clone(&near), client)
                }
            };
            let is_slow = connected.is_none_or(|since: Instant| since.elapsed() < DELAY * 3);
            tokio::spawn(async move {
                if is_slow {
                    tokio::time::sleep(DELAY).await;
                }
                let _ = socket.send_to(&packet, to).await;
            });
        }
    });
    address
}

const DELAY: Duration = Duration::from_millis(200);
