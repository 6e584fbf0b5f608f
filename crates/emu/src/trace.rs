use serde::{Deserialize, Serialize};
use units::{Bytes, Span, Time};

/// The queue length over time, at evenly spaced points. A longer run has fewer points per second,
/// so that memory stays bounded.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct QueueTrace {
    every: Span,
    points: Vec<TracePoint>,
    #[serde(skip)]
    next: Time,
}

/// The queue and the counters of one direction at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracePoint {
    /// Time since the emulator started.
    pub at: Span,
    pub queue: Bytes,
    /// Bytes delivered since the start.
    pub delivered: Bytes,
    /// Frames dropped since the start, for any reason.
    pub dropped: u64,
}

impl QueueTrace {
    pub(crate) fn new(start: Time) -> Self {
        Self { every: FINEST, points: Vec::with_capacity(MOST_POINTS), next: start }
    }

    pub(crate) fn is_due(&self, now: Time) -> bool {
        now >= self.next
    }

    pub(crate) fn add(&mut self, now: Time, point: TracePoint) {
        self.points.push(point);
        if self.points.len() >= MOST_POINTS {
            let mut keep = false;
            self.points.retain(|_| {
                keep = !keep;
                keep
            });
            self.every = self.every * 2;
        }
        self.next = now + self.every;
    }

    pub fn points(&self) -> &[TracePoint] {
        &self.points
    }
}

const FINEST: Span = Span::from_millis(5);
const MOST_POINTS: usize = 8_192;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_trace_of_a_long_run_is_thinned_evenly() {
        let mut trace = QueueTrace::new(Time::ZERO);
        let mut now = Time::ZERO;
        for _ in 0..200_000 {
            now += FINEST;
            if trace.is_due(now) {
                let at = now.since(Time::ZERO);
                trace.add(
                    now,
                    TracePoint { at, queue: Bytes::ZERO, delivered: Bytes::ZERO, dropped: 0 },
                );
            }
        }
        assert!(trace.points().len() < MOST_POINTS);
        let gaps: Vec<u64> =
            trace.points().windows(2).map(|w| (w[1].at - w[0].at).nanos()).collect();
        let (min, max) = (gaps.iter().min().unwrap(), gaps.iter().max().unwrap());
        assert!(max <= &(min * 2), "{min} {max}");
    }
}
