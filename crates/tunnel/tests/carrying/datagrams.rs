//! Tunnels of UDP preserve the boundaries of datagrams, and refuse and count oversized datagrams.

use crate::ends::{Keys, bytes, tcp_of};
use std::time::Duration;
use tokio::net::UdpSocket;
use tunnel::client::{Client, ListenAt, Listener, Reverse};
use tunnel::server::Server;

#[tokio::test]
async fn datagrams_keep_their_boundaries_and_answers_reach_their_senders() {
    let target = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = target.local_addr().unwrap();
    tokio::spawn(echo(target));
    let keys = Keys::new();
    let server = Server::start(keys.server_parts(keys.guard(&["udp:127.0.0.1:*"], &[]))).unwrap();
    let listener = Listener {
        listen: ListenAt::Udp("127.0.0.1:0".parse().unwrap()),
        route: format!("udp:{address}").parse().unwrap(),
    };
    let parts = keys.client_parts(&[server.local_addr().unwrap()], vec![listener]);
    let client = Client::start(parts).await.unwrap();
    client.connected().await;
    let listener_address = tcp_of(&client.bound()[0]);
    let first = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let second = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    first.connect(listener_address).await.unwrap();
    second.connect(listener_address).await.unwrap();
    for (seed, length) in [(1, 1), (2, 0), (3, 1000), (4, 7), (5, 1100)] {
        for (socket, own) in [(&first, seed), (&second, seed + 100)] {
            assert_eq!(exchange(socket, &bytes(own, length)).await, bytes(own, length));
        }
    }
    first.send(&bytes(6, 8000)).await.unwrap();
    assert_eq!(exchange(&first, b"after it").await, b"after it");
    assert_eq!(client.counted().datagrams_oversize, 1);
    assert_eq!(client.counted().tunnels, 2);
    client.drain(Duration::from_secs(0)).await;
    server.drain(Duration::from_secs(0)).await;
}

#[tokio::test]
async fn a_listener_at_the_server_carries_datagrams_to_the_client() {
    let target = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = target.local_addr().unwrap();
    tokio::spawn(echo(target));
    // The port stays free after this bind, because no other test uses the address.
    let listener_address = UdpSocket::bind("127.0.0.77:0").await.unwrap().local_addr().unwrap();
    let keys = Keys::new();
    let server = Server::start(keys.server_parts(keys.guard(&[], &["udp:127.0.0.77:*"]))).unwrap();
    let mut parts = keys.client_parts(&[server.local_addr().unwrap()], Vec::new());
    parts.reverse = vec![Reverse {
        listen: format!("udp:{listener_address}").parse().unwrap(),
        target: format!("udp:{address}").parse().unwrap(),
    }];
    let client = Client::start(parts).await.unwrap();
    while server.counted().listeners == 0 {
        tokio::task::yield_now().await;
    }
    let application = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    application.connect(listener_address).await.unwrap();
    assert_eq!(exchange(&application, b"there and back").await, b"there and back");
    drop(client);
    drop(server);
}

async fn echo(socket: UdpSocket) {
    let mut buffer = vec![0; 65_536];
    while let Ok((count, from)) = socket.recv_from(&mut buffer).await {
        let _ = socket.send_to(&buffer[..count], from).await;
    }
}

/// Sends the datagram until an answer arrives, because UDP may lose packets even on the loopback.
/// Returns the answer.
async fn exchange(socket: &UdpSocket, what: &[u8]) -> Vec<u8> {
    let mut buffer = vec![0; 65_536];
    for _ in 0..20 {
        socket.send(what).await.unwrap();
        let patience = Duration::from_millis(500);
        if let Ok(Ok(count)) = tokio::time::timeout(patience, socket.recv(&mut buffer)).await {
            return buffer[..count].to_vec();
        }
    }
    panic!("no answer to {} bytes", what.len());
}
