use super::{End, Flow, View};
use std::collections::BTreeSet;

/// The cores that may work for a connection; `None` stands for every core.
#[derive(Debug)]
pub struct FlowCores {
    runs: Option<BTreeSet<usize>>,
    processed: Option<BTreeSet<usize>>,
}

impl FlowCores {
    /// Whether a thread of the connection may run on the core, or its packets may be processed on
    /// it.
    pub fn may_use(&self, core: usize) -> bool {
        self.runs.as_ref().is_none_or(|cores| cores.contains(&core))
            || self.may_be_processed_on(core)
    }

    /// Returns `false` if the device's interrupts go to other cores, and no steering brings the
    /// flow's packets to this core.
    pub fn may_be_processed_on(&self, core: usize) -> bool {
        self.processed.as_ref().is_none_or(|cores| cores.contains(&core))
    }
}

impl Flow<'_> {
    /// Returns the cores that may work for the connection.
    pub fn cores(&self, view: &View<'_>) -> FlowCores {
        FlowCores { runs: self.runs(view), processed: self.processed(view) }
    }

    fn processed(&self, view: &View<'_>) -> Option<BTreeSet<usize>> {
        let device = self.interface().and_then(|name| view.machine().interfaces.get(name));
        // A virtual device has no interrupts: its packets are processed on the core that sent them.
        let device = device.filter(|device| !device.interrupts.is_empty())?;
        if device.interrupts.iter().any(|one| one.cores.is_empty()) {
            return None;
        }
        let receives = device.queues.iter().filter(|(name, _)| name.starts_with("rx-"));
        let steered = receives.flat_map(|(_, queue)| &queue.cores);
        let interrupted = device.interrupts.iter().flat_map(|one| &one.cores);
        Some(interrupted.chain(steered).copied().collect())
    }

    /// Returns the cores of the flow's busy threads.
    fn runs(&self, view: &View<'_>) -> Option<BTreeSet<usize>> {
        let ends = [&self.sender, &self.receiver].into_iter().flatten();
        let pids: BTreeSet<u32> = ends.flat_map(|end: &End<'_>| end.pids()).collect();
        let is_busy = |cpu: f64, waited: Option<f64>| cpu + waited.unwrap_or(0.0) >= TIME;
        let tasks = view.tasks.iter().filter(|task| pids.contains(&task.pid));
        let busy = tasks.filter(|task| is_busy(task.cpu, task.waited));
        let places: Option<BTreeSet<usize>> = busy.map(|task| task.place()).collect();
        places.filter(|places| !places.is_empty())
    }
}

/// Minimum utilisation of a core by a busy thread.
const TIME: f64 = 0.02;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::InterruptPlace;
    use crate::rules::sketch::Sketch;

    fn uses(sketch: &Sketch) -> [bool; 2] {
        let recording = sketch.recording();
        let view = View::of(recording, &recording.periods[0]).unwrap();
        let cores = view.flows[0].cores(&view);
        [0, 1].map(|core| cores.may_use(core))
    }

    #[test]
    fn a_flow_uses_the_cores_of_its_threads_and_interrupts() {
        let interrupts_on = |core| {
            Sketch::new().interface(|eth0| {
                eth0.interrupts = vec![InterruptPlace { cores: vec![core], ..Default::default() }];
                eth0.queues.clear();
            })
        };
        // The threads of the sketch run on core 0.
        assert_eq!(uses(&interrupts_on(0)), [true, false]);
        assert_eq!(uses(&interrupts_on(1)), [true, true]);
        let steered = interrupts_on(0).interface(|eth0| {
            eth0.queues.entry("rx-0".to_owned()).or_default().cores = vec![1];
        });
        assert_eq!(uses(&steered), [true, true]);
        let moves = interrupts_on(0).each(|at, sample| {
            sample.tasks.iter_mut().for_each(|task| task.core = Some(at as usize % 2));
        });
        assert_eq!(uses(&moves), [true, true]);
        // A virtual device has no interrupts.
        let virtual_one = Sketch::new().interface(|eth0| eth0.interrupts.clear());
        assert_eq!(uses(&virtual_one), [true, true]);
    }
}
