use std::collections::VecDeque;
use units::{Span, Time};

/// The probes in flight. Pure: the caller supplies the time.
#[derive(Debug)]
pub(super) struct InFlight {
    sent: VecDeque<Sent>,
    /// The sequence number of the first probe in `sent`. Sequence numbers are never reused.
    first: u64,
    /// After this time a probe counts as lost, unless its reply arrives later.
    patience: Span,
    longest: Span,
}

/// Classification of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    InTime(Span),
    /// The reply arrived after the probe had counted as lost.
    Late(Span),
    /// A duplicate, a reply to a probe that is no longer in the table, or a foreign datagram.
    Ignored,
}

#[derive(Debug, Clone, Copy)]
struct Sent {
    at: Time,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Pending,
    Lost,
    Done,
}

impl InFlight {
    pub(super) fn new(patience: Span) -> Self {
        Self { sent: VecDeque::new(), first: 0, patience, longest: Span::ZERO }
    }

    /// Registers a probe that leaves now, and returns its sequence number.
    pub(super) fn send(&mut self, now: Time) -> u64 {
        if self.sent.len() == MOST {
            self.sent.pop_front();
            self.first += 1;
        }
        self.sent.push_back(Sent { at: now, state: State::Pending });
        self.first + self.sent.len() as u64 - 1
    }

    /// Removes a probe that could not be sent.
    pub(super) fn retract(&mut self, sequence: u64) {
        if let Some(sent) = self.slot(sequence) {
            sent.state = State::Done;
        }
    }

    /// Takes the reply to a probe. `sent_at`: the send time in the reply. `now`: the time at which
    /// the thread read the reply. `lag`: the time that the reply had been in the kernel.
    pub(super) fn answer(&mut self, sequence: u64, sent_at: Time, now: Time, lag: Span) -> Answer {
        let Some(sent) = self.slot(sequence).filter(|sent| sent.at == sent_at) else {
            return Answer::Ignored;
        };
        let before = std::mem::replace(&mut sent.state, State::Done);
        let whole = now.since(sent_at);
        // The lag is a difference of real-time clock readings. A lag longer than the whole round
        // trip shows that this clock was set in between: ignore the lag.
        let round_trip = if lag < whole { whole - lag } else { whole };
        if before != State::Done {
            self.longest = self.longest.max(round_trip);
        }
        match before {
            State::Pending => Answer::InTime(round_trip),
            State::Lost => Answer::Late(round_trip),
            State::Done => Answer::Ignored,
        }
    }

    /// Returns the number of probes that newly count as lost.
    pub(super) fn expire(&mut self, now: Time) -> u64 {
        let patience = self.patience;
        self.give_up(State::Lost, |sent| now.since(sent.at) >= patience)
    }

    /// Ends a phase, and returns how many probes in flight are lost. The youngest probes count
    /// neither as lost nor as replied. Forgets all probes in flight.
    pub(super) fn close(&mut self, now: Time) -> u64 {
        let overdue = (self.longest * OVERDUE).max(SOON).min(self.patience);
        let lost = self.give_up(State::Done, |sent| now.since(sent.at) >= overdue);
        self.sent.iter_mut().for_each(|sent| sent.state = State::Done);
        lost
    }

    fn give_up(&mut self, become_: State, which: impl Fn(&Sent) -> bool) -> u64 {
        let given_up = self.sent.iter_mut().filter(|sent| sent.state == State::Pending);
        given_up.filter(|sent| which(sent)).map(|sent| sent.state = become_).count() as u64
    }

    fn slot(&mut self, sequence: u64) -> Option<&mut Sent> {
        let place = sequence.checked_sub(self.first)?;
        self.sent.get_mut(usize::try_from(place).ok()?)
    }
}

/// Maximum number of probes in flight: twenty seconds of probes at the shortest interval.
const MOST: usize = 2048;
/// At the end of a phase, a probe counts as lost if its age exceeds this many times the longest
/// round trip, and exceeds `SOON`.
const OVERDUE: u64 = 4;
/// Minimum age at which the end of a phase counts a probe as lost.
const SOON: Span = Span::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    fn in_flight() -> InFlight {
        InFlight::new(Span::from_secs(3))
    }

    #[test]
    fn a_reply_to_a_probe_counts_once() {
        let mut in_flight = in_flight();
        let number = in_flight.send(at(10));
        let answer = in_flight.answer(number, at(10), at(35), Span::from_millis(5));
        assert_eq!(answer, Answer::InTime(Span::from_millis(20)));
        assert_eq!(in_flight.answer(number, at(10), at(36), Span::ZERO), Answer::Ignored);
        assert_eq!(in_flight.answer(number + 1, at(10), at(36), Span::ZERO), Answer::Ignored);
        assert_eq!(in_flight.expire(at(100_000)), 0);
    }

    #[test]
    fn a_late_reply_to_a_probe_counts_once() {
        let mut in_flight = in_flight();
        let number = in_flight.send(at(0));
        assert_eq!((in_flight.expire(at(2999)), in_flight.expire(at(3000))), (0, 1));
        assert_eq!(in_flight.expire(at(9000)), 0);
        let late = Answer::Late(Span::from_millis(5000));
        assert_eq!(in_flight.answer(number, at(0), at(5000), Span::ZERO), late);
        assert_eq!(in_flight.answer(number, at(0), at(5001), Span::ZERO), Answer::Ignored);
    }

    #[test]
    fn a_reply_with_a_wrong_send_time_is_ignored_and_a_clock_jump_does_no_harm() {
        let mut in_flight = in_flight();
        let number = in_flight.send(at(10));
        assert_eq!(in_flight.answer(number, at(9), at(20), Span::ZERO), Answer::Ignored);
        let answer = in_flight.answer(number, at(10), at(20), Span::from_secs(3600));
        assert_eq!(answer, Answer::InTime(Span::from_millis(10)));
    }

    #[test]
    fn at_the_end_of_a_phase_the_youngest_probes_do_not_count() {
        let mut in_flight = in_flight();
        let numbers: Vec<_> = [0, 50, 950].map(|millis| in_flight.send(at(millis))).into();
        in_flight.answer(numbers[1], at(50), at(70), Span::ZERO);
        assert_eq!(in_flight.close(at(1000)), 1);
        assert_eq!(in_flight.answer(numbers[2], at(950), at(1001), Span::ZERO), Answer::Ignored);
        assert_eq!(in_flight.close(at(9000)), 0);
    }

    #[test]
    fn an_unsent_probe_does_not_count_as_lost() {
        let mut in_flight = in_flight();
        let number = in_flight.send(at(0));
        in_flight.retract(number);
        assert_eq!(in_flight.close(at(9000)), 0);
    }

    proptest! {
        /// With any loss, duplication and reordering, each probe counts as replied or lost, never
        /// both and never twice.
        #[test]
        fn every_probe_counts_once_as_replied_or_lost(
            events in proptest::collection::vec((0_u64..4, 0_usize..60, 0_u64..2000), 1..400),
        ) {
            let mut in_flight = in_flight();
            let mut sent = Vec::new();
            let (mut now, mut lost, mut in_time, mut late) = (0, 0, 0, 0);
            for (what, which, pause) in events {
                now += pause;
                match what {
                    0 | 1 => sent.push((in_flight.send(at(now)), at(now))),
                    2 => lost += in_flight.expire(at(now)),
                    _ => if let Some((number, then)) = sent.get(which) {
                        match in_flight.answer(*number, *then, at(now), Span::ZERO) {
                            Answer::InTime(_) => in_time += 1,
                            Answer::Late(_) => late += 1,
                            Answer::Ignored => {}
                        }
                    }
                }
            }
            lost += in_flight.expire(at(now + 10_000));
            prop_assert_eq!(in_time + lost, sent.len() as u64);
            prop_assert!(late <= lost);
            prop_assert!(sent.windows(2).all(|pair| pair[0].0 < pair[1].0));
        }
    }
}
