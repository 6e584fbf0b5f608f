//! CAQM's core in both builds.
#![allow(unsafe_code)]

use crate::sequences::absurd;
use accel::AccelError;
use accel::object::{Loaded, Spec};
use cc::Algorithm;
use libbpf_rs::{MapCore, MapFlags, ProgramInput};
use link::LinkConfig;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use sim::{CaqmHosts, Demand, Dumbbell, FlowSpec, TcpConfig, World, WorldConfig};
use std::cell::RefCell;
use std::sync::Arc;
use units::{Bytes, Span, Time};

/// `struct caqm_step`, 8-byte aligned; what its bytes mean only the C headers know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step(Vec<u64>);

impl Step {
    fn new(call: u32) -> Self {
        let mut step = Self(vec![0; size() / 8]);
        step.set_call(call);
        step
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let (words, _) = bytes.as_chunks::<8>();
        Self(words.iter().map(|word| u64::from_ne_bytes(*word)).collect())
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn set_call(&mut self, call: u32) {
        let mut bytes = self.bytes();
        bytes[..4].copy_from_slice(&call.to_ne_bytes());
        *self = Self::from_bytes(&bytes);
    }

    pub(crate) fn call(&self) -> usize {
        (self.0[0] & u64::from(u32::MAX)) as usize
    }

    /// What the core is told, as 32-bit words.
    fn set_told(&mut self, mut word: impl FnMut(u32) -> u32) {
        let mut bytes = self.bytes();
        let (from, to) = told();
        for place in bytes[from..to].chunks_exact_mut(4) {
            let old = u32::from_ne_bytes([place[0], place[1], place[2], place[3]]);
            place.copy_from_slice(&word(old).to_ne_bytes());
        }
        *self = Self::from_bytes(&bytes);
    }

    /// The states and the decision.
    pub(crate) fn result(&self) -> &[u64] {
        &self.0[told().1 / 8..]
    }

    /// Another's call, from this one's end.
    fn follow(&self, next: &Self) -> Self {
        let mut step = next.clone();
        let from = told().1 / 8;
        step.0[from..].copy_from_slice(&self.0[from..]);
        step
    }

    /// The same after it was taken natively.
    pub(crate) fn taken(&self) -> Self {
        let mut step = self.clone();
        // SAFETY: as large and as aligned as the struct; the core keeps no pointer to it.
        unsafe { weir_caqm_parity_take(step.0.as_mut_ptr().cast()) };
        step
    }
}

/// The core in the kernel, in batches.
#[derive(Debug)]
pub(crate) struct Kernel(Loaded);

impl Kernel {
    pub(crate) fn load() -> Result<Self, AccelError> {
        accel::kernel::interface()?;
        let elf = include_bytes!(concat!(env!("OUT_DIR"), "/caqm_parity.bpf.o"));
        let kernel = Self(Spec::open("the parity test's program for caqm", elf)?.load()?);
        let in_kernel = kernel.0.map("steps").unwrap().value_size() as usize;
        assert_eq!(in_kernel, size(), "the builds do not agree about the structs");
        Ok(kernel)
    }

    pub(crate) fn take(&self, steps: &[Step]) -> Vec<Step> {
        let map = self.0.map("steps").unwrap();
        for (key, step) in (0_u32..).zip(steps) {
            map.update(&key.to_ne_bytes(), &step.bytes(), MapFlags::ANY).unwrap();
        }
        // `struct parity_order`: how many, and how many it took.
        let mut order = [0_u8; 8];
        order[..4].copy_from_slice(&(steps.len() as u32).to_ne_bytes());
        let input = ProgramInput { context_in: Some(&mut order), ..ProgramInput::default() };
        self.0.program("parity").unwrap().test_run(input).unwrap();
        assert_eq!(order[..4], order[4..], "the kernel did not take every step");
        let taken = (0..steps.len() as u32)
            .map(|key| map.lookup(&key.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap());
        taken.map(|bytes| Step::from_bytes(&bytes)).collect()
    }
}

/// What simulated connections ask of it: over ports that speak and ports that do not, with loss and pauses.
pub(crate) fn from_worlds() -> Vec<Step> {
    RECORD.with_borrow_mut(|record| *record = Some(Vec::new()));
    for (number, (queue, loss, demand)) in [
        ("caqm:143KB", "0%", Demand::Bulk),
        ("caqm:0KB", "0%", Demand::Bulk),
        ("caqm:143KB", "1%", Demand::Bulk),
        ("droptail:60KB", "0%", Demand::Bulk),
        ("caqm:143KB", "30%", Demand::Size(Bytes::new(300_000))),
        (
            "caqm:143KB",
            "0%",
            Demand::Pieces { size: Bytes::new(60_000), every: Span::from_millis(1500) },
        ),
    ]
    .into_iter()
    .enumerate()
    {
        run(queue, loss, demand, number as u64 + 1);
    }
    RECORD.take().unwrap_or_default()
}

fn run(queue: &str, loss: &str, demand: Demand, seed: u64) {
    let bottleneck = LinkConfig {
        rate: "200mbit".parse().unwrap(),
        queue: queue.parse().unwrap(),
        loss: loss.parse().unwrap(),
        jitter: "100us,normal".parse().unwrap(),
        ..LinkConfig::default()
    };
    let delay = Span::from_millis(2);
    let access = LinkConfig { delay, ..LinkConfig::default() };
    let shape = Dumbbell::new(&vec![access; 2], &bottleneck, &LinkConfig::default());
    let mut caqm = CaqmHosts::default();
    caqm.settings.rtt_standard_us = 8000;
    // So that loss is seen by senders that ask, too.
    caqm.trusts_path = true;
    let hosts = Arc::new(TcpConfig { caqm, ..TcpConfig::default() });
    let flows = (0..2).map(|i| {
        let (from, to) = (shape.senders[i], shape.receivers[i]);
        FlowSpec::tcp(from, to, Algorithm::Caqm, demand, Arc::clone(&hosts))
            .starting(Time::ZERO + Span::from_millis(300 * i as u64))
    });
    let config =
        WorldConfig { seed, until: Time::ZERO + Span::from_secs(5), ..WorldConfig::default() };
    World::new(&shape.topology, flows.collect(), config).unwrap().run();
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
    let mut steps: Vec<Step> = Vec::with_capacity(count);
    let mut before = Step::new(INIT).taken();
    while steps.len() < count {
        let call = match random.random_range(0..64) {
            0 => INIT,
            _ => random.random_range(1..CALLS as u32),
        };
        let mut step = before.follow(&Step::new(call));
        step.set_told(|_| absurd(&mut random));
        before = step.taken();
        steps.push(step);
    }
    steps
}

fn size() -> usize {
    // SAFETY: reads nothing.
    unsafe { weir_caqm_parity_size() as usize }
}

/// Where what the core is told begins, and where it ends.
fn told() -> (usize, usize) {
    // SAFETY: reads nothing.
    let both = unsafe { weir_caqm_parity_told() };
    ((both >> 32) as usize, (both & u64::from(u32::MAX)) as usize)
}

thread_local! {
    static RECORD: RefCell<Option<Vec<Step>>> = const { RefCell::new(None) };
}

/// Called by tests/parity/caqm_native.c before each call of the core.
#[unsafe(no_mangle)]
extern "C" fn weir_caqm_parity_record(step: *const u8) {
    RECORD.with_borrow_mut(|record| {
        if let Some(record) = record {
            // SAFETY: caqm_native.c hands over a whole `struct caqm_step`, zeroed before it was filled.
            let bytes = unsafe { std::slice::from_raw_parts(step, size()) };
            record.push(Step::from_bytes(bytes));
        }
    });
}

unsafe extern "C" {
    fn weir_caqm_parity_size() -> u64;
    fn weir_caqm_parity_told() -> u64;
    fn weir_caqm_parity_take(step: *mut u8);
}

/// `enum caqm_call`
const INIT: u32 = 0;
pub(crate) const CALLS: usize = 10;
pub(crate) const BATCH: usize = 4096;
