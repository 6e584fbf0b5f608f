use super::in_flight::{Answer, InFlight};
use crate::event::{Latency, LatencySource};
use crate::observe::series::{MOST_POINTS, Merge, Origin, Series, Table};
use crate::observe::tally::Tally;
use units::{Span, Time};

/// The probe methods in order of preference, and the results of each method. Pure code: the caller
/// supplies the time.
#[derive(Debug)]
pub(super) struct Flows {
    begun: Time,
    /// Time 0 of the series, once the load has started.
    loaded: Option<Origin>,
    each: Vec<Flow>,
}

#[derive(Debug)]
struct Flow {
    by: LatencySource,
    in_flight: InFlight,
    phase: Tally,
    interval: Tally,
    answered: bool,
    /// True while this method still sends probes.
    alive: bool,
    table: Table,
}

impl Flows {
    pub(super) fn new(now: Time, sources: impl IntoIterator<Item = LatencySource>) -> Self {
        let each = sources.into_iter().map(Flow::new).collect();
        Self { begun: now, loaded: None, each }
    }

    pub(super) fn is_loaded(&self) -> bool {
        self.loaded.is_some()
    }

    pub(super) fn has_answer(&self) -> bool {
        self.each.iter().any(|flow| flow.answered)
    }

    pub(super) fn is_alive(&self, index: usize) -> bool {
        self.each.get(index).is_some_and(|flow| flow.alive)
    }

    pub(super) fn has_ended(&self) -> bool {
        !self.each.iter().any(|flow| flow.alive)
    }

    /// Registers a probe that leaves now, and returns its sequence number.
    pub(super) fn send(&mut self, index: usize, now: Time) -> Option<u64> {
        self.each.get_mut(index).map(|flow| flow.in_flight.send(now))
    }

    pub(super) fn retract(&mut self, index: usize, sequence: u64) {
        if let Some(flow) = self.each.get_mut(index) {
            flow.in_flight.retract(sequence);
        }
    }

    pub(super) fn answer(&mut self, index: usize, sequence: u64, times: Times) {
        let Some(flow) = self.each.get_mut(index) else { return };
        let round_trip = match flow.in_flight.answer(sequence, times.sent, times.now, times.lag) {
            Answer::Ignored => return,
            Answer::InTime(round_trip) => round_trip,
            Answer::Late(round_trip) => {
                flow.phase.find();
                round_trip
            }
        };
        flow.answered = true;
        flow.phase.add(round_trip);
        flow.interval.add(round_trip);
        if let Some(origin) = self.loaded {
            flow.table.push(origin.until(times.now), [Some(round_trip.millis_f64())]);
        }
    }

    /// Counts overdue probes as lost. Ends the methods that get no reply or are not needed.
    pub(super) fn settle(&mut self, now: Time) {
        for flow in &mut self.each {
            let lost = flow.in_flight.expire(now);
            flow.phase.lose(lost);
            flow.interval.lose(lost);
        }
        let since = now.since(self.begun);
        match self.each.iter().position(|flow| flow.answered) {
            Some(0) => self.keep(0),
            Some(first) if since >= FIRST_CHOICE => self.keep(first),
            None if since >= ANY_ANSWER => self.each.iter_mut().for_each(|flow| flow.alive = false),
            _ => {}
        }
    }

    /// Ends a phase and begins the next phase. `loaded` is the time at which the load started, if
    /// the next phase is under load.
    pub(super) fn end_phase(&mut self, now: Time, loaded: Option<Time>) -> Option<Latency> {
        let reported = self.close(now);
        self.loaded = loaded.map(Origin).or(self.loaded);
        for flow in &mut self.each {
            flow.phase.clear();
            flow.interval.clear();
        }
        reported
    }

    /// Ends an interval of a phase and returns its latency.
    pub(super) fn interval(&mut self) -> Option<Latency> {
        let reported = self.chosen().and_then(|flow| flow.interval.latency(flow.by));
        self.each.iter_mut().for_each(|flow| flow.interval.clear());
        reported
    }

    /// Pauses: no replies are read until the probe resumes. Overdue probes count as lost; the
    /// other probes in flight do not count.
    pub(super) fn pause(&mut self, now: Time) {
        for flow in &mut self.each {
            let lost = flow.in_flight.close(now);
            flow.phase.lose(lost);
            flow.interval.lose(lost);
        }
    }

    pub(super) fn close(&mut self, now: Time) -> Option<Latency> {
        for flow in &mut self.each {
            flow.phase.lose(flow.in_flight.close(now));
        }
        self.chosen().and_then(|flow| flow.phase.latency(flow.by))
    }

    /// Returns the number of probes lost in this phase by the method that gets replies.
    pub(super) fn lost(&self) -> u64 {
        self.chosen().map_or(0, |flow| flow.phase.lost())
    }

    pub(super) fn take_series(&mut self) -> Option<Series> {
        let place = self.each.iter().position(|flow| flow.answered)?;
        let table = std::mem::replace(&mut self.each[place].table, table_of(LatencySource::Echo));
        table.into_series()
    }

    fn chosen(&self) -> Option<&Flow> {
        self.each.iter().find(|flow| flow.answered)
    }

    fn keep(&mut self, index: usize) {
        for (other, flow) in self.each.iter_mut().enumerate() {
            flow.alive &= other == index;
        }
    }
}

impl Flow {
    fn new(by: LatencySource) -> Self {
        Self {
            by,
            in_flight: InFlight::new(PATIENCE),
            phase: Tally::default(),
            interval: Tally::default(),
            answered: false,
            alive: true,
            table: table_of(by),
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    /// Send time as stated in the reply.
    pub(super) sent: Time,
    /// The time at which the thread read the reply, and the time that the reply had been in the
    /// kernel by then.
    pub(super) now: Time,
    pub(super) lag: Span,
}

/// Creates the table of the latency series. Merged points keep the maximum, because readers look
/// for peaks.
fn table_of(by: LatencySource) -> Table {
    let mut table = Table::new("latency", Merge::Max, MOST_POINTS);
    let name = match by {
        LatencySource::Echo => "echo",
        LatencySource::Ping => "ping",
        LatencySource::TcpInfo => "smoothed",
    };
    table.column(name, "ms");
    table
}

/// Time after which a probe counts as lost, longer than the delay of a bad queue. If the reply
/// arrives later, the probe no longer counts as lost.
const PATIENCE: Span = Span::from_secs(3);
/// Timeout of a preferred method once another method has got a reply.
const FIRST_CHOICE: Span = Span::from_millis(400);
/// After this time without any reply, probing ends.
const ANY_ANSWER: Span = Span::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: [LatencySource; 2] = [LatencySource::Echo, LatencySource::Ping];

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    fn exchange(flows: &mut Flows, index: usize, sent: u64, now: u64) {
        let sequence = flows.send(index, at(sent)).unwrap();
        flows.answer(index, sequence, Times { sent: at(sent), now: at(now), lag: Span::ZERO });
    }

    #[test]
    fn the_echo_is_preferred_to_ping() {
        let mut flows = Flows::new(at(0), BOTH);
        exchange(&mut flows, 1, 10, 12);
        flows.settle(at(20));
        assert!(flows.is_alive(0) && flows.is_alive(1));
        exchange(&mut flows, 0, 30, 40);
        flows.settle(at(50));
        assert!(flows.is_alive(0) && !flows.is_alive(1));
        assert_eq!(flows.end_phase(at(60), None).unwrap().by, LatencySource::Echo);
    }

    #[test]
    fn ping_is_used_when_the_echo_is_silent() {
        let mut flows = Flows::new(at(0), BOTH);
        flows.send(0, at(10));
        exchange(&mut flows, 1, 10, 12);
        flows.settle(at(400));
        assert!(!flows.is_alive(0) && flows.is_alive(1));
        let latency = flows.end_phase(at(401), Some(at(401))).unwrap();
        assert_eq!((latency.by, latency.samples, latency.lost), (LatencySource::Ping, 1, 0));
        assert!(flows.is_loaded());
    }

    #[test]
    fn a_silent_peer_is_no_longer_probed() {
        let mut flows = Flows::new(at(0), BOTH);
        flows.send(0, at(10));
        flows.settle(at(4999));
        assert!(!flows.has_ended());
        flows.settle(at(5000));
        assert!(flows.has_ended() && !flows.has_answer());
        assert_eq!(flows.close(at(5001)), None);
        assert_eq!(flows.take_series(), None);
    }

    #[test]
    fn phases_and_intervals_are_counted_separately() {
        let mut flows = Flows::new(at(0), [LatencySource::Echo]);
        exchange(&mut flows, 0, 0, 1);
        assert_eq!(flows.end_phase(at(100), Some(at(100))).unwrap().max, Span::from_millis(1));
        exchange(&mut flows, 0, 100, 130);
        assert_eq!(flows.interval().unwrap().samples, 1);
        assert_eq!(flows.interval(), None);
        let lost = flows.send(0, at(200)).unwrap();
        flows.settle(at(3200));
        exchange(&mut flows, 0, 3200, 3250);
        assert_eq!(flows.interval().map(|latency| latency.lost), Some(1));
        let late = Times { sent: at(200), now: at(3500), lag: Span::ZERO };
        flows.answer(0, lost, late);
        let whole = flows.close(at(4000)).unwrap();
        assert_eq!((whole.samples, whole.lost), (3, 0));
        assert_eq!(whole.max, Span::from_millis(3300));
        let series = flows.take_series().unwrap();
        assert_eq!(series.time_s, [0.03, 3.15, 3.4]);
        assert_eq!(series.lines[0].name, "echo");
    }
}
