//! What the two builds are fed.

use crate::native::{Call, Step, recorded};
use link::LinkConfig;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use sim::{Demand, Dumbbell, FlowSpec, TcpConfig, World, WorldConfig};
use std::sync::Arc;
use units::{Bytes, Span, Time};

/// Everything that connections of tcpa ask in worlds that between them bring every kind of trouble.
pub(crate) fn from_worlds() -> Vec<Step> {
    let mut steps = Vec::new();
    for (number, world) in WORLDS.iter().enumerate() {
        steps.extend(recorded(|| world.run(number as u64 + 1)));
    }
    steps
}

/// Recorded sequences in which some of what the core is told was changed.
pub(crate) fn changed(recorded: &[Step], count: usize) -> Vec<Step> {
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let mut steps = Vec::with_capacity(count);
    while steps.len() < count {
        let from = random.random_range(0..recorded.len());
        let length = random.random_range(1..40).min(recorded.len() - from).min(count - steps.len());
        let mut before: Option<Step> = None;
        for original in &recorded[from..from + length] {
            let mut step = match &before {
                Some(before) => before.follow(original),
                None => original.clone(),
            };
            step.set_told(|word| match random.random_range(0..40) {
                0 => absurd(&mut random),
                1 => word ^ (1 << random.random_range(0..32)),
                2 => word.wrapping_add(random.random_range(0..2000)),
                _ => word,
            });
            before = Some(step.taken());
            steps.push(step);
        }
    }
    steps
}

/// Sequences of calls without any sense.
pub(crate) fn senseless(count: usize) -> Vec<Step> {
    let mut random = Pcg64Mcg::seed_from_u64(2);
    let mut steps = Vec::with_capacity(count);
    let mut before: Option<Step> = None;
    while steps.len() < count {
        let call = match random.random_range(0..64) {
            0 => Call::Init,
            1 => Call::Timeout,
            2 => Call::Idle,
            3 => Call::Note,
            _ => Call::Ack,
        };
        let mut step = match &before {
            Some(before) => before.follow(&Step::new(call)),
            None => Step::new(Call::Init),
        };
        step.set_told(|_| absurd(&mut random));
        before = Some(step.taken());
        steps.push(step);
    }
    steps
}

/// The numbers at which programs go wrong, and any other.
pub(crate) fn absurd(random: &mut Pcg64Mcg) -> u32 {
    const EDGES: [u32; 14] = [
        0,
        1,
        2,
        3,
        1447,
        1448,
        65_535,
        65_536,
        10_000_000,
        1 << 30,
        (1 << 31) - 1,
        1 << 31,
        u32::MAX - 1,
        u32::MAX,
    ];
    match random.random_range(0..4) {
        0 | 1 => EDGES[random.random_range(0..EDGES.len())],
        2 => random.random_range(0..100_000),
        _ => random.random(),
    }
}

/// A bottleneck and what goes over it.
struct Trouble {
    rate: &'static str,
    delay: &'static str,
    queue: &'static str,
    loss: &'static str,
    jitter: &'static str,
    /// Beside the flows of tcpa.
    other: Option<cc::Algorithm>,
    flows: usize,
    demand: Demand,
    /// What earlier connections found, of what the path carries.
    remembered: Option<u64>,
}

impl Trouble {
    fn run(&self, seed: u64) {
        let delay: Span = self.delay.parse().unwrap();
        let access = LinkConfig { delay, ..LinkConfig::default() };
        let bottleneck = LinkConfig {
            rate: self.rate.parse().unwrap(),
            queue: self.queue.parse().unwrap(),
            loss: self.loss.parse().unwrap(),
            jitter: self.jitter.parse().unwrap(),
            ..LinkConfig::default()
        };
        let count = self.flows + usize::from(self.other.is_some());
        let shape = Dumbbell::new(&vec![access; count], &bottleneck, &LinkConfig::default());
        let (rate, round_trip) = (bottleneck.rate.mean_rate().unwrap(), delay * 4);
        let memory = self.remembered.map(|times| cc::Memory {
            rate: units::Rate::from_bits_per_second(rate.bits_per_second() * times),
            min_rtt: round_trip,
            age: Span::ZERO,
        });
        let hosts = Arc::new(TcpConfig { memory, ..TcpConfig::default() });
        let algorithms = std::iter::repeat_n(cc::Algorithm::Tcpa, self.flows).chain(self.other);
        let flows = algorithms.enumerate().map(|(i, algorithm)| {
            let (from, to) = (shape.senders[i], shape.receivers[i]);
            FlowSpec::tcp(from, to, algorithm, self.demand, Arc::clone(&hosts))
                .starting(Time::ZERO + Span::from_millis(300 * i as u64))
        });
        let config =
            WorldConfig { seed, until: Time::ZERO + Span::from_secs(12), ..WorldConfig::default() };
        World::new(&shape.topology, flows.collect(), config).unwrap().run();
    }
}

const PLAIN: Trouble = Trouble {
    rate: "20mbit",
    delay: "10ms",
    queue: "droptail:100KB",
    loss: "0%",
    jitter: "0ms",
    other: None,
    flows: 1,
    demand: Demand::Bulk,
    remembered: None,
};

const WORLDS: [Trouble; 12] = [
    PLAIN,
    Trouble { loss: "1%", ..PLAIN },
    Trouble { loss: "gilbert:p=1%,r=20%,h=0%,k=100%", delay: "50ms", ..PLAIN },
    // Timeouts.
    Trouble { loss: "40%", rate: "2mbit", ..PLAIN },
    Trouble { queue: "droptail:6p", flows: 2, ..PLAIN },
    Trouble { queue: "droptail:1MB", other: Some(cc::Algorithm::Cubic), ..PLAIN },
    Trouble { jitter: "3ms,normal", flows: 2, ..PLAIN },
    // Silence in between.
    Trouble {
        demand: Demand::Pieces { size: Bytes::new(60_000), every: Span::from_millis(1500) },
        ..PLAIN
    },
    // Careful resume, with a memory that holds and with those that do not.
    Trouble { remembered: Some(1), delay: "50ms", ..PLAIN },
    Trouble { remembered: Some(10), queue: "droptail:1MB", ..PLAIN },
    Trouble { remembered: Some(3), loss: "2%", delay: "50ms", ..PLAIN },
    Trouble { queue: "codel", demand: Demand::Size(Bytes::new(3_000_000)), flows: 3, ..PLAIN },
];
