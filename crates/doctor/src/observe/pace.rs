//! How often a sample is taken, and how much of it is read: the observation bounds its own CPU
//! time.

use units::Span;

#[derive(Debug)]
pub(super) struct Pace {
    /// Samples are not taken more often.
    interval: Span,
    /// An observation of its length still has some samples.
    longest: Span,
    samples: u32,
    /// CPU time of everything until now.
    counted: Span,
    /// CPU time that the end of the observation will probably take. It reads all processes again,
    /// as the first sample does and the second does not.
    ending: Span,
    /// CPU time of the last sample with all sockets, and of the last with the chosen ones.
    listing: Span,
    looking: Option<Span>,
}

impl Pace {
    /// `spent` is CPU time that counts although it was used before the first sample.
    pub(super) fn new(interval: Span, time: Span, spent: Span) -> Self {
        Self {
            interval,
            longest: interval.max(time / FEWEST),
            samples: 0,
            counted: spent,
            ending: Span::ZERO,
            listing: Span::ZERO,
            looking: None,
        }
    }

    /// Whether the sample at this time walks through all sockets. The first two do: the busiest
    /// are known only then.
    pub(super) fn lists(&self, at: Span) -> bool {
        let is_little = self.listing.secs_f64() <= self.interval.secs_f64() * SHARE;
        // The price of a look is not known before the first one.
        let is_known = is_little || self.looking.is_some();
        self.samples < 2 || self.is_cheap() || is_known && self.fits(at)
    }

    /// A machine with few connections lists them almost at the price of a look.
    fn is_cheap(&self) -> bool {
        self.looking.is_some_and(|looking| self.listing <= looking + looking / 2)
    }

    fn fits(&self, at: Span) -> bool {
        (self.counted + self.ending + self.listing).secs_f64() <= at.secs_f64() * SHARE
    }

    /// CPU time of something that is no part of a sample.
    pub(super) fn spend(&mut self, cost: Span) {
        self.counted = self.counted + cost;
    }

    pub(super) fn note(&mut self, listed: bool, cost: Span) {
        self.spend(cost);
        self.samples += 1;
        if self.samples == 2 {
            self.ending = self.listing - cost;
        }
        match listed {
            true => self.listing = cost,
            false => self.looking = Some(cost),
        }
    }

    /// The time until the next sample. The gaps vary: samples at even gaps see a load of the same
    /// period at one point of it.
    pub(super) fn pause(&self) -> Span {
        let place = |sample: u32| (f64::from(sample) * GOLDEN).fract();
        let shift = place(self.samples) - place(self.samples.saturating_sub(1));
        Span::from_secs_f64(self.period().secs_f64() * SPREAD.mul_add(shift, 1.0))
    }

    /// The mean time between two samples.
    fn period(&self) -> Span {
        let least = match self.looking {
            Some(looking) if !self.is_cheap() => looking,
            _ => self.listing,
        };
        Span::from_secs_f64(least.secs_f64() / SHARE).clamp(self.interval, self.longest)
    }
}

/// The share of a core that the observation may take. Judging adds a little.
const SHARE: f64 = 0.015;
const FEWEST: u64 = 3;
/// The samples' places in their gaps spread over this share of one. The multiples of the golden
/// ratio, without their whole parts, lie far from one another.
const SPREAD: f64 = 0.6;
const GOLDEN: f64 = 0.618_033_988_749_895;

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Span = Span::from_millis(250);

    /// The share of a core and the numbers of samples and listings of an observation.
    fn observed(seconds: u64, listing: Span, looking: Span) -> (f64, u32, u32) {
        observed_after(Span::ZERO, Span::ZERO, seconds, listing, looking)
    }

    /// The same after a start of this price, and with a first sample that costs so much more.
    fn observed_after(
        start: Span,
        more: Span,
        seconds: u64,
        listing: Span,
        looking: Span,
    ) -> (f64, u32, u32) {
        let time = Span::from_secs(seconds);
        let mut pace = Pace::new(INTERVAL, time, start);
        let (mut at, mut spent, mut listings) = (Span::ZERO, start, 0);
        while at <= time {
            let lists = pace.lists(at);
            listings += u32::from(lists);
            let cost = if lists { listing } else { looking };
            let cost = if pace.samples == 0 { cost + more } else { cost };
            pace.note(lists, cost);
            spent = spent + cost;
            at = at + pace.period();
        }
        (spent.secs_f64() / time.secs_f64(), pace.samples, listings)
    }

    #[test]
    fn few_connections_are_listed_each_time() {
        let (share, samples, listings) =
            observed(3, Span::from_micros(1_100), Span::from_micros(1_000));
        assert_eq!((samples, listings), (13, 13));
        assert!(share < 0.006, "{share}");
    }

    /// A server that answers every 250 ms is seen at many points of its pause.
    #[test]
    fn a_load_with_the_period_of_the_samples_is_seen_at_many_points() {
        let mut pace = Pace::new(INTERVAL, Span::from_secs(2), Span::ZERO);
        let mut at = Span::ZERO;
        let mut points: Vec<u64> = (0..8)
            .map(|_| {
                pace.note(true, Span::ZERO);
                at = at + pace.pause();
                at.nanos() / 1_000_000 % 250
            })
            .collect();
        points.sort_unstable();
        assert!(points[7] - points[0] > 100, "{points:?}");
        let in_a_tenth =
            |from: u64| points.iter().filter(move |at| (from..from + 25).contains(*at)).count();
        assert!((0..250).all(|from| in_a_tenth(from) <= 3), "{points:?}");
        // The gaps have the length of the interval in the mean.
        let mean = at.secs_f64() / 8.0 / INTERVAL.secs_f64();
        assert!((0.9..1.1).contains(&mean), "{mean}");
    }

    #[test]
    fn many_connections_are_listed_as_often_as_the_share_allows() {
        let (share, samples, listings) =
            observed(10, Span::from_millis(9), Span::from_micros(1_500));
        assert!(share < 0.017 && samples > 35, "{share} {samples}");
        assert!((5..20).contains(&listings), "{listings}");
    }

    #[test]
    fn the_start_and_the_end_take_listings_and_no_samples() {
        let (listing, looking) = (Span::from_millis(7), Span::from_micros(1_500));
        let (start, more) = (Span::from_millis(6), Span::from_millis(4));
        let (share, samples, listings) = observed(3, listing, looking);
        let (with_both, others, fewer) = observed_after(start, more, 3, listing, looking);
        assert!(listings >= 4 && fewer == 2, "{listings} {fewer}");
        // The end costs what the first sample cost more.
        let end = more.secs_f64() / 3.0;
        assert!(with_both + end < 0.0155 && share < 0.0155, "{with_both} {share}");
        assert!(samples - others <= 2, "{samples} {others}");
    }

    #[test]
    fn samples_that_are_expensive_are_seldom() {
        let (share, samples, _) = observed(10, Span::from_millis(20), Span::from_millis(12));
        assert!(share < 0.02 && samples < 14, "{share} {samples}");
        // Some samples are taken at any price.
        let (_, samples, listings) = observed(3, Span::from_secs(1), Span::from_millis(300));
        assert!(samples >= 3 && listings == 2, "{samples} {listings}");
    }
}
