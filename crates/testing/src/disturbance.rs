//! Measures how much the machine delayed its programs.

use std::fmt::{self, Display};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Records disturbances from [`Watch::start`] to [`Watch::end`].
#[derive(Debug)]
pub struct Watch {
    since: Instant,
    stolen: Duration,
    stop: Arc<AtomicBool>,
    sleeper: Option<JoinHandle<Lateness>>,
}

/// Disturbances that explain a failed measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Disturbance {
    watched: Duration,
    /// CPU time of all CPUs that the hypervisor gave to other machines (steal in /proc/stat).
    stolen: Duration,
    late: Lateness,
}

/// How late a thread woke that sleeps for a millisecond at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Lateness {
    worst: Duration,
    total: Duration,
}

impl Watch {
    pub fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let sleeper = std::thread::spawn({
            let stop = stop.clone();
            move || sleep_until(&stop)
        });
        Self { since: Instant::now(), stolen: stolen(), stop, sleeper: Some(sleeper) }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }

    /// Stops the watch. Returns the disturbance if it was large enough to excuse a failure.
    pub fn end(mut self) -> Option<Disturbance> {
        self.stop.store(true, Ordering::Relaxed);
        let late = self.sleeper.take()?.join().unwrap_or_default();
        let stolen = stolen().saturating_sub(self.stolen);
        let found = Disturbance { watched: self.since.elapsed(), stolen, late };
        found.excuses().then_some(found)
    }
}

/// A watch that nobody ends stops its thread, too.
impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Disturbance {
    /// A disturbance of a second, in milliseconds.
    #[cfg(test)]
    pub(crate) fn of_a_second(stolen: u64, worst: u64, total: u64) -> Self {
        let of = Duration::from_millis;
        let late = Lateness { worst: of(worst), total: of(total) };
        Self { watched: of(1000), stolen: of(stolen), late }
    }

    fn excuses(&self) -> bool {
        self.late.worst >= STALL
            || self.late.total > self.watched.mul_f64(LATE_SHARE)
            || self.stolen > self.watched.mul_f64(STOLEN_SHARE)
    }
}

impl Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { watched, stolen, late } = self;
        write!(
            f,
            "in {:.1} s the hypervisor took {} ms, and a thread that sleeps for 1 ms woke {} ms late \
             at worst, {} ms late in all",
            watched.as_secs_f64(),
            stolen.as_millis(),
            late.worst.as_millis(),
            late.total.as_millis()
        )
    }
}

fn sleep_until(stop: &AtomicBool) -> Lateness {
    let mut late = Lateness::default();
    while !stop.load(Ordering::Relaxed) {
        let before = Instant::now();
        std::thread::sleep(NAP);
        let by = before.elapsed().saturating_sub(NAP + TIMER);
        late.worst = late.worst.max(by);
        late.total += by;
    }
    late
}

/// Returns the stolen CPU time: the eighth number of the line `cpu`, in ticks of 10 ms (proc(5)).
fn stolen() -> Duration {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let all = text.lines().next().unwrap_or_default();
    let ticks = all.split_whitespace().nth(8).and_then(|ticks| ticks.parse().ok());
    Duration::from_millis(ticks.unwrap_or(0u64) * 10)
}

const NAP: Duration = Duration::from_millis(1);
/// A timer of an idle machine may fire this late without any disturbance.
const TIMER: Duration = Duration::from_micros(200);
/// Minimum lateness that counts as a stall. In 20 ms, which is several round trips of most of the
/// tests' links, the queues of these links run empty.
const STALL: Duration = Duration::from_millis(20);
/// Minimum share of time that a thread waits on a disturbed machine. With a busy loop on each CPU,
/// a thread waits for a tenth of the time or more.
const LATE_SHARE: f64 = 0.1;
/// Minimum share of stolen CPU time that counts as a disturbance, as for the cells of a lab.
const STOLEN_SHARE: f64 = 0.02;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_stall_many_delays_or_stolen_time_excuse_a_failure() {
        for (disturbance, excuses) in [
            (Disturbance::of_a_second(0, 0, 0), false),
            (Disturbance::of_a_second(10, 19, 90), false),
            (Disturbance::of_a_second(0, 20, 20), true),
            (Disturbance::of_a_second(0, 3, 110), true),
            (Disturbance::of_a_second(30, 0, 0), true),
        ] {
            assert_eq!(disturbance.excuses(), excuses, "{disturbance}");
        }
    }

    #[test]
    fn an_ended_watch_describes_late_threads() {
        let watch = Watch::start();
        std::thread::sleep(Duration::from_millis(20));
        let found = watch.end();
        println!("{found:?}");
        assert!(found.is_none_or(|found| found.to_string().contains("late")));
    }

    #[test]
    fn a_dropped_watch_stops_its_thread() {
        let watch = Watch::start();
        let stop = Arc::clone(&watch.stop);
        drop(watch);
        assert!(stop.load(Ordering::Relaxed));
    }
}
