use std::collections::VecDeque;

/// The largest value within a window of rounds, or of another count that grows.
#[derive(Debug, Clone)]
pub(crate) struct WindowedMax {
    window: u64,
    /// Counts and values. Counts rise and values fall, so the first value is the largest.
    candidates: VecDeque<(u64, u64)>,
}

impl WindowedMax {
    pub(crate) fn new(window: u64) -> Self {
        Self { window, candidates: VecDeque::with_capacity(4) }
    }

    pub(crate) fn offer(&mut self, at: u64, value: u64) {
        while self.candidates.back().is_some_and(|(_, smaller)| *smaller <= value) {
            self.candidates.pop_back();
        }
        self.candidates.push_back((at, value));
        // Always keep the newest value, so that a window without values retains the last value.
        while self.candidates.len() > 1
            && self.candidates.front().is_some_and(|(then, _)| then + self.window <= at)
        {
            self.candidates.pop_front();
        }
    }

    /// Returns the maximum; zero before the first value.
    pub(crate) fn max(&self) -> u64 {
        self.candidates.front().map_or(0, |(_, value)| *value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn max_is_the_largest_value_of_the_window(
            steps in prop::collection::vec((0_u64..4, 0_u64..100), 1..80),
            window in 1_u64..12,
        ) {
            let mut filter = WindowedMax::new(window);
            let mut all = Vec::new();
            let mut at = 0;
            for (step, value) in steps {
                at += step;
                filter.offer(at, value);
                all.push((at, value));
                let inside = all.iter().filter(|(then, _)| then + window > at).map(|(_, v)| *v);
                prop_assert_eq!(Some(filter.max()), inside.max());
            }
        }
    }
}
