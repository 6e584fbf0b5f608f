use super::{End, Flow, View};

/// The cores that work for a connection.
impl Flow<'_> {
    /// Whether a thread of the connection may run on the core, or its packets may be processed on
    /// it.
    pub fn may_use(&self, core: usize, view: &View<'_>) -> bool {
        self.may_run_on(core, view) || self.may_be_processed_on(core, view)
    }

    /// Returns `false` if the device's interrupts go to other cores, and no steering brings the
    /// flow's packets to this core.
    pub fn may_be_processed_on(&self, core: usize, view: &View<'_>) -> bool {
        let device = self.interface().and_then(|name| view.machine().interfaces.get(name));
        // A virtual device has no interrupts: its packets are processed on the core that sent them.
        let Some(device) = device.filter(|device| !device.interrupts.is_empty()) else {
            return true;
        };
        let mut receives = device.queues.iter().filter(|(name, _)| name.starts_with("rx-"));
        let mut interrupts = device.interrupts.iter();
        interrupts.any(|one| one.cores.is_empty() || one.cores.contains(&core))
            || receives.any(|(_, queue)| queue.cores.contains(&core))
    }

    /// Returns `false` if the flow's busy threads all run on other cores.
    fn may_run_on(&self, core: usize, view: &View<'_>) -> bool {
        let ends = [&self.sender, &self.receiver].into_iter().flatten();
        let tasks = ends.flat_map(|end: &End<'_>| end.pids()).flat_map(|pid| {
            view.tasks.iter().filter(move |task| {
                task.pid == pid && task.cpu + task.waited.unwrap_or(0.0) >= TIME
            })
        });
        let places: Vec<_> = tasks.map(|task| task.place()).collect();
        places.is_empty() || places.iter().any(|place| place.is_none_or(|place| place == core))
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
        [0, 1].map(|core| view.flows[0].may_use(core, &view))
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
