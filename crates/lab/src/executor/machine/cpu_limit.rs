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
}

pub(super) fn largest(spent: &Spent<'_>) -> Option<CpuLimit> {
    let users = processes(spent).into_iter().chain(softirqs(spent)).chain(others(spent));
    users.max_by(|a, b| a.percent.total_cmp(&b.percent)).filter(|user| user.percent > 0.0)
}

/// A process is on the workload's CPUs that it may run on.
fn processes(spent: &Spent<'_>) -> Vec<CpuLimit> {
    let mut found = Vec::new();
    for (side, processes) in spent.sides {
        for (pid, process) in &processes.each {
            let allowed = probe::cpu::affinity_of(*pid).unwrap_or_default();
            let mut cpus = spent.cpus.to_vec();
            cpus.retain(|cpu| allowed.contains(cpu));
            found.push(CpuLimit {
                by: format!("{} ({side})", process.name),
                cpus: if cpus.is_empty() { spent.cpus.to_vec() } else { cpus },
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

/// All that is neither a softirq nor a process of either side.
fn others(spent: &Spent<'_>) -> Option<CpuLimit> {
    let all = spent.cores.over(spent.cpus.iter().copied());
    let known: f64 =
        spent.sides.iter().map(|(_, each)| percent(each.sum().total(), spent.elapsed)).sum();
    let tasks = percent(all.user + all.nice + all.system, spent.elapsed);
    // Ticks and the exact clocks of processes differ by a little.
    let rest = tasks - known;
    (rest > LEAST_REST_PERCENT).then(|| CpuLimit {
        by: "other programs".to_owned(),
        cpus: spent.cpus.to_vec(),
        percent: rest,
    })
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
        let spent = Spent { elapsed: SECOND, cpus: &[1], cores, sides: &sides };
        largest(&spent).unwrap().to_string()
    }

    #[test]
    fn the_largest_user_is_named_with_its_cpu() {
        assert_eq!(told(&cores(800, 150), 600, 200), "weir (client) used 60 % of CPU 1");
        assert_eq!(told(&cores(800, 150), 100, 700), "nginx (server) used 70 % of CPU 1");
        assert_eq!(told(&cores(400, 580), 200, 200), "softirqs used 58 % of CPU 1");
        assert_eq!(told(&cores(900, 80), 100, 200), "other programs used 60 % of CPU 1");
    }
}
