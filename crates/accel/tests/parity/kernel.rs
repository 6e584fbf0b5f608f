//! Runs a core in the kernel, with batches of steps.

use crate::step::{Core, Step};
use accel::AccelError;
use accel::object::{Loaded, Spec};
use libbpf_rs::{MapCore, MapFlags, ProgramInput};
use std::marker::PhantomData;

#[derive(Debug)]
pub(crate) struct Kernel<C> {
    loaded: Loaded,
    core: PhantomData<C>,
}

impl<C: Core> Kernel<C> {
    pub(crate) fn load() -> Result<Self, AccelError> {
        accel::kernel::interface()?;
        let loaded = Spec::open("a parity test's program", C::PROGRAM)?.load()?;
        let size = loaded.map("steps").unwrap().value_size() as usize;
        assert_eq!(size, C::size(), "the two builds have structs of different sizes");
        Ok(Self { loaded, core: PhantomData })
    }

    /// Takes the steps in both builds, and compares every decision and every byte of the state.
    pub(crate) fn compare(&self, name: &str, steps: &[Step<C>]) {
        for (batch, steps) in steps.chunks(BATCH).enumerate() {
            for (index, (step, answer)) in steps.iter().zip(self.take(steps)).enumerate() {
                let at = batch * BATCH + index;
                assert_eq!(answer.result(), step.taken().result(), "{name} step {at}: {step:?}");
            }
        }
    }

    /// Takes the steps, at most [`BATCH`], in the kernel, and returns the steps with their results.
    fn take(&self, steps: &[Step<C>]) -> Vec<Step<C>> {
        let map = self.loaded.map("steps").unwrap();
        for (key, step) in (0_u32..).zip(steps) {
            map.update(&key.to_ne_bytes(), step.bytes(), MapFlags::ANY).unwrap();
        }
        // `struct parity_order`: the number of steps, and the number taken.
        let mut order = [0_u8; 8];
        order[..4].copy_from_slice(&(steps.len() as u32).to_ne_bytes());
        let input = ProgramInput { context_in: Some(&mut order), ..ProgramInput::default() };
        self.loaded.program("parity").unwrap().test_run(input).unwrap();
        assert_eq!(order[..4], order[4..], "the kernel did not take every step");
        let key = |index: usize| (index as u32).to_ne_bytes();
        let lookup = |index| map.lookup(&key(index), MapFlags::ANY).unwrap().unwrap();
        (0..steps.len()).map(|index| Step::from_bytes(&lookup(index))).collect()
    }
}

/// PARITY_BATCH of bpf/parity_steps.h.
const BATCH: usize = 4096;
