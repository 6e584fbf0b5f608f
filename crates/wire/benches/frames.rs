//! Measures the time to complete a packet's checksum or segmentation: `cargo bench -p weir-wire`.

#![allow(clippy::unwrap_used)]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use etherparse::PacketBuilder;
use wire::checksum::Sum;
use wire::virtio::{GsoKind, PartialChecksum};
use wire::{Gso, Layout, Segmenter, VirtioHeader};

fn checksums(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("checksum");
    for len in [40, 1448, 65536] {
        let bytes: Vec<u8> = (0..len).map(|n| n as u8).collect();
        let mut copy = vec![0; len];
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_function(format!("sum {len}"), |bench| {
            bench.iter(|| Sum::of(black_box(&bytes)));
        });
        group.bench_function(format!("copy and sum {len}"), |bench| {
            bench.iter(|| Sum::of_copy(black_box(&bytes), &mut copy));
        });
    }
    group.finish();
}

fn segmentation(criterion: &mut Criterion) {
    let (packet, virtio) = super_packet();
    let mut out = vec![0; 2048];
    let mut group = criterion.benchmark_group("segment");
    group.throughput(Throughput::Bytes(packet.len() as u64));
    group.bench_function("45 frames", |bench| {
        bench.iter(|| {
            let mut segmenter = Segmenter::new(black_box(&packet), &virtio).unwrap();
            while segmenter.write_next(&mut out).is_some() {}
        });
    });
    group.finish();
}

fn headers(criterion: &mut Criterion) {
    let (packet, _) = super_packet();
    let mut group = criterion.benchmark_group("headers");
    group.bench_function("layout", |bench| bench.iter(|| Layout::parse(black_box(&packet))));
    group.bench_function("flow", |bench| bench.iter(|| wire::flow::hash(black_box(&packet), 7)));
    group.finish();
}

fn super_packet() -> (Vec<u8>, VirtioHeader) {
    let mut packet = Vec::new();
    let tcp = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10; 4], [11; 4], 64).tcp(1, 2, 3, 4);
    tcp.write(&mut packet, &vec![7; 65160]).unwrap();
    let virtio = VirtioHeader {
        partial_checksum: Some(PartialChecksum { start: 34, offset: 16 }),
        gso: Some(Gso { kind: GsoKind::TcpV4, ecn: false, size: 1448 }),
        ..VirtioHeader::default()
    };
    (packet, virtio)
}

criterion_group!(benches, checksums, segmentation, headers);
criterion_main!(benches);
