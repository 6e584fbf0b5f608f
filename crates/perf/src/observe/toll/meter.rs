use super::statistic::{ProbeCost, Turn};
use super::{Place, Weighing};
use units::{Bytes, Time};

/// Goodput turn by turn, from readings that are the same whether looks are taken or not.
#[derive(Debug)]
pub(in crate::observe) struct Meter {
    weighing: Weighing,
    /// Of the turn that is measured now.
    begun: Option<(Time, Bytes)>,
    measured: Vec<Turn>,
}

impl Meter {
    pub(in crate::observe) fn new(weighing: Weighing) -> Self {
        Self { weighing, begun: None, measured: Vec::new() }
    }

    /// When it wants to read next.
    pub(in crate::observe) fn due(&self, place: &Place, now: Time) -> Time {
        let settled = place.starts() + self.weighing.settling;
        if self.begun.is_none() && now < settled { settled } else { place.ends() }
    }

    /// A turn has settled.
    pub(in crate::observe) fn begin(
        &mut self,
        place: &Place,
        now: Time,
        read: impl FnOnce() -> (Time, Bytes),
    ) {
        let since = now.since(place.starts());
        // Of a turn half over too little is left.
        let in_time = since >= self.weighing.settling && since < place.length() / 2;
        if in_time && self.begun.is_none() {
            self.begun = Some(read());
        }
    }

    /// A turn is over: `read` is of this moment.
    pub(in crate::observe) fn end(&mut self, place: &Place, read: impl FnOnce() -> (Time, Bytes)) {
        let Some((since, had)) = self.begun.take() else { return };
        let (now, has) = read();
        // This end turns when it comes, and has measured one kind alone; the far end has long turned.
        if now.since(place.ends()) > place.length() / LATE_PARTS || self.measured.len() >= MOST {
            return;
        }
        let seconds = now.since(since).secs_f64();
        if seconds > 0.0 {
            let rate = (has - had).count() as f64 / seconds;
            self.measured.push(Turn { number: place.turn(), looks: place.looks(), rate });
        }
    }

    /// What was measured until now does not count.
    pub(in crate::observe) fn forget(&mut self) {
        (self.begun, self.measured) = (None, Vec::new());
    }

    pub(in crate::observe) fn cost(&self) -> ProbeCost {
        ProbeCost::of(&self.measured, self.weighing.both_ends)
    }
}

/// Of a turn: one part late is borne. On a core that a stream fills, a wake may take some milliseconds.
const LATE_PARTS: u64 = 10;
/// A day of them.
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
    fn a_turn_is_what_came_between_its_settling_and_its_end() {
        let turns = Turns { seed: 1, length: Span::from_millis(100) };
        let mut place = Place::begin(turns, at(0));
        let mut meter = Meter::new(Weighing::of(Span::ZERO, true));
        assert_eq!(meter.due(&place, at(0)), at(10));
        meter.begin(&place, at(9), || unreachable!());
        meter.begin(&place, at(20), || (at(20), Bytes::new(500)));
        assert_eq!(meter.due(&place, at(20)), at(100));
        meter.end(&place, || (at(101), Bytes::new(8600)));
        assert_eq!(meter.measured[0].rate, 100_000.0);
        // One that was begun too late, and one that was ended too late.
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
