//! Limits a recording to a part of the machine's cores: the cores of a board, a container or a
//! connection.

use super::{Period, Recording, Task};
use crate::DoctorError;
use crate::words;
use std::collections::{BTreeMap, BTreeSet};

impl Recording {
    /// Leaves out all other cores, and the threads that ran on them.
    pub fn limit_to(&mut self, chosen: &BTreeSet<usize>) -> Result<(), DoctorError> {
        let known = &mut self.machine.cores;
        check(chosen, known)?;
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
        self.periods.iter_mut().for_each(|period| period.limit_to(chosen));
        Ok(())
    }
}

/// Checks that at least one chosen core is a core of the machine.
pub fn check(chosen: &BTreeSet<usize>, known: &[usize]) -> Result<(), DoctorError> {
    if known.iter().any(|core| chosen.contains(core)) {
        return Ok(());
    }
    let chosen: Vec<_> = chosen.iter().copied().collect();
    Err(DoctorError::NoSuchCores {
        chosen: words::cores(&chosen),
        known: match known {
            [] => "the machine's CPUs were not seen; leave --cpus out".to_owned(),
            known => format!("the CPUs are {}; name some of these", words::cores(known)),
        },
    })
}

impl Period {
    fn limit_to(&mut self, chosen: &BTreeSet<usize>) {
        let elsewhere = self.elsewhere(chosen);
        let stays = |task: &Task| !elsewhere.contains(&key(task));
        for sample in &mut self.samples {
            sample.cores.retain(|core, _| chosen.contains(core));
            sample.softnet.retain(|core, _| chosen.contains(core));
            sample.net_rx.retain(|core, _| chosen.contains(core));
            sample.tasks.retain(stays);
            sample.processes.retain(stays);
        }
    }

    /// Returns the threads and processes that may not use these cores, or that mostly ran on other
    /// cores. A task whose core is unknown does not count.
    fn elsewhere(&self, chosen: &BTreeSet<usize>) -> BTreeSet<Key> {
        let mut seen = BTreeMap::<Key, Places>::new();
        for task in self.samples.iter().flat_map(|one| one.tasks.iter().chain(&one.processes)) {
            let places = seen.entry(key(task)).or_default();
            if let Some(core) = task.core {
                match chosen.contains(&core) {
                    true => places.here += 1,
                    false => places.elsewhere += 1,
                }
            }
            // The cores of a process are the cores of its first thread.
            let is_known = task.tid != 0 || task.core.is_some();
            if let Some(allowed) = task.allowed.as_ref().filter(|_| is_known) {
                places.is_barred = !allowed.iter().any(|core| chosen.contains(core));
            }
        }
        let is_elsewhere = |places: &Places| places.is_barred || places.elsewhere > places.here;
        seen.into_iter().filter(|(_, places)| is_elsewhere(places)).map(|(key, _)| key).collect()
    }
}

/// Distinguishes a task from other tasks with the same number.
type Key = (u32, u32, u64);

fn key(task: &Task) -> Key {
    (task.pid, task.tid, task.started)
}

/// The number of samples in which a task was on a chosen core, and on another core.
#[derive(Debug, Default)]
struct Places {
    here: u32,
    elsewhere: u32,
    /// The task may run on none of the chosen cores.
    is_barred: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{CoreTimes, Interface, Machine, Queue, Sample, Softnet};

    fn task(pid: u32, core: Option<usize>) -> Task {
        Task { pid, core, ..Task::default() }
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
        // Task 1 is on core 0, task 2 on core 1, task 3 mostly on core 1; task 4 has no known core.
        let places = |core| vec![task(1, Some(0)), task(2, Some(1)), task(3, core), task(4, None)];
        // Only the last sample has the cores that a process may use. The core of task 6 is unknown.
        let barred = |allowed: Option<Vec<usize>>| {
            let threads = Task { allowed: allowed.clone(), ..task(6, None) };
            vec![Task { allowed, ..task(5, Some(0)) }, threads]
        };
        let moments = [(Some(1), None), (Some(0), None), (Some(1), Some(vec![1]))];
        let samples = moments.map(|(core, allowed)| Sample {
            tasks: places(core),
            processes: barred(allowed),
            ..sample.clone()
        });
        recording.periods.push(Period { samples: samples.to_vec(), ..Period::default() });
        recording.limit_to(&BTreeSet::from([0])).unwrap();
        assert_eq!(recording.machine.cores, [0]);
        assert_eq!(recording.machine.interfaces["eth0"].queues["rx-0"].cores, [0]);
        for sample in &recording.periods[0].samples {
            assert_eq!(sample.cores.keys().collect::<Vec<_>>(), [&0]);
            assert_eq!((sample.softnet.len(), sample.net_rx.len()), (1, 1));
            assert_eq!(sample.tasks, [task(1, Some(0)), task(4, None)]);
            assert_eq!(sample.processes.iter().map(|one| one.pid).collect::<Vec<_>>(), [6]);
        }
        let error = recording.limit_to(&BTreeSet::from([4, 5])).unwrap_err().to_string();
        assert!(error.contains("4-5") && error.contains("the CPUs are 0;"), "{error}");
    }
}
