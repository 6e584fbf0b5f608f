use std::collections::VecDeque;

/// Disjoint ranges of a sequence space, ascending: the data that a receiver holds beyond a hole, or
/// that a sender knows the receiver to hold.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Ranges(VecDeque<(u64, u64)>);

impl Ranges {
    /// Adds `start..end` and reports the parts of it that are new.
    #[inline]
    pub(crate) fn add(&mut self, start: u64, end: u64, mut fresh: impl FnMut(u64, u64)) {
        if start >= end {
            return;
        }
        // Usually the newest range grows, or a new range begins after it.
        match self.0.back_mut() {
            Some(last) if last.1 == start => {
                last.1 = end;
                return fresh(start, end);
            }
            Some(last) if last.1 > start => {}
            _ => {
                self.0.push_back((start, end));
                return fresh(start, end);
            }
        }
        let first = self.0.partition_point(|range| range.1 < start);
        let mut merged = (start, end);
        let (mut at, mut behind) = (start, first);
        while let Some(range) = self.0.get(behind).filter(|range| range.0 <= end) {
            if at < range.0 {
                fresh(at, range.0);
            }
            at = at.max(range.1);
            merged = (merged.0.min(range.0), merged.1.max(range.1));
            behind += 1;
        }
        if at < end {
            fresh(at, end);
        }
        if behind == first {
            self.0.insert(first, merged);
        } else {
            self.0[first] = merged;
            self.0.drain(first + 1..behind);
        }
    }

    /// Removes all bytes below `sequence`.
    #[inline]
    pub(crate) fn remove_below(&mut self, sequence: u64) {
        while let Some(first) = self.0.front_mut() {
            if first.1 > sequence {
                first.0 = first.0.max(sequence);
                return;
            }
            self.0.pop_front();
        }
        if self.0.capacity() > ROOM_KEPT {
            self.0 = VecDeque::new();
        }
    }

    /// Removes the first range if it begins at or before `sequence`.
    #[inline]
    pub(crate) fn take_reaching(&mut self, sequence: u64) -> Option<(u64, u64)> {
        let first = *self.0.front()?;
        if first.0 > sequence {
            return None;
        }
        self.0.pop_front()
    }

    /// Returns the end of the last range.
    pub(crate) fn end(&self) -> Option<u64> {
        self.0.back().map(|range| range.1)
    }

    pub(crate) fn containing(&self, sequence: u64) -> Option<(u64, u64)> {
        let index = self.0.partition_point(|range| range.1 <= sequence);
        self.0.get(index).copied().filter(|range| range.0 <= sequence)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Maximum number of ranges for which an idle flow keeps memory.
const ROOM_KEPT: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// Compares the ranges with a set of single bytes.
        #[test]
        fn ranges_hold_exactly_the_added_bytes(
            added in prop::collection::vec((0u64..200, 1u64..30), 1..60), below in 0u64..220,
        ) {
            let (mut ranges, mut bytes) = (Ranges::default(), BTreeSet::new());
            for (start, length) in added {
                let mut fresh = BTreeSet::new();
                ranges.add(start, start + length, |start, end| fresh.extend(start..end));
                let expected: BTreeSet<u64> =
                    (start..start + length).filter(|byte| bytes.insert(*byte)).collect();
                prop_assert_eq!(fresh, expected);
            }
            ranges.remove_below(below);
            bytes = bytes.split_off(&below);
            for byte in 0..240 {
                prop_assert_eq!(ranges.containing(byte).is_some(), bytes.contains(&byte));
            }
            // Adjacent ranges are merged.
            let pairs = ranges.0.iter().zip(ranges.0.iter().skip(1));
            for (left, right) in pairs {
                prop_assert!(left.1 < right.0);
            }
        }
    }
}
