//! `--profile DIR`: samples the stacks of this machine during a test.

use anyhow::{Context, bail};
use probe::profile::{INTERVAL, KernelNames, Profiler};
use report::profile::{Profile, SystemProfile};
use std::ops::Range;
use units::Time;

#[derive(Debug)]
pub(super) struct Profiling {
    names: KernelNames,
    profiler: Profiler,
}

impl Profiling {
    /// Starts sampling. Fails if this machine or this user has no perf events.
    pub(super) fn start() -> anyhow::Result<Self> {
        let names = KernelNames::read().context(FLAG)?;
        let profiler = Profiler::start(&names).context(FLAG)?;
        if names.is_empty() {
            bail!(
                "{FLAG}: the kernel hides the addresses of its functions: run as root, or set \
                 kernel.kptr_restrict to 0"
            );
        }
        Ok(Self { names, profiler })
    }

    /// Ends sampling. Stacks outside of the measured `window` do not count.
    pub(super) fn stop(self, window: Range<Time>) -> Profile {
        let taken = self.profiler.stop(&self.names);
        let mut here = SystemProfile {
            system: HERE.to_owned(),
            interval: INTERVAL,
            observed: window.end.since(window.start),
            lost: taken.lost,
            ..SystemProfile::default()
        };
        for sample in taken.samples.iter().filter(|sample| window.contains(&sample.taken)) {
            here.add(sample.cpu, &sample.frames);
        }
        Profile { systems: vec![here], cost: COST.to_owned() }
    }
}

const FLAG: &str = "--profile";
const HERE: &str = "this-machine";
const COST: &str = "Sampling went on during the whole test, so the figures include its cost.";
