//! The times of the CPUs. Keeps a measurement away from CPUs that other programs keep busy.

#![allow(unsafe_code)]

use std::thread::sleep;
use std::time::Duration;

/// Restricts the calling thread, and the programs that it starts, to the CPUs that are mostly idle,
/// until the value is dropped.
#[derive(Debug)]
pub(crate) struct FreeCpus {
    before: libc::cpu_set_t,
}

impl FreeCpus {
    /// Watches the CPUs of the calling thread for half a second. Returns `None` if all these CPUs
    /// are busy, or if none is.
    pub(crate) fn keep() -> Option<Self> {
        let before = affinity()?;
        let first = ticks();
        sleep(WATCHED);
        let (free, busy) = divide(&first, &ticks(), |cpu| contains(&before, cpu));
        if free.is_empty() || busy.is_empty() {
            return None;
        }
        // SAFETY: all bits of a cpu_set_t may be zero.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        for cpu in &free {
            // SAFETY: `contains` has checked that the set has a bit for this CPU.
            unsafe { libc::CPU_SET(*cpu, &mut set) };
        }
        eprintln!("DISTURBED CPUs {busy:?} are busy: the next attempt uses CPUs {free:?}");
        set_affinity(&set).then_some(Self { before })
    }
}

impl Drop for FreeCpus {
    fn drop(&mut self) {
        set_affinity(&self.before);
    }
}

/// Runs `work`. Returns the result, and the share of the time that the CPU with most interrupts
/// spent on interrupts and softirqs meanwhile.
pub fn with_interrupts<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let first = ticks();
    let result = work();
    (result, most_interrupts(&first, &ticks()))
}

fn most_interrupts(first: &[Ticks], last: &[Ticks]) -> f64 {
    let shares = last.iter().filter_map(|last| {
        let first = first.iter().find(|first| first.cpu == last.cpu)?;
        let all = last.all.saturating_sub(first.all);
        let interrupts = last.interrupts.saturating_sub(first.interrupts);
        (all > 0).then(|| interrupts as f64 / all as f64)
    });
    shares.fold(0.0, f64::max)
}

/// The time of one CPU since the system's start, in ticks.
#[derive(Debug, Clone, Copy)]
struct Ticks {
    cpu: usize,
    idle: u64,
    /// Interrupts and softirqs.
    interrupts: u64,
    all: u64,
}

/// Divides the CPUs that may be used into free CPUs and busy CPUs.
fn divide(
    first: &[Ticks],
    last: &[Ticks],
    may_use: impl Fn(usize) -> bool,
) -> (Vec<usize>, Vec<usize>) {
    let both = last.iter().filter(|last| may_use(last.cpu)).filter_map(|last| {
        let first = first.iter().find(|first| first.cpu == last.cpu)?;
        let all = last.all.saturating_sub(first.all);
        let busy = all.saturating_sub(last.idle.saturating_sub(first.idle));
        Some((last.cpu, busy * 2 > all))
    });
    let (busy, free): (Vec<_>, Vec<_>) = both.partition(|(_, is_busy)| *is_busy);
    let cpus = |side: Vec<(usize, bool)>| side.into_iter().map(|(cpu, _)| cpu).collect();
    (cpus(free), cpus(busy))
}

fn ticks() -> Vec<Ticks> {
    parse(&std::fs::read_to_string("/proc/stat").unwrap_or_default())
}

/// Reads the lines `cpuN`: user, nice, system, idle, iowait, irq, softirq and steal (proc(5)).
fn parse(text: &str) -> Vec<Ticks> {
    let lines = text.lines().filter_map(|line| {
        // The first line, `cpu` and a space, is the sum of all CPUs.
        let line = line.strip_prefix("cpu").filter(|line| !line.starts_with(' '))?;
        let mut words = line.split_whitespace();
        let cpu = words.next()?.parse().ok()?;
        let times: Vec<u64> = words.take(8).filter_map(|time| time.parse().ok()).collect();
        let [_, _, _, idle, waiting, interrupts, softirqs, ..] = times[..] else { return None };
        Some(Ticks {
            cpu,
            idle: idle + waiting,
            interrupts: interrupts + softirqs,
            all: times.iter().sum(),
        })
    });
    lines.collect()
}

fn affinity() -> Option<libc::cpu_set_t> {
    // SAFETY: all bits of a cpu_set_t may be zero; the kernel writes at most the given size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        (libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) == 0).then_some(set)
    }
}

fn set_affinity(set: &libc::cpu_set_t) -> bool {
    // SAFETY: the pointer is to a live set of the given size, which the kernel only reads.
    unsafe { libc::sched_setaffinity(0, size_of_val(set), &raw const *set) == 0 }
}

fn contains(set: &libc::cpu_set_t, cpu: usize) -> bool {
    // SAFETY: the number is below the number of bits of a cpu_set_t.
    cpu < MOST_CPUS && unsafe { libc::CPU_ISSET(cpu, set) }
}

const WATCHED: Duration = Duration::from_millis(500);
/// The number of bits of a `cpu_set_t`.
const MOST_CPUS: usize = libc::CPU_SETSIZE as usize;

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "\
cpu  300 0 100 700 100 0 0 0 0 0
cpu0 100 0 50 300 50 0 0 0 0 0
cpu1 100 0 50 300 50 0 0 0 0 0
cpu2 100 0 0 100 0 0 0 0 0 0
intr 5";
    const LAST: &str = "\
cpu  370 0 110 770 100 0 0 0 0 0
cpu0 110 0 60 330 50 0 0 0 0 0
cpu1 140 0 50 310 50 0 0 0 0 0
cpu2 120 0 0 130 0 0 0 0 0 0
intr 6";

    #[test]
    fn a_cpu_that_is_busy_for_more_than_half_of_the_time_is_not_free() {
        let (first, last) = (parse(FIRST), parse(LAST));
        assert_eq!(divide(&first, &last, |_| true), (vec![0, 2], vec![1]));
        assert_eq!(divide(&first, &last, |cpu| cpu == 1), (vec![], vec![1]));
        assert_eq!(divide(&first, &[], |_| true), (vec![], vec![]));
    }

    #[test]
    fn the_share_of_interrupts_is_that_of_the_cpu_with_most_interrupts() {
        let first = parse("cpu0 100 0 50 300 50 7 7 0\ncpu1 100 0 50 300 50 7 7 0\n");
        let last = parse("cpu0 110 0 50 380 50 12 12 0\ncpu1 110 0 60 310 50 17 27 0\n");
        assert_eq!(most_interrupts(&first, &last), 0.5);
        assert_eq!(most_interrupts(&last, &last), 0.0);
        assert_eq!(most_interrupts(&[], &last), 0.0);
    }

    #[test]
    fn the_cpus_of_a_thread_are_as_before_after_an_attempt() {
        let before = affinity().unwrap();
        drop(FreeCpus::keep());
        drop(FreeCpus { before });
        let after = affinity().unwrap();
        assert!((0..MOST_CPUS).all(|cpu| contains(&before, cpu) == contains(&after, cpu)));
    }
}
