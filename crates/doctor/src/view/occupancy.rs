use super::{Flow, TaskUse, View};
use std::collections::BTreeSet;

/// The work that fills one core or all cores, in cores' worth of time: the work of a connection,
/// and other work.
#[derive(Debug, Clone, PartialEq)]
pub struct Occupancy<'v, 'a> {
    /// The time of the threads of the connection's ends, including a far end on this machine.
    pub own: f64,
    /// The time of interrupts and softirqs.
    pub network: f64,
    /// The part of `network` that runs in threads of the kernel, for which other threads wait.
    pub network_threads: f64,
    /// The time of the observation itself.
    pub observer: f64,
    /// The time of other programs.
    pub others: f64,
    /// The processes of `others`, the busiest first.
    pub named: Vec<&'v TaskUse<'a>>,
    /// Whether the recording has the processes of the machine. Otherwise [`Self::others`] is all
    /// time that the other fields do not explain.
    pub is_known: bool,
}

impl<'v, 'a> Occupancy<'v, 'a> {
    /// Divides the time of a core among the programs; `core`: `None` stands for all cores.
    pub fn of(flow: &Flow<'_>, view: &'v View<'a>, core: Option<usize>) -> Self {
        let ends = || [&flow.sender, &flow.receiver].into_iter().flatten();
        let own_pids: BTreeSet<u32> = ends().flat_map(|end| end.pids()).collect();
        let far_pids = far_ends(flow, view);
        let is_here = |task: &TaskUse<'_>| core.is_none() || task.place() == core;
        let may_be_here = |task: &TaskUse<'_>| match (core, task.confined_to) {
            (Some(core), Some(only)) => core == only,
            _ => true,
        };
        let threads = view.tasks.iter().filter(|task| own_pids.contains(&task.pid));
        let threads: f64 = threads.filter(|task| is_here(task)).map(|task| task.cpu).sum();
        let (mut far, mut observer, mut network_threads) = (0.0, 0.0, 0.0);
        let mut named = Vec::new();
        for process in &view.processes {
            match process {
                one if one.serves_network() => {
                    network_threads += if is_here(one) { one.cpu } else { 0.0 };
                }
                one if !may_be_here(one) || own_pids.contains(&one.pid) => {}
                one if far_pids.contains(&one.pid) => far += one.cpu,
                one if view.period.observer == Some(one.pid) => observer += one.cpu,
                one => named.push(one),
            }
        }
        let listed: f64 = named.iter().map(|one| one.cpu).sum();
        let certain: f64 = match core {
            Some(_) => named.iter().filter(|one| one.confined_to == core).map(|one| one.cpu).sum(),
            None => listed,
        };
        let chosen = view.cores.iter().filter(|(number, _)| core.is_none_or(|c| c == **number));
        let (mut programs, mut network) = (0.0, 0.0);
        for (_, shares) in chosen {
            programs += shares.user + shares.system;
            network += shares.interrupts();
        }
        let pure = without_interrupts(threads, programs, network);
        let rest = (programs - if core.is_some() { pure } else { threads }).max(0.0);
        let (others, kin) = match core {
            // Processes that began or ended during the observation are not listed.
            None => (certain.max(rest - far - observer), far + observer),
            // The rest of a core's time is divided in proportion to the processes that may run on
            // the core.
            Some(_) => {
                let unlisted = unlisted(view);
                let (strangers, kin) = (listed + unlisted, far + observer);
                let share = match strangers + kin {
                    sum if sum > 0.0 => strangers / sum,
                    _ => 1.0,
                };
                let known = !view.processes.is_empty();
                let others = if known { (rest * share).min(strangers) } else { rest };
                let others = others.max(certain);
                (others, (rest - others).clamp(0.0, kin))
            }
        };
        let far_here = if far + observer > 0.0 { kin * far / (far + observer) } else { 0.0 };
        Self {
            own: threads + far_here,
            network,
            network_threads,
            observer: (kin - far_here).max(0.0),
            others: others.max(0.0),
            named,
            is_known: !view.processes.is_empty(),
        }
    }

    /// Returns the time of other programs; 0 if the recording has no processes.
    pub fn strangers(&self) -> f64 {
        if self.is_known { self.others } else { 0.0 }
    }

    /// Returns the part of a thread's wait that other programs caused: a thread waits as long as
    /// others run. `waited`, `ran`: the shares of the time in which the thread waited and ran.
    pub fn wait_for_others(&self, waited: f64, ran: f64) -> f64 {
        let kin = (self.own - ran).max(0.0) + self.observer + self.network_threads;
        let all = self.others + kin;
        if all > 0.0 { waited * self.others / all } else { waited }
    }
}

/// Returns the time of a program without the softirqs that interrupted the program. Softirqs
/// interrupt each program in proportion to the program's time. A kernel that counts by ticks adds
/// these softirqs to the program's time and to the core's softirqs. `programs`, `network`: the time
/// of all programs and of all interrupts on the core.
pub fn without_interrupts(program: f64, programs: f64, network: f64) -> f64 {
    program * programs / (programs + network).max(1e-9)
}

/// Returns the processes behind the far ends of this flow that are on this machine.
fn far_ends(flow: &Flow<'_>, view: &View<'_>) -> BTreeSet<u32> {
    let (from, to) = flow.addresses();
    let is_of = |local, remote| [(from, to), (to, from)].contains(&(local, remote));
    let ends = view.period.far_ends.iter().filter(|end| is_of(end.local, end.remote));
    ends.flat_map(|end| &end.holders).map(|holder| holder.pid).collect()
}

/// Returns the time of processes that began or ended during the observation, or that used little
/// time.
fn unlisted(view: &View<'_>) -> f64 {
    let used: f64 = view.cores.values().map(|shares| shares.user + shares.system).sum();
    let listed: BTreeSet<u32> = view.processes.iter().map(|one| one.pid).collect();
    let processes = view.processes.iter().filter(|one| !one.serves_network());
    let threads = view.tasks.iter().filter(|one| !listed.contains(&one.pid));
    let known: f64 = processes.chain(threads).map(|one| one.cpu).sum();
    (used - known).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{Holder, InnerEnd, Task};
    use crate::rules::sketch::Sketch;
    use units::Span;

    /// Builds a connection whose thread uses 30 % of core 0, beside a program.
    fn beside(name: &'static str, user: u64, system: u64, allowed: Option<usize>) -> Sketch {
        let core = [user, 30 + system, 20, 0];
        Sketch::new().core(0, core).core(1, [0; 4]).each(move |at, sample| {
            sample.processes.push(Task {
                pid: 99,
                name: name.to_owned(),
                user: Span::from_millis(10 * user * at),
                system: Span::from_millis(10 * system * at),
                allowed: allowed.map(|core| vec![core]),
                ..Task::default()
            });
        })
    }

    fn at(sketch: &Sketch, core: Option<usize>, judge: impl Fn(&Occupancy<'_, '_>)) {
        let recording = sketch.recording();
        let view = View::of(recording, &recording.periods[0]).unwrap();
        judge(&Occupancy::of(&view.flows[0], &view, core));
    }

    #[test]
    fn another_program_on_the_same_core_causes_the_wait() {
        for core in [Some(0), None] {
            at(&beside("hog", 45, 0, None), core, |found| {
                assert!(found.others > 0.4, "{found:?}");
                assert!(found.wait_for_others(0.5, 0.3) > 0.45, "{found:?}");
            });
        }
    }

    #[test]
    fn a_program_on_another_core_does_not_cause_the_wait() {
        let elsewhere = beside("hog", 0, 0, Some(1)).core(1, [90, 0, 0, 0]).each(|at, sample| {
            sample.processes[0].user = Span::from_millis(900 * at);
        });
        at(&elsewhere, Some(0), |found| assert!(found.others < 0.1, "{found:?}"));
    }

    #[test]
    fn kernel_threads_that_process_packets_do_not_count_as_programs() {
        let softirqs = |name| beside(name, 0, 40, Some(0)).core(0, [5, 30, 65, 0]);
        at(&softirqs("ksoftirqd/0"), Some(0), |found| {
            assert!(found.network_threads > 0.35 && found.others < 0.2, "{found:?}");
            assert!(found.wait_for_others(0.5, 0.3) < 0.15, "{found:?}");
        });
        // The kernel may charge a tick of its thread as user time.
        let charged = softirqs("ksoftirqd/0").each(|_, sample| {
            sample.processes[0].user = Span::from_millis(160);
            sample.processes[0].in_kernel = Some(true);
        });
        at(&charged, Some(0), |found| {
            assert!(found.network_threads > 0.35 && found.others < 0.2, "{found:?}");
        });
        // A program with the name of such a thread is another program.
        let named = softirqs("ksoftirqd/0").each(|_, sample| {
            sample.processes[0].in_kernel = Some(false);
        });
        at(&named, Some(0), |found| assert!(found.network_threads < 0.01, "{found:?}"));
        at(&beside("ksoftirqd/0", 45, 0, Some(0)), Some(0), |found| {
            assert!(found.network_threads < 0.01 && found.others > 0.4, "{found:?}");
        });
    }

    #[test]
    fn the_observer_and_a_far_end_in_another_namespace_do_not_count() {
        let mut recording = beside("receiver", 45, 0, None).recording().clone();
        let holders = vec![Holder { pid: 99, name: "receiver".to_owned(), ..Holder::default() }];
        let (local, remote) = ("10.0.0.2:5201".parse().unwrap(), "10.0.0.1:5000".parse().unwrap());
        let others = |recording: &crate::Recording| {
            let view = View::of(recording, &recording.periods[0]).unwrap();
            let found = Occupancy::of(&view.flows[0], &view, Some(0));
            (found.others, found.wait_for_others(0.5, 0.3))
        };
        recording.periods[0].far_ends.push(InnerEnd { local, remote, holders });
        assert!(others(&recording).0 < 0.2 && others(&recording).1 < 0.15);
        recording.periods[0].far_ends.clear();
        assert!(others(&recording).0 > 0.4);
        recording.periods[0].observer = Some(99);
        assert!(others(&recording).0 < 0.2 && others(&recording).1 < 0.15);
    }
}
