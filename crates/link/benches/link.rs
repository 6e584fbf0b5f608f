//! Measures the cost of one packet from arrival to delivery.

#![allow(missing_docs, clippy::unwrap_used)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use link::{Link, LinkConfig, Packet};
use std::hint::black_box;
use units::{Bytes, Span, Time};

#[derive(Clone)]
struct Handle {
    buffer: u32,
    size: u32,
    flow: u64,
    marked: bool,
}

impl Packet for Handle {
    fn size(&self) -> Bytes {
        Bytes::new(u64::from(self.size))
    }

    fn flow(&self) -> u64 {
        self.flow
    }

    fn ecn_capable(&self) -> bool {
        self.buffer.is_multiple_of(2)
    }

    fn mark_congestion(&mut self) {
        self.marked = true;
    }

    fn corrupt(&mut self, random: u64) {
        self.flow ^= random;
    }
}

fn arrival_to_delivery(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("arrival_to_delivery");
    group.throughput(Throughput::Elements(BATCH));
    // 800 delivery opportunities per millisecond give 9.6 Gbit/s.
    let trace = format!("trace:{}1", "1,".repeat(799));
    for (name, rate, queue, jitter, loss, reorder) in [
        ("perfect wire", "unlimited", "droptail", "none", "none", "none"),
        ("idle", "20gbit", "droptail", "none", "none", "none"),
        ("full", "9gbit", "droptail:1000p", "none", "none", "none"),
        ("lossy", "20gbit", "droptail", "none", "gilbert:p=1%,r=30%", "none"),
        ("jitter", "20gbit", "droptail", "100us", "1%", "none"),
        ("jitter that reorders", "20gbit", "droptail", "100us,normal,reorder", "1%", "1%,1ms"),
        ("trace, full", trace.as_str(), "droptail:1000p", "none", "none", "none"),
        ("headdrop, full", "9gbit", "headdrop:1000p", "none", "none", "none"),
        ("red, full", "9gbit", "red", "none", "none", "none"),
        ("codel, full", "9gbit", "codel", "none", "none", "none"),
        ("fq_codel, full", "9gbit", "fq_codel:limit=1000p", "none", "none", "none"),
        ("pie, full", "9gbit", "pie", "none", "none", "none"),
    ] {
        let config = LinkConfig {
            rate: rate.parse().unwrap(),
            delay: Span::from_millis(1),
            jitter: jitter.parse().unwrap(),
            loss: loss.parse().unwrap(),
            reorder: reorder.parse().unwrap(),
            queue: queue.parse().unwrap(),
            ..LinkConfig::default()
        };
        let mut link = Link::new(&config, Time::ZERO).unwrap();
        let (mut now, mut number) = (0u64, 0u32);
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                for _ in 0..BATCH {
                    // A frame every 1211 ns gives 10 Gbit/s.
                    now += 1211;
                    number = number.wrapping_add(1);
                    let packet = Handle {
                        buffer: number,
                        size: 1514,
                        flow: u64::from(number % 16),
                        marked: false,
                    };
                    link.arrive(Time::from_nanos(now), packet);
                    while let Some(delivery) = link.deliver(Time::from_nanos(now)) {
                        black_box(delivery.packet.marked);
                    }
                }
            });
        });
        assert!(link.balance().holds());
    }
    group.finish();
}

const BATCH: u64 = 1000;

criterion_group!(benches, arrival_to_delivery);
criterion_main!(benches);
