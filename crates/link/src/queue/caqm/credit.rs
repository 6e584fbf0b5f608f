use crate::random::Stream;
use units::{Bytes, Rate, Share, Span, Time};
use wire::caqm::{Info, Meaning};

/// CAQM's credit counter: the bytes that a port may still approve in this period.
#[derive(Debug)]
pub(super) struct Credit {
    law: Law,
    random: Stream,
    /// The start of the period. The first period begins with the first packet.
    began: Option<Time>,
    /// The bytes that the port may still approve (CC in CAQM). Below zero, senders have to reduce
    /// their windows.
    left: i64,
    /// Bytes that departed in this period.
    sent: i64,
    /// Bytes approved in this period, minus bytes that upstream ports refused.
    granted: i64,
    /// The bytes that this port has refused at random, and may approve for other requests instead
    /// (DC in CAQM).
    dealt: i64,
    /// The requests of this period.
    came: PeriodTotals,
    /// The plan for this period, derived from the requests of the previous period.
    plan: Plan,
}

#[derive(Debug, Clone, Copy, Default)]
struct PeriodTotals {
    requests: u64,
    /// The sum of the requests' hints, in bytes.
    asked: i64,
    /// The sum of the squares of the hints.
    squares: i64,
    /// The sum of the requests' refusal weights, relative to an average request.
    weights: f64,
    /// Bytes refused at random.
    dealt: i64,
}

/// The port's plan for a period, which treats all requests of the period alike, independent of
/// their order. If the port served requests until no credit is left, small windows would hardly
/// ever receive credit, because their hints are large, and refusals would hit the flows that send
/// when a period begins.
///
/// A hint reveals the size of a window: the larger the window, the less growth each packet
/// requests. The port therefore refuses a flow whose hint is half of the other flows' hint twice as
/// often, and grants it a quarter. Two windows then converge in two thirds of the time that equal
/// refusals would need.
#[derive(Debug, Clone, Copy)]
struct Plan {
    /// The part of a hint's square that the port grants, in units of [`WHOLE`], but no more than
    /// the hint.
    share: f64,
    /// Whether the credit covers all expected requests.
    enough: bool,
    /// The amount below `unit` that the port has not granted yet, in units of [`WHOLE`].
    carry: i64,
    /// The probability of a refusal while the counter is below zero.
    odds: f64,
    /// The probability of a refusal while the counter is not below zero. The probability is zero if
    /// no other request needs the credit.
    chance: f64,
    /// The mean size of a request.
    usual: f64,
    /// The factor that normalises the mean of the weights to 1.
    scale: f64,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Law {
    pub(super) rate: Rate,
    pub(super) period: Span,
    pub(super) target: Bytes,
    pub(super) lambda: Share,
    pub(super) chance: Share,
    pub(super) beta: Bytes,
    pub(super) unit: Bytes,
    /// Whether every request of a period gets its share of the credit; otherwise the port serves
    /// requests in order.
    pub(super) spread: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The port leaves the packet unchanged.
    Passed,
    Trimmed(Info),
    Refused(Info),
}

impl Credit {
    pub(super) fn new(law: Law, seed: u64) -> Self {
        Self {
            law,
            random: Stream::new(seed, "caqm"),
            began: None,
            left: 0,
            sent: 0,
            granted: 0,
            dealt: 0,
            came: PeriodTotals::default(),
            plan: Plan::IN_FULL,
        }
    }

    pub(super) fn retune(&mut self, law: Law) {
        self.law = law;
    }

    /// Advances to `now`. The caller advances before any event at `now`. `queued`: the bytes in the
    /// queue until then.
    pub(super) fn advance(&mut self, now: Time, queued: Bytes) {
        let Some(began) = self.began else {
            self.began = Some(now);
            return self.begin(queued);
        };
        let periods = now.since(began).nanos() / self.law.period.nanos().max(1);
        if periods == 0 {
            return;
        }
        // If several periods have passed, only the last period counts, in which no byte was sent or
        // granted.
        if periods > 1 {
            (self.sent, self.granted) = (0, 0);
            self.came = PeriodTotals::default();
        }
        self.began = Some(began + self.law.period * periods);
        self.begin(queued);
    }

    /// Records that a frame departs.
    pub(super) fn send(&mut self, size: Bytes) {
        self.sent = self.sent.saturating_add(signed(size));
    }

    /// Decides on the request of a data packet, in the order of cases that CAQM defines for a port.
    pub(super) fn judge(&mut self, asked: Info) -> Verdict {
        // Ignore a go-ahead, which is for the other end and not for ports.
        if asked.is_go_ahead() {
            return Verdict::Passed;
        }
        let beta = signed(self.law.beta);
        let hint = match asked.meaning() {
            Meaning::More(units) => i64::from(units) * signed(self.law.unit),
            Meaning::Nothing => 0,
            Meaning::Fewer(_) => {
                self.left = self.left.saturating_add(beta);
                self.granted = self.granted.saturating_sub(beta);
                return Verdict::Passed;
            }
        };
        let weight = self.plan.weight(hint);
        self.came.add(hint, weight);
        if self.left < 0 {
            if !self.happens(self.plan.odds * weight) {
                return Verdict::Trimmed(asked.without_hint());
            }
            self.left += beta;
            return Verdict::Refused(asked.refused());
        }
        if self.left >= hint && self.plan.enough {
            self.left -= hint;
            self.granted += hint;
            return Verdict::Passed;
        }
        if self.happens(self.plan.chance.min(self.law.chance.fraction()) * weight) {
            self.dealt += beta;
            self.came.dealt += beta;
            return Verdict::Refused(asked.refused());
        }
        if self.law.spread {
            return self.give_share(asked, hint);
        }
        if self.dealt >= hint {
            self.dealt -= hint;
            return Verdict::Passed;
        }
        Verdict::Trimmed(asked.without_hint())
    }

    fn happens(&mut self, odds: f64) -> bool {
        Share::new(odds.clamp(0.0, 1.0)).is_some_and(|odds| self.random.happens(odds))
    }

    fn give_share(&mut self, asked: Info, hint: i64) -> Verdict {
        let unit = signed(self.law.unit).max(1);
        let part = (self.plan.share * hint as f64).min(1.0) * WHOLE as f64;
        let due = hint * part as i64 + self.plan.carry;
        let units = (due / WHOLE).min(hint).min(self.left + self.dealt) / unit;
        let given = units * unit;
        // Limit the carry, so that missing credit does not add up for ever.
        self.plan.carry = (due - given * WHOLE).min(unit * WHOLE);
        let of_dealt = given.min(self.dealt);
        self.dealt -= of_dealt;
        self.left -= given - of_dealt;
        self.granted += given - of_dealt;
        match u8::try_from(units) {
            Ok(0) => Verdict::Trimmed(asked.without_hint()),
            Ok(units) if given < hint => Verdict::Trimmed(asked.with_hint(units)),
            _ => Verdict::Passed,
        }
    }

    fn begin(&mut self, queued: Bytes) {
        let law = &self.law;
        let could = law.rate.bytes_in(law.period);
        let room = signed(could) - self.sent + signed(law.target) - signed(queued) - self.granted;
        self.left = (room as f64 * law.lambda.fraction()) as i64;
        (self.sent, self.granted, self.dealt) = (0, 0, 0);
        if law.spread {
            self.plan = self.plan.of_next(self.left, signed(law.beta), self.came);
        }
        self.came = PeriodTotals::default();
    }
}

impl PeriodTotals {
    fn add(&mut self, hint: i64, weight: f64) {
        self.requests += 1;
        self.asked += hint;
        self.squares += hint * hint;
        self.weights += weight;
    }
}

impl Plan {
    const IN_FULL: Self =
        Self { share: 1.0, enough: true, carry: 0, odds: 1.0, chance: 1.0, usual: 0.0, scale: 1.0 };

    /// Returns the weight of a packet with this hint: its refusal probability, relative to the
    /// average.
    fn weight(&self, hint: i64) -> f64 {
        if self.usual > 0.0 {
            self.scale * (self.usual / hint.max(1) as f64).min(MOST_WEIGHT)
        } else {
            1.0
        }
    }

    /// Makes the plan of the next period. Assumes the number of requests and of bytes of the last
    /// period.
    fn of_next(self, left: i64, beta: i64, came: PeriodTotals) -> Self {
        let there = left.max(0) + came.dealt;
        let requests = came.requests.max(1) as f64;
        let refused_each = |bytes: i64| bytes.max(0) as f64 / (beta.max(1) as f64 * requests);
        Self {
            share: there as f64 / came.squares.max(1) as f64,
            enough: came.asked <= there,
            carry: self.carry,
            odds: refused_each(left.saturating_neg()),
            chance: refused_each(came.asked.saturating_sub(left)),
            usual: came.asked as f64 / requests,
            scale: match came.weights > 0.0 {
                true => self.scale * requests / came.weights,
                false => 1.0,
            },
        }
    }
}

/// The weight of a hint of zero: the port refuses such a packet this many times as often as the
/// average packet.
const MOST_WEIGHT: f64 = 4.0;
const WHOLE: i64 = 1 << 16;

/// Converts a size to a signed number, clamped so that no counter can overflow.
fn signed(bytes: Bytes) -> i64 {
    i64::try_from(bytes.count()).unwrap_or(i64::MAX).min(1 << 50)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn law(target: u64) -> Law {
        Law {
            rate: Rate::from_mbit(1000),
            period: Span::from_micros(100),
            target: Bytes::new(target),
            lambda: Share::new(0.5).unwrap(),
            chance: Share::ZERO,
            beta: Bytes::new(512),
            unit: Bytes::new(8),
            spread: false,
        }
    }

    fn at(micros: u64) -> Time {
        Time::from_nanos(micros * 1000)
    }

    #[test]
    fn an_idle_port_approves_half_of_the_bytes_that_it_could_send_and_hold() {
        let mut credit = Credit::new(law(2700), 1);
        credit.advance(at(5), Bytes::ZERO);
        assert_eq!(credit.left, (12_500 + 2700) / 2);
        let asks = Info::request(250);
        assert_eq!(credit.judge(asks), Verdict::Passed);
        assert_eq!((credit.left, credit.granted), (5600, 2000));
        assert_eq!([(); 2].map(|()| credit.judge(asks)), [Verdict::Passed; 2]);
        assert_eq!(credit.judge(asks), Verdict::Trimmed(asks.without_hint()));
        // Granted bytes and unsent bytes count in the next period.
        credit.send(Bytes::new(12_500));
        credit.advance(at(104), Bytes::new(1000));
        assert_eq!(credit.left, 1600 - 2000 + 2000);
        credit.advance(at(105), Bytes::new(1000));
        assert_eq!(credit.left, (2700 - 1000 - 6000) / 2);
        assert_eq!(credit.judge(asks), Verdict::Refused(asks.refused()));
        assert_eq!(credit.left, -1638);
        // After a long time the counter has forgotten granted and unsent bytes.
        credit.advance(at(100_000), Bytes::new(0));
        assert_eq!(credit.left, 7600);
    }

    /// Four requests asked for 2000 bytes, and `beta` is 512 bytes.
    #[test]
    fn the_plan_of_a_period_follows_the_requests_of_the_previous_period() {
        let came =
            PeriodTotals { asked: 2000, squares: 1_000_000, requests: 4, weights: 8.0, dealt: 100 };
        let last = Plan { scale: 3.0, carry: 7, ..Plan::IN_FULL };
        let plan = last.of_next(400, 512, came);
        assert_eq!((plan.share, plan.enough, plan.carry), (0.0005, false, 7));
        assert_eq!((plan.odds, plan.chance), (0.0, 1600.0 / 2048.0));
        assert_eq!((plan.usual, plan.scale), (500.0, 1.5));
        // The debt is a quarter of the bytes by which four refusals shrink windows.
        assert_eq!(last.of_next(-512, 512, came).odds, 0.25);
        assert!(last.of_next(1900, 512, came).enough);
    }

    #[test]
    fn requests_of_one_period_get_equal_parts_of_too_little_credit() {
        let mut credit = Credit::new(Law { spread: true, ..law(0) }, 1);
        credit.advance(at(0), Bytes::ZERO);
        let asks = Info::request(250);
        for _ in 0..4 {
            credit.judge(asks);
        }
        // The next period expects four requests again.
        credit.advance(at(100), Bytes::ZERO);
        let each = credit.left / 4 / 8;
        assert!(each > 50, "{each}");
        for _ in 0..4 {
            let Verdict::Trimmed(given) = credit.judge(asks) else { panic!("not trimmed") };
            let Meaning::More(units) = given.meaning() else { panic!("{given}") };
            assert!((each - 1..=each + 1).contains(&i64::from(units)), "{units} of {each}");
        }
    }

    #[test]
    fn credit_that_an_upstream_port_refused_goes_to_other_requests() {
        let mut credit = Credit::new(law(0), 1);
        credit.advance(at(0), Bytes::new(12_500));
        assert_eq!(credit.left, 0);
        assert_eq!(credit.judge(Info::request(1).refused()), Verdict::Passed);
        assert_eq!((credit.left, credit.granted), (512, -512));
        assert_eq!(credit.judge(Info::request(64)), Verdict::Passed);
    }

    #[test]
    fn credit_refused_at_random_goes_to_other_requests() {
        let always = Law { chance: Share::ONE, ..law(0) };
        let mut credit = Credit::new(always, 1);
        credit.advance(at(0), Bytes::new(12_500));
        let asks = Info::request(64);
        assert_eq!(credit.judge(asks), Verdict::Refused(asks.refused()));
        credit.retune(law(0));
        assert_eq!(credit.judge(asks), Verdict::Passed);
        assert_eq!(credit.judge(asks), Verdict::Trimmed(asks.without_hint()));
    }

    proptest! {
        /// Each period approves at most the bytes of the formula plus β for each refusal.
        #[test]
        fn approvals_never_exceed_the_credit(
            events in proptest::collection::vec((0_u64..60, 0_u64..400_000, 0_u16..0x2000), 1..300),
            target in 0_u64..300_000,
            chance in 0.0..1.0,
            spread: bool,
            seed: u64,
        ) {
            let law = Law { chance: Share::new(chance).unwrap(), spread, ..law(target) };
            let mut credit = Credit::new(law, seed);
            let (mut now, mut began, mut allowed, mut approved) = (0, None, 0, 0);
            for (pause, queued, bits) in events {
                now += pause;
                credit.advance(at(now), Bytes::new(queued));
                if credit.began != began {
                    began = credit.began;
                    prop_assert!((credit.sent, credit.granted, credit.dealt) == (0, 0, 0));
                    (allowed, approved) = (credit.left.max(0), 0);
                }
                let asked = Info::from_bits(bits);
                let hint = match asked.meaning() {
                    Meaning::More(units) => i64::from(units) * 8,
                    _ => 0,
                };
                let refused = matches!(asked.meaning(), Meaning::Fewer(_));
                match credit.judge(asked) {
                    Verdict::Passed if refused => allowed += 512,
                    Verdict::Passed => approved += hint,
                    Verdict::Refused(answer) => {
                        prop_assert!(matches!(answer.meaning(), Meaning::Fewer(_)));
                        allowed += 512;
                    }
                    Verdict::Trimmed(answer) => match answer.meaning() {
                        Meaning::More(units) => {
                            prop_assert!(spread && i64::from(units) * 8 < hint);
                            approved += i64::from(units) * 8;
                        }
                        meaning => prop_assert_eq!(meaning, Meaning::Nothing),
                    },
                }
                prop_assert!(approved <= allowed, "{} of {}", approved, allowed);
                credit.send(Bytes::new(1500));
            }
        }
    }

    /// Builds a port whose plan gives out shares: `share` of a byte for each byte squared.
    fn sharing(share: f64, left: i64, dealt: i64) -> Credit {
        let mut credit = Credit::new(Law { spread: true, ..law(0) }, 1);
        credit.plan = Plan { share, enough: false, chance: 0.0, ..Plan::IN_FULL };
        (credit.left, credit.dealt) = (left, dealt);
        credit
    }

    #[test]
    fn refusal_bytes_are_returned_once() {
        let mut credit = sharing(1.0, 0, 512);
        let asks = Info::request(64);
        assert_eq!(credit.judge(asks), Verdict::Passed);
        assert_eq!((credit.left, credit.dealt, credit.granted), (0, 0, 0));
        assert_eq!(credit.judge(asks), Verdict::Trimmed(asks.without_hint()));
    }

    /// Half of a unit is due to each request, so that every second request gets a whole unit.
    #[test]
    fn grants_below_a_hint_unit_are_carried_over() {
        let mut credit = sharing(0.5 / 8.0, 1000, 0);
        let asks = Info::request(1);
        let trimmed = Verdict::Trimmed(asks.without_hint());
        for _ in 0..3 {
            assert_eq!(credit.judge(asks), trimmed);
            assert_eq!(credit.judge(asks), Verdict::Passed);
        }
        assert_eq!((credit.left, credit.granted), (1000 - 24, 24));
    }
}
