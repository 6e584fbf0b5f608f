//! Sets of packet numbers.

use std::ops::Range;

/// Disjoint ranges in ascending order, with a gap between neighbours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ranges(Vec<Range<u64>>);

impl Ranges {
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = Range<u64>> + '_ {
        self.0.iter().cloned()
    }

    pub(crate) fn largest(&self) -> Option<u64> {
        self.0.last().map(|range| range.end - 1)
    }

    /// Returns the first number, starting with `from`, that is not in the set.
    pub(crate) fn first_gap(&self, from: u64) -> u64 {
        let index = self.0.partition_point(|range| range.end <= from);
        match self.0.get(index) {
            Some(range) if range.start <= from => range.end,
            _ => from,
        }
    }

    /// Adds `new` and calls `fresh` with each part that was not in the set.
    pub(crate) fn insert(&mut self, new: Range<u64>, mut fresh: impl FnMut(Range<u64>)) {
        if new.is_empty() {
            return;
        }
        // Adjacent ranges are merged, too.
        let first = self.0.partition_point(|range| range.end < new.start);
        let mut last = first;
        let mut merged = new.clone();
        let mut missing = new.start;
        while let Some(range) = self.0.get(last)
            && range.start <= new.end
        {
            if missing < range.start {
                fresh(missing..range.start);
            }
            missing = missing.max(range.end);
            merged.start = merged.start.min(range.start);
            merged.end = merged.end.max(range.end);
            last += 1;
        }
        if missing < new.end {
            fresh(missing..new.end);
        }
        self.0.splice(first..last, [merged]);
    }

    pub(crate) fn forget_below(&mut self, bound: u64) {
        let whole = self.0.partition_point(|range| range.end <= bound);
        self.0.drain(..whole);
        if let Some(first) = self.0.first_mut() {
            first.start = first.start.max(bound);
        }
    }

    /// Returns the members below `bound`.
    pub(crate) fn below(&self, bound: u64) -> Self {
        let whole = self.0.partition_point(|range| range.end <= bound);
        let mut below = self.0[..whole].to_vec();
        if let Some(range) = self.0.get(whole).filter(|range| range.start < bound) {
            below.push(range.start..bound);
        }
        Self(below)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn ranges_behave_like_a_set_of_numbers(
            inserts in proptest::collection::vec((0u64..200, 0u64..20), 0..60),
            bound in 0u64..220,
            forget in 0u64..220,
        ) {
            let (mut ranges, mut set) = (Ranges::default(), BTreeSet::new());
            for (start, length) in inserts {
                let mut fresh = Vec::new();
                ranges.insert(start..start + length, |range| fresh.extend(range));
                let expected: Vec<u64> =
                    (start..start + length).filter(|number| set.insert(*number)).collect();
                prop_assert_eq!(fresh, expected);
            }
            let members = |ranges: &Ranges| ranges.iter().flatten().collect::<Vec<_>>();
            prop_assert_eq!(members(&ranges), set.iter().copied().collect::<Vec<_>>());
            for pair in ranges.0.windows(2) {
                prop_assert!(pair[0].end < pair[1].start);
            }
            prop_assert_eq!(
                members(&ranges.below(bound)),
                set.range(..bound).copied().collect::<Vec<_>>()
            );
            prop_assert_eq!(ranges.largest(), set.last().copied());
            prop_assert_eq!(
                ranges.first_gap(bound),
                (bound..).find(|number| !set.contains(number)).unwrap()
            );
            ranges.forget_below(forget);
            prop_assert_eq!(members(&ranges), set.range(forget..).copied().collect::<Vec<_>>());
        }
    }
}
