//! Histograms with logarithmic buckets. Each doubling has 32 buckets, so a quantile is within 1.6 %
//! of the exact value, and recording costs one shift and one addition.

use units::{Bytes, Share, Span, Time};

/// The distribution of a queue's size in bytes, weighted by time.
#[derive(Debug, Clone)]
pub struct Occupancy {
    held: Histogram,
    now: u64,
    since: Time,
}

impl Occupancy {
    pub(crate) fn new(start: Time) -> Self {
        Self { held: Histogram::default(), now: 0, since: start }
    }

    /// Returns the size that the queue did not exceed for `share` of the time.
    pub fn quantile(&self, share: Share) -> Bytes {
        Bytes::new(self.held.quantile(share))
    }

    /// Returns the mean size in bytes, weighted by time; 0 if no time was observed.
    pub fn mean(&self) -> f64 {
        self.held.mean()
    }

    /// Returns the largest size that lasted longer than zero time.
    pub fn max(&self) -> Bytes {
        Bytes::new(self.held.max)
    }

    /// Returns the time observed so far.
    pub fn observed(&self) -> Span {
        Span::from_nanos(self.held.weight)
    }

    /// Returns the observations after `earlier`, an earlier state of the same queue.
    pub fn since(&self, earlier: &Self) -> Self {
        Self { held: self.held.since(&earlier.held), now: self.now, since: self.since }
    }

    /// Records that the queue holds `bytes` from `at` onwards.
    #[inline]
    pub(crate) fn becomes(&mut self, at: Time, bytes: Bytes) {
        self.until(at);
        self.now = bytes.count();
    }

    /// Records that the queue's size is unchanged until `at`.
    #[inline]
    pub(crate) fn until(&mut self, at: Time) {
        let lasted = at.since(self.since).nanos();
        if lasted > 0 {
            self.held.add(self.now, lasted);
            self.since = at;
        }
    }
}

/// The time packets waited in a queue, from arrival to the start of their serialisation.
#[derive(Debug, Clone, Default)]
pub struct Sojourns(Histogram);

impl Sojourns {
    /// Returns the wait that `share` of the packets did not exceed; zero if no packet left the
    /// queue.
    pub fn quantile(&self, share: Share) -> Span {
        Span::from_nanos(self.0.quantile(share))
    }

    /// Returns the mean wait; zero if no packet left the queue.
    pub fn mean(&self) -> Span {
        Span::from_nanos(self.0.mean().round() as u64)
    }

    /// Returns the longest wait: exact since the link's creation, within 1.6 % in a result of
    /// [`Self::since`].
    pub fn max(&self) -> Span {
        Span::from_nanos(self.0.max)
    }

    /// Returns the sojourns of packets that left after `earlier`, an earlier state of the same
    /// queue.
    pub fn since(&self, earlier: &Self) -> Self {
        Self(self.0.since(&earlier.0))
    }

    /// Returns the number of packets that left the queue.
    pub fn packets(&self) -> u64 {
        self.0.weight
    }

    #[inline]
    pub(crate) fn add(&mut self, waited: Span) {
        self.0.add(waited.nanos(), 1);
    }
}

#[derive(Debug, Clone, Default)]
struct Histogram {
    /// The weight of each bucket. The vector ends with the doubling of the largest value so far,
    /// because most links of a large network never have a queue.
    buckets: Vec<u64>,
    weight: u64,
    sum: u128,
    max: u64,
}

impl Histogram {
    #[inline]
    fn add(&mut self, value: u64, weight: u64) {
        let index = bucket(value);
        if index >= self.buckets.len() {
            self.grow(index);
        }
        self.buckets[index] += weight;
        self.weight += weight;
        self.sum += u128::from(value) * u128::from(weight);
        self.max = self.max.max(value);
    }

    /// Extends the buckets to the end of the doubling that holds `index`, so that extensions are
    /// rare.
    #[cold]
    fn grow(&mut self, index: usize) {
        self.buckets.resize(((index >> SUB_BITS) + 1) << SUB_BITS, 0);
    }

    fn quantile(&self, share: Share) -> u64 {
        // Find the first bucket at which the cumulative weight reaches this weight, at least one
        // unit.
        let wanted = ((self.weight as f64 * share.fraction()).ceil() as u64).max(1);
        let mut seen = 0;
        for (index, weight) in self.buckets.iter().enumerate() {
            seen += weight;
            if seen >= wanted {
                return middle(index).min(self.max);
            }
        }
        self.max
    }

    /// Returns the entries after `earlier`. The maximum is approximate: the value of the highest
    /// bucket that has new entries.
    fn since(&self, earlier: &Self) -> Self {
        let mut buckets = self.buckets.clone();
        for (bucket, before) in buckets.iter_mut().zip(&earlier.buckets) {
            *bucket -= before;
        }
        let highest = buckets.iter().rposition(|weight| *weight > 0);
        Self {
            max: highest.map_or(0, |index| middle(index).min(self.max)),
            weight: self.weight - earlier.weight,
            sum: self.sum - earlier.sum,
            buckets,
        }
    }

    fn mean(&self) -> f64 {
        if self.weight == 0 {
            return 0.0;
        }
        self.sum as f64 / self.weight as f64
    }
}

#[inline]
fn bucket(value: u64) -> usize {
    let octave = (63 - (value | EXACT).leading_zeros() as usize) - SUB_BITS;
    (octave << SUB_BITS) + (value >> octave) as usize
}

/// Returns the value in the middle of the bucket's interval.
fn middle(index: usize) -> u64 {
    let octave = (index >> SUB_BITS).saturating_sub(1);
    let low = ((index - (octave << SUB_BITS)) as u64) << octave;
    low + (1u64 << octave) / 2
}

const SUB_BITS: usize = 5;
const EXACT: u64 = 1 << SUB_BITS;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_middle_of_a_bucket_is_near_its_values(value in any::<u64>()) {
            let index = bucket(value);
            prop_assert!(index < 60 << SUB_BITS);
            let error = middle(index).abs_diff(value) as f64;
            prop_assert!(error <= value as f64 / 63.0, "{value} in {index}: {error}");
        }
    }

    #[test]
    fn an_empty_histogram_is_small() {
        let mut sojourns = Sojourns::default();
        (0..1000).for_each(|_| sojourns.add(Span::ZERO));
        assert_eq!(sojourns.0.buckets.len(), 32);
        let before = sojourns.clone();
        sojourns.add(Span::from_secs(1 << 33));
        assert!(sojourns.0.buckets.len() <= 60 * 32);
        assert_eq!(sojourns.since(&before).packets(), 1);
    }

    #[test]
    fn since_returns_only_later_values() {
        let mut sojourns = Sojourns::default();
        (0..1000).for_each(|_| sojourns.add(Span::from_micros(700)));
        let before = sojourns.clone();
        (0..10).for_each(|_| sojourns.add(Span::from_micros(20)));
        let later = sojourns.since(&before);
        assert_eq!(later.packets(), 10);
        assert_eq!(later.mean(), Span::from_micros(20));
        assert!(later.max() <= Span::from_nanos(20_400));
        assert!(later.quantile(Share::new(0.5).unwrap()) >= Span::from_nanos(19_600));
    }

    #[test]
    fn occupancy_weighs_queue_sizes_by_time() {
        let at = Time::from_nanos;
        let mut queue = Occupancy::new(at(100));
        queue.becomes(at(190), Bytes::new(50));
        queue.becomes(at(199), Bytes::new(1000));
        queue.becomes(at(199), Bytes::new(30));
        queue.becomes(at(200), Bytes::ZERO);
        let share = |percent| Share::from_percent(percent).unwrap();
        assert_eq!(queue.quantile(share(50.0)), Bytes::ZERO);
        assert_eq!(queue.quantile(share(99.0)), Bytes::new(50));
        assert_eq!(queue.max(), Bytes::new(50));
        assert_eq!(queue.observed(), Span::from_nanos(100));
        assert!((queue.mean() - 4.8).abs() < 1e-9);
    }
}
