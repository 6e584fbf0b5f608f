//! Hostile identities use a server's memory while an ordinary identity needs memory.

use crate::ends::raw::RawPeer;
use crate::ends::{
    Keys, bytes, echo, guard_of, target, tcp_of, through, to_tcp, tuning, write_endlessly,
};
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tunnel::client::Client;
use tunnel::frame::{Opening, Properties, Request};
use tunnel::identity::Identity;
use tunnel::server::Server;
use units::Bytes;

/// A server with little memory, and the keys of an ordinary and of a hostile client.
struct Setup {
    keys: Keys,
    hostile: Identity,
    server: Server,
}

impl Setup {
    fn new(memory: Bytes) -> Self {
        let (keys, hostile) = (Keys::new(), Identity::generate("hostile", 1).unwrap().0);
        let peers = [("client", &keys.client), ("hostile", &hostile)];
        let mut parts = keys.server_parts(guard_of(&peers, &["tcp:127.0.0.0/8:*"], &[]));
        parts.tuning.memory = memory;
        let server = Server::start(parts).unwrap();
        Self { keys, hostile, server }
    }

    async fn raw(&self, identity: &Identity) -> RawPeer {
        let at = self.server.local_addr().unwrap();
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        RawPeer::new(here, identity, &self.keys.server, at).await.connected().await
    }

    /// Checks that an ordinary client gets its bytes echoed.
    async fn serves_others(&self) {
        let (listener, address) = target().await;
        let echo = tokio::spawn(echo(listener));
        let at = self.server.local_addr().unwrap();
        let client = Client::start(self.keys.client_parts(&[at], vec![to_tcp(address)])).await;
        let client = client.unwrap();
        tokio::time::timeout(PATIENCE, client.connected()).await.unwrap();
        let stream = through(tcp_of(&client.bound()[0])).await;
        let (mut reading, mut writing) = stream.into_split();
        let sent = bytes(1, 3_000_000);
        let mut got = vec![0; sent.len()];
        let both = async { tokio::join!(writing.write_all(&sent), reading.read_exact(&mut got)) };
        let (written, read) = tokio::time::timeout(PATIENCE, both).await.unwrap();
        assert!(written.is_ok() && read.is_ok() && got == sent);
        echo.abort();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_reserve_no_memory() {
    let setup = Setup::new(Bytes::kib(8 * 1024));
    let mut idle = JoinSet::new();
    for _ in 0..60 {
        let mut peer = setup.raw(&setup.hostile).await;
        idle.spawn(async move {
            peer.drive(PATIENCE * 10).await;
            peer.lost()
        });
    }
    setup.serves_others().await;
    assert_eq!(
        setup.server.peers().iter().filter(|one| one.peer.as_str() == "hostile").count(),
        60
    );
    // The ordinary client has left, so its connections return their grants.
    await_some(|| (setup.server.memory_granted() == Bytes::ZERO).then_some(())).await;
    assert!(idle.try_join_next().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_streams_count_against_the_memory_share_and_the_connection_is_closed() {
    let setup = Setup::new(Bytes::kib(8 * 1024));
    let mut peer = setup.raw(&setup.hostile).await;
    let mut opened = 0;
    let lost = peer.drive_until(PATIENCE, |peer| {
        while let Some(stream) = peer.open() {
            peer.connection.send_stream(stream).write(b"\x01").unwrap();
            opened += 1;
        }
        peer.lost()
    });
    let lost = lost.await.unwrap_or_else(|| panic!("not closed after {opened} streams"));
    assert!(tells(&lost, "memory"), "{lost}");
    eprintln!("ATTACK memory-silent-streams: closed after {opened} silent streams");
    setup.serves_others().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_ignores_its_credit_is_disconnected_and_counted() {
    let setup = Setup::new(Bytes::kib(8 * 1024));
    let mut peer = setup.raw(&setup.hostile).await;
    let (hog, address) = target().await;
    let request = Request::Forward(format!("tcp:{address}").parse().unwrap());
    let stream = peer.open().unwrap();
    // The target does not read: once the kernel's buffers are full, the server consumes no data.
    let opening = Opening { request, properties: Properties::default() }.encode();
    let much = [&opening[..], &vec![7; MORE_THAN_BUFFERS]].concat();
    let mut written = 0;
    let lost = peer.drive_until(PATIENCE, |peer| {
        if let Ok(count) = peer.connection.send_stream(stream).write(&much[written..]) {
            written += count;
        }
        peer.lost()
    });
    let lost = lost.await.unwrap_or_else(|| panic!("not closed after {written} bytes"));
    assert!(tells(&lost, "more than its credit"), "{lost}");
    let counted = await_some(|| {
        let counted = setup.server.counted();
        (counted.connections_in_violation > 0).then_some(counted)
    });
    let counted = counted.await;
    assert_eq!((counted.connections_in_violation, counted.connections_lost), (1, 1), "{counted:?}");
    setup.serves_others().await;
    drop(hog);
}

/// The hostile connections use all their credit, to targets that do not read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_identity_that_fills_the_memory_leaves_others_their_share() {
    let memory = Bytes::kib(16 * 1024);
    let setup = Setup::new(memory);
    let (hogs, hog_address) = target().await;
    let kept = tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((stream, _)) = hogs.accept().await {
            kept.push(stream);
        }
    });
    let at = setup.server.local_addr().unwrap();
    let own = Keys { server: setup.keys.server.clone(), client: setup.hostile.clone() };
    let mut parts = own.client_parts(&[at], vec![to_tcp(hog_address)]);
    parts.connections = 8;
    parts.tuning = tuning();
    let client = Client::start(parts).await.unwrap();
    client.connected().await;
    let listener_address = tcp_of(&client.bound()[0]);
    let mut shouting = JoinSet::new();
    for _ in 0..64 {
        shouting.spawn(async move { write_endlessly(through(listener_address).await).await });
    }
    let given_up = || setup.server.counted().tunnels_not_read;
    await_some(|| (given_up() > 0).then_some(())).await;
    for _ in 0..3 {
        setup.serves_others().await;
        assert!(setup.server.memory_held() <= Bytes::new(memory.count() * 5 / 4));
    }
    eprintln!(
        "ATTACK memory-share: {} tunnels given up, {} held",
        given_up(),
        setup.server.memory_held()
    );
    kept.abort();
}

/// Whether the connection was lost for this reason. If the packet with the reason is lost, the peer
/// sees only a stateless reset.
fn tells(lost: &str, reason: &str) -> bool {
    lost.contains(reason) || lost == "reset by peer"
}

async fn await_some<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "the awaited state was not reached in time");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

const MORE_THAN_BUFFERS: usize = 64 << 20;
const PATIENCE: Duration = Duration::from_secs(60);
