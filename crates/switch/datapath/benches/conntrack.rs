//! Measures the nanoseconds per packet of connection tracking, by the number of connections: for
//! packets of known connections in random order, and for commits. The cost of making the packets is
//! measured alone and subtracted.
//!
//! `cargo bench -p weir-switch-datapath --bench conntrack [-- THREADS]`

use std::hint::black_box;
use std::time::Instant;

use datapath::TrackCall;
use datapath::conntrack::{Conntrack, Headers, Settings, View};
use flow::action::{Nat, NatAddresses, NatDirection};
use flow::step::{Step, Track};
use flow::{Field, Key, word};
use units::Time;

fn main() {
    // `cargo bench` passes `--bench`. `cargo test` runs the bench without `--bench`, with few
    // connections.
    let is_measuring = std::env::args().any(|argument| argument == "--bench");
    let threads = std::env::args().filter_map(|argument| argument.parse().ok()).next().unwrap_or(1);
    let sizes: &[u32] =
        if is_measuring { &[1, 1024, 65_536, 262_144, 1_048_576] } else { &[1, 1024] };
    let hits = if is_measuring { 4_000_000 } else { 4096 };
    println!(
        "{:>11} {:>8} {:>12} {:>12} {:>8}",
        "connections", "hit ns", "checked ns", "commit ns", "B each"
    );
    println!("without a translation:");
    for size in sizes {
        measure(*size, hits, threads, &commit(None));
    }
    println!("with nat(src=…):");
    let nat = Nat {
        direction: Some(NatDirection::Source),
        addresses: Some(NatAddresses::V4([192, 0, 2, 1].into()..=[192, 0, 2, 1].into())),
        ..Nat::default()
    };
    for size in sizes {
        measure(*size, hits, threads, &commit(Some(nat.clone())));
    }
}

fn measure(size: u32, hits: u32, threads: usize, track: &Track) {
    let steps = [Step::Track(Box::new(track.clone()))];
    let call = TrackCall::first_of(&steps).expect("a Track");
    let mut costs = Vec::new();
    let mut commit = 0.0;
    let mut bytes = 0;
    for verify_checksums in [false, true] {
        let settings = Settings { seed: 42, threads, verify_checksums, ..Settings::default() };
        let table = Conntrack::new(&settings);
        let mut source = Source::new(size);
        let start = Instant::now();
        source.run(size.next_multiple_of(BATCH as u32), |batch| batch.track(&table, &call));
        commit = start.elapsed().as_nanos() as f64 / f64::from(size.max(BATCH as u32));
        assert_eq!(table.connections(), size);
        bytes = table.statistics().bytes / u64::from(size);
        let mut best = f64::MAX;
        for _ in 0..3 {
            let start = Instant::now();
            source.run(hits, |batch| batch.track(&table, &call));
            let whole = start.elapsed();
            let start = Instant::now();
            source.run(hits, |batch| {
                black_box(&mut batch.frames);
            });
            let net = whole.saturating_sub(start.elapsed());
            best = best.min(net.as_nanos() as f64 / f64::from(hits));
        }
        costs.push(best);
        assert_eq!(table.connections(), size);
    }
    println!("{size:>11} {:>8.1} {:>12.1} {commit:>12.1} {bytes:>8}", costs[0], costs[1]);
}

fn commit(nat: Option<Nat>) -> Track {
    Track { commit: true, nat, ..Track::default() }
}

/// Makes UDP packets of 64 bytes. Each connection gets a packet in each round, in a scattered
/// order.
struct Source {
    batch: Batch,
    template: ([u8; LENGTH], Key),
    next: u32,
    mask: u32,
    size: u32,
}

struct Batch {
    frames: [([u8; LENGTH], Key); BATCH],
}

const BATCH: usize = 32;
const LENGTH: usize = 60;

impl Source {
    fn new(size: u32) -> Self {
        let mut frame = [0; LENGTH];
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14..24].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
        frame[30..34].copy_from_slice(&[48, 0, 0, 1]);
        frame[34..38].copy_from_slice(&[4, 0, 0, 80]);
        frame[38..40].copy_from_slice(&26u16.to_be_bytes());
        let mut key = Key::ZERO;
        key.write(Field::EthType, 0x0800);
        key.write(Field::NwProto, 17);
        key.write(Field::UdpSrc, 0x0400);
        key.write(Field::UdpDst, 80);
        let template = (frame, key);
        let frames = std::array::from_fn(|_| template.clone());
        Self {
            batch: Batch { frames },
            template,
            next: 0,
            mask: size.next_power_of_two() - 1,
            size,
        }
    }

    fn run(&mut self, packets: u32, mut take: impl FnMut(&mut Batch)) {
        for _ in 0..packets / BATCH as u32 {
            for frame in &mut self.batch.frames {
                // Multiplication by an odd number permutes the numbers below a power of two.
                let number = self.next.wrapping_mul(0x9e37_79b1) & self.mask;
                self.next = if self.next + 1 >= self.size { 0 } else { self.next + 1 };
                frame.0 = self.template.0;
                frame.1.words = self.template.1.words;
                let server = 48u32 << 24 | number;
                frame.1.words[word::IPV4] =
                    u64::from(16u32 << 24 | number) << 32 | u64::from(server);
                frame.0[26..30].copy_from_slice(&(16u32 << 24 | number).to_be_bytes());
                frame.0[30..34].copy_from_slice(&u32::to_be_bytes(server));
                checksum(&mut frame.0, number, server);
            }
            take(&mut self.batch);
        }
    }
}

/// Computes the IP and UDP checksums of a template frame with these addresses.
fn checksum(frame: &mut [u8; LENGTH], number: u32, server: u32) {
    let fold = |mut sum: u32| {
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    };
    let halves = |word: u32| (word >> 16) + (word & 0xffff);
    let addresses = halves(16 << 24 | number) + halves(server);
    let header = 0x4500 + 46 + 0x4011 + addresses;
    frame[24..26].copy_from_slice(&fold(header).to_be_bytes());
    let segment = addresses + 17 + 26 + 0x400 + 80 + 26;
    frame[40..42].copy_from_slice(&fold(segment).to_be_bytes());
}

impl Batch {
    fn track(&mut self, table: &Conntrack, call: &TrackCall<'_>) {
        let now = Time::from_nanos(1_000_000_000);
        let headers = Headers { network: 14, transport: 34, end: LENGTH };
        let mut hashes = [0; BATCH];
        for ((frame, key), hash) in self.frames.iter_mut().zip(&mut hashes) {
            *hash = table.hash(key, frame, headers, call.zone);
        }
        table.prefetch(&hashes, &mut [0; BATCH]);
        for ((frame, key), hash) in self.frames.iter_mut().zip(&hashes) {
            let mut view = View::new(key, frame, headers);
            black_box(table.track(&mut view, call, Some(*hash), now));
        }
    }
}
