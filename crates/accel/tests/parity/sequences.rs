//! Makes inputs for both builds in addition to the recorded steps.

use crate::step::{Core, Step};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Returns recorded sequences in which some inputs of the calls are changed.
pub(crate) fn changed<C: Core>(recorded: &[Step<C>], count: usize) -> Vec<Step<C>> {
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let mut steps = Vec::with_capacity(count);
    while steps.len() < count {
        let from = random.random_range(0..recorded.len());
        let length = random.random_range(1..40).min(recorded.len() - from).min(count - steps.len());
        let mut before: Option<Step<C>> = None;
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

/// Builds random sequences of calls: the first call sets up a state, and `call` draws the other
/// calls.
pub(crate) fn senseless<C: Core>(
    count: usize,
    mut call: impl FnMut(&mut Pcg64Mcg) -> u32,
) -> Vec<Step<C>> {
    let mut random = Pcg64Mcg::seed_from_u64(2);
    let mut steps: Vec<Step<C>> = Vec::with_capacity(count);
    let mut before: Option<Step<C>> = None;
    while steps.len() < count {
        let mut step = match &before {
            Some(before) => before.follow(&Step::new(call(&mut random))),
            None => Step::new(C::INIT),
        };
        step.set_told(|_| absurd(&mut random));
        before = Some(step.taken());
        steps.push(step);
    }
    steps
}

/// Draws a number, often an edge value of an integer type.
fn absurd(random: &mut Pcg64Mcg) -> u32 {
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
