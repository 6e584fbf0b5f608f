//! A client's host loses its address and gets another address.

use crate::ends::{Keys, bytes, tcp_of, through};
use nix::sched::{CloneFlags, unshare};
use std::net::SocketAddr;
use std::process::Command;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tunnel::client::Client;
use tunnel::server::Server;

/// Runs in the test's own network namespace, which all threads of the test share.
#[test]
fn a_tunnel_continues_after_the_client_changes_its_address() {
    if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
        return testing::skip_because(testing::Need::NetworkNamespaces, error);
    }
    if !ip("link set lo up") {
        return testing::skip(testing::Need::Program("ip"));
    }
    for address in [SERVER, BEFORE] {
        assert!(ip(&format!("address add {address}/32 dev lo")));
    }
    come_from(BEFORE);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let target = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let keys = Keys::new();
        let mut parts = keys.server_parts(keys.guard(&["tcp:127.0.0.0/8:*"], &[]));
        parts.listen = format!("{SERVER}:0").parse().ok();
        let server = Server::start(parts).unwrap();
        let listeners = vec![crate::ends::to_tcp(target.local_addr().unwrap())];
        let at: SocketAddr = server.local_addr().unwrap();
        let client = Client::start(keys.client_parts(&[at], listeners)).await.unwrap();
        client.connected().await;
        let mut near = through(tcp_of(&client.bound()[0])).await;
        near.write_all(&bytes(1, SOME)).await.unwrap();
        let (mut far, _) = target.accept().await.unwrap();
        assert_eq!(read(&mut far).await, bytes(1, SOME));

        assert!(ip(&format!("address add {AFTER}/32 dev lo")));
        come_from(AFTER);
        assert!(ip(&format!("address del {BEFORE}/32 dev lo")));
        near.write_all(&bytes(2, SOME)).await.unwrap();
        assert_eq!(read(&mut far).await, bytes(2, SOME));
        far.write_all(&bytes(3, SOME)).await.unwrap();
        assert_eq!(read(&mut near).await, bytes(3, SOME));
        assert_eq!(client.counted().tunnels_broken, 0);
        drop((client, server));
    });
}

/// Sets the source address of packets that go to the server.
fn come_from(address: &str) {
    assert!(ip(&format!("route replace local {SERVER} dev lo table local src {address}")));
}

fn ip(arguments: &str) -> bool {
    Command::new("ip").args(arguments.split(' ')).status().is_ok_and(|status| status.success())
}

async fn read(stream: &mut tokio::net::TcpStream) -> Vec<u8> {
    let mut all = vec![0; SOME];
    stream.read_exact(&mut all).await.unwrap();
    all
}

const SERVER: &str = "10.9.0.1";
const BEFORE: &str = "10.9.0.2";
const AFTER: &str = "10.9.0.3";
const SOME: usize = 300_000;
