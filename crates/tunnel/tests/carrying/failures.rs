//! After any failure the application gets an error, other tunnels continue, and the client
//! reconnects.

use crate::ends::{
    Keys, echo, pair, pair_over_wire, refusal, soon, target, tcp_of, through, to_tcp,
};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinHandle;
use tunnel::access::{BoxFuture, Resolve};
use tunnel::client::{Client, ListenAt, Listener, Reverse};
use tunnel::server::Server;

#[tokio::test]
async fn a_dead_path_resets_tunnels_and_carries_new_tunnels_once_restored() {
    let (listener, address) = target().await;
    let (server, client, listener_addresses, wire) = pair_over_wire(&[address]).await;
    let echo = tokio::spawn(echo(listener));
    let mut stream = through(listener_addresses[0]).await;
    stream.write_all(b"hello").await.unwrap();
    let mut output = [0; 5];
    stream.read_exact(&mut output).await.unwrap();
    wire.cut(true);
    let end = soon(stream.read(&mut output)).await;
    assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);
    wire.cut(false);
    let mut again = loop {
        // The client may reset the connection before connect(2) returns, or before the write.
        let Ok(mut stream) = TcpStream::connect(listener_addresses[0]).await else { continue };
        let is_sent = stream.write_all(b"again").await.is_ok();
        if is_sent && stream.read_exact(&mut output).await.is_ok() {
            break stream;
        }
    };
    assert_eq!(&output, b"again");
    assert!(client.counted().connections_lost >= 1);
    again.shutdown().await.unwrap();
    drop((client, server));
    echo.abort();
}

#[tokio::test]
async fn an_absent_or_unlisted_target_gives_a_reset_and_other_tunnels_continue() {
    let (listener, address) = target().await;
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let keys = Keys::new();
    let rules = [&*format!("tcp:{address}"), &*format!("tcp:{gone}")];
    let server = Server::start(keys.server_parts(keys.guard(&rules, &[]))).unwrap();
    let listeners = vec![to_tcp(gone), to_tcp("127.0.0.1:1".parse().unwrap()), to_tcp(address)];
    let parts = keys.client_parts(&[server.local_addr().unwrap()], listeners);
    let client = Client::start(parts).await.unwrap();
    let echo = tokio::spawn(echo(listener));
    for listener_address in [0, 1] {
        let error = refusal(tcp_of(&client.bound()[listener_address])).await;
        assert_eq!(error, ErrorKind::ConnectionReset);
    }
    let mut stream = through(tcp_of(&client.bound()[2])).await;
    stream.write_all(b"x").await.unwrap();
    stream.read_exact(&mut [0; 1]).await.unwrap();
    assert_eq!(server.counted().tunnels_refused, 2);
    assert_eq!(server.counted().dials_failed, 1);
    drop((client, server));
    echo.abort();
}

#[tokio::test]
async fn a_reset_by_a_target_resets_the_application() {
    let (listener, address) = target().await;
    let (server, client, listener_addresses) = pair(&[address]).await;
    let mut stream = through(listener_addresses[0]).await;
    stream.write_all(b"x").await.unwrap();
    let (far, _) = listener.accept().await.unwrap();
    socket2::SockRef::from(&far).set_linger(Some(Duration::ZERO)).unwrap();
    drop(far);
    let error = stream.read(&mut [0; 1]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    drop((client, server));
}

#[tokio::test]
async fn invalid_packets_to_the_servers_port_disturb_no_tunnel() {
    let (listener, address) = target().await;
    let (server, client, listener_addresses) = pair(&[address]).await;
    let echo = tokio::spawn(echo(listener));
    let stranger = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let at = server.local_addr().unwrap();
    for seed in 0..3000 {
        let mut garbage = crate::ends::bytes(seed, 1 + (seed as usize * 37) % 1400);
        if seed % 3 == 0 {
            // Make the datagram resemble an Initial packet of version 1.
            garbage.resize(1200, 0);
            garbage[..6].copy_from_slice(&[0xc3, 0, 0, 0, 1, 8]);
        }
        stranger.send_to(&garbage, at).await.unwrap();
    }
    let mut stream = through(listener_addresses[0]).await;
    stream.write_all(b"x").await.unwrap();
    stream.read_exact(&mut [0; 1]).await.unwrap();
    // The client waits for only one of its two connections.
    while server.counted().connections_made < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(server.counted().connections_made, 2);
    drop((client, server));
    echo.abort();
}

#[tokio::test]
async fn an_unknown_client_is_refused() {
    let (keys, others) = (Keys::new(), Keys::new());
    let server = Server::start(keys.server_parts(keys.guard(&["tcp:127.0.0.0/8:*"], &[]))).unwrap();
    // The client trusts the server, but the server does not know the client.
    let thief = Keys { server: keys.server, client: others.client };
    let (_listener, address) = target().await;
    let parts = thief.client_parts(&[server.local_addr().unwrap()], vec![to_tcp(address)]);
    let client = Client::start(parts).await.unwrap();
    let error = refusal(tcp_of(&client.bound()[0])).await;
    assert_eq!(error, ErrorKind::ConnectionReset);
    assert_eq!(server.counted().tunnels_opened, 0);
    drop((client, server));
}

#[tokio::test]
async fn a_limit_or_a_kick_soon_after_the_handshake_is_no_refusal_of_the_clients_key() {
    let keys = Keys::new();
    let mut parts = keys.server_parts(keys.guard(&[], &[]));
    parts.limits.connections_each = 1;
    let server = Server::start(parts).unwrap();
    let start = async |connections| {
        let mut parts = keys.client_parts(&[server.local_addr().unwrap()], Vec::new());
        parts.connections = connections;
        Client::start(parts).await.unwrap()
    };
    let client = start(2).await;
    let limited = async {
        loop {
            let state = client.servers().remove(0);
            if let Some(why) = state.failure {
                return (why, state.is_refusing);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let limit = Duration::from_secs(60);
    let (why, is_refusing) = tokio::time::timeout(limit, limited).await.expect("a refusal");
    assert!(why.contains("limit of connections") && !is_refusing, "{why}");
    drop(client);
    while server.sessions_left() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }

    let client = start(1).await;
    // A kick during the handshake ends no connection of the client.
    while client.counted().connections_lost == 0 {
        server.kick("client");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let state = client.servers().remove(0);
    assert!(!state.is_refusing, "{state:?}");
    drop((client, server));
}

#[tokio::test]
async fn a_client_uses_the_second_server_if_the_first_has_ended() {
    let (listener, address) = target().await;
    let echo = tokio::spawn(echo(listener));
    let keys = Keys::new();
    let guard = keys.guard(&["tcp:127.0.0.0/8:*"], &[]);
    let first = Server::start(keys.server_parts(guard.clone())).unwrap();
    let second = Server::start(keys.server_parts(guard)).unwrap();
    let servers = [first.local_addr().unwrap(), second.local_addr().unwrap()];
    let mut parts = keys.client_parts(&servers, vec![to_tcp(address)]);
    parts.tuning.handshake = Duration::from_secs(3);
    let client = Client::start(parts).await.unwrap();
    client.connected().await;
    let listener_address = tcp_of(&client.bound()[0]);
    let mut stream = through(listener_address).await;
    stream.write_all(b"x").await.unwrap();
    stream.read_exact(&mut [0; 1]).await.unwrap();
    assert!(first.counted().tunnels_opened == 1 && second.counted().tunnels_opened == 0);
    let used = |client: &Client| -> Vec<_> {
        client.servers().iter().map(|one| (one.connections > 0, one.failure.is_some())).collect()
    };
    assert_eq!(used(&client), [(true, false), (false, false)]);
    drop(first);
    loop {
        // The client resets connections until it has found the second server.
        let Ok(mut stream) = TcpStream::connect(listener_address).await else { continue };
        if stream.write_all(b"x").await.is_ok() && stream.read_exact(&mut [0; 1]).await.is_ok() {
            break;
        }
    }
    assert!(second.counted().tunnels_opened >= 1);
    assert_eq!(used(&client), [(false, true), (true, false)]);
    drop((client, second));
    echo.abort();
}

/// The kernel answers packets to a port without a socket with ICMP messages.
#[tokio::test]
async fn a_session_ends_before_its_keepalives_if_no_process_has_the_servers_port() {
    let (listener, address) = target().await;
    let echo = tokio::spawn(echo(listener));
    let keys = Keys::new();
    let guard = keys.guard(&["tcp:127.0.0.0/8:*"], &[]);
    let server = Server::start(keys.server_parts(guard)).unwrap();
    let front = Front::before(server.local_addr().unwrap()).await;
    let mut parts = keys.client_parts(&[front.address], vec![to_tcp(address)]);
    parts.connections = 1;
    let client = Client::start(parts).await.unwrap();
    let mut stream = through(tcp_of(&client.bound()[0])).await;
    stream.write_all(b"x").await.unwrap();
    stream.read_exact(&mut [0; 1]).await.unwrap();
    front.close().await;
    let end = soon(stream.read(&mut [0; 1])).await;
    assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);
    let counted = client.counted();
    assert_eq!((counted.connections_unreachable, counted.connections_silent), (1, 0));
    drop((client, server));
    echo.abort();
}

#[tokio::test]
async fn an_idle_client_asks_its_server_more_often_only_while_a_tunnel_is_open() {
    let (listener, address) = target().await;
    let echo = tokio::spawn(echo(listener));
    let keys = Keys::new();
    let keepalive = Duration::from_secs(2);
    let mut parts = keys.server_parts(keys.guard(&["tcp:127.0.0.0/8:*"], &[]));
    parts.tuning.keepalive = keepalive;
    let server = Server::start(parts).unwrap();
    let front = Front::before(server.local_addr().unwrap()).await;
    let mut parts = keys.client_parts(&[front.address], vec![to_tcp(address)]);
    parts.tuning.keepalive = keepalive;
    parts.connections = 1;
    let client = Client::start(parts).await.unwrap();
    client.connected().await;
    let pause_of_client = async |pauses: Range<Duration>| {
        let seen = async {
            loop {
                tokio::time::sleep(Duration::from_millis(20)).await;
                let sent = front.sent.lock().unwrap();
                if sent.windows(2).any(|two| pauses.contains(&(two[1] - two[0]))) {
                    return;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(60), seen).await.expect("such a pause");
        front.sent.lock().unwrap().clear();
    };
    // The client sends three probes in a keepalive interval, or one probe.
    let (shortest, limit) = (keepalive / 6, keepalive * 2 / 3);
    pause_of_client(limit..Duration::MAX).await;
    let mut stream = through(tcp_of(&client.bound()[0])).await;
    stream.write_all(b"x").await.unwrap();
    stream.read_exact(&mut [0; 1]).await.unwrap();
    pause_of_client(shortest..limit).await;
    drop(stream);
    pause_of_client(limit..Duration::MAX).await;
    drop((client, server));
    echo.abort();
}

/// A UDP socket that relays the packets between one client and a server.
struct Front {
    address: SocketAddr,
    /// The times at which the client sent packets.
    sent: Arc<Mutex<Vec<Instant>>>,
    relay: JoinHandle<()>,
}

impl Front {
    async fn before(server: SocketAddr) -> Self {
        let front = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let back = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        back.connect(server).await.unwrap();
        let (address, sent) = (front.local_addr().unwrap(), Arc::<Mutex<Vec<_>>>::default());
        let times = Arc::clone(&sent);
        let relay = tokio::spawn(async move {
            let (mut there, mut here) = (vec![0; 65_536], vec![0; 65_536]);
            let mut client = None;
            loop {
                tokio::select! {
                    Ok((count, from)) = front.recv_from(&mut there) => {
                        times.lock().unwrap().push(Instant::now());
                        client = Some(from);
                        let _ = back.send(&there[..count]).await;
                    }
                    Ok(count) = back.recv(&mut here) => {
                        if let Some(client) = client {
                            let _ = front.send_to(&here[..count], client).await;
                        }
                    }
                }
            }
        });
        Self { address, sent, relay }
    }

    /// Stops the relay and closes its sockets.
    async fn close(self) {
        self.relay.abort();
        assert!(self.relay.await.unwrap_err().is_cancelled());
    }
}

#[tokio::test]
async fn a_name_whose_first_address_is_dead_is_reached_at_the_next_address() {
    let (listener, address) = target().await;
    let echo = tokio::spawn(echo(listener));
    let keys = Keys::new();
    let guard = keys.guard(&["tcp:127.0.0.0/8:*"], &[]);
    let server = Server::start(keys.server_parts(guard)).unwrap();
    let port = server.local_addr().unwrap().port();
    // The process behind this socket neither accepts nor refuses a connection.
    let dead = UdpSocket::bind(("127.0.0.2", port)).await.unwrap();
    let mut parts = keys.client_parts(&[], vec![to_tcp(address)]);
    let mut at = keys.client_parts(&[server.local_addr().unwrap()], Vec::new()).servers.remove(0);
    at.address = format!("two.example:{port}").parse().unwrap();
    parts.servers = vec![at];
    parts.resolver = Arc::new(Two);
    // With this timeout, a client that waits for the dead address would outlast the test.
    parts.tuning.handshake = Duration::from_secs(3600);
    let client = Client::start(parts).await.unwrap();
    client.connected().await;
    let mut stream = through(tcp_of(&client.bound()[0])).await;
    stream.write_all(b"x").await.unwrap();
    stream.read_exact(&mut [0; 1]).await.unwrap();
    assert!(dead.try_recv(&mut [0; 2000]).is_ok(), "the first address was not tried");
    drop((client, server));
    echo.abort();
}

#[derive(Debug)]
struct Two;

impl Resolve for Two {
    fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async { Ok(vec![[127, 0, 0, 2].into(), [127, 0, 0, 1].into()]) })
    }
}

#[tokio::test]
async fn a_tunnel_above_the_limit_is_refused_and_accepted_later() {
    let (listener, address) = target().await;
    let echo = tokio::spawn(echo(listener));
    let keys = Keys::new();
    let mut parts = keys.server_parts(keys.guard(&["tcp:127.0.0.0/8:*"], &[]));
    parts.limits.tunnels_each = 2;
    let server = Server::start(parts).unwrap();
    let parts = keys.client_parts(&[server.local_addr().unwrap()], vec![to_tcp(address)]);
    let client = Client::start(parts).await.unwrap();
    let listener_address = tcp_of(&client.bound()[0]);
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut stream = through(listener_address).await;
        stream.write_all(b"x").await.unwrap();
        stream.read_exact(&mut [0; 1]).await.unwrap();
        held.push(stream);
    }
    // The client may reset the connection before `connect` returns.
    let echoed = async || -> io::Result<()> {
        let mut stream = TcpStream::connect(listener_address).await?;
        stream.write_all(b"x").await?;
        stream.read_exact(&mut [0; 1]).await.map(drop)
    };
    assert!(echoed().await.is_err());
    assert_eq!(server.counted().tunnels_over_limit, 1);
    drop(held);
    while echoed().await.is_err() {}
    drop((client, server));
    echo.abort();
}

#[tokio::test]
async fn unix_sockets_and_listeners_at_the_server_carry_data() {
    let home = tempfile::tempdir().unwrap();
    let (own, far) = (home.path().join("own"), home.path().join("far"));
    let (listener, address) = target().await;
    let echo = tokio::spawn(echo(listener));
    let keys = Keys::new();
    let listen = format!("unix:{}", far.display());
    let guard = keys.guard(&[&format!("tcp:{address}")], &[&listen]);
    let server = Server::start(keys.server_parts(guard)).unwrap();
    let forward = Listener {
        listen: ListenAt::Unix(own.clone()),
        route: format!("tcp:{address}").parse().unwrap(),
    };
    let mut parts = keys.client_parts(&[server.local_addr().unwrap()], vec![forward]);
    parts.reverse = vec![
        Reverse {
            listen: listen.parse().unwrap(),
            target: format!("tcp:{address}").parse().unwrap(),
        },
        Reverse {
            listen: "tcp:127.0.0.1:1".parse().unwrap(),
            target: format!("tcp:{address}").parse().unwrap(),
        },
    ];
    let client = Client::start(parts).await.unwrap();
    while server.counted().listeners == 0 {
        tokio::task::yield_now().await;
    }
    for path in [&own, &far] {
        let mut stream = tokio::net::UnixStream::connect(path).await.unwrap();
        stream.write_all(b"over it").await.unwrap();
        let mut output = [0; 7];
        stream.read_exact(&mut output).await.unwrap();
        assert_eq!(&output, b"over it");
    }
    assert_eq!(server.counted().listeners, 1);
    // A closed listener removes its own socket, but not a socket that another process has put in
    // its place.
    client.drain(Duration::ZERO).await;
    while own.exists() {
        tokio::task::yield_now().await;
    }
    drop(server);
    echo.abort();
}

#[tokio::test]
async fn a_closed_listener_keeps_a_socket_that_replaced_its_own_socket() {
    let home = tempfile::tempdir().unwrap();
    let own = home.path().join("own");
    let keys = Keys::new();
    let server = Server::start(keys.server_parts(keys.guard(&["tcp:127.0.0.1:1"], &[]))).unwrap();
    let forward =
        Listener { listen: ListenAt::Unix(own.clone()), route: "tcp:127.0.0.1:1".parse().unwrap() };
    let parts = keys.client_parts(&[server.local_addr().unwrap()], vec![forward]);
    let client = Client::start(parts).await.unwrap();
    std::fs::rename(&own, home.path().join("kept")).unwrap();
    let _other = std::os::unix::net::UnixListener::bind(&own).unwrap();
    client.drain(Duration::ZERO).await;
    drop(server);
    assert!(own.exists());
}
