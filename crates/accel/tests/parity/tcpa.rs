//! tcpa's core in the native build, and the calls that simulated connections make.
#![allow(unsafe_code)]

use crate::step::{Core, Step};
use link::{Capacity, LinkConfig, Trace};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use sim::{Demand, Dumbbell, FlowSpec, TcpConfig, World, WorldConfig};
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;
use units::{Bytes, Span, Time};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Tcpa {}

impl Core for Tcpa {
    const NAME: &'static str = "tcpa";
    const PROGRAM: &'static [u8] = include_bytes!(concat!(env!("OUT_DIR"), "/parity.bpf.o"));
    const INIT: u32 = Call::Init as u32;

    fn size() -> usize {
        // SAFETY: the function reads no memory.
        unsafe { weir_parity_size() as usize }
    }

    fn input_words() -> Range<usize> {
        // SAFETY: the functions read no memory.
        let (from, length) = unsafe { (weir_parity_told_offset(), weir_parity_told_size()) };
        from as usize..(from + length) as usize
    }

    fn result() -> usize {
        // SAFETY: the function reads no memory.
        unsafe { weir_parity_result_offset() as usize }
    }

    unsafe fn take(step: *mut u8) {
        // SAFETY: the caller passes a complete step, as [`Core::take`] demands.
        unsafe { weir_parity_take(step) }
    }
}

/// Records all calls of tcpa connections in worlds that together have every kind of impairment.
pub(crate) fn from_worlds() -> Vec<Step<Tcpa>> {
    let mut steps = Vec::new();
    for (number, world) in WORLDS.iter().enumerate() {
        steps.extend(recorded(|| world.run(number as u64 + 1)));
    }
    steps
}

/// Draws a call for random sequences: mostly ACKs.
pub(crate) fn any_call(random: &mut Pcg64Mcg) -> u32 {
    let call = match random.random_range(0..64) {
        0 => Call::Init,
        1 => Call::Timeout,
        2 => Call::Idle,
        3 => Call::Note,
        _ => Call::Ack,
    };
    call as u32
}

/// The calls of tcpa, as in `enum parity_call`.
#[derive(Debug, Clone, Copy)]
enum Call {
    Init,
    Ack,
    Timeout,
    Idle,
    Note,
}

pub(crate) const CALLS: usize = 5;

/// Records the calls of tcpa by connections on this thread during `work`.
fn recorded(work: impl FnOnce()) -> Vec<Step<Tcpa>> {
    RECORD.with_borrow_mut(|record| *record = Some(Vec::new()));
    work();
    RECORD.take().unwrap_or_default()
}

struct Trouble {
    rate: &'static str,
    /// The rate falls to the first number, in Mbit/s, and rises again, each after the second number
    /// of milliseconds.
    falls: Option<(u64, u64)>,
    delay: &'static str,
    queue: &'static str,
    loss: &'static str,
    jitter: &'static str,
    /// Congestion control of a competing flow; `None` without such a flow.
    other: Option<cc::Algorithm>,
    flows: usize,
    demand: Demand,
    /// Earlier connections' estimate, relative to the path's rate.
    remembered: Option<u64>,
}

impl Trouble {
    fn run(&self, seed: u64) {
        let delay: Span = self.delay.parse().unwrap();
        let access = LinkConfig { delay, ..LinkConfig::default() };
        let mut rate: Capacity = self.rate.parse().unwrap();
        if let Some((low, each)) = self.falls {
            let (high, each) = (rate.mean_rate().unwrap(), Span::from_millis(each));
            let rates = [(high, each), (units::Rate::from_mbit(low), each)];
            rate = Capacity::Trace(Arc::new(Trace::of_rates(&rates).unwrap()));
        }
        let bottleneck = LinkConfig {
            rate,
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
    falls: None,
    delay: "10ms",
    queue: "droptail:100KB",
    loss: "0%",
    jitter: "0ms",
    other: None,
    flows: 1,
    demand: Demand::Bulk,
    remembered: None,
};

const WORLDS: [Trouble; 14] = [
    PLAIN,
    Trouble { falls: Some((1, 1000)), ..PLAIN },
    Trouble { falls: Some((1, 250)), ..PLAIN },
    Trouble { loss: "1%", ..PLAIN },
    Trouble { loss: "gilbert:p=1%,r=20%,h=0%,k=100%", delay: "50ms", ..PLAIN },
    // These worlds have timeouts.
    Trouble { loss: "40%", rate: "2mbit", ..PLAIN },
    Trouble { queue: "droptail:6p", flows: 2, ..PLAIN },
    Trouble { queue: "droptail:1MB", other: Some(cc::Algorithm::Cubic), ..PLAIN },
    Trouble { jitter: "3ms,normal", flows: 2, ..PLAIN },
    // These worlds have idle periods.
    Trouble {
        demand: Demand::Pieces { size: Bytes::new(60_000), every: Span::from_millis(1500) },
        ..PLAIN
    },
    // In these worlds flows resume at a remembered rate, which is correct or wrong.
    Trouble { remembered: Some(1), delay: "50ms", ..PLAIN },
    Trouble { remembered: Some(10), queue: "droptail:1MB", ..PLAIN },
    Trouble { remembered: Some(3), loss: "2%", delay: "50ms", ..PLAIN },
    Trouble { queue: "codel", demand: Demand::Size(Bytes::new(3_000_000)), flows: 3, ..PLAIN },
];

thread_local! {
    static RECORD: RefCell<Option<Vec<Step<Tcpa>>>> = const { RefCell::new(None) };
}

/// tests/parity/native.c calls this function before each call of tcpa.
#[unsafe(no_mangle)]
extern "C" fn weir_parity_record(step: *const u8) {
    RECORD.with_borrow_mut(|record| {
        if let Some(record) = record {
            // SAFETY: native.c passes a whole `struct parity_step`, and has initialised each byte.
            let bytes = unsafe { std::slice::from_raw_parts(step, Tcpa::size()) };
            record.push(Step::from_bytes(bytes));
        }
    });
}

unsafe extern "C" {
    fn weir_parity_size() -> u64;
    fn weir_parity_told_offset() -> u64;
    fn weir_parity_told_size() -> u64;
    fn weir_parity_result_offset() -> u64;
    fn weir_parity_take(step: *mut u8);
}
