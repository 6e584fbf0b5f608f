//! CAQM's core in the native build, and the calls that simulated connections make.
#![allow(unsafe_code)]

use crate::step::{Core, Step};
use cc::Algorithm;
use link::LinkConfig;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use sim::{CaqmHosts, Demand, Dumbbell, FlowSpec, TcpConfig, World, WorldConfig};
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;
use units::{Bytes, Span, Time};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Caqm {}

impl Core for Caqm {
    const NAME: &'static str = "caqm";
    const PROGRAM: &'static [u8] = include_bytes!(concat!(env!("OUT_DIR"), "/caqm_parity.bpf.o"));
    const INIT: u32 = 0;

    fn size() -> usize {
        // SAFETY: the function reads no memory.
        unsafe { weir_caqm_parity_size() as usize }
    }

    fn input_words() -> Range<usize> {
        // SAFETY: the function reads no memory.
        let both = unsafe { weir_caqm_parity_told() };
        (both >> 32) as usize..(both & u64::from(u32::MAX)) as usize
    }

    fn result() -> usize {
        Self::input_words().end
    }

    unsafe fn take(step: *mut u8) {
        // SAFETY: the caller passes a complete step, as [`Core::take`] demands.
        unsafe { weir_caqm_parity_take(step) }
    }
}

/// Records the calls of simulated connections: over ports with CAQM and without, with loss and
/// pauses.
pub(crate) fn from_worlds() -> Vec<Step<Caqm>> {
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
    // With a trusted path, senders send requests even if their packets are lost.
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

/// Draws a call for random sequences.
pub(crate) fn any_call(random: &mut Pcg64Mcg) -> u32 {
    match random.random_range(0..64) {
        0 => Caqm::INIT,
        _ => random.random_range(1..CALLS as u32),
    }
}

/// The number of calls, from `enum caqm_call` of bpf/caqm_parity.h.
pub(crate) const CALLS: usize = 10;
pub(crate) const TIMEOUT: usize = 4;
pub(crate) const UNDO: usize = 6;

thread_local! {
    static RECORD: RefCell<Option<Vec<Step<Caqm>>>> = const { RefCell::new(None) };
}

/// tests/parity/caqm_native.c calls this function before each call of CAQM.
#[unsafe(no_mangle)]
extern "C" fn weir_caqm_parity_record(step: *const u8) {
    RECORD.with_borrow_mut(|record| {
        if let Some(record) = record {
            // SAFETY: caqm_native.c passes a whole `struct caqm_step` with each byte initialised.
            let bytes = unsafe { std::slice::from_raw_parts(step, Caqm::size()) };
            record.push(Step::from_bytes(bytes));
        }
    });
}

unsafe extern "C" {
    fn weir_caqm_parity_size() -> u64;
    fn weir_caqm_parity_told() -> u64;
    fn weir_caqm_parity_take(step: *mut u8);
}
