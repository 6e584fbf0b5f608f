//! The times at which a thread of an open loop sends its requests. The caller supplies the time.

use std::time::{Duration, Instant};

/// The times of requests, at equal intervals.
#[derive(Debug, Clone)]
pub(super) struct Schedule {
    begin: Instant,
    /// Requests a second.
    rate: f64,
    next: u64,
}

impl Schedule {
    /// Creates the schedule of thread `number` of `threads` threads, which share `rate`: their
    /// requests alternate.
    pub(super) fn new(begin: Instant, rate: f64, number: u32, threads: u32) -> Self {
        let own = rate / f64::from(threads);
        let begin = begin + Duration::from_secs_f64(f64::from(number) / rate);
        Self { begin, rate: own, next: 0 }
    }

    pub(super) fn next(&self) -> Instant {
        self.begin + Duration::from_secs_f64(self.next as f64 / self.rate)
    }

    /// Takes the next request if it is due; returns the time at which it was due.
    pub(super) fn take(&mut self, now: Instant) -> Option<Instant> {
        let due = self.next();
        (due <= now).then(|| {
            self.next += 1;
            due
        })
    }

    /// Returns the number of requests that are due at `now` and were not taken yet.
    pub(super) fn waiting(&self, now: Instant) -> u64 {
        let elapsed = now.saturating_duration_since(self.begin).as_secs_f64();
        let due = (elapsed * self.rate).floor() as u64 + u64::from(now >= self.begin);
        due.saturating_sub(self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_request_keeps_its_scheduled_time() {
        let begin = Instant::now();
        let after = |millis| begin + Duration::from_millis(millis);
        let mut schedule = Schedule::new(begin, 100.0, 0, 1);
        assert_eq!(schedule.take(begin), Some(begin));
        assert_eq!(schedule.take(after(9)), None);
        // The server paused for 35 ms.
        assert_eq!(schedule.waiting(after(35)), 3);
        assert_eq!(schedule.take(after(35)), Some(after(10)));
        assert_eq!(schedule.take(after(35)), Some(after(20)));
        assert_eq!(schedule.waiting(after(35)), 1);
    }

    #[test]
    fn the_schedules_of_several_threads_share_the_rate() {
        let begin = Instant::now();
        let mut times = Vec::new();
        for number in 0..4 {
            let mut schedule = Schedule::new(begin, 1000.0, number, 4);
            times.extend(std::iter::from_fn(|| schedule.take(begin + Duration::from_millis(19))));
        }
        times.sort();
        let expected: Vec<Instant> = (0..20).map(|n| begin + Duration::from_millis(n)).collect();
        assert_eq!(times, expected);
    }
}
