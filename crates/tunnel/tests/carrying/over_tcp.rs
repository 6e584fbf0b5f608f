//! Tunnels over TCP, the carrier for networks that block UDP.

use crate::ends::{Keys, bytes, echo, target, tcp_of, through, to_tcp, write_endlessly};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tunnel::access::{BoxFuture, Resolve};
use tunnel::client::{Client, ListenAt, Listener, Reverse};
use tunnel::identity::Identity;
use tunnel::server::{Server, ServerParts, TcpAt};
use tunnel::transport::Carrier;

/// Builds the parts of a server on UDP and TCP.
fn on_both(keys: &Keys, dial: &[&str], listen: &[&str]) -> ServerParts {
    ServerParts {
        tcp: TcpAt::Address("127.0.0.1:0".parse().unwrap()),
        ..keys.server_parts(keys.guard(dial, listen))
    }
}

async fn client(keys: &Keys, at: SocketAddr, listeners: Vec<Listener>, carrier: Carrier) -> Client {
    let mut parts = keys.client_parts(&[at], listeners);
    parts.carrier = carrier;
    let client = Client::start(parts).await.unwrap();
    client.connected().await;
    client
}

#[tokio::test]
async fn streams_in_both_directions_datagrams_and_listeners_work_over_tcp() {
    let keys = Keys::new();
    let (listener, address) = target().await;
    tokio::spawn(echo(listener));
    let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let udp_address = udp.local_addr().unwrap();
    tokio::spawn(async move {
        let mut datagram = [0; 20_000];
        while let Ok((count, from)) = udp.recv_from(&mut datagram).await {
            let _ = udp.send_to(&datagram[..count], from).await;
        }
    });
    let free = TcpListener::bind("127.0.0.78:0").await.unwrap().local_addr().unwrap();
    let rules = ["tcp:127.0.0.1:*", "udp:127.0.0.1:*"];
    let server = Server::start(on_both(&keys, &rules, &["tcp:127.0.0.78:*"])).unwrap();
    let listeners = vec![
        to_tcp(address),
        Listener {
            listen: ListenAt::Udp("127.0.0.1:0".parse().unwrap()),
            route: format!("udp:{udp_address}").parse().unwrap(),
        },
        to_tcp("127.0.0.2:1".parse().unwrap()),
    ];
    let mut parts = keys.client_parts(&[server.tcp_address().unwrap()], listeners);
    parts.carrier = Carrier::Tcp;
    parts.reverse = vec![Reverse {
        listen: format!("tcp:{free}").parse().unwrap(),
        target: format!("tcp:{address}").parse().unwrap(),
    }];
    let client = Client::start(parts).await.unwrap();
    client.connected().await;
    let at: Vec<_> = client.bound().iter().map(tcp_of).collect();
    while server.counted().listeners == 0 {
        tokio::task::yield_now().await;
    }
    // Send more data than the credit in both directions at once, in many tunnels.
    let mut transfers = tokio::task::JoinSet::new();
    for seed in 0..40 {
        let to = if seed % 4 == 0 { free } else { at[0] };
        let length = if seed == 1 { 24 << 20 } else { 300_000 };
        transfers.spawn(async move {
            let sent = bytes(seed, length);
            let (mut reading, mut writing) = through(to).await.into_split();
            let expected = sent.clone();
            let writer = tokio::spawn(async move {
                writing.write_all(&sent).await.unwrap();
                writing.shutdown().await.unwrap();
            });
            let mut got = Vec::new();
            reading.read_to_end(&mut got).await.unwrap();
            assert!(got == expected, "{seed}: {} of {length}", got.len());
            writer.await.unwrap();
        });
    }
    while let Some(done) = transfers.join_next().await {
        done.unwrap();
    }
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect(at[1]).await.unwrap();
    for length in [0, 1, 1200, 9000] {
        let (sent, mut got) = (bytes(7, length), vec![0; 20_000]);
        socket.send(&sent).await.unwrap();
        let count = socket.recv(&mut got).await.unwrap();
        assert_eq!(&got[..count], &sent[..]);
    }
    // No rule lists this target. The reset may arrive before the connect returns.
    if let Ok(mut refused) = TcpStream::connect(at[2]).await {
        assert!(matches!(refused.read(&mut [0; 1]).await, Ok(0) | Err(_)));
    }
    assert_eq!(server.counted().tunnels_refused, 1);
    assert!(client.links().iter().all(|link| link.over_tcp.is_some()));
    assert!(server.peers().iter().all(|peer| peer.is_over_tcp));
    drop(socket);
    client.drain(Duration::from_secs(5)).await;
    server.drain(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_tunnel_that_nobody_reads_stops_no_other_tunnel_over_tcp() {
    let keys = Keys::new();
    let (slow, slow_address) = target().await;
    let (listener, address) = target().await;
    tokio::spawn(echo(listener));
    let server = Server::start(on_both(&keys, &["tcp:127.0.0.1:*"], &[])).unwrap();
    let listeners = vec![to_tcp(slow_address), to_tcp(address)];
    let mut parts = keys.client_parts(&[server.tcp_address().unwrap()], listeners);
    (parts.carrier, parts.connections) = (Carrier::Tcp, 1);
    let client = Client::start(parts).await.unwrap();
    client.connected().await;
    let at: Vec<_> = client.bound().iter().map(tcp_of).collect();
    let mut unread = Vec::new();
    for _ in 0..4 {
        tokio::spawn(write_endlessly(through(at[0]).await));
        unread.push(slow.accept().await.unwrap());
    }
    let mut stream = through(at[1]).await;
    for round in 0..200_u64 {
        let (sent, mut got) = (bytes(round, 10_000), vec![0; 10_000]);
        stream.write_all(&sent).await.unwrap();
        stream.read_exact(&mut got).await.unwrap();
        assert!(got == sent);
    }
    drop((client, unread));
    server.drain(Duration::ZERO).await;
}

#[tokio::test]
async fn strangers_and_silent_clients_get_no_connection_over_tcp() {
    let keys = Keys::new();
    let mut parts = on_both(&keys, &["tcp:127.0.0.1:*"], &[]);
    parts.limits.handshakes = 4;
    let server = Server::start(parts).unwrap();
    let at = server.tcp_address().unwrap();
    // Open connections that never begin a handshake. Later connections evict these connections.
    let mut silent = Vec::new();
    for _ in 0..8 {
        silent.push(TcpStream::connect(at).await.unwrap());
    }
    let mut garbage = TcpStream::connect(at).await.unwrap();
    garbage.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let _ = garbage.read_to_end(&mut Vec::new()).await;
    let stranger =
        Keys { server: keys.server.clone(), client: Identity::generate("client", 1).unwrap().0 };
    let mut parts = stranger.client_parts(&[at], Vec::new());
    (parts.carrier, parts.connections) = (Carrier::Tcp, 1);
    let refused = Client::start(parts).await.unwrap();
    while refused.counted().connections_failed == 0 {
        tokio::task::yield_now().await;
    }
    let known = client(&keys, at, Vec::new(), Carrier::Tcp).await;
    assert!(server.counted().handshakes_evicted > 0);
    assert_eq!(refused.counted().connections_made, 0);
    drop((silent, refused));
    known.drain(Duration::ZERO).await;
    server.drain(Duration::ZERO).await;
}

/// The first client tries UDP at a socket that never answers, and then uses TCP. The second client
/// gets an answer over UDP.
#[tokio::test]
async fn a_client_uses_tcp_only_if_the_server_does_not_answer_over_udp() {
    let keys = Keys::new();
    let server = Server::start(on_both(&keys, &["tcp:127.0.0.1:*"], &[])).unwrap();
    let hole = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut parts = keys.client_parts(&[hole.local_addr().unwrap()], Vec::new());
    (parts.carrier, parts.connections) = (Carrier::Auto, 1);
    parts.servers[0].tcp_port = server.tcp_address().map(|at| at.port());
    let client = Client::start(parts).await.unwrap();
    client.connected().await;
    let why = client.links()[0].over_tcp.clone().unwrap();
    assert!(why.contains("UDP has not answered within 2.00 s"), "{why}");
    client.drain(Duration::ZERO).await;
    // This client tries UDP at the server's own port, which answers before TCP.
    let mut parts = keys.client_parts(&[server.local_addr().unwrap()], Vec::new());
    (parts.carrier, parts.connections) = (Carrier::Auto, 1);
    parts.servers[0].tcp_port = server.tcp_address().map(|at| at.port());
    let client = Client::start(parts).await.unwrap();
    client.connected().await;
    assert_eq!(client.links()[0].over_tcp, None);
    client.drain(Duration::ZERO).await;
    server.drain(Duration::ZERO).await;
}

/// Resolves every name to two addresses.
#[derive(Debug)]
struct TwoAddresses;

impl Resolve for TwoAddresses {
    fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async { Ok(vec![[127, 0, 0, 79].into(), [127, 0, 0, 1].into()]) })
    }
}

#[tokio::test]
async fn a_silent_address_of_a_server_does_not_keep_tcp_from_its_next_address() {
    let keys = Keys::new();
    let server = Server::start(on_both(&keys, &[], &[])).unwrap();
    let at = server.tcp_address().unwrap();
    // The kernel accepts connections to this listener, but no process answers.
    let silent = TcpListener::bind(("127.0.0.79", at.port())).await.unwrap();
    let mut parts = keys.client_parts(&[at], Vec::new());
    parts.servers[0].address = format!("two.example:{}", at.port()).parse().unwrap();
    parts.resolver = Arc::new(TwoAddresses);
    parts.carrier = Carrier::Tcp;
    // The handshake with the silent address outlasts the test.
    parts.tuning.handshake = Duration::from_secs(3600);
    let client = Client::start(parts).await.unwrap();
    tokio::time::timeout(Duration::from_secs(60), client.connected()).await.unwrap();
    drop(silent);
    client.drain(Duration::ZERO).await;
    server.drain(Duration::ZERO).await;
}
