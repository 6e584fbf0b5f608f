//! Measures the growth of a packet's cost with rules and flows, for the four sets of rules of the
//! reference report, a set without connection tracking, and a set with sixteen masks.
//!
//! `cargo bench -p weir-switch-datapath --bench flatness -- [SET…] [--rounds N] [--threads N]
//! [--stages]`
//!
//! The connection table is made for `--threads` threads, with several locks per thread; only one
//! thread uses it. This thread passes frames of 60 bytes from memory through a datapath and drops
//! them. The source copies each frame into a buffer of the pool. The copy's cost is measured alone
//! and subtracted, because frames of 262,144 flows do not fit the cache. The runs of all sizes
//! alternate. The bench measures the thread's processor time, so that other processes disturb less.
//!
//! `cargo bench -p weir-switch-datapath --bench flatness -- --scale N [SET…] [--rounds N]`
//!
//! Compares N threads, each with a CPU and a looping source, with one thread, in the four sets of
//! the report unless sets are named. docs/internals/switch.md explains the columns.

mod threads;

use std::hint::black_box;
use std::sync::Arc;

use datapath::conntrack::{Conntrack, Settings as TrackerSettings, ThreadTracker};
use datapath::{BATCH, Callees, Datapath, Settings, Sink};
use flow::port_number::PortNumber;
use flow::request::{PacketIn, PortDescription};
use flow::step::PortIndex;
use flow::{Field, Key};
use pipeline::{BridgePort, Tables, Translator};
use port::Frame;
use text::{PortNames, compose, parse_flow_line};
use units::{Span, Time};

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).filter(|text| text != "--bench").collect();
    let shows_stages = arguments.iter().any(|text| text == "--stages");
    let number = |flag: &str| -> Option<usize> {
        let at = arguments.iter().position(|text| text == flag)?;
        arguments.get(at + 1)?.parse().ok()
    };
    let rounds = number("--rounds").unwrap_or(ROUNDS);
    let threads = number("--threads").unwrap_or(1);
    let is_named = |set: &Set| arguments.iter().any(|text| text == set.name);
    let names_any = SETS.iter().any(is_named);
    if let Some(threads) = number("--scale") {
        let is_chosen =
            |set: &&Set| if names_any { is_named(set) } else { REPORT.contains(&set.name) };
        return threads::measure(SETS.iter().filter(is_chosen), rounds, threads);
    }
    let is_chosen = |set: &Set| !names_any || is_named(set);
    println!(
        "set      rules=flows   ns/packet  source     net   growth    Mpps  of 1  B/megaflow  \
         B/connection"
    );
    for set in SETS.iter().filter(|set| is_chosen(set)) {
        measure(set, rounds, threads, shows_stages);
    }
}

/// A named set of rules.
struct Set {
    name: &'static str,
    /// Makes the rules for a number of destinations.
    rules: fn(u32) -> Vec<String>,
}

const SETS: &[Set] = &[
    Set { name: "raw", rules: raw },
    Set { name: "dst", rules: destinations },
    Set { name: "base", rules: base },
    Set { name: "mac", rules: mac },
    Set { name: "nat", rules: nat },
    Set { name: "masks", rules: masks },
];

/// The sets of the reference report.
const REPORT: [&str; 4] = ["raw", "base", "mac", "nat"];

fn raw(_: u32) -> Vec<String> {
    vec![format!("table=0,ip,nw_src=16.0.0.0/8,nw_dst=48.0.0.0/8 actions={FORWARD}")]
}

fn destinations(count: u32) -> Vec<String> {
    let rule = |n| format!("table=0,ip,nw_dst={} actions={FORWARD}", address(48, n));
    (0..count).map(rule).collect()
}

fn base(_: u32) -> Vec<String> {
    vec![
        "table=0,ip,priority=10,in_port=1,nw_dst=48.0.0.0/8 \
         actions=ct(commit,table=1,nat(src=48.128.0.10))"
            .into(),
        format!("table=1,ip,nw_src=48.128.0.10,nw_dst=48.0.0.0/8 actions={FORWARD}"),
    ]
}

fn mac(count: u32) -> Vec<String> {
    let rule = |n| {
        let destination = address(48, n);
        format!("table=1,ip,nw_src=48.128.0.10,nw_dst={destination} actions={FORWARD}")
    };
    base(1).into_iter().take(1).chain((0..count).map(rule)).collect()
}

fn nat(count: u32) -> Vec<String> {
    let rule = |n| {
        let source = std::net::Ipv4Addr::from_bits(0x3080_0000 + n);
        format!(
            "table=0,ip,priority=10,in_port=1,nw_dst={} \
             actions=ct(commit,table=1,nat(src={source}))",
            address(48, n)
        )
    };
    let last = format!("table=1,ip,nw_src=48.128.0.0/14,nw_dst=48.0.0.0/8 actions={FORWARD}");
    (0..count).map(rule).chain([last]).collect()
}

/// The rules of each destination in the second table match another prefix length of the source.
fn masks(count: u32) -> Vec<String> {
    let first =
        |n| format!("table=0,ip,nw_dst={} actions=goto_table:{}", address(48, n), 1 + n % MASKS);
    let second = |n| format!("table={},ip,nw_src=16.0.0.0/{} actions={FORWARD}", 1 + n, 8 + n);
    (0..count).map(first).chain((0..MASKS).map(second)).collect()
}

fn address(first: u8, number: u32) -> std::net::Ipv4Addr {
    std::net::Ipv4Addr::from_bits(u32::from(first) << 24 | number)
}

/// Makes the tables of a bridge with two ports and the rules of a set.
fn tables(set: &Set, flows: u32) -> Tables {
    let mut tables = Tables::new();
    for number in 1..=2_u16 {
        tables.insert_port(port(number));
    }
    let parse = |rule: &String| parse_flow_line(rule, &PortNames::none()).expect("a rule");
    let changes = (set.rules)(flows).iter().map(parse).collect();
    tables.change_all(changes, 0).expect("valid rules");
    tables
}

/// A switch with its rules and its traffic.
struct Bench {
    flows: u32,
    tables: Tables,
    datapath: Datapath,
    tracker: ThreadTracker,
    source: Source,
    table: Arc<Conntrack>,
    /// Nanoseconds per packet in the last run; the clock advances by this time per packet.
    pace: f64,
    now: Time,
    /// Nanoseconds per packet in each round: `whole` for the source together with the switch, then
    /// for the source alone.
    whole: Vec<f64>,
    source_alone: Vec<f64>,
}

/// A traffic source that sends frames from memory in a loop.
struct Source {
    bytes: Vec<[u8; LENGTH]>,
    next: usize,
}

impl Source {
    fn fill(&mut self, frames: &mut Vec<Frame>) {
        for _ in 0..BATCH {
            frames.push(Frame::from_bytes(&self.bytes[self.next], Time::ZERO));
            self.next += 1;
            if self.next == self.bytes.len() {
                self.next = 0;
            }
        }
    }
}

struct Null(u64);

impl Sink for Null {
    fn transmit(&mut self, _: PortIndex, frames: &mut Vec<Frame>) {
        self.0 += frames.len() as u64;
    }

    fn packet_in(&mut self, _: Option<u16>, _: PacketIn) {}
}

impl Bench {
    fn new(set: &Set, flows: u32, threads: usize) -> Self {
        let settings = TrackerSettings { threads, ..TrackerSettings::default() };
        let table = Arc::new(Conntrack::new(&settings));
        Self {
            flows,
            tables: tables(set, flows),
            datapath: Datapath::new(Settings { ticks: host::cycles, ..Settings::default() }),
            tracker: ThreadTracker::new(table.clone()),
            table,
            pace: 250.0,
            source: Source { bytes: (0..flows).map(packet).collect(), next: 0 },
            now: Time::ZERO,
            whole: Vec::new(),
            source_alone: Vec::new(),
        }
    }

    /// Passes packets through the switch. Returns the nanoseconds per packet.
    fn run(&mut self, packets: usize) -> f64 {
        let mut frames = Vec::with_capacity(BATCH);
        let mut sink = Null(0);
        let started = processor_nanos();
        for batch in 0..packets / BATCH {
            self.source.fill(&mut frames);
            let mut callees = Callees {
                slow: &mut Translator::new(&self.tables),
                tracker: &mut self.tracker,
                sink: &mut sink,
            };
            self.datapath.process(1, &mut frames, self.now, &mut callees);
            // A packet thread sweeps its megaflows by real time, so the clock advances by the
            // measured pace.
            if batch % 64 == 0 {
                self.now += Span::from_nanos((self.pace * (64 * BATCH) as f64) as u64);
                self.datapath.maintain(self.now, &mut callees);
            }
        }
        let nanos = (processor_nanos() - started) as f64;
        assert_eq!(sink.0, (packets / BATCH * BATCH) as u64, "lost packets");
        self.pace = nanos / sink.0 as f64;
        self.pace
    }

    fn run_source(&mut self, packets: usize) -> f64 {
        let mut frames = Vec::with_capacity(BATCH);
        let started = processor_nanos();
        for _ in 0..packets / BATCH {
            self.source.fill(&mut frames);
            black_box(&mut frames).clear();
        }
        (processor_nanos() - started) as f64 / (packets / BATCH * BATCH) as f64
    }
}

fn measure(set: &Set, rounds: usize, threads: usize, shows_stages: bool) {
    let mut benches: Vec<_> = SIZES.iter().map(|flows| Bench::new(set, *flows, threads)).collect();
    for bench in &mut benches {
        // Process the first packets of all flows, then warm up.
        bench.run((bench.flows as usize * 2).next_multiple_of(BATCH).max(PACKETS));
        bench.datapath.clear_statistics();
    }
    for _ in 0..rounds {
        for bench in &mut benches {
            let source = bench.run_source(PACKETS);
            bench.source_alone.push(source);
            let whole = bench.run(PACKETS);
            bench.whole.push(whole);
        }
    }
    let mut first: Option<(f64, f64)> = None;
    for bench in &mut benches {
        let (whole, source) = (median(&mut bench.whole), median(&mut bench.source_alone));
        let net = whole - source;
        let (first_whole, first_net) = *first.get_or_insert((whole, net));
        let bytes = bench.datapath.memory().checked_div(bench.datapath.len()).unwrap_or(0);
        let connections = u64::from(bench.table.connections());
        let each = bench.table.statistics().bytes.checked_div(connections).unwrap_or(0);
        println!(
            "{:8} {:11} {whole:11.1} {source:7.1} {net:7.1} {:8.1} {:7.2} {:5.2} {bytes:11} {each:13}",
            set.name,
            bench.flows,
            net - first_net,
            1000.0 / whole,
            first_whole / whole,
        );
        if shows_stages {
            let statistics = bench.datapath.statistics();
            let stages = statistics.stages;
            let each = |ticks: u64| ticks as f64 / stages.packets.max(1) as f64;
            println!(
                "  cycles a packet: parse {:.0}, cache {:.0}, classifier {:.0}, conntrack {:.0}, \
                 actions {:.0}, transmit {:.0}; upcalls {}",
                each(stages.parse),
                each(stages.cache),
                each(stages.classifier),
                each(stages.conntrack),
                each(stages.actions),
                each(stages.transmit),
                statistics.upcalls,
            );
        }
    }
}

/// Returns the thread's processor time: the first number of `schedstat`
/// (Documentation/scheduler/sched-stats.rst).
fn processor_nanos() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("schedstat");
    text.split(' ').next().and_then(|nanos| nanos.parse().ok()).expect("nanoseconds")
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn packet(number: u32) -> [u8; LENGTH] {
    let mut key = Key::ZERO;
    for (field, value) in [
        (Field::EthSrc, 0xde75_cc30_8684),
        (Field::EthDst, 0x02ac_10ff_0101),
        (Field::EthType, 0x0800),
        (Field::NwProto, 17),
        (Field::NwTtl, 64),
        (Field::IpSrc, 0x1000_0001),
        (Field::IpDst, 0x3000_0000 + u128::from(number)),
        (Field::UdpSrc, 1025),
        (Field::UdpDst, 12),
    ] {
        key.write(field, value);
    }
    let mut frame = compose(&key);
    frame.truncate(LENGTH);
    // The IPv4 total length of 46 leaves 18 bytes of UDP data; the UDP checksum stays 0.
    frame[16..18].copy_from_slice(&46_u16.to_be_bytes());
    frame[38..40].copy_from_slice(&26_u16.to_be_bytes());
    frame[40..42].fill(0);
    frame[24..26].fill(0);
    let mut sum: u32 =
        frame[14..34].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    frame[24..26].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    frame.try_into().expect("the length of a small frame")
}

fn port(number: u16) -> BridgePort {
    BridgePort {
        index: PortIndex(number),
        description: PortDescription {
            number: PortNumber(number.into()),
            hardware_address: [2, 0, 0, 0, 0, number as u8],
            name: format!("p{number}"),
            config: 0,
            state: 0,
            current_speed_kbit: 0,
            max_speed_kbit: 0,
        },
    }
}

const FORWARD: &str = "mod_dl_src:02:ac:10:ff:01:01,mod_dl_dst:de:75:cc:e1:c6:85,output:2";
const MASKS: u32 = 16;
const SIZES: [u32; 4] = [1, 1024, 65_536, 262_144];
const LENGTH: usize = 60;
/// Packets per run. The kernel counts processor time in steps of 4 ms, which is 2 ns per packet of
/// a run.
const PACKETS: usize = 1 << 21;
const ROUNDS: usize = 5;
