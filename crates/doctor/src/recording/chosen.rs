//! A part of the machine's cores: those that a board, a container or a connection has.

use super::{Recording, Sample, Task};
use crate::DoctorError;
use crate::words;
use std::collections::BTreeSet;

impl Recording {
    /// Leaves out all other cores, and the threads that ran on them.
    pub fn limit_to(&mut self, chosen: &BTreeSet<usize>) -> Result<(), DoctorError> {
        let known = &mut self.machine.cores;
        if !known.iter().any(|core| chosen.contains(core)) {
            let list = |cores: &[usize]| words::cores(cores);
            let chosen: Vec<_> = chosen.iter().copied().collect();
            return Err(DoctorError::NoSuchCores {
                chosen: list(&chosen),
                known: match known.is_empty() {
                    true => "no cores that were seen".to_owned(),
                    false => format!("the cores {}", list(known)),
                },
            });
        }
        known.retain(|core| chosen.contains(core));
        self.machine.clocks.retain(|core, _| chosen.contains(core));
        for interface in self.machine.interfaces.values_mut() {
            for queue in interface.queues.values_mut() {
                queue.cores.retain(|core| chosen.contains(core));
            }
            for interrupt in &mut interface.interrupts {
                interrupt.cores.retain(|core| chosen.contains(core));
            }
        }
        for sample in self.periods.iter_mut().flat_map(|period| &mut period.samples) {
            sample.limit_to(chosen);
        }
        Ok(())
    }
}

impl Sample {
    fn limit_to(&mut self, chosen: &BTreeSet<usize>) {
        self.cores.retain(|core, _| chosen.contains(core));
        self.softnet.retain(|core, _| chosen.contains(core));
        self.net_rx.retain(|core, _| chosen.contains(core));
        // The last core of a thread whose place was not seen is unknown: it stays.
        let is_chosen = |task: &Task| task.core.is_none_or(|core| chosen.contains(&core));
        self.tasks.retain(is_chosen);
        self.processes.retain(is_chosen);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{CoreTimes, Interface, Machine, Period, Queue, Softnet};

    fn task(core: Option<usize>) -> Task {
        Task { core, ..Task::default() }
    }

    #[test]
    fn other_cores_and_their_threads_are_left_out() {
        let mut board = Interface::default();
        board.queues.insert("rx-0".to_owned(), Queue { cores: vec![0, 1], flows: None });
        let mut machine = Machine { cores: vec![0, 1], ..Machine::default() };
        machine.interfaces.insert("eth0".to_owned(), board);
        let mut recording = Recording::new(machine);
        let mut sample = Sample::default();
        for core in [0, 1] {
            sample.cores.insert(core, CoreTimes::default());
            sample.softnet.insert(core, Softnet::default());
            sample.net_rx.insert(core, 7);
        }
        sample.tasks = vec![task(Some(0)), task(Some(1)), task(None)];
        sample.processes = vec![task(Some(1))];
        recording.periods.push(Period { samples: vec![sample], ..Period::default() });
        recording.limit_to(&BTreeSet::from([0])).unwrap();
        assert_eq!(recording.machine.cores, [0]);
        assert_eq!(recording.machine.interfaces["eth0"].queues["rx-0"].cores, [0]);
        let sample = &recording.periods[0].samples[0];
        assert_eq!(sample.cores.keys().collect::<Vec<_>>(), [&0]);
        assert_eq!((sample.softnet.len(), sample.net_rx.len()), (1, 1));
        assert_eq!(sample.tasks, [task(Some(0)), task(None)]);
        assert!(sample.processes.is_empty());
        let error = recording.limit_to(&BTreeSet::from([4, 5])).unwrap_err().to_string();
        assert!(error.contains("4-5") && error.contains("the cores 0"), "{error}");
    }
}
