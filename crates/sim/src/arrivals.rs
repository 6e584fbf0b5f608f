use crate::random::exponential;
use crate::{Demand, FlowSpec, Traffic};
use link::Stream;
use units::{Bytes, Span, Time};

/// Randomly arriving flows: copies of a pattern with different times and sizes.
#[derive(Debug, Clone, PartialEq)]
pub struct Arrivals {
    /// The times of the arrivals.
    pub times: Times,
    /// The sizes of the flows. Datagram flows keep the pattern's rate and have no size.
    pub sizes: Sizes,
    /// Beginning of the process. The first arrival of [`Times::Every`] is at this time.
    pub from: Time,
    /// End of the process: no flow arrives at this time or later.
    pub until: Time,
    /// Seed of the random times and sizes.
    pub seed: u64,
}

/// The process that gives the times of arrivals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Times {
    /// Independent arrivals with this mean time between them (a Poisson process).
    Poisson(Span),
    /// Arrivals with exactly this time between them.
    Every(Span),
    /// Arrivals at these times after the beginning.
    At(Vec<Span>),
}

/// The sizes of arriving flows.
#[derive(Debug, Clone, PartialEq)]
pub enum Sizes {
    /// Every flow has this size, at least a byte.
    Fixed(Bytes),
    /// Points of a distribution function, as published workloads give them: a size, and the share
    /// of flows of at most this size. Both ascend, and the function is linear between points.
    Distribution(Vec<(Bytes, f64)>),
}

impl Arrivals {
    /// Makes a flow for each arrival. `pattern` returns flow number `n`; this method sets its start
    /// and, for TCP, its size.
    pub fn flows(&self, pattern: impl FnMut(usize) -> FlowSpec) -> Vec<FlowSpec> {
        self.flows_at_most(usize::MAX, pattern).unwrap_or_default()
    }

    /// Makes flows like [`Self::flows`]; `None` if there are more than `most` flows.
    pub fn flows_at_most(
        &self,
        most: usize,
        mut pattern: impl FnMut(usize) -> FlowSpec,
    ) -> Option<Vec<FlowSpec>> {
        let mut times = Stream::new(self.seed, "arrival times");
        let mut sizes = Stream::new(self.seed, "arrival sizes");
        let mut flows = Vec::new();
        let mut at = self.from;
        loop {
            at = match &self.times {
                Times::Poisson(mean) => at + exponential(&mut times, (*mean).max(SHORTEST)),
                Times::Every(_) if flows.is_empty() => at,
                Times::Every(span) => at + (*span).max(SHORTEST),
                Times::At(times) => match times.get(flows.len()) {
                    Some(after) => self.from + *after,
                    None => return Some(flows),
                },
            };
            if at >= self.until {
                return Some(flows);
            }
            if flows.len() == most {
                return None;
            }
            let mut flow = pattern(flows.len()).starting(at);
            let size = self.sizes.draw(sizes.unit());
            if let Traffic::Tcp { demand, .. } | Traffic::Tunnelled { demand, .. } =
                &mut flow.traffic
            {
                *demand = Demand::Size(size);
            }
            flows.push(flow);
        }
    }
}

impl Sizes {
    /// Returns the mean size of a flow.
    pub fn mean(&self) -> Bytes {
        match self {
            Self::Fixed(size) => *size,
            Self::Distribution(points) => {
                let mut mean = 0.0;
                let mut before = (0.0, 0.0);
                for (size, share) in points {
                    let size = size.count() as f64;
                    mean += (share - before.1).max(0.0) * (size + before.0) / 2.0;
                    before = (size, *share);
                }
                Bytes::new(mean.round() as u64)
            }
        }
    }

    fn draw(&self, chance: f64) -> Bytes {
        match self {
            Self::Fixed(size) => (*size).max(Bytes::new(1)),
            Self::Distribution(points) => {
                let mut before = (0.0, 0.0);
                for (size, share) in points {
                    let size = size.count() as f64;
                    if chance <= *share {
                        let part = (chance - before.1) / (share - before.1).max(f64::MIN_POSITIVE);
                        let bytes = before.0 + (size - before.0) * part;
                        return Bytes::new((bytes.round() as u64).max(1));
                    }
                    before = (size, *share);
                }
                Bytes::new((before.0 as u64).max(1))
            }
        }
    }
}

/// The shortest time between arrivals: with zero, a process would never end.
const SHORTEST: Span = Span::from_nanos(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Node;

    fn flows(arrivals: &Arrivals) -> Vec<FlowSpec> {
        arrivals.flows(|_| FlowSpec::bulk(Node(0), Node(1), cc::Algorithm::Reno))
    }

    fn size(flow: &FlowSpec) -> u64 {
        match flow.traffic {
            Traffic::Tcp { demand: Demand::Size(size), .. } => size.count(),
            _ => 0,
        }
    }

    #[test]
    fn random_times_and_sizes_have_their_configured_means() {
        let sizes = Sizes::Distribution(vec![
            (Bytes::new(1000), 0.5),
            (Bytes::new(10_000), 0.9),
            (Bytes::new(1_000_000), 1.0),
        ]);
        let arrivals = Arrivals {
            times: Times::Poisson(Span::from_millis(1)),
            from: Time::ZERO + Span::from_secs(1),
            until: Time::ZERO + Span::from_secs(101),
            seed: 7,
            sizes: sizes.clone(),
        };
        let flows = flows(&arrivals);
        assert!((99_000..101_000).contains(&flows.len()), "{}", flows.len());
        let mean = flows.iter().map(size).sum::<u64>() as f64 / flows.len() as f64;
        let expected = sizes.mean().count() as f64;
        assert!((mean / expected - 1.0).abs() < 0.05, "{mean} {expected}");
        assert!(flows.windows(2).all(|pair| pair[0].start <= pair[1].start));
    }

    #[test]
    fn flows_arrive_at_the_given_times() {
        let sizes = Sizes::Fixed(Bytes::kib(64));
        let until = Time::ZERO + Span::from_millis(10);
        let every = Arrivals {
            times: Times::Every(Span::from_millis(3)),
            sizes,
            from: Time::ZERO,
            until,
            seed: 1,
        };
        let starts = |a: &Arrivals| flows(a).iter().map(|f| f.start.nanos() / 1_000_000).collect();
        let found: Vec<u64> = starts(&every);
        assert_eq!(found, [0, 3, 6, 9]);
        let times = Times::At([1, 5, 11].map(Span::from_millis).to_vec());
        let found: Vec<u64> = starts(&Arrivals { times, ..every });
        assert_eq!(found, [1, 5]);
    }
}
