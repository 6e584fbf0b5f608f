use std::collections::BTreeMap;

use units::{Share, Span, Time};

/// The recorded samples, and the cost of recording them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Recording {
    pub series: Vec<Series>,
    pub started: Time,
    pub stopped: Time,
    /// Time between samples. The time is longer than requested if samples were thinned out to bound
    /// memory.
    pub interval: Span,
    pub samples: u64,
    /// Moments without a sample, because the machine was too busy.
    pub missed: u64,
    /// CPU time of the sampler's own thread.
    pub cpu_time: Span,
    pub failures: Vec<Failure>,
}

/// One metric of one subject over time.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    pub metric: String,
    pub subject: String,
    pub points: Vec<Point>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Points of the same moment have the same number.
    pub sample: u64,
    pub at: Time,
    pub value: f64,
}

/// A failed reading of a probe. The other samples of this probe are valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub probe: String,
    pub times: u64,
    pub message: String,
}

impl Recording {
    /// Returns the CPU time of sampling as a share of one core.
    pub fn cost(&self) -> Option<Share> {
        let elapsed = self.stopped.since(self.started);
        (elapsed > Span::ZERO).then(|| {
            let share = self.cpu_time.secs_f64() / elapsed.secs_f64();
            Share::new(share).unwrap_or(Share::ONE)
        })
    }

    pub fn find(&self, metric: &str, subject: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.metric == metric && series.subject == subject)
    }
}

/// Series with a common bound on the number of points. At the bound, the store drops every second
/// sample, so that the other samples still cover the whole time evenly.
#[derive(Debug)]
pub(super) struct Store {
    series: BTreeMap<String, BTreeMap<String, Vec<Point>>>,
    points: usize,
    points_max: usize,
    stride: u64,
}

impl Store {
    pub(super) fn new(points_max: usize) -> Self {
        Self { series: BTreeMap::new(), points: 0, points_max: points_max.max(2), stride: 1 }
    }

    /// Returns the stride: the store keeps one sample per stride.
    pub(super) fn stride(&self) -> u64 {
        self.stride
    }

    pub(super) fn put(&mut self, metric: &str, subject: &str, point: Point) {
        // A single sample may have more values than the store can hold.
        while self.points >= self.points_max {
            if self.stride > u64::MAX / 2 || !self.thin() {
                return;
            }
        }
        if !point.sample.is_multiple_of(self.stride) {
            return;
        }
        if !self.series.contains_key(metric) {
            self.series.insert(metric.to_owned(), BTreeMap::new());
        }
        let Some(subjects) = self.series.get_mut(metric) else {
            return;
        };
        match subjects.get_mut(subject) {
            Some(points) => points.push(point),
            None => {
                subjects.insert(subject.to_owned(), vec![point]);
            }
        }
        self.points += 1;
    }

    pub(super) fn into_series(self) -> Vec<Series> {
        self.series
            .into_iter()
            .flat_map(|(metric, subjects)| {
                subjects.into_iter().map(move |(subject, points)| Series {
                    metric: metric.clone(),
                    subject,
                    points,
                })
            })
            .collect()
    }

    /// Drops every second sample; returns true if that freed space.
    fn thin(&mut self) -> bool {
        let before = self.points;
        self.stride *= 2;
        let stride = self.stride;
        self.points = 0;
        self.series.retain(|_, subjects| {
            subjects.retain(|_, points| {
                points.retain(|point| point.sample.is_multiple_of(stride));
                points.shrink_to_fit();
                self.points += points.len();
                !points.is_empty()
            });
            !subjects.is_empty()
        });
        self.points < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn point(sample: u64) -> Point {
        Point { sample, at: Time::from_nanos(sample), value: sample as f64 }
    }

    #[test]
    fn a_full_store_keeps_every_second_sample() {
        let mut store = Store::new(10);
        for sample in 0..=10 {
            store.put("rtt_us", "a", point(sample));
        }
        assert_eq!(store.stride(), 2);
        let series = store.into_series();
        let samples: Vec<_> = series[0].points.iter().map(|point| point.sample).collect();
        assert_eq!(samples, [0, 2, 4, 6, 8, 10]);
    }

    #[test]
    fn a_sample_larger_than_the_store_is_cut() {
        let mut store = Store::new(4);
        for subject in 0..100 {
            store.put("rtt_us", &subject.to_string(), point(0));
        }
        assert_eq!(store.into_series().len(), 4);
    }

    proptest! {
        #[test]
        fn the_store_never_holds_more_points_than_its_bound(max in 2usize..200, puts in prop::collection::vec((0u64..50, 0u8..5), 0..2000)) {
            let mut store = Store::new(max);
            for (sample, subject) in puts {
                store.put("m", &subject.to_string(), point(sample));
            }
            let stride = store.stride();
            let series = store.into_series();
            prop_assert!(series.iter().map(|series| series.points.len()).sum::<usize>() <= max);
            prop_assert!(series.iter().flat_map(|series| &series.points).all(|point| point.sample.is_multiple_of(stride)));
        }
    }
}
