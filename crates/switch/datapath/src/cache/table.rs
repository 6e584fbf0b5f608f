//! A hash table of cache lines that grows in small steps.

use port::HugeVec;

use port::prefetch::prefetch;

/// Numbers of megaflows by hash.
///
/// A bucket is a cache line of eight slots, each with 32 bits of the hash and the number of a
/// megaflow. If the bucket of a megaflow is full, the megaflow is in one of the next buckets.
#[derive(Debug)]
pub(super) struct Table {
    current: Buckets,
    /// The buckets before the last growth. Each insertion moves a few of these buckets.
    former: Option<Buckets>,
}

/// A cache line: a [`HugeVec`] is aligned to a cache line.
pub(super) type Bucket = [u64; SLOTS];

#[derive(Debug)]
struct Buckets {
    buckets: HugeVec<Bucket>,
    /// Number of slots whose megaflow was removed and over which a search must continue.
    graves: usize,
    /// The number of leading buckets whose megaflows have moved. A search skips these buckets.
    moved: usize,
}

/// A slot, by its bucket and its position there.
pub(super) type Slot = (usize, usize);

impl Table {
    pub(super) fn new() -> Self {
        Self { current: Buckets::new(1), former: None }
    }

    pub(super) fn memory(&self) -> usize {
        let former = self.former.as_ref().map_or(0, |former| former.buckets.capacity());
        (self.current.buckets.capacity() + former) * size_of::<Bucket>()
    }

    /// Returns the number of buckets. Growth moves megaflows to other buckets.
    pub(super) fn len(&self) -> usize {
        self.current.buckets.len() + self.former.as_ref().map_or(0, |former| former.buckets.len())
    }

    #[inline(always)]
    pub(super) fn prefetch(&self, hash: u32) {
        prefetch(&self.current.buckets[self.current.home(hash)]);
    }

    /// Returns the first megaflow with this hash in the hash's bucket, as its number plus 1, or
    /// [`NONE`] or [`FURTHER`].
    #[inline(always)]
    pub(super) fn candidate(&self, hash: u32) -> u32 {
        let bucket = &self.current.buckets[self.current.home(hash)];
        let mut matches = 0_u32;
        for (position, slot) in bucket.iter().enumerate() {
            matches |= u32::from((slot >> 32) as u32 == hash) << position;
        }
        if matches == 0 {
            let may_be_elsewhere =
                self.former.is_some() || bucket.iter().all(|slot| *slot as u32 != 0);
            return if may_be_elsewhere { FURTHER } else { NONE };
        }
        match bucket[matches.trailing_zeros() as usize & (SLOTS - 1)] as u32 {
            0 | GRAVE => FURTHER,
            index => index,
        }
    }

    /// Finds the megaflow with this hash that `accept` accepts.
    pub(super) fn find(&self, hash: u32, mut accept: impl FnMut(u32) -> bool) -> Option<u32> {
        let found = self.current.find(hash, &mut accept);
        if found.is_some() {
            return found;
        }
        self.former.as_ref()?.find(hash, &mut accept)
    }

    /// Adds a megaflow; `len` is the number of megaflows in the table.
    pub(super) fn insert(&mut self, hash: u32, index: u32, len: usize) {
        self.migrate(MOVED_BUCKETS);
        let current = &self.current;
        if (len + current.graves + 1) * 10 > current.buckets.len() * SLOTS * 6 {
            self.grow(len);
        }
        self.current.put(hash, index);
    }

    /// Removes a megaflow. Returns false if the table does not hold the megaflow.
    pub(super) fn remove(&mut self, hash: u32, index: u32) -> bool {
        self.current.remove(hash, index)
            || self.former.as_mut().is_some_and(|former| former.remove(hash, index))
    }

    /// Returns the megaflows of a bucket, with their positions.
    pub(super) fn in_bucket(&self, bucket: usize) -> impl Iterator<Item = (usize, u32)> + use<> {
        let slots = self.bucket(bucket).copied().unwrap_or_default().into_iter().enumerate();
        slots.filter_map(|(position, slot)| match slot as u32 {
            0 | GRAVE => None,
            index => Some((position, index - 1)),
        })
    }

    pub(super) fn prefetch_bucket(&self, bucket: usize) {
        if let Some(bucket) = self.bucket(bucket) {
            prefetch(bucket);
        }
    }

    pub(super) fn clear(&mut self, (bucket, position): Slot) {
        match (bucket.checked_sub(self.current.buckets.len()), &mut self.former) {
            (None, _) => self.current.clear((bucket, position)),
            (Some(bucket), Some(former)) => former.clear((bucket, position)),
            (Some(_), None) => {}
        }
    }

    /// Moves a few buckets, if the table has grown.
    pub(super) fn migrate(&mut self, most: usize) {
        let Some(former) = &mut self.former else { return };
        for _ in 0..most {
            let Some(bucket) = former.buckets.get_mut(former.moved) else {
                self.former = None;
                return;
            };
            let moved = std::mem::take(bucket);
            former.moved += 1;
            for slot in moved {
                match slot as u32 {
                    0 | GRAVE => {}
                    index => self.current.put((slot >> 32) as u32, index - 1),
                }
            }
        }
    }

    /// Makes room: allocates more buckets, or removes the graves if many slots are graves.
    fn grow(&mut self, len: usize) {
        // Usually all buckets of the last growth have moved by now. Some remain if most megaflows
        // were removed since.
        self.migrate(usize::MAX);
        let buckets = self.current.buckets.len();
        let wanted =
            if self.current.graves > len / 2 { buckets } else { (buckets * 3).div_ceil(2) };
        self.former = Some(std::mem::replace(&mut self.current, Buckets::new(wanted)));
    }

    fn bucket(&self, bucket: usize) -> Option<&Bucket> {
        match bucket.checked_sub(self.current.buckets.len()) {
            None => self.current.buckets.get(bucket),
            Some(bucket) => self.former.as_ref()?.buckets.get(bucket),
        }
    }
}

impl Buckets {
    fn new(count: usize) -> Self {
        Self { buckets: HugeVec::zeroed(count), graves: 0, moved: 0 }
    }

    fn find(&self, hash: u32, accept: &mut impl FnMut(u32) -> bool) -> Option<u32> {
        let mut at = self.start(hash);
        for _ in self.moved..self.buckets.len() {
            for slot in &self.buckets[at] {
                let index = *slot as u32;
                if index == 0 {
                    return None;
                }
                let is_candidate = (slot >> 32) as u32 == hash && index != GRAVE;
                if is_candidate && accept(index - 1) {
                    return Some(index - 1);
                }
            }
            at = self.after(at);
        }
        None
    }

    fn put(&mut self, hash: u32, index: u32) {
        let mut at = self.start(hash);
        loop {
            let slots = &mut self.buckets[at];
            if let Some(slot) = slots.iter_mut().find(|slot| matches!(**slot as u32, 0 | GRAVE)) {
                self.graves -= usize::from(*slot as u32 == GRAVE);
                *slot = u64::from(hash) << 32 | u64::from(index + 1);
                return;
            }
            at = self.after(at);
        }
    }

    fn remove(&mut self, hash: u32, index: u32) -> bool {
        let mut at = self.start(hash);
        for _ in self.moved..self.buckets.len() {
            let bucket = &self.buckets[at];
            if let Some(position) = bucket.iter().position(|slot| *slot as u32 == index + 1) {
                self.clear((at, position));
                return true;
            }
            if bucket.contains(&0) {
                return false;
            }
            at = self.after(at);
        }
        false
    }

    fn clear(&mut self, (bucket, position): Slot) {
        let slots = &mut self.buckets[bucket];
        // A search continues after a full bucket, so a slot of a full bucket must not become empty.
        let is_full = !slots.contains(&0);
        if is_full {
            slots[position] = GRAVE.into();
            self.graves += 1;
        } else {
            // Searches stop at the first empty slot, which must not come before a slot in use.
            let last = slots.iter().rposition(|slot| *slot != 0).unwrap_or(position);
            slots[position] = slots[last];
            slots[last] = 0;
        }
    }

    /// Returns the bucket of a hash: the hash's upper bits, scaled to the number of buckets.
    #[inline(always)]
    fn home(&self, hash: u32) -> usize {
        ((u64::from(hash) * self.buckets.len() as u64) >> 32) as usize
    }

    fn start(&self, hash: u32) -> usize {
        self.home(hash).max(self.moved)
    }

    fn after(&self, bucket: usize) -> usize {
        if bucket + 1 == self.buckets.len() { self.moved } else { bucket + 1 }
    }
}

/// Results of [`Table::candidate`] besides the number of a megaflow: no megaflow has the hash, or
/// the search must continue elsewhere.
pub(super) const NONE: u32 = 0;
pub(super) const FURTHER: u32 = u32::MAX;
/// Takes the place of a removed megaflow's number in the slot.
const GRAVE: u32 = u32::MAX;
pub(super) const SLOTS: usize = 8;
/// Number of buckets that an insertion moves. At least 1.6 B insertions follow until a table of B
/// buckets grows again.
const MOVED_BUCKETS: usize = 2;
const _: () = assert!(size_of::<Bucket>() == 64);

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The test uses few distinct hashes, so that buckets overflow and wrap, and grows the
        /// table several times.
        #[test]
        fn the_megaflow_hash_table_behaves_like_a_map(
            steps in prop::collection::vec((0_u8..4, 0_u32..30, any::<prop::sample::Index>()), 1..1500),
            spread in prop::sample::select(vec![1_u32, 0x0888_8889, u32::MAX / 3]),
        ) {
            let mut table = Table::new();
            let mut map = BTreeMap::new();
            for (number, (step, hash, pick)) in (0_u32..).zip(steps) {
                if step < 3 || map.is_empty() {
                    let hash = hash.wrapping_mul(spread);
                    table.insert(hash, number, map.len());
                    map.insert(number, hash);
                } else {
                    let index = *pick.get(&map.keys().copied().collect::<Vec<_>>());
                    let hash = map.remove(&index).unwrap_or_default();
                    if number % 2 == 0 {
                        prop_assert!(table.remove(hash, index));
                    } else {
                        let slots = (0..table.len()).flat_map(|bucket| {
                            table.in_bucket(bucket).map(move |slot| (bucket, slot.0, slot.1))
                        });
                        let found = slots.into_iter().find(|(_, _, held)| *held == index);
                        let (bucket, position, _) = found.expect("the megaflow's slot");
                        table.clear((bucket, position));
                    }
                    prop_assert!(!table.remove(hash, index));
                }
            }
            for (index, hash) in &map {
                prop_assert_eq!(table.find(*hash, |found| found == *index), Some(*index));
                prop_assert!(table.candidate(*hash) != NONE);
            }
            let mut all: Vec<_> =
                (0..table.len()).flat_map(|bucket| table.in_bucket(bucket)).collect();
            all.sort_unstable_by_key(|(_, index)| *index);
            prop_assert!(all.iter().map(|(_, index)| index).eq(map.keys()));
        }
    }

    #[test]
    fn an_insertion_into_a_growing_hash_table_moves_few_buckets() {
        let mut table = Table::new();
        let mut most = 0;
        for index in 0..100_000_u32 {
            let moved = |table: &Table| table.former.as_ref().map(|former| former.moved);
            let before = moved(&table);
            table.insert(index.wrapping_mul(0x9e37_79b1), index, index as usize);
            most = most.max(moved(&table).unwrap_or(0).saturating_sub(before.unwrap_or(0)));
        }
        assert_eq!(most, MOVED_BUCKETS);
        assert!(table.former.is_none());
    }
}
