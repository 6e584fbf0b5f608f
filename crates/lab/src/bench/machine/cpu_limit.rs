//! Finds the largest user of CPUs that had no idle time left.

use probe::cpu::CpuUse;
use probe::process::ProcessesUse;
use results::CpuLimit;
use units::Span;

/// The CPU time that each kind of user spent on the workload's CPUs.
#[derive(Debug)]
pub(super) struct Spent<'a> {
    pub(super) elapsed: Span,
    pub(super) cpus: &'a [usize],
    pub(super) cores: &'a CpuUse,
    pub(super) sides: &'a [(&'a str, &'a ProcessesUse)],
    /// CPU time of all processes of the machine, including the client's and the server's processes.
    pub(super) everyone: &'a ProcessesUse,
    pub(super) emulator: Option<Emulating>,
}

/// The emulator's thread, which belongs to this process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Emulating {
    pub(super) time: Span,
    /// Whether the emulator runs on the workload's CPUs.
    pub(super) is_among_workload: bool,
}

pub(super) fn largest(spent: &Spent<'_>) -> Option<CpuLimit> {
    let users = processes(spent).into_iter().chain(softirqs(spent)).chain(others(spent));
    let users = users.chain(own(spent)).chain(rest(spent)).map(|user| within(spent, user));
    users.max_by(|a, b| a.percent.total_cmp(&b.percent)).filter(|user| user.percent > 0.0)
}

/// Returns the process outside the lab that used these CPUs most, among the processes that existed
/// in both readings.
pub(super) fn foreign(spent: &Spent<'_>) -> Option<CpuLimit> {
    let users = others(spent).into_iter().map(|user| within(spent, user));
    users.max_by(|a, b| a.percent.total_cmp(&b.percent))
}

/// Limits the user's share to the busy time of these CPUs: a process may also run on other CPUs.
fn within(spent: &Spent<'_>, mut user: CpuLimit) -> CpuLimit {
    let busy = spent.cores.over(user.cpus.iter().copied()).busy();
    user.percent = user.percent.min(percent(busy, spent.elapsed));
    user
}

/// Returns the use by each process of the client's and the server's side, with the workload's CPUs
/// that the process may run on.
fn processes(spent: &Spent<'_>) -> Vec<CpuLimit> {
    let mut found = Vec::new();
    for (side, processes) in spent.sides {
        for (pid, process) in &processes.each {
            found.push(CpuLimit {
                by: format!("{} ({side})", process.name),
                cpus: allowed(*pid, spent.cpus).unwrap_or_else(|| spent.cpus.to_vec()),
                percent: percent(process.cpu.total(), spent.elapsed),
            });
        }
    }
    found
}

/// Returns the use by softirqs of each CPU. The kernel also counts the time of ksoftirqd as
/// softirq.
fn softirqs(spent: &Spent<'_>) -> Vec<CpuLimit> {
    let of_core = |cpu: &usize| {
        let core = spent.cores.cores.get(cpu)?;
        let percent = percent(core.softirq + core.irq, spent.elapsed);
        Some(CpuLimit { by: "softirqs".to_owned(), cpus: vec![*cpu], percent })
    };
    spent.cpus.iter().filter_map(of_core).collect()
}

/// Returns the use by processes of neither side, by name, with the workload's CPUs that each
/// process may run on.
fn others(spent: &Spent<'_>) -> Vec<CpuLimit> {
    let mut found: Vec<CpuLimit> = Vec::new();
    for (pid, process) in &spent.everyone.each {
        let is_of_side = spent.sides.iter().any(|(_, side)| side.each.contains_key(pid));
        if is_of_side || *pid == std::process::id() || process.name.starts_with("ksoftirqd/") {
            continue;
        }
        let Some(cpus) = allowed(*pid, spent.cpus) else { continue };
        let share = percent(process.cpu.total(), spent.elapsed);
        match found.iter_mut().find(|known| known.by == process.name && known.cpus == cpus) {
            Some(known) => known.percent += share,
            None => found.push(CpuLimit { by: process.name.clone(), cpus, percent: share }),
        }
    }
    found
}

/// Returns the use by this process: the emulator, and the threads that read the kernel beside the
/// workload.
fn own(spent: &Spent<'_>) -> Vec<CpuLimit> {
    let own = spent.everyone.each.get(&std::process::id());
    let all = own.map_or(Span::ZERO, |own| own.cpu.total());
    let emulating = spent.emulator.map_or(Span::ZERO, |emulator| emulator.time);
    let emulator = spent.emulator.filter(|emulator| emulator.is_among_workload);
    let users = [
        ("weir's emulator", emulator.map_or(Span::ZERO, |emulator| emulator.time)),
        ("weir's lab", all.saturating_sub(emulating)),
    ];
    let users = users.map(|(by, time)| CpuLimit {
        by: by.to_owned(),
        cpus: spent.cpus.to_vec(),
        percent: percent(time, spent.elapsed),
    });
    users.into()
}

/// Returns the CPU time that no other user has: tasks that ended before the last reading, such as
/// short programs.
fn rest(spent: &Spent<'_>) -> Option<CpuLimit> {
    let all = spent.cores.over(spent.cpus.iter().copied());
    let tasks = percent(all.user + all.nice + all.system, spent.elapsed);
    let sides: f64 =
        spent.sides.iter().map(|(_, each)| percent(each.sum().total(), spent.elapsed)).sum();
    let others: f64 = others(spent).iter().chain(&own(spent)).map(|other| other.percent).sum();
    // A small rest is noise: the kernel counts ticks for CPUs and exact times for processes.
    let rest = tasks - sides - others;
    (rest > LEAST_REST_PERCENT).then(|| CpuLimit {
        by: "other programs".to_owned(),
        cpus: spent.cpus.to_vec(),
        percent: rest,
    })
}

/// Returns the CPUs of `cpus` that a process may run on. `None` if the process may run on none of
/// these CPUs, or has ended.
fn allowed(pid: u32, cpus: &[usize]) -> Option<Vec<usize>> {
    let allowed = probe::cpu::affinity_of(pid).ok()?;
    let cpus: Vec<usize> = cpus.iter().copied().filter(|cpu| allowed.contains(cpu)).collect();
    (!cpus.is_empty()).then_some(cpus)
}

fn percent(time: Span, elapsed: Span) -> f64 {
    time.secs_f64() / elapsed.secs_f64() * 100.0
}

const LEAST_REST_PERCENT: f64 = 5.0;

#[cfg(test)]
mod tests {
    use super::*;
    use probe::cpu::CoreTimes;
    use probe::process::{CpuTime, ProcessUse};

    const SECOND: Span = Span::from_secs(1);

    fn cores(user: u64, softirq: u64) -> CpuUse {
        let times = CoreTimes {
            user: Span::from_millis(user),
            softirq: Span::from_millis(softirq),
            ..CoreTimes::default()
        };
        CpuUse { elapsed: SECOND, total: times, cores: [(1, times)].into() }
    }

    fn side(name: &str, ms: u64) -> ProcessesUse {
        let cpu = CpuTime { precise: Some(Span::from_millis(ms)), ..CpuTime::default() };
        // `i32::MAX` is the pid of no process.
        let each = [(i32::MAX as u32, ProcessUse { name: name.to_owned(), cpu })].into();
        ProcessesUse { elapsed: SECOND, each, ..ProcessesUse::default() }
    }

    fn told(cores: &CpuUse, client: u64, server: u64) -> String {
        let (client, server) = (side("weir", client), side("nginx", server));
        let sides = [("client", &client), ("server", &server)];
        let everyone = side("nobody", 0);
        let spent = Spent {
            elapsed: SECOND,
            cpus: &[1],
            cores,
            sides: &sides,
            everyone: &everyone,
            emulator: None,
        };
        largest(&spent).unwrap().to_string()
    }

    #[test]
    fn the_largest_cpu_user_is_named_with_its_cpu() {
        assert_eq!(told(&cores(800, 150), 600, 200), "weir (client) used 60 % of CPU 1");
        assert_eq!(told(&cores(800, 150), 100, 700), "nginx (server) used 70 % of CPU 1");
        assert_eq!(told(&cores(400, 580), 200, 200), "softirqs used 58 % of CPU 1");
        // nginx used more CPU time than CPU 1 was busy, because nginx also ran on another CPU.
        assert_eq!(told(&cores(900, 80), 100, 1600), "nginx (server) used 98 % of CPU 1");
        assert_eq!(told(&cores(900, 80), 100, 200), "other programs used 60 % of CPU 1");
    }

    #[test]
    fn the_labs_own_threads_are_distinguished_from_other_programs() {
        let cores = cores(900, 50);
        let told = |own: u64, emulator: u64, is_among_workload: bool| {
            let cpu = CpuTime { precise: Some(Span::from_millis(own)), ..CpuTime::default() };
            let own = ProcessUse { name: "weir".to_owned(), cpu };
            let each = [(std::process::id(), own)].into();
            let everyone = ProcessesUse { elapsed: SECOND, each, ..ProcessesUse::default() };
            let time = Span::from_millis(emulator);
            let spent = Spent {
                elapsed: SECOND,
                cpus: &[1],
                cores: &cores,
                sides: &[],
                everyone: &everyone,
                emulator: Some(Emulating { time, is_among_workload }),
            };
            largest(&spent).unwrap().to_string()
        };
        assert_eq!(told(800, 700, true), "weir's emulator used 70 % of CPU 1");
        assert_eq!(told(800, 100, true), "weir's lab used 70 % of CPU 1");
        // An emulator with a CPU of its own does not use CPU 1.
        assert_eq!(told(800, 700, false), "other programs used 80 % of CPU 1");
    }

    #[test]
    fn a_process_outside_both_sides_is_named() {
        let cores = cores(900, 80);
        let cpu = CpuTime { precise: Some(Span::from_millis(700)), ..CpuTime::default() };
        let own = ProcessUse { name: "builder".to_owned(), cpu };
        let each = [(1, own)].into();
        let everyone = ProcessesUse { elapsed: SECOND, each, ..ProcessesUse::default() };
        let cpus = probe::cpu::affinity_of(1).unwrap();
        let spent = Spent {
            elapsed: SECOND,
            cpus: &cpus,
            cores: &cores,
            sides: &[],
            everyone: &everyone,
            emulator: None,
        };
        for limit in [largest(&spent), foreign(&spent)] {
            let limit = limit.unwrap();
            let seen = (limit.by.as_str(), limit.percent, &limit.cpus);
            assert_eq!(seen, ("builder", 70.0, &cpus));
        }
        let nobody = side("nobody", 0);
        assert_eq!(foreign(&Spent { everyone: &nobody, ..spent }), None);
    }
}
