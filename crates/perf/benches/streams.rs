//! Measures the cost of sending a block through a loopback stream, by block size, and the cost of
//! counting a datagram.

#![allow(missing_docs, clippy::unwrap_used)]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use perf::event::Stop;
use perf::options::{Amount, TestOptions};
use perf::stream::{DataSocket, Opened, Running};
use perf::udp::{Arrival, Arrivals, Header};
use std::hint::black_box;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use units::Bytes;

fn goodput(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("loopback");
    group.sample_size(10);
    for (name, kib, zero_copy) in [
        ("write", 16, false),
        ("write", 64, false),
        ("default", 128, false),
        ("write", 512, false),
        ("sendfile", 128, true),
    ] {
        group.throughput(Throughput::Bytes(kib << 10));
        group.bench_with_input(BenchmarkId::new(name, format!("{kib}K")), &kib, |bencher, kib| {
            bencher.iter_custom(|blocks| transfer(blocks, Bytes::kib(*kib), zero_copy));
        });
    }
}

fn transfer(blocks: u64, block: Bytes, zero_copy: bool) -> Duration {
    let options = TestOptions {
        amount: Amount::Blocks(blocks),
        block: Some(block),
        zero_copy,
        ..TestOptions::default()
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let server = listener.accept().unwrap().0;
    let end = |sends, socket| {
        let opened = vec![Opened { id: 1, sends, socket: DataSocket::Tcp(socket) }];
        Running::start(opened, &options, None, Stop::default()).unwrap()
    };
    let (sender, receiver) = (end(true, client), end(false, server));
    let began = Instant::now();
    receiver.go();
    sender.go();
    let whole = blocks * block.count();
    while receiver.snapshot()[0].bytes.count() < whole {
        std::thread::sleep(Duration::from_micros(50));
    }
    began.elapsed()
}

fn arrivals(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("arrivals");
    group.throughput(Throughput::Elements(1));
    let arrival = |number: u64| Arrival {
        header: Some(Header::new(Duration::from_micros(number * 12), number)),
        bytes: 1448,
        nanos: number as i64 * 12_000,
    };
    group.bench_function("in order", |bencher| {
        let mut arrivals = Arrivals::new(true);
        let mut number = 0;
        bencher.iter(|| {
            number += 1;
            arrivals.take(black_box(&[arrival(number)]));
        });
    });
    group.bench_function("every pair swapped", |bencher| {
        let mut arrivals = Arrivals::new(true);
        let mut number = 1;
        bencher.iter(|| {
            number += 1;
            arrivals.take(black_box(&[arrival(number ^ 1)]));
        });
    });
}

criterion_group!(benches, goodput, arrivals);
criterion_main!(benches);
