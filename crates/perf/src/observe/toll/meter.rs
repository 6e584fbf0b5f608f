use super::statistic::{ProbeCost, Turn};
use super::{Place, Weighing};
use units::{Bytes, Time};

/// Goodput of each turn, from readings that are the same with samples and without.
#[derive(Debug)]
pub(in crate::observe) struct Meter {
    weighing: Weighing,
    /// Start of the turn that is measured now.
    begun: Option<(Time, Bytes)>,
    measured: Vec<Turn>,
}

impl Meter {
    pub(in crate::observe) fn new(weighing: Weighing) -> Self {
        Self { weighing, begun: None, measured: Vec::new() }
    }

    /// Time of the next reading.
    pub(in crate::observe) fn due(&self, place: &Place, now: Time) -> Time {
        let settled = place.starts() + self.weighing.settling;
        if self.begun.is_none() && now < settled { settled } else { place.ends() }
    }

    /// Starts to measure once a turn has settled.
    pub(in crate::observe) fn begin(
        &mut self,
        place: &Place,
        now: Time,
        read: impl FnOnce() -> (Time, Bytes),
    ) {
        let since = now.since(place.starts());
        // Too little is left of a turn that is half over.
        let in_time = since >= self.weighing.settling && since < place.length() / 2;
        if in_time && self.begun.is_none() {
            self.begun = Some(read());
        }
    }

    /// Ends a turn: `read` returns the current counters.
    pub(in crate::observe) fn end(&mut self, place: &Place, read: impl FnOnce() -> (Time, Bytes)) {
        let Some((since, had)) = self.begun.take() else { return };
        let (now, has) = read();
        // This end turned late. It measured one kind of turn only while the far end had long
        // turned.
        if now.since(place.ends()) > place.length() / LATE_PARTS || self.measured.len() >= MOST {
            return;
        }
        let seconds = now.since(since).secs_f64();
        if seconds > 0.0 {
            let rate = (has - had).count() as f64 / seconds;
            self.measured.push(Turn { number: place.turn(), looks: place.looks(), rate });
        }
    }

    /// Discards the measurements so far.
    pub(in crate::observe) fn forget(&mut self) {
        (self.begun, self.measured) = (None, Vec::new());
    }

    pub(in crate::observe) fn cost(&self) -> ProbeCost {
        ProbeCost::of(&self.measured, self.weighing.both_ends)
    }
}

/// Fraction of a turn by which this end may be late. On a core that a stream fills, a wakeup may
/// take some milliseconds.
const LATE_PARTS: u64 = 10;
/// A day of turns.
const MOST: usize = 400_000;

#[cfg(test)]
mod tests {
    use super::super::Turns;
    use super::*;
    use units::Span;

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_turn_is_measured_from_its_settling_to_its_end() {
        let turns = Turns { seed: 1, length: Span::from_millis(100) };
        let mut place = Place::begin(turns, at(0));
        let mut meter = Meter::new(Weighing::of(Span::ZERO, true));
        assert_eq!(meter.due(&place, at(0)), at(10));
        meter.begin(&place, at(9), || unreachable!());
        meter.begin(&place, at(20), || (at(20), Bytes::new(500)));
        assert_eq!(meter.due(&place, at(20)), at(100));
        meter.end(&place, || (at(101), Bytes::new(8600)));
        assert_eq!(meter.measured[0].rate, 100_000.0);
        // A turn begun too late, and a turn ended too late.
        place.go_on(at(101));
        assert_eq!(place.turn(), 1);
        meter.begin(&place, at(160), || unreachable!());
        meter.end(&place, || unreachable!());
        place.go_on(at(200));
        meter.begin(&place, at(211), || (at(211), Bytes::ZERO));
        meter.end(&place, || (at(311), Bytes::ZERO));
        assert_eq!(meter.measured.len(), 1);
    }
}
