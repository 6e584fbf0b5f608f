//! Random transfers over a path that loses 5 % of packets, and reorders, duplicates and corrupts
//! other packets. The client's source port changes again and again. Each transfer must arrive
//! unchanged.
//!
//! The long form: `cargo test --release -p weir-tunnel --test carrying integrity -- --ignored`.

use crate::ends::{Pattern, target, through, tuned_pair_over_wire};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tunnel::transport::Tuning;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_transfers_arrive_byte_for_byte() {
    transfers(100, 23, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes"]
async fn a_thousand_random_transfers_of_up_to_64_mib_arrive_byte_for_byte() {
    transfers(1000, 26, 2).await;
}

/// The parameters of one transfer, which both ends know.
#[derive(Debug, Clone, Copy)]
struct Transfer {
    number: u64,
    /// The numbers of bytes that the application and the target send.
    lengths: [u64; 2],
    order: Order,
}

#[derive(Debug, Clone, Copy)]
enum Order {
    AtOnce,
    /// The application sends all its bytes and closes its half of the connection before the target
    /// begins.
    ApplicationFirst,
    TargetFirst,
}

/// Runs `count` transfers of up to 2^`largest` bytes in each direction, eight at a time.
async fn transfers(count: u64, largest: u32, seed: u64) {
    let all = Arc::new(draw(count, largest, seed));
    let (listener, address) = target().await;
    let (server, client, listener_addresses, wire) =
        tuned_pair_over_wire(&[address], &Tuning::default()).await;
    wire.lose(50);
    wire.reorder(20);
    wire.duplicate(10);
    wire.corrupt(5);
    let known = Arc::clone(&all);
    let targets = tokio::spawn(async move {
        let mut tasks = Vec::new();
        for _ in 0..count {
            let (mut stream, _) = listener.accept().await.unwrap();
            let known = Arc::clone(&known);
            tasks.push(tokio::spawn(async move {
                let number = stream.read_u64().await.unwrap();
                run(stream, known[number as usize], 1).await;
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
    });
    let moving = tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(700)).await;
            wire.move_clients();
        }
    });
    let began = Instant::now();
    let next = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let applications: Vec<_> = (0..8)
        .map(|_| {
            tokio::spawn(application(listener_addresses[0], Arc::clone(&all), Arc::clone(&next)))
        })
        .collect();
    for one in applications {
        let done = one.await;
        assert!(done.is_ok(), "{done:?}\n{:?}\n{:?}", client.counted(), server.counted());
    }
    targets.await.unwrap();
    moving.abort();
    let bytes: u64 = all.iter().flat_map(|transfer| transfer.lengths).sum();
    eprintln!(
        "{count} transfers, {:.2} GB in {:.0} s, {} packets lost",
        bytes as f64 / 1e9,
        began.elapsed().as_secs_f64(),
        client.links().iter().map(|link| link.statistics.packets_lost).sum::<u64>(),
    );
    assert_eq!(client.counted().tunnels_opened, count);
    assert_eq!(client.counted().tunnels_broken, 0);
    assert_eq!(client.counted().connections_lost, 0);
    client.drain(Duration::from_secs(5)).await;
    server.drain(Duration::from_secs(5)).await;
}

/// Draws `count` transfers. The lengths are log-uniform, and one length in ten is zero.
fn draw(count: u64, largest: u32, seed: u64) -> Vec<Transfer> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut length = || {
        let exponent: f64 = random.random_range(0.0..f64::from(largest));
        if random.random_bool(0.1) { 0 } else { exponent.exp2() as u64 }
    };
    let lengths: Vec<_> = (0..count).map(|_| [length(), length()]).collect();
    let orders = [Order::AtOnce, Order::ApplicationFirst, Order::TargetFirst];
    let transfer = |(number, lengths)| {
        let order = orders[number as usize % orders.len()];
        Transfer { number, lengths, order }
    };
    (0..).zip(lengths).map(transfer).collect()
}

async fn application(
    listener_address: SocketAddr,
    all: Arc<Vec<Transfer>>,
    next: Arc<std::sync::atomic::AtomicUsize>,
) {
    while let Some(transfer) = all.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
        let mut stream = through(listener_address).await;
        stream.write_u64(transfer.number).await.unwrap();
        run(stream, *transfer, 0).await;
    }
}

async fn run(mut stream: TcpStream, transfer: Transfer, side: usize) {
    let (mut reading, mut writing) = stream.split();
    let say = say(&mut writing, transfer, side);
    let hear = hear(&mut reading, transfer, 1 - side);
    match (transfer.order, side) {
        (Order::AtOnce, _) => {
            tokio::join!(say, hear);
        }
        (Order::ApplicationFirst, 0) | (Order::TargetFirst, 1) => {
            say.await;
            hear.await;
        }
        _ => {
            hear.await;
            say.await;
        }
    }
}

async fn say(writing: &mut WriteHalf<'_>, transfer: Transfer, side: usize) {
    let mut pattern = Pattern::new(2 * transfer.number + side as u64);
    let mut left = transfer.lengths[side];
    let mut buffer = vec![0; 64 * 1024];
    while left > 0 {
        let part = left.min(buffer.len() as u64) as usize;
        pattern.fill(&mut buffer[..part]);
        writing.write_all(&buffer[..part]).await.unwrap();
        left -= part as u64;
    }
    writing.shutdown().await.unwrap();
}

async fn hear(reading: &mut ReadHalf<'_>, transfer: Transfer, side: usize) {
    let mut pattern = Pattern::new(2 * transfer.number + side as u64);
    let (mut buffer, mut expected) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    let mut got = 0;
    loop {
        let count = reading.read(&mut buffer).await.unwrap();
        if count == 0 {
            break;
        }
        pattern.fill(&mut expected[..count]);
        assert!(buffer[..count] == expected[..count], "{transfer:?}: wrong after {got} bytes");
        got += count as u64;
    }
    assert_eq!(got, transfer.lengths[side], "{transfer:?}");
}
