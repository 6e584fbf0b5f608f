use super::statistic::{MeasuredPeriod, ProbeCost};
use super::{CostSettings, CurrentPeriod};
use units::{Bytes, Time};

/// Measures the goodput of each period. The meter reads the same counters in periods with and
/// without samples.
#[derive(Debug)]
pub(in crate::observe) struct Meter {
    settings: CostSettings,
    /// Start of the period that is measured now.
    begun: Option<(Time, Bytes)>,
    measured: Vec<MeasuredPeriod>,
}

impl Meter {
    pub(in crate::observe) fn new(settings: CostSettings) -> Self {
        Self { settings, begun: None, measured: Vec::new() }
    }

    pub(in crate::observe) fn due(&self, current: &CurrentPeriod, now: Time) -> Time {
        let settled = current.starts() + self.settings.settling;
        if self.begun.is_none() && now < settled { settled } else { current.ends() }
    }

    /// Starts the measurement of the current period when its settling time is over, but only in the
    /// first half of the period. `read` returns the current counters.
    pub(in crate::observe) fn begin(
        &mut self,
        current: &CurrentPeriod,
        now: Time,
        read: impl FnOnce() -> (Time, Bytes),
    ) {
        let since = now.since(current.starts());
        // A period that is half over is too short to measure.
        let in_time = since >= self.settings.settling && since < current.length() / 2;
        if in_time && self.begun.is_none() {
            self.begun = Some(read());
        }
    }

    /// Ends the measurement of the current period. `read` returns the current counters.
    pub(in crate::observe) fn end(
        &mut self,
        current: &CurrentPeriod,
        read: impl FnOnce() -> (Time, Bytes),
    ) {
        let Some((since, had)) = self.begun.take() else { return };
        let (now, has) = read();
        // This side is so late that the peer has already changed to the next period.
        if now.since(current.ends()) > current.length() / LATE_PARTS || self.measured.len() >= MOST
        {
            return;
        }
        let seconds = now.since(since).secs_f64();
        if seconds > 0.0 {
            let rate = (has - had).count() as f64 / seconds;
            self.measured.push(MeasuredPeriod {
                number: current.period(),
                samples: current.samples(),
                rate,
            });
        }
    }

    pub(in crate::observe) fn reset(&mut self) {
        (self.begun, self.measured) = (None, Vec::new());
    }

    pub(in crate::observe) fn cost(&self) -> ProbeCost {
        ProbeCost::of(&self.measured, self.settings.both_ends)
    }
}

/// This side may end a period late by 1/10 of its length. On a core that a stream saturates, a
/// wakeup may take some milliseconds.
const LATE_PARTS: u64 = 10;
/// Maximum number of periods kept: the periods of a day.
const MOST: usize = 400_000;

#[cfg(test)]
mod tests {
    use super::super::SamplingPeriods;
    use super::*;
    use units::Span;

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_period_is_measured_from_the_end_of_its_settling_time() {
        let periods = SamplingPeriods { seed: 1, length: Span::from_millis(100) };
        let mut current = CurrentPeriod::begin(periods, at(0));
        let mut meter = Meter::new(CostSettings::of(Span::ZERO, true));
        assert_eq!(meter.due(&current, at(0)), at(10));
        meter.begin(&current, at(9), || unreachable!());
        meter.begin(&current, at(20), || (at(20), Bytes::new(500)));
        assert_eq!(meter.due(&current, at(20)), at(100));
        meter.end(&current, || (at(101), Bytes::new(8600)));
        assert_eq!(meter.measured[0].rate, 100_000.0);
        // A period begun too late, and a period ended too late.
        current.advance(at(101));
        assert_eq!(current.period(), 1);
        meter.begin(&current, at(160), || unreachable!());
        meter.end(&current, || unreachable!());
        current.advance(at(200));
        meter.begin(&current, at(211), || (at(211), Bytes::ZERO));
        meter.end(&current, || (at(311), Bytes::ZERO));
        assert_eq!(meter.measured.len(), 1);
    }
}
