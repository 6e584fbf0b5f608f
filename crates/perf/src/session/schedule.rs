use units::{Span, Time};

/// Schedule of the intervals of a running test. The caller supplies the time. After the host has
/// stalled, the schedule gives one long interval rather than many empty intervals.
#[derive(Debug, Clone)]
pub(super) struct IntervalSchedule {
    /// Length of an interval; zero reports only the totals.
    every: Span,
    /// Origin of the reported times: the test's start, then the end of the omitted time.
    origin: Time,
    omit_until: Option<Time>,
    last: Time,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Period {
    pub(super) start: Span,
    pub(super) end: Span,
    pub(super) omitted: bool,
    /// True if the omitted time ends with this period.
    pub(super) ends_omission: bool,
    /// True if the period is an interval to report; the omitted time may end without an interval.
    pub(super) is_interval: bool,
}

impl IntervalSchedule {
    pub(super) fn new(now: Time, every: Span, omit: Span) -> Self {
        let omit_until = (omit > Span::ZERO).then(|| now + omit);
        Self { every, origin: now, omit_until, last: now }
    }

    pub(super) fn is_omitting(&self) -> bool {
        self.omit_until.is_some()
    }

    /// Returns the time at which the measured window began.
    pub(super) fn origin(&self) -> Time {
        self.origin
    }

    pub(super) fn next(&self) -> Time {
        let interval = self.next_interval();
        self.omit_until.map_or(interval, |omit| omit.min(interval))
    }

    pub(super) fn due(&mut self, now: Time) -> Option<Period> {
        (now >= self.next()).then(|| {
            let ends_omission = self.omit_until.is_some_and(|until| now >= until);
            self.period(now, ends_omission)
        })
    }

    /// Returns the incomplete interval at the end of the test; `None` for an interval shorter than
    /// a tenth of a full interval.
    pub(super) fn rest(&mut self, now: Time) -> Option<Period> {
        let long_enough = now.since(self.last) * 10 >= self.every;
        (self.every > Span::ZERO && long_enough).then(|| self.period(now, false))
    }

    fn period(&mut self, now: Time, ends_omission: bool) -> Period {
        let (start, end) = (self.last.since(self.origin), now.since(self.origin));
        let omitted = self.is_omitting();
        let is_interval = self.every > Span::ZERO;
        if ends_omission {
            self.omit_until = None;
            self.origin = now;
        }
        self.last = now;
        Period { start, end, omitted, ends_omission, is_interval }
    }

    /// Returns the next multiple of the interval, even if the previous interval ended late.
    fn next_interval(&self) -> Time {
        if self.every == Span::ZERO {
            return Time::NEVER;
        }
        let passed = self.last.since(self.origin).nanos();
        self.origin + self.every * (passed / self.every.nanos() + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    fn ms(millis: u64) -> Span {
        Span::from_millis(millis)
    }

    #[test]
    fn intervals_keep_to_the_grid_and_restart_after_the_omitted_time() {
        let mut table = IntervalSchedule::new(at(1000), ms(100), ms(250));
        assert_eq!(table.next(), at(1100));
        assert_eq!(table.due(at(1099)), None);
        let first = table.due(at(1103)).unwrap();
        assert_eq!((first.start, first.end, first.omitted), (ms(0), ms(103), true));
        assert_eq!(table.next(), at(1200));
        table.due(at(1200)).unwrap();
        let last_omitted = table.due(at(1250)).unwrap();
        assert!(last_omitted.ends_omission && last_omitted.omitted);
        assert_eq!((table.origin(), table.next()), (at(1250), at(1350)));
        let measured = table.due(at(1350)).unwrap();
        assert_eq!((measured.start, measured.omitted), (ms(0), false));
    }

    #[test]
    fn a_stalled_host_gets_one_long_interval() {
        let mut table = IntervalSchedule::new(at(0), ms(100), Span::ZERO);
        assert_eq!(table.due(at(530)).unwrap().end, ms(530));
        assert_eq!(table.due(at(531)), None);
        assert_eq!(table.next(), at(600));
    }

    #[test]
    fn the_rest_of_a_test_is_a_last_interval_unless_it_is_short() {
        let mut table = IntervalSchedule::new(at(0), ms(100), Span::ZERO);
        table.due(at(100)).unwrap();
        assert_eq!(table.rest(at(109)), None);
        assert_eq!(table.rest(at(150)).unwrap().start, ms(100));
    }

    #[test]
    fn with_an_interval_of_zero_only_the_end_of_the_omitted_time_is_due() {
        let mut table = IntervalSchedule::new(at(0), Span::ZERO, ms(50));
        let end = table.due(at(51)).unwrap();
        assert!(end.ends_omission && !end.is_interval);
        assert_eq!(table.next(), Time::NEVER);
        assert_eq!(table.rest(at(500)), None);
    }
}
