//! Tunnels of one connection share the connection's window.

use crate::ends::{Keys, bytes, echo, target, tcp_of, through, to_tcp, write_endlessly};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tunnel::client::Client;
use tunnel::server::Server;

/// While the rate is high, the window is large. After the rate has fallen, the unread bytes that
/// arrived at the high rate exceed the window that the path needs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tunnel_that_is_not_read_does_not_stop_other_tunnels_after_the_rate_has_fallen() {
    let (hogs, hog_address) = target().await;
    let (echoes, echo_address) = target().await;
    let keys = Keys::new();
    let server = Server::start(keys.server_parts(keys.guard(&["tcp:127.0.0.1:*"], &[]))).unwrap();
    let listeners = vec![to_tcp(hog_address), to_tcp(echo_address)];
    let mut parts = keys.client_parts(&[server.local_addr().unwrap()], listeners);
    parts.connections = 1;
    let client = Client::start(parts).await.unwrap();
    client.connected().await;
    let listener_addresses: Vec<_> = client.bound().iter().map(tcp_of).collect();
    let tasks = [
        tokio::spawn(echo(echoes)),
        tokio::spawn(async move {
            let (mut stream, _) = hogs.accept().await.unwrap();
            let (mut buffer, began) = (vec![0; 1 << 20], Instant::now());
            while began.elapsed() < FAST {
                assert!(stream.read(&mut buffer).await.unwrap() > 0);
            }
            std::future::pending::<()>().await;
        }),
        tokio::spawn(write_endlessly(through(listener_addresses[0]).await)),
    ];
    let mut stream = through(listener_addresses[1]).await;
    let began = Instant::now();
    let mut round = 0;
    while began.elapsed() < FAST + SLOW {
        let (sent, mut got) = (bytes(round, 4000), vec![0; 4000]);
        let both = async {
            stream.write_all(&sent).await.unwrap();
            stream.read_exact(&mut got).await.unwrap();
        };
        let done = tokio::time::timeout(Duration::from_secs(20), both).await;
        assert!(done.is_ok(), "no echo in round {round}, after {:?}", began.elapsed());
        assert!(got == sent);
        tokio::time::sleep(Duration::from_millis(1)).await;
        round += 1;
    }
    assert!(tasks.iter().all(|task| !task.is_finished()), "the other tunnel has ended");
    let given_up = client.counted().tunnels_not_read + server.counted().tunnels_not_read;
    assert_eq!(given_up, 0, "memory was not short");
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    drop((client, server));
}

const FAST: Duration = Duration::from_secs(2);
/// The time at the low rate, in which the connection forgets the high rate.
const SLOW: Duration = Duration::from_secs(12);
