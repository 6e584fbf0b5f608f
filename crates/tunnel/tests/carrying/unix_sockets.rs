//! Listeners on socket paths that a peer chooses. The listeners keep sockets of other processes,
//! and a busy socket delays no other task.

use crate::ends::{Keys, until};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tunnel::client::{Client, ListenAt, Listener, Reverse};
use tunnel::server::Server;

/// Starts a server, and a client that requests a listener on this path.
async fn listening(keys: &Keys, folder: &Path, listen: &Path) -> (Server, Client) {
    let rule = format!("unix:{}/*", folder.display());
    let server = Server::start(keys.server_parts(keys.guard(&[], &[&rule]))).unwrap();
    let mut parts = keys.client_parts(&[server.local_addr().unwrap()], Vec::new());
    parts.reverse = vec![Reverse {
        listen: format!("unix:{}", listen.display()).parse().unwrap(),
        target: "tcp:127.0.0.1:9".parse().unwrap(),
    }];
    let client = Client::start(parts).await.unwrap();
    client.connected().await;
    (server, client)
}

#[tokio::test]
async fn a_peers_listener_deletes_no_live_datagram_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.sock");
    let theirs = UnixDatagram::bind(&path).unwrap();
    let keys = Keys::new();
    let (server, client) = listening(&keys, folder.path(), &path).await;
    until("a refusal", || server.counted().tunnels_refused > 0).await;
    UnixDatagram::unbound().unwrap().send_to(b"x", &path).unwrap();
    assert_eq!(theirs.recv(&mut [0; 1]).unwrap(), 1);
    drop((client, server));
    assert!(path.exists());
}

/// A blocking connect(2) to the busy stream socket would wait in the kernel and block the thread of
/// a shard.
#[tokio::test]
async fn a_peers_listener_on_the_path_of_a_busy_socket_is_refused_and_stalls_no_shard() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("busy.sock");
    let busy = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
    busy.bind(&socket2::SockAddr::unix(&path).unwrap()).unwrap();
    busy.listen(0).unwrap();
    let _first = UnixStream::connect(&path).unwrap();
    let keys = Keys::new();
    let (server, client) = listening(&keys, folder.path(), &path).await;
    until("a refusal", || server.counted().tunnels_refused > 0).await;
    assert!(path.exists());
    drop((client, server));
}

#[tokio::test]
async fn ending_a_peers_listener_keeps_a_socket_of_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("web.sock");
    // A dead process left this socket, so the listener replaces it.
    drop(UnixListener::bind(&path).unwrap());
    let keys = Keys::new();
    let (server, client) = listening(&keys, folder.path(), &path).await;
    until("the listener", || UnixStream::connect(&path).is_ok()).await;
    std::fs::remove_file(&path).unwrap();
    let theirs = UnixListener::bind(&path).unwrap();
    drop(client);
    until("the listener's end", || server.counted().listeners == 0).await;
    UnixStream::connect(&path).unwrap();
    drop((server, theirs));
}

/// All tasks of the server share one thread: a task that blocks in the kernel would delay the echo,
/// too.
#[tokio::test]
async fn a_target_with_a_full_backlog_delays_no_other_tunnel() {
    let folder = tempfile::tempdir().unwrap();
    let busy_path = folder.path().join("busy.sock");
    let busy = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
    busy.bind(&socket2::SockAddr::unix(&busy_path).unwrap()).unwrap();
    busy.listen(0).unwrap();
    let _first = UnixStream::connect(&busy_path).unwrap();
    let echo_path = folder.path().join("echo.sock");
    let echo = tokio::net::UnixListener::bind(&echo_path).unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = echo.accept().await {
            tokio::spawn(async move {
                let (mut reading, mut writing) = stream.split();
                let _ = tokio::io::copy(&mut reading, &mut writing).await;
            });
        }
    });
    let keys = Keys::new();
    let rule = format!("unix:{}/*", folder.path().display());
    let mut parts = keys.server_parts(keys.guard(&[&rule], &[]));
    parts.shards = Some(1);
    let server = Server::start(parts).unwrap();
    let to = |path: &Path| Listener {
        listen: ListenAt::Tcp("127.0.0.1:0".parse().unwrap()),
        route: format!("unix:{}", path.display()).parse().unwrap(),
    };
    let listeners = vec![to(&busy_path), to(&echo_path)];
    let parts = keys.client_parts(&[server.local_addr().unwrap()], listeners);
    let client = Client::start(parts).await.unwrap();
    client.connected().await;
    let listener_addresses: Vec<_> = client.bound().iter().map(crate::ends::tcp_of).collect();
    let mut waiting = crate::ends::through(listener_addresses[0]).await;
    waiting.write_all(b"w").await.unwrap();
    let mut stream = crate::ends::through(listener_addresses[1]).await;
    for _ in 0..20 {
        stream.write_all(b"x").await.unwrap();
        stream.read_exact(&mut [0; 1]).await.unwrap();
    }
    // The backlog has room now, so the waiting tunnel connects.
    busy.accept().unwrap();
    let (accepted, _) = tokio::task::spawn_blocking(move || busy.accept()).await.unwrap().unwrap();
    let mut output = [std::mem::MaybeUninit::uninit(); 1];
    let message = tokio::task::spawn_blocking(move || accepted.recv(&mut output)).await.unwrap();
    assert_eq!(message.unwrap(), 1);
    drop((client, server));
}
