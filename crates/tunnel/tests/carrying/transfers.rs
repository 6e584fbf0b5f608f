//! Tests that the bytes that an application sends arrive unchanged at the target, and back.

use crate::ends::{bytes, pair, pair_over_wire, target, through};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

#[tokio::test]
async fn sixty_four_mebibytes_arrive_unchanged() {
    let (listener, address) = target().await;
    let (server, client, listener_addresses) = pair(&[address]).await;
    let sent = bytes(1, 64 << 20);
    let expected = sent.clone();
    let receiver = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).await.unwrap();
        assert!(got == expected);
        stream.write_all(b"all of it").await.unwrap();
    });
    let mut stream = through(listener_addresses[0]).await;
    stream.write_all(&sent).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer, b"all of it");
    receiver.await.unwrap();
    client.drain(Duration::from_secs(5)).await;
    server.drain(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn transfers_in_both_directions_arrive_whichever_end_finishes_first() {
    let (server, client, done) = transfers_over(0, 0, 60, 1 << 20).await;
    assert_eq!(done, 60);
    assert_eq!(client.counted().tunnels_broken, 0, "{:?}", client.counted());
    client.drain(Duration::from_secs(5)).await;
    server.drain(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn transfers_arrive_unchanged_over_loss_and_reordering() {
    let (server, client, done) = transfers_over(50, 20, 40, 1 << 20).await;
    assert_eq!(done, 40);
    assert!(client.links().iter().any(|link| link.statistics.packets_lost > 0));
    client.drain(Duration::from_secs(5)).await;
    server.drain(Duration::from_secs(5)).await;
}

/// Each tunnel always has bytes to send.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn busy_tunnels_get_equal_shares_of_a_connection() {
    const TUNNELS: usize = 16;
    let (listener, address) = target().await;
    let (server, client, listener_addresses) = pair(&[address]).await;
    let mut carried = Vec::new();
    let mut tasks = JoinSet::new();
    for _ in 0..TUNNELS {
        let mut near = through(listener_addresses[0]).await;
        tasks.spawn(async move {
            let block = vec![7; 64 << 10];
            while near.write_all(&block).await.is_ok() {}
        });
        let (mut far, _) = listener.accept().await.unwrap();
        let count = Arc::new(AtomicU64::new(0));
        carried.push(Arc::clone(&count));
        tasks.spawn(async move {
            let mut block = vec![0; 64 << 10];
            while let Ok(read @ 1..) = far.read(&mut block).await {
                count.fetch_add(read as u64, Ordering::Relaxed);
            }
        });
    }
    let now = || carried.iter().map(|count| count.load(Ordering::Relaxed)).collect::<Vec<_>>();
    let before = now();
    // Wait until the tunnels have carried far more than all buffers on the path hold.
    while now().iter().sum::<u64>() - before.iter().sum::<u64>() < (TUNNELS << 25) as u64 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let shares: Vec<u64> =
        now().iter().zip(&before).map(|(after, before)| after - before).collect();
    let mean = shares.iter().sum::<u64>() / TUNNELS as u64;
    let even = shares.iter().all(|share| (mean / 3..mean * 3).contains(share));
    assert!(even, "{shares:?}");
    tasks.shutdown().await;
    drop((client, server));
}

#[tokio::test]
async fn a_client_continues_after_its_source_port_changes() {
    let (listener, address) = target().await;
    let (server, client, listener_addresses, wire) = pair_over_wire(&[address]).await;
    let echo = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let (mut reading, mut writing) = stream.split();
        tokio::io::copy(&mut reading, &mut writing).await.unwrap();
    });
    let mut stream = through(listener_addresses[0]).await;
    for round in 0..6 {
        let sent = bytes(round, 200_000);
        let mut got = vec![0; sent.len()];
        let (mut reading, mut writing) = stream.split();
        let (written, read) = tokio::join!(writing.write_all(&sent), reading.read_exact(&mut got));
        written.unwrap();
        read.unwrap();
        assert!(got == sent);
        wire.move_clients();
    }
    drop(stream);
    assert_eq!(client.counted().connections_lost, 0);
    drop((client, server));
    echo.abort();
}

/// Runs `count` transfers. Each transfer begins with its number, from which both ends derive the
/// data and the end that finishes first.
async fn transfers_over(
    loss: u32,
    reorder: u32,
    count: u64,
    most: usize,
) -> (tunnel::server::Server, tunnel::client::Client, u64) {
    let (listener, address) = target().await;
    let (server, client, listener_addresses, wire) = pair_over_wire(&[address]).await;
    wire.lose(loss);
    wire.reorder(reorder);
    let targets = tokio::spawn(async move {
        let mut all = Vec::new();
        for _ in 0..count {
            let (mut stream, _) = listener.accept().await.unwrap();
            all.push(tokio::spawn(async move {
                let number = stream.read_u64().await.unwrap();
                exchange(stream, number, most, false).await;
            }));
        }
        for one in all {
            one.await.unwrap();
        }
    });
    let mut done = 0;
    // Run eight transfers at a time.
    for group in (0..count).collect::<Vec<_>>().chunks(8) {
        let all: Vec<_> = group
            .iter()
            .map(|number| tokio::spawn(transfer(listener_addresses[0], *number, most)))
            .collect();
        for one in all {
            one.await.unwrap();
            done += 1;
        }
    }
    targets.await.unwrap();
    (server, client, done)
}

async fn transfer(listener_address: SocketAddr, number: u64, most: usize) {
    let mut stream = through(listener_address).await;
    stream.write_u64(number).await.unwrap();
    exchange(stream, number, most, true).await;
}

/// Runs one end of a transfer. In even transfers both ends send at once. In odd transfers the
/// second end sends after the first end has finished.
async fn exchange(mut stream: TcpStream, number: u64, most: usize, first: bool) {
    let length = |seed: u64| match seed % 7 {
        0 => 0,
        1 => 1,
        _ => (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) as usize % most,
    };
    let (own, other) =
        if first { (2 * number, 2 * number + 1) } else { (2 * number + 1, 2 * number) };
    let (sent, expected) = (bytes(own, length(own)), bytes(other, length(other)));
    let (mut reading, mut writing) = stream.split();
    let send = async {
        writing.write_all(&sent).await.unwrap();
        writing.shutdown().await.unwrap();
    };
    let mut got = Vec::new();
    let receive = reading.read_to_end(&mut got);
    if number.is_multiple_of(2) {
        tokio::join!(send, async { receive.await.unwrap() });
    } else if first == number.is_multiple_of(3) {
        send.await;
        receive.await.unwrap();
    } else {
        receive.await.unwrap();
        send.await;
    }
    assert!(got == expected, "transfer {number}: {} of {} bytes", got.len(), expected.len());
}
