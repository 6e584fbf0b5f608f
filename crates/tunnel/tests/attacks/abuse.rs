//! Peers use up an end's resources, replay packets, never read or never answer. The end limits and
//! counts the attacks, and other peers continue.

use crate::PROCESS;
use crate::ends::{
    Keys, echo, pair_over_wire, refusal, soon, target, tcp_of, through, to_tcp, tuning,
    write_endlessly,
};
use quinn_proto::crypto::rustls::QuicClientConfig;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tunnel::client::{Client, ListenAt, Listener};
use tunnel::identity::ServerTrust;
use tunnel::server::Server;
use tunnel::transport::Tuning;
use units::Bytes;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_never_read_stay_within_the_budget_and_do_not_stop_others() {
    never_read(40, Bytes::kib(8 * 1024)).await;
}

/// `WEIR_READERS` sets the number of clients. Each client takes four sockets, which `ulimit -n`
/// must allow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "sixteen thousand sockets"]
async fn thousands_of_clients_that_never_read_stay_within_the_budget_and_do_not_stop_others() {
    let count = std::env::var("WEIR_READERS").map_or(4000, |count| count.parse().unwrap());
    never_read(count, Bytes::kib(256 * 1024)).await;
}

async fn never_read(count: usize, budget: Bytes) {
    let _alone = PROCESS.write().await;
    let tuning = Tuning { memory: budget, ..tuning() };
    let (hogs, hog_address) = target().await;
    let (echoes, echo_address) = target().await;
    let datagrams = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let datagram_address = datagrams.local_addr().unwrap();
    let keys = Keys::new();
    let guard = keys.guard(&["tcp:127.0.0.1:*", "udp:127.0.0.1:*"], &[]);
    let mut parts = keys.server_parts(guard);
    parts.tuning = tuning.clone();
    let server = Server::start(parts).unwrap();
    let udp = Listener {
        listen: ListenAt::Udp("127.0.0.1:0".parse().unwrap()),
        route: format!("udp:{datagram_address}").parse().unwrap(),
    };
    let listeners = vec![to_tcp(hog_address), to_tcp(echo_address), udp];
    let mut parts = keys.client_parts(&[server.local_addr().unwrap()], listeners);
    parts.tuning = tuning;
    let client = Client::start(parts).await.unwrap();
    client.connected().await;
    let listener_addresses: Vec<_> = client.bound().iter().map(tcp_of).collect();
    let tasks = [
        tokio::spawn(echo(echoes)),
        tokio::spawn(echo_datagrams(datagrams)),
        // The applications and the targets send without pause and read nothing.
        tokio::spawn(async move {
            while let Ok((stream, _)) = hogs.accept().await {
                tokio::spawn(write_endlessly(stream));
            }
        }),
    ];
    // Credit that a peer has received stays valid beyond the budget.
    let bound = Bytes::new(budget.count() * 2);
    let before = resident();
    let hog_address = listener_addresses[0];
    let hogs: Vec<_> = (0..count)
        .map(|_| {
            tokio::spawn(async move {
                write_endlessly(through(hog_address).await).await;
            })
        })
        .collect();
    let given_up = || client.counted().tunnels_not_read + server.counted().tunnels_not_read;
    let most = Instant::now() + Duration::from_secs(60);
    while given_up() == 0 {
        assert!(Instant::now() < most, "no tunnel was reset to free memory");
        assert!(client.memory_held() <= bound && server.memory_held() <= bound);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut stream = through(listener_addresses[1]).await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect(listener_addresses[2]).await.unwrap();
    for round in 0..20 {
        let (sent, mut got) = (crate::ends::bytes(round, 5000), vec![0; 5000]);
        let both = async {
            stream.write_all(&sent).await.unwrap();
            stream.read_exact(&mut got).await.unwrap();
        };
        tokio::time::timeout(Duration::from_secs(30), both).await.unwrap();
        assert!(got == sent);
        assert_eq!(datagram_said(&socket, &sent[..900]).await, &sent[..900]);
        assert!(client.memory_held() <= bound && server.memory_held() <= bound);
    }
    // A connection keeps a grant that is too large until the next sweep.
    let granted = || client.memory_granted().max(server.memory_granted());
    soon(async {
        while granted() > budget {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    // Both ends run in this process. Unacknowledged data adds to both budgets, and has a separate
    // bound.
    let grown = resident().saturating_sub(before);
    assert!(grown < 6 * budget.count(), "{grown} bytes more than before");
    let tunnels = client.counted().tunnels;
    eprintln!(
        "ATTACK memory-unread: {} given up, {tunnels} left, {} KiB more",
        given_up(),
        grown / 1024
    );
    for task in hogs.iter().chain(&tasks) {
        task.abort();
    }
    drop((client, server));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_handshakes_from_one_address_are_deferred_and_counted() {
    let _alone = PROCESS.write().await;
    let keys = Keys::new();
    let server = Server::start(keys.server_parts(keys.guard(&["tcp:127.0.0.1:*"], &[]))).unwrap();
    let at = server.local_addr().unwrap();
    let before = resident();
    let (keys, hellos) = tokio::task::spawn_blocking(move || {
        let hellos = hellos(&keys, at, 10_000);
        (keys, hellos)
    })
    .await
    .unwrap();
    let made = resident();
    let stranger = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    // Send more packets if the server has counted too few packets: while the machine stalls, its
    // kernel drops packets before the server reads the packets.
    let put_off = || server.counted().handshakes_put_off;
    for round in 0..3 {
        for some in hellos.chunks(20) {
            if round > 0 && put_off() >= 8_000 {
                break;
            }
            for hello in some {
                stranger.send_to(hello, at).await.unwrap();
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    let (listener, address) = target().await;
    let echo = tokio::spawn(echo(listener));
    // A known client connects from the same address.
    let client = Client::start(keys.client_parts(&[at], vec![to_tcp(address)])).await.unwrap();
    tokio::time::timeout(Duration::from_secs(60), client.connected()).await.unwrap();
    let mut stream = through(tcp_of(&client.bound()[0])).await;
    stream.write_all(b"x").await.unwrap();
    stream.read_exact(&mut [0; 1]).await.unwrap();
    let counted = server.counted();
    assert!(counted.handshakes_put_off >= 8_000, "{counted:?}");
    assert!(counted.connections_made <= 2, "{counted:?}");
    let grown = resident().saturating_sub(made);
    assert!(grown < 64 << 20, "{grown} bytes more than before ({before}, {made})");
    eprintln!(
        "ATTACK flood-one-address: {} put off, {} KiB more than before",
        counted.handshakes_put_off,
        grown / 1024
    );
    echo.abort();
    drop((client, server));
}

#[tokio::test]
async fn replayed_packets_of_a_client_open_no_tunnel() {
    let _beside_others = PROCESS.read().await;
    let (listener, address) = target().await;
    let keys = Keys::new();
    let server = Server::start(keys.server_parts(keys.guard(&["tcp:127.0.0.1:*"], &[]))).unwrap();
    let at = server.local_addr().unwrap();
    let wire = crate::ends::wire::Wire::to(at).await;
    wire.listen();
    let client = Client::start(keys.client_parts(&[wire.address], vec![to_tcp(address)])).await;
    let client = client.unwrap();
    client.connected().await;
    let mut stream = through(tcp_of(&client.bound()[0])).await;
    stream.write_all(b"transfer 100").await.unwrap();
    let (mut far, _) = listener.accept().await.unwrap();
    let mut output = [0; 12];
    far.read_exact(&mut output).await.unwrap();
    let received = wire.received();
    assert!(received.len() >= 4);
    let thief = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    for _ in 0..3 {
        for packet in &received {
            thief.send_to(packet, at).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    // The first tunnel still works, and no byte arrived twice.
    stream.write_all(b".").await.unwrap();
    let mut last = [0; 1];
    far.read_exact(&mut last).await.unwrap();
    assert_eq!(&last, b".");
    assert_eq!(server.counted().tunnels_opened, 1);
    drop((client, stream, far));
    for packet in &received {
        thief.send_to(packet, at).await.unwrap();
    }
    let again = tokio::time::timeout(Duration::from_secs(1), listener.accept()).await;
    assert!(again.is_err(), "the target was dialled again");
    assert_eq!(server.counted().tunnels_opened, 1);
    drop(server);
}

#[tokio::test]
async fn a_target_that_does_not_answer_is_refused_in_time_and_delays_no_other_tunnel() {
    let _beside_others = PROCESS.read().await;
    // A listener with a full backlog does not answer: the kernel drops further connections.
    let dead = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    dead.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    dead.listen(0).unwrap();
    let dead_address = dead.local_addr().unwrap().as_socket().unwrap();
    let mut clients = Vec::new();
    loop {
        let connect = TcpStream::connect(dead_address);
        match tokio::time::timeout(Duration::from_millis(300), connect).await {
            Ok(client) => clients.push(client.unwrap()),
            Err(_) => break,
        }
        assert!(clients.len() < 100);
    }
    let (listener, address) = target().await;
    let echo = tokio::spawn(echo(listener));
    let keys = Keys::new();
    let mut parts = keys.server_parts(keys.guard(&["tcp:127.0.0.1:*"], &[]));
    parts.limits.dial = Duration::from_secs(2);
    let server = Server::start(parts).unwrap();
    let listeners = vec![to_tcp(dead_address), to_tcp(address)];
    let parts = keys.client_parts(&[server.local_addr().unwrap()], listeners);
    let client = Client::start(parts).await.unwrap();
    client.connected().await;
    let listener_addresses: Vec<_> = client.bound().iter().map(tcp_of).collect();
    let dead_address = listener_addresses[0];
    let waiting = tokio::spawn(async move { soon(refusal(dead_address)).await });
    let mut stream = through(listener_addresses[1]).await;
    for _ in 0..20 {
        stream.write_all(b"x").await.unwrap();
        stream.read_exact(&mut [0; 1]).await.unwrap();
    }
    assert_eq!(waiting.await.unwrap(), ErrorKind::ConnectionReset);
    assert_eq!(server.counted().dials_failed, 1);
    assert_eq!(client.counted().connections_lost, 0);
    echo.abort();
    drop((client, server));
}

#[tokio::test]
async fn tunnels_are_reset_while_the_path_is_blocked_and_work_again_afterwards() {
    let _beside_others = PROCESS.read().await;
    let (listener, address) = target().await;
    let echo = tokio::spawn(echo(listener));
    let (server, client, listener_addresses, wire) = pair_over_wire(&[address]).await;
    let mut streams = Vec::new();
    for _ in 0..10 {
        let mut stream = through(listener_addresses[0]).await;
        stream.write_all(b"x").await.unwrap();
        stream.read_exact(&mut [0; 1]).await.unwrap();
        streams.push(stream);
    }
    wire.cut(true);
    let began = Instant::now();
    for stream in &mut streams {
        let end = soon(stream.read(&mut [0; 1])).await;
        assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
    eprintln!(
        "ATTACK path-blocked: all knew after {:?}, with a keepalive of a second",
        began.elapsed()
    );
    // An application that connects while the path is blocked gets a reset, too.
    let late = refusal(listener_addresses[0]);
    let end = tokio::time::timeout(Duration::from_secs(60), late).await;
    assert_eq!(end.unwrap(), ErrorKind::ConnectionReset);
    wire.cut(false);
    carries_again(listener_addresses[0]).await;
    echo.abort();
    drop((client, server));
}

/// The server receives nothing and must notify the client. The client still receives packets, and
/// would not close the connection itself.
#[tokio::test]
async fn a_path_blocked_in_one_direction_resets_its_tunnels_within_three_keepalives() {
    let _beside_others = PROCESS.read().await;
    let (listener, address) = target().await;
    let echo = tokio::spawn(echo(listener));
    let (server, client, listener_addresses, wire) = pair_over_wire(&[address]).await;
    let mut stream = through(listener_addresses[0]).await;
    stream.write_all(b"x").await.unwrap();
    stream.read_exact(&mut [0; 1]).await.unwrap();
    wire.cut_from_clients(true);
    let began = Instant::now();
    let end = soon(stream.read(&mut [0; 1])).await;
    assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);
    // The server noticed first, and notified the client.
    let silent = server.counted().connections_silent;
    assert!(silent > 0, "{:?}", server.counted());
    assert_eq!(client.counted().connections_silent, 0);
    eprintln!(
        "ATTACK path-blocked-one-way: known after {:?}, with a keepalive of a second",
        began.elapsed()
    );
    wire.cut(false);
    carries_again(listener_addresses[0]).await;
    echo.abort();
    drop((client, server));
}

/// Waits until a new tunnel through the listener is echoed.
async fn carries_again(listener_address: SocketAddr) {
    loop {
        let mut stream = through(listener_address).await;
        if stream.write_all(b"x").await.is_ok() && stream.read_exact(&mut [0; 1]).await.is_ok() {
            return;
        }
    }
}

/// Returns the first packets of clients that never send a second packet.
fn hellos(keys: &Keys, server: SocketAddr, count: usize) -> Vec<Vec<u8>> {
    let trust = ServerTrust::Pins(vec![keys.server.pin()]);
    let tls = tunnel::identity::client_config(&keys.client, &trust).unwrap();
    let crypto = Arc::new(QuicClientConfig::try_from(tls).unwrap());
    let config = quinn_proto::ClientConfig::new(crypto);
    let now = Instant::now();
    let one = |_| {
        let mut endpoint = quinn_proto::Endpoint::new(Arc::default(), None, true, None);
        let connecting = endpoint.connect(now, config.clone(), server, trust.server_name());
        let (_, mut connection) = connecting.unwrap();
        let mut packet = Vec::new();
        let _whole = connection.poll_transmit(now, 1, &mut packet).unwrap();
        packet
    };
    (0..count).map(one).collect()
}

async fn echo_datagrams(socket: UdpSocket) {
    let mut buffer = vec![0; 65_536];
    while let Ok((count, from)) = socket.recv_from(&mut buffer).await {
        let _ = socket.send_to(&buffer[..count], from).await;
    }
}

/// Sends the datagram until an answer arrives, because UDP may lose packets even on the loopback.
/// Returns the answer.
async fn datagram_said(socket: &UdpSocket, what: &[u8]) -> Vec<u8> {
    let mut buffer = vec![0; 65_536];
    for _ in 0..40 {
        socket.send(what).await.unwrap();
        let patience = Duration::from_millis(500);
        while let Ok(Ok(count)) = tokio::time::timeout(patience, socket.recv(&mut buffer)).await {
            if &buffer[..count] == what {
                return buffer[..count].to_vec();
            }
        }
    }
    panic!("no answer to {} bytes", what.len());
}

/// Returns the resident memory of this process, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}
