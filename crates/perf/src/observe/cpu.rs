//! Local CPU use: of the test itself, and of each core, with softirqs shown separately.

mod account;

pub use account::{Counted, CpuAccount};

use super::series::{MOST_POINTS, Merge, Origin, Series, Table};
use crate::event::{CoreUse, CpuUse};
use nix::sys::resource::{Usage, UsageWho, getrusage};
use probe::cpu::{CoreShares, CpuSnapshot};
use probe::process::CpuTime;
use units::{Span, Time};

/// The threads whose CPU time counts as the test's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CpuOf {
    /// The whole process, if it runs only this test.
    Process,
    /// The threads that entered the test's [`CpuAccount`], if other tests run in the same process.
    Threads,
}

#[derive(Debug)]
pub struct CpuSampler {
    origin: Origin,
    of: CpuOf,
    account: CpuAccount,
    /// Snapshot at the start of the measured window.
    base: Snapshot,
    /// Snapshot at the start of the interval.
    mark: Snapshot,
    /// Snapshot at the last point of the series.
    point: Snapshot,
    table: Option<Table>,
}

#[derive(Debug, Clone)]
struct Snapshot {
    at: Time,
    /// User and system time charged to the test.
    own: CpuTime,
    machine: Option<CpuSnapshot>,
}

impl CpuSampler {
    pub fn begin(now: Time, of: CpuOf, account: CpuAccount, series: bool) -> Self {
        let base = Snapshot::read(now, of, &account);
        let table = series.then(|| table_of(base.machine.as_ref()));
        let (mark, point) = (base.clone(), base.clone());
        Self { origin: Origin(now), of, account, base, mark, point, table }
    }

    /// Reads the CPU use and adds a point to the series.
    pub fn sample(&mut self, now: Time) {
        let snapshot = Snapshot::read(now, self.of, &self.account);
        self.keep(snapshot);
    }

    /// Returns the CPU use since the last call of this method, or since the window began.
    pub fn interval(&mut self, now: Time) -> CpuUse {
        let snapshot = Snapshot::read(now, self.of, &self.account);
        let used = snapshot.since(&self.mark);
        self.mark = snapshot.clone();
        self.keep(snapshot);
        used
    }

    /// Starts the measured window.
    pub fn reset(&mut self, now: Time) {
        self.base = Snapshot::read(now, self.of, &self.account);
        self.mark = self.base.clone();
    }

    /// True if the measured window holds enough ticks of `/proc/stat` to recognise a busy core.
    pub fn is_telling(&self, now: Time) -> bool {
        now.since(self.base.at) >= LEAST_POINT
    }

    pub fn used(&self, now: Time) -> CpuUse {
        Snapshot::read(now, self.of, &self.account).since(&self.base)
    }

    pub fn into_series(self) -> Option<Series> {
        self.table?.into_series()
    }

    fn keep(&mut self, snapshot: Snapshot) {
        let Some(table) = &mut self.table else { return };
        // Over a shorter time the resolution of /proc/stat (its ticks) dominates the result.
        if snapshot.at.since(self.point.at) < LEAST_POINT {
            return;
        }
        let used = snapshot.since(&self.point);
        let own = [Some(used.user), Some(used.system)];
        let cores = self.base.machine.iter().flat_map(CpuSnapshot::online).flat_map(|core| {
            let used = used.cores.iter().find(|used| used.core == core);
            [used.map(|used| used.busy), used.map(|used| used.softirq)]
        });
        table.push(self.origin.until(snapshot.at), own.into_iter().chain(cores));
        self.point = snapshot;
    }
}

impl Snapshot {
    fn read(at: Time, of: CpuOf, account: &CpuAccount) -> Self {
        let own = match of {
            CpuOf::Process => cpu_time(UsageWho::RUSAGE_SELF),
            CpuOf::Threads => account.used(),
        };
        Self { at, own, machine: CpuSnapshot::read().ok() }
    }

    fn since(&self, earlier: &Self) -> CpuUse {
        let elapsed = self.at.since(earlier.at).secs_f64();
        let of_elapsed =
            |span: Span| if elapsed > 0.0 { span.secs_f64() / elapsed * 100.0 } else { 0.0 };
        let machine = self.machine.as_ref().zip(earlier.machine.as_ref());
        let cores = machine.map(|(now, before)| now.since(before).cores).unwrap_or_default();
        CpuUse {
            user: of_elapsed(self.own.user - earlier.own.user),
            system: of_elapsed(self.own.system - earlier.own.system),
            cores: cores
                .iter()
                .filter_map(|(core, times)| times.shares().map(|shares| core_use(*core, &shares)))
                .collect(),
        }
    }
}

/// Converts a core's shares. Steal time counts as busy, because the core was not available to the
/// test.
fn core_use(core: usize, shares: &CoreShares) -> CoreUse {
    let busy = shares.busy.percent() + shares.steal.percent();
    CoreUse { core, busy: busy.min(100.0), softirq: shares.softirq.percent() }
}

fn table_of(machine: Option<&CpuSnapshot>) -> Table {
    let mut table = Table::new("cpu", Merge::Mean, MOST_POINTS);
    table.column("user", "% of a core");
    table.column("system", "% of a core");
    for core in machine.iter().flat_map(|machine| machine.online()) {
        table.column(format!("core {core} busy"), "%");
        table.column(format!("core {core} softirq"), "%");
    }
    table
}

/// Reads CPU time with a resolution of a microsecond, finer than the ticks in /proc.
fn cpu_time(who: UsageWho) -> CpuTime {
    let span = |at: nix::sys::time::TimeVal| {
        let micros = at.tv_sec().saturating_mul(1_000_000).saturating_add(at.tv_usec());
        Span::from_micros(u64::try_from(micros).unwrap_or(0))
    };
    let times = |usage: Usage| (span(usage.user_time()), span(usage.system_time()));
    let (user, system) = getrusage(who).map(times).unwrap_or_default();
    CpuTime { user, system, precise: None }
}

const LEAST_POINT: Span = Span::from_millis(400);

#[cfg(test)]
mod tests {
    use super::*;

    fn spin(span: Span) {
        let begun = probe::clock::own_thread_cpu_time();
        while probe::clock::own_thread_cpu_time() - begun < span {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn threads_that_entered_the_account_are_charged_while_they_run_and_after() {
        let account = CpuAccount::default();
        let own = std::thread::scope(|scope| {
            let mine = account.clone();
            let thread = scope.spawn(move || {
                let counted = mine.enter();
                spin(Span::from_millis(60));
                assert!(mine.used().total() >= Span::from_millis(40), "{:?}", mine.used());
                drop(counted);
                probe::clock::own_thread_cpu_time()
            });
            scope.spawn(|| spin(Span::from_millis(200)));
            thread.join().unwrap()
        });
        let used = account.used().total();
        assert!(used >= Span::from_millis(59), "{used}");
        // Compare with the thread's own clock, not with 60 ms: the kernel may charge a thread with
        // time that a hypervisor took.
        let most = own + Span::from_millis(10);
        assert!(used <= most, "the other thread must not count: {used} of {own}");
    }

    #[test]
    fn the_utilisation_of_a_core_is_at_most_100_percent() {
        let now = probe::clock::now;
        let mut watch = CpuSampler::begin(now(), CpuOf::Process, CpuAccount::default(), true);
        spin(Span::from_millis(50));
        let used = watch.interval(now());
        assert!(used.user + used.system > 0.0);
        assert!(
            used.cores.iter().all(|core| core.busy <= 100.0 && core.softirq <= core.busy + 0.001)
        );
        watch.reset(now());
        let rest = watch.used(now());
        assert!(rest.cores.len() <= 4096);
    }

    #[test]
    fn a_period_of_zero_length_has_no_cpu_use() {
        let snapshot = Snapshot { at: Time::ZERO, own: CpuTime::default(), machine: None };
        assert_eq!(snapshot.since(&snapshot), CpuUse::default());
    }
}
