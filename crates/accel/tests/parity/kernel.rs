//! The core in the kernel, in batches.

use crate::native::Step;
use accel::AccelError;
use accel::object::{Loaded, Spec};
use libbpf_rs::{MapCore, MapFlags, ProgramInput};

#[derive(Debug)]
pub(crate) struct Kernel {
    loaded: Loaded,
}

impl Kernel {
    pub(crate) fn load() -> Result<Self, AccelError> {
        accel::kernel::interface()?;
        let elf = include_bytes!(concat!(env!("OUT_DIR"), "/parity.bpf.o"));
        Ok(Self { loaded: Spec::open("the parity test's program", elf)?.load()? })
    }

    pub(crate) fn step_size(&self) -> usize {
        self.loaded.map("steps").unwrap().value_size() as usize
    }

    /// The steps after they were taken, at most [`BATCH`].
    pub(crate) fn take(&self, steps: &[Step]) -> Vec<Step> {
        assert!(steps.len() <= BATCH);
        let map = self.loaded.map("steps").unwrap();
        for (key, step) in (0_u32..).zip(steps) {
            map.update(&key.to_ne_bytes(), step.bytes(), MapFlags::ANY).unwrap();
        }
        // `struct parity_order`: how many, and how many it took.
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

/// PARITY_BATCH of bpf/parity.bpf.c.
pub(crate) const BATCH: usize = 4096;
