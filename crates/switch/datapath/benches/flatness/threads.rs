//! Compares several packet threads with one thread, in turns. Each thread has a CPU, a datapath and
//! a looping source; the threads share the tables and the connection table, as in a switch.
//!
//! The CPUs of a machine share caches, memory and sometimes a core, so that even programs without
//! common data slow each other down. As many threads that share the rules alone measure this limit
//! of the machine.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use datapath::conntrack::{Conntrack, Settings as TrackerSettings, ThreadTracker};
use datapath::{BATCH, Callees, Datapath, Settings};
use pipeline::{Tables, Translator};
use port::Frame;
use units::{Span, Time};

use super::{Null, Set, Source, median, packet, processor_nanos, tables};

/// Measures each set with one thread and with `threads` threads. Prints the ratio of the rates, and
/// how a model of cache-line transfers continues for more threads.
pub(super) fn measure<'a>(sets: impl Iterator<Item = &'a Set>, rounds: usize, threads: usize) {
    let cpus = host::online_cpus();
    if threads < 2 || cpus.len() < threads {
        eprintln!(
            "--scale {threads}: this process may use {} CPUs: choose 2 threads or more, and a CPU \
             for each",
            cpus.len()
        );
        std::process::exit(2);
    }
    let transfer = transfer_nanos([cpus[0], cpus[1]]);
    println!("transfer of a cache line between CPUs {} and {}: {transfer:.1} ns", cpus[0], cpus[1]);
    println!(
        "set          flows  Mpps, 1  Mpps, {threads}  ratio (lowest to highest)  apart  of apart  \
         on CPU  ns more  transfers  model 8  model 16"
    );
    for set in sets {
        for flows in FLOWS {
            compare(set, flows, rounds, &cpus[..threads], transfer);
        }
    }
}

fn compare(set: &Set, flows: u32, rounds: usize, cpus: &[usize], transfer: f64) {
    let tables = tables(set, flows);
    let mut groups = [
        Group::new(flows, &cpus[..1], Connections::Shared),
        Group::new(flows, cpus, Connections::Shared),
        Group::new(flows, cpus, Connections::Apart),
    ];
    // Process the first packets of all flows, then warm up.
    groups.iter_mut().for_each(|group| {
        group.turn(&tables);
    });
    let mut rates = [const { Vec::new() }; 3];
    let (mut ratios, mut of_apart) = (Vec::new(), Vec::new());
    let mut on_cpu = f64::INFINITY;
    for round in 0..rounds.max(1) {
        let mut turns = [Turn::default(); 3];
        for place in 0..3 {
            let place = (place + round) % 3;
            turns[place] = groups[place].turn(&tables);
            on_cpu = on_cpu.min(turns[place].on_cpu);
            rates[place].push(turns[place].rate);
        }
        ratios.push(turns[1].rate / turns[0].rate);
        of_apart.push(turns[1].rate / turns[2].rate);
    }
    let threads = cpus.len() as f64;
    let [one, several, apart] = rates.each_mut().map(|rates| median(rates));
    // `median` has sorted the ratios.
    let ratio = median(&mut ratios);
    let (lowest, highest) = (ratios[0], ratios[ratios.len() - 1]);
    let without_sharing = 1000.0 * threads / apart;
    let more = 1000.0 * threads / several - without_sharing;
    let is_tracked = groups[1].lanes[0].table.connections() > 0;
    let model = |others: usize| {
        let growth = transfers(others, is_tracked) / transfers(cpus.len(), is_tracked);
        others as f64 * (1000.0 / one) / (without_sharing + more.max(0.0) * growth)
    };
    println!(
        "{:8} {flows:9} {one:8.2} {several:8.2} {ratio:6.2} ({lowest:.2} to {highest:.2})      \
         {:7.2} {:9.2} {:6.1} % {more:7.1} {:10.2} {:8.1} {:9.1}",
        set.name,
        apart / one,
        median(&mut of_apart),
        100.0 * on_cpu,
        more / transfer,
        model(8),
        model(16),
    );
}

/// The connection tables of a group's threads.
#[derive(Clone, Copy)]
enum Connections {
    /// All threads share a table, as in a switch.
    Shared,
    /// Each thread has a table of its own.
    Apart,
}

/// Packet threads that run at the same time.
struct Group {
    lanes: Vec<Lane>,
    now: Time,
}

/// A packet thread's CPU, source and caches.
struct Lane {
    cpu: usize,
    table: Arc<Conntrack>,
    datapath: Datapath,
    tracker: ThreadTracker,
    source: Source,
}

/// The result of a turn: millions of packets per second of all threads together, and the lowest
/// share of a CPU that a thread got.
#[derive(Clone, Copy, Default)]
struct Turn {
    rate: f64,
    on_cpu: f64,
}

impl Group {
    /// Makes a thread for each CPU. The threads divide the flows among themselves, as the receive
    /// queues of a network card do.
    fn new(flows: u32, cpus: &[usize], connections: Connections) -> Self {
        let settings = TrackerSettings { threads: cpus.len(), ..TrackerSettings::default() };
        let shared = Arc::new(Conntrack::new(&settings));
        let lane = |(place, cpu): (usize, &usize)| {
            let table = match connections {
                Connections::Shared => Arc::clone(&shared),
                Connections::Apart => {
                    Arc::new(Conntrack::new(&TrackerSettings { threads: 1, ..settings.clone() }))
                }
            };
            let own = (0..flows).filter(|flow| *flow as usize % cpus.len() == place);
            Lane {
                cpu: *cpu,
                datapath: Datapath::new(Settings { ticks: host::cycles, ..Settings::default() }),
                tracker: ThreadTracker::new(Arc::clone(&table)),
                table,
                source: Source { bytes: own.map(packet).collect(), next: 0 },
            }
        };
        let lanes = cpus.iter().enumerate().map(lane).collect();
        Self { lanes, now: Time::ZERO }
    }

    /// Runs all threads at the same time.
    fn turn(&mut self, tables: &Tables) -> Turn {
        let (barrier, stop) = (Barrier::new(self.lanes.len() + 1), AtomicBool::new(false));
        let now = self.now;
        let runs: Vec<Run> = std::thread::scope(|scope| {
            let (barrier, stop) = (&barrier, &stop);
            let start = move |lane: &mut Lane| {
                // A panic before the barrier would leave the other threads waiting. A thread that
                // is not pinned shows in the column `on CPU`.
                let _ = host::pin_to(&[lane.cpu]);
                lane.warm_up(tables, now);
                barrier.wait();
                lane.run(tables, now, stop)
            };
            let threads: Vec<_> =
                self.lanes.iter_mut().map(|lane| scope.spawn(move || start(lane))).collect();
            barrier.wait();
            std::thread::sleep(TURN);
            stop.store(true, Ordering::Relaxed);
            threads.into_iter().map(|thread| thread.join().expect("a run")).collect()
        });
        let mut turn = Turn { rate: 0.0, on_cpu: f64::INFINITY };
        for run in &runs {
            turn.rate += 1000.0 * run.packets as f64 / run.nanos as f64;
            turn.on_cpu = turn.on_cpu.min(run.processor_nanos as f64 / run.nanos as f64);
        }
        self.now += Span::from_nanos(runs.iter().map(|run| run.nanos).max().unwrap_or(0));
        turn
    }
}

struct Run {
    packets: u64,
    nanos: u64,
    processor_nanos: u64,
}

impl Lane {
    /// Passes each flow's packet through the switch, so that caches and buffers are warm.
    fn warm_up(&mut self, tables: &Tables, now: Time) {
        let packets = self.source.bytes.len().max(WARM_UP);
        let (mut frames, mut sink) = (Vec::with_capacity(BATCH), Null(0));
        for _ in 0..packets.div_ceil(BATCH) {
            self.batch(tables, now, &mut frames, &mut sink);
        }
    }

    fn run(&mut self, tables: &Tables, began: Time, stop: &AtomicBool) -> Run {
        let (mut frames, mut sink) = (Vec::with_capacity(BATCH), Null(0));
        let (mut now, mut maintained, mut batches) = (began, began, 0_u64);
        let (start, processor) = (Instant::now(), processor_nanos());
        while !stop.load(Ordering::Relaxed) {
            self.batch(tables, now, &mut frames, &mut sink);
            batches += 1;
            if batches.is_multiple_of(BATCHES_PER_READING) {
                now = began + Span::from_nanos(start.elapsed().as_nanos() as u64);
                if now.since(maintained) >= MAINTENANCE {
                    maintained = now;
                    self.table.expire(now);
                    let mut callees = Callees {
                        slow: &mut Translator::new(tables),
                        tracker: &mut self.tracker,
                        sink: &mut sink,
                    };
                    self.datapath.maintain(now, &mut callees);
                }
            }
        }
        let processor_nanos = processor_nanos() - processor;
        let nanos = start.elapsed().as_nanos() as u64;
        assert_eq!(sink.0, batches * BATCH as u64, "lost packets");
        Run { packets: sink.0, nanos, processor_nanos }
    }

    fn batch(&mut self, tables: &Tables, now: Time, frames: &mut Vec<Frame>, sink: &mut Null) {
        self.source.fill(frames);
        let slow = &mut Translator::new(tables);
        let mut callees = Callees { slow, tracker: &mut self.tracker, sink };
        self.datapath.process(1, frames, now, &mut callees);
    }
}

/// Returns the expected number of different connection locks that a batch takes and that another
/// thread had last. Without connection tracking, returns the same number for a single cache line
/// that each batch writes.
///
/// With `threads` threads the connection table has four locks for each thread, and at most 64. The
/// model assumes that the hash spreads the packets of a batch evenly.
fn transfers(threads: usize, is_tracked: bool) -> f64 {
    let locks = if is_tracked { (4 * threads).next_power_of_two().min(64) as f64 } else { 1.0 };
    let used = locks * (1.0 - (1.0 - 1.0 / locks).powi(BATCH as i32));
    used * (threads - 1) as f64 / threads as f64
}

/// Measures how long a write by one CPU takes to reach the other CPU: two threads write a cache
/// line in turns.
fn transfer_nanos(cpus: [usize; 2]) -> f64 {
    let mut rounds: Vec<_> = (0..ROUNDS_OF_TRANSFERS)
        .map(|_| {
            let line = &Line(AtomicU64::new(0));
            let pass = |first: u64| {
                for turn in (first..TRANSFERS).step_by(2) {
                    while line.0.load(Ordering::Acquire) != turn {
                        std::hint::spin_loop();
                    }
                    line.0.store(turn + 1, Ordering::Release);
                }
            };
            let start = Instant::now();
            std::thread::scope(|scope| {
                for (first, cpu) in cpus.into_iter().enumerate() {
                    scope.spawn(move || {
                        let _ = host::pin_to(&[cpu]);
                        pass(first as u64);
                    });
                }
            });
            start.elapsed().as_nanos() as f64 / TRANSFERS as f64
        })
        .collect();
    median(&mut rounds)
}

/// Fills two cache lines, because x86 fetches cache lines in pairs.
#[repr(align(128))]
struct Line(AtomicU64);

const FLOWS: [u32; 3] = [1024, 65_536, 262_144];
/// The kernel counts processor time in steps of 4 ms, which is 1 % of a turn.
const TURN: Duration = Duration::from_millis(400);
const WARM_UP: usize = 1 << 16;
const BATCHES_PER_READING: u64 = 64;
/// The interval at which a packet thread of the switch does its maintenance.
const MAINTENANCE: Span = Span::from_millis(10);
const TRANSFERS: u64 = 1 << 18;
const ROUNDS_OF_TRANSFERS: usize = 7;
