//! The largest user of CPUs that had no time left.

use probe::cpu::CpuUse;
use probe::process::ProcessesUse;
use results::CpuLimit;
use units::Span;

/// The time that was spent on the workload's CPUs.
#[derive(Debug)]
pub(super) struct Spent<'a> {
    pub(super) elapsed: Span,
    pub(super) cpus: &'a [usize],
    pub(super) cores: &'a CpuUse,
    /// The processes of each side.
    pub(super) sides: &'a [(&'a str, &'a ProcessesUse)],
    /// All processes of the machine, those of the sides too.
    pub(super) everyone: &'a ProcessesUse,
}

pub(super) fn largest(spent: &Spent<'_>) -> Option<CpuLimit> {
    let users = processes(spent).into_iter().chain(softirqs(spent)).chain(others(spent));
    let users = users.chain(rest(spent));
    users.max_by(|a, b| a.percent.total_cmp(&b.percent)).filter(|user| user.percent > 0.0)
}

/// A process is on the workload's CPUs that it may run on.
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

/// The kernel counts the time of ksoftirqd as softirq too.
fn softirqs(spent: &Spent<'_>) -> Vec<CpuLimit> {
    let of_core = |cpu: &usize| {
        let core = spent.cores.cores.get(cpu)?;
        let percent = percent(core.softirq + core.irq, spent.elapsed);
        Some(CpuLimit { by: "softirqs".to_owned(), cpus: vec![*cpu], percent })
    };
    spent.cpus.iter().filter_map(of_core).collect()
}

/// Processes of neither side by their names, on the workload's CPUs alone.
fn others(spent: &Spent<'_>) -> Vec<CpuLimit> {
    let mut found: Vec<CpuLimit> = Vec::new();
    for (pid, process) in &spent.everyone.each {
        let is_of_side = spent.sides.iter().any(|(_, side)| side.each.contains_key(pid));
        // A thread of this process is the emulator, which has a CPU of its own.
        let is_own = *pid == std::process::id();
        if is_of_side || is_own || process.name.starts_with("ksoftirqd/") {
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

/// Tasks that are no longer there, such as programs that came and went.
fn rest(spent: &Spent<'_>) -> Option<CpuLimit> {
    let all = spent.cores.over(spent.cpus.iter().copied());
    let tasks = percent(all.user + all.nice + all.system, spent.elapsed);
    let sides: f64 =
        spent.sides.iter().map(|(_, each)| percent(each.sum().total(), spent.elapsed)).sum();
    let others: f64 = others(spent).iter().map(|other| other.percent).sum();
    // Ticks and the exact clocks of processes differ by a little.
    let rest = tasks - sides - others;
    (rest > LEAST_REST_PERCENT).then(|| CpuLimit {
        by: "other programs".to_owned(),
        cpus: spent.cpus.to_vec(),
        percent: rest,
    })
}

/// The CPUs among these that a process may run on. `None` if there is none, or it has ended.
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
        // No process has this number.
        let each = [(i32::MAX as u32, ProcessUse { name: name.to_owned(), cpu })].into();
        ProcessesUse { elapsed: SECOND, each, ..ProcessesUse::default() }
    }

    fn told(cores: &CpuUse, client: u64, server: u64) -> String {
        let (client, server) = (side("weir", client), side("nginx", server));
        let sides = [("client", &client), ("server", &server)];
        let everyone = side("nobody", 0);
        let spent =
            Spent { elapsed: SECOND, cpus: &[1], cores, sides: &sides, everyone: &everyone };
        largest(&spent).unwrap().to_string()
    }

    #[test]
    fn the_largest_user_is_named_with_its_cpu() {
        assert_eq!(told(&cores(800, 150), 600, 200), "weir (client) used 60 % of CPU 1");
        assert_eq!(told(&cores(800, 150), 100, 700), "nginx (server) used 70 % of CPU 1");
        assert_eq!(told(&cores(400, 580), 200, 200), "softirqs used 58 % of CPU 1");
        assert_eq!(told(&cores(900, 80), 100, 200), "other programs used 60 % of CPU 1");
    }

    #[test]
    fn a_process_of_neither_side_is_named() {
        let cores = cores(900, 80);
        let cpu = CpuTime { precise: Some(Span::from_millis(700)), ..CpuTime::default() };
        let own = ProcessUse { name: "builder".to_owned(), cpu };
        let each = [(1, own)].into();
        let everyone = ProcessesUse { elapsed: SECOND, each, ..ProcessesUse::default() };
        let cpus = probe::cpu::affinity_of(1).unwrap();
        let spent =
            Spent { elapsed: SECOND, cpus: &cpus, cores: &cores, sides: &[], everyone: &everyone };
        let limit = largest(&spent).unwrap();
        assert_eq!((limit.by.as_str(), limit.percent, limit.cpus), ("builder", 70.0, cpus));
    }
}
