//! Decides when the next sample is taken, and whether it lists all sockets: the observation bounds
//! its own CPU time.

use units::Span;

#[derive(Debug)]
pub(super) struct Pace {
    /// Minimum time between two samples.
    interval: Span,
    /// The longest time between two samples, so that each observation has some samples.
    longest: Span,
    samples: u32,
    /// CPU time of the observation so far, with the time before the first sample.
    counted: Span,
    /// The probable CPU time of the end of the observation. The end reads all processes again, like
    /// the first sample and unlike the second sample.
    ending: Span,
    /// CPU time of the last sample that listed all sockets, and of the last sample that looked up
    /// the chosen sockets.
    listing: Span,
    looking: Option<Span>,
}

impl Pace {
    /// Starts the schedule. `spent`: CPU time that counts although it was used before the first
    /// sample.
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

    /// Whether the sample at this time lists all sockets. The first two samples do: the busiest
    /// connections are known only after these two samples.
    pub(super) fn lists(&self, at: Span) -> bool {
        let is_little = self.listing.secs_f64() <= self.interval.secs_f64() * SHARE;
        // The cost of a lookup is unknown before the first lookup.
        let is_known = is_little || self.looking.is_some();
        self.samples < 2 || self.is_cheap() || is_known && self.fits(at)
    }

    /// Whether a listing costs little more than a lookup, as with few connections.
    fn is_cheap(&self) -> bool {
        self.looking.is_some_and(|looking| self.listing <= looking + looking / 2)
    }

    fn fits(&self, at: Span) -> bool {
        (self.counted + self.ending + self.listing).secs_f64() <= at.secs_f64() * SHARE
    }

    /// Adds CPU time outside the samples.
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

    /// Returns the time until the next sample. The gaps vary: with even gaps, all samples would see
    /// a periodic load at the same point of its period.
    pub(super) fn pause(&self) -> Span {
        let place = |sample: u32| (f64::from(sample) * GOLDEN).fract();
        let shift = place(self.samples) - place(self.samples.saturating_sub(1));
        Span::from_secs_f64(self.period().secs_f64() * SPREAD.mul_add(shift, 1.0))
    }

    /// Returns the mean time between two samples.
    fn period(&self) -> Span {
        let least = match self.looking {
            Some(looking) if !self.is_cheap() => looking,
            _ => self.listing,
        };
        Span::from_secs_f64(least.secs_f64() / SHARE).clamp(self.interval, self.longest)
    }
}

/// The share of a core that the observation may take. The diagnosis adds a little.
const SHARE: f64 = 0.015;
const FEWEST: u64 = 3;
/// The part of a gap over which the samples are spread. The fractional parts of the multiples of
/// the golden ratio lie far from one another.
const SPREAD: f64 = 0.6;
const GOLDEN: f64 = 0.618_033_988_749_895;

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Span = Span::from_millis(250);

    /// Simulates an observation. Returns the observation's share of a core and its numbers of
    /// samples and listings.
    fn observed(seconds: u64, listing: Span, looking: Span) -> (f64, u32, u32) {
        observed_after(Span::ZERO, Span::ZERO, seconds, listing, looking)
    }

    /// Simulates as [`observed`] does, with CPU time `start` before the first sample, and `more`
    /// CPU time for the first sample.
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
    fn with_few_connections_each_sample_lists_all_sockets() {
        let (share, samples, listings) =
            observed(3, Span::from_micros(1_100), Span::from_micros(1_000));
        assert_eq!((samples, listings), (13, 13));
        assert!(share < 0.006, "{share}");
    }

    /// A server that answers every 250 ms is seen at many points of its pause.
    #[test]
    fn a_load_with_the_period_of_the_samples_is_sampled_at_many_phases() {
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
        // The mean gap is the interval.
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
    fn cpu_time_of_start_and_end_lowers_the_number_of_listings_but_not_of_samples() {
        let (listing, looking) = (Span::from_millis(7), Span::from_micros(1_500));
        let (start, more) = (Span::from_millis(6), Span::from_millis(4));
        let (share, samples, listings) = observed(3, listing, looking);
        let (with_both, others, fewer) = observed_after(start, more, 3, listing, looking);
        assert!(listings >= 4 && fewer == 2, "{listings} {fewer}");
        // The end costs as much as the extra work of the first sample.
        let end = more.secs_f64() / 3.0;
        assert!(with_both + end < 0.0155 && share < 0.0155, "{with_both} {share}");
        assert!(samples - others <= 2, "{samples} {others}");
    }

    #[test]
    fn expensive_samples_are_taken_seldom() {
        let (share, samples, _) = observed(10, Span::from_millis(20), Span::from_millis(12));
        assert!(share < 0.02 && samples < 14, "{share} {samples}");
        // An observation with expensive samples still has three samples.
        let (_, samples, listings) = observed(3, Span::from_secs(1), Span::from_millis(300));
        assert!(samples >= 3 && listings == 2, "{samples} {listings}");
    }
}
