use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use port::HugeVec;

use port::prefetch::prefetch_address;

/// A reference from an index to an entry: the number of the shard, and the number of the entry in
/// the shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reference {
    pub(super) shard: u8,
    pub(super) entry: u32,
}

/// A hash table from tags to [`Reference`]s. Tags may repeat.
///
/// A slot takes eight bytes, and a line of eight slots is one cache line, so that a lookup usually
/// reads one line. A full line overflows to the next line. The table grows in steps: each insertion
/// moves a few lines, so that no packet waits for all lines to move.
#[derive(Debug)]
pub(super) struct Index {
    current: Lines,
    former: Option<Lines>,
    len: usize,
    whereabouts: Arc<Whereabouts>,
}

/// The memory address of an index, for threads that do not hold the lock of the index. The address
/// may be outdated. All threads read the address for each packet, so nothing else shares its cache
/// line.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Whereabouts {
    start: AtomicUsize,
    count: AtomicUsize,
}

impl Whereabouts {
    /// Starts to load the cache line in which a lookup of `tag` begins.
    #[inline]
    pub(super) fn prefetch(&self, tag: u32) {
        let mask = self.count.load(Ordering::Relaxed).wrapping_sub(1);
        let offset = (tag as usize & mask).wrapping_mul(size_of::<Line>());
        prefetch_address(self.start.load(Ordering::Relaxed).wrapping_add(offset));
    }

    fn set(&self, lines: &Lines) {
        self.start.store(lines.lines.as_ptr().addr(), Ordering::Relaxed);
        self.count.store(lines.lines.len(), Ordering::Relaxed);
    }
}

impl Index {
    pub(super) fn new() -> Self {
        let whereabouts = Arc::new(Whereabouts::default());
        let current = Lines::new(FIRST_LINES);
        whereabouts.set(&current);
        Self { current, former: None, len: 0, whereabouts }
    }

    pub(super) fn whereabouts(&self) -> Arc<Whereabouts> {
        self.whereabouts.clone()
    }

    /// Calls `accept` for each reference with this tag, until it returns true.
    #[inline]
    pub(super) fn find(
        &self,
        tag: u32,
        mut accept: impl FnMut(Reference) -> bool,
    ) -> Option<Reference> {
        let found = self.current.find(tag, &mut accept);
        if found.is_some() {
            return found;
        }
        self.former.as_ref()?.find(tag, &mut accept)
    }

    pub(super) fn insert(&mut self, tag: u32, reference: Reference) {
        self.migrate(MIGRATED_LINES);
        if self.len >= self.current.lines.len() * GROW_AT {
            self.grow();
        }
        self.current.insert(pack(tag, reference));
        self.len += 1;
    }

    /// Removes one reference. Returns false if the index does not hold the reference.
    pub(super) fn remove(&mut self, tag: u32, reference: Reference) -> bool {
        let slot = pack(tag, reference);
        let is_removed = self.current.remove(slot)
            || self.former.as_mut().is_some_and(|former| former.remove(slot));
        self.len -= usize::from(is_removed);
        is_removed
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.len
    }

    pub(super) fn bytes(&self) -> usize {
        let former = self.former.as_ref().map_or(0, |former| former.lines.len());
        (self.current.lines.len() + former) * size_of::<Line>()
    }

    /// Continues to grow or shrink the table, or starts to shrink a nearly empty table. The work of
    /// a call is bounded.
    pub(super) fn tidy(&mut self) {
        let lines = self.current.lines.len();
        let is_sparse = lines > FIRST_LINES && self.len * SHRINK_BELOW < lines * GROW_AT;
        if self.former.is_none() && is_sparse {
            self.resize((self.len / 2).next_power_of_two().max(FIRST_LINES));
        }
        self.migrate(TIDIED_LINES);
    }

    fn grow(&mut self) {
        self.migrate(usize::MAX);
        self.resize(self.current.lines.len() * 2);
    }

    fn resize(&mut self, count: usize) {
        let lines = Lines::new(count);
        self.whereabouts.set(&lines);
        self.former = Some(std::mem::replace(&mut self.current, lines));
    }

    fn migrate(&mut self, lines: usize) {
        let Some(former) = &mut self.former else {
            return;
        };
        for _ in 0..lines {
            let Some(line) = former.lines.get_mut(former.cleared) else {
                self.former = None;
                return;
            };
            let moved = std::mem::take(line);
            former.cleared += 1;
            for slot in moved.into_iter().filter(|slot| *slot != 0) {
                self.current.insert(slot);
            }
        }
    }
}

#[derive(Debug)]
struct Lines {
    lines: HugeVec<Line>,
    /// The number of leading lines that have moved to the next table. A search skips these lines.
    cleared: usize,
}

impl Lines {
    fn new(count: usize) -> Self {
        Self { lines: HugeVec::zeroed(count), cleared: 0 }
    }

    #[inline]
    fn home(&self, tag: u32) -> usize {
        tag as usize & (self.lines.len() - 1)
    }

    /// Returns the line after `line` in a search.
    #[inline]
    fn next(&self, line: usize) -> usize {
        ((line + 1) & (self.lines.len() - 1)).max(self.cleared)
    }

    #[inline]
    fn start(&self, tag: u32) -> usize {
        self.home(tag).max(self.cleared)
    }

    #[inline]
    fn find(&self, tag: u32, accept: &mut impl FnMut(Reference) -> bool) -> Option<Reference> {
        let mut at = self.start(tag);
        for _ in self.cleared..self.lines.len() {
            let line = self.lines.get(at)?;
            let (mut equal, mut used) = (0u32, 0u32);
            for (place, slot) in line.iter().enumerate() {
                equal |= u32::from(*slot as u32 == tag) << place;
                used |= u32::from(*slot != 0) << place;
            }
            equal &= used;
            while equal != 0 {
                let reference = unpack(line[equal.trailing_zeros() as usize & 7]);
                if accept(reference) {
                    return Some(reference);
                }
                equal &= equal - 1;
            }
            if used != 0xff {
                return None;
            }
            at = self.next(at);
        }
        None
    }

    /// Stores a slot. There is always space, because the table grows before it is full.
    fn insert(&mut self, slot: u64) {
        let mut at = self.start(slot as u32);
        loop {
            if let Some(free) = self.lines[at].iter_mut().find(|slot| **slot == 0) {
                *free = slot;
                return;
            }
            at = self.next(at);
        }
    }

    fn remove(&mut self, slot: u64) -> bool {
        let mut at = self.start(slot as u32);
        for _ in self.cleared..self.lines.len() {
            let Some(line) = self.lines.get_mut(at) else {
                return false;
            };
            if let Some(place) = line.iter().position(|held| *held == slot) {
                let was_full = is_full(line);
                line[place] = 0;
                if was_full {
                    self.close_hole(at, place);
                }
                return true;
            }
            if !is_full(line) {
                return false;
            }
            at = self.next(at);
        }
        false
    }

    /// Moves overflowed slots back towards their home lines, so that a search may stop at the first
    /// line that is not full.
    fn close_hole(&mut self, mut hole: usize, mut place: usize) {
        let mask = self.lines.len() - 1;
        let mut at = self.next(hole);
        for _ in self.cleared..self.lines.len() {
            if at == hole {
                return;
            }
            let was_full = is_full(&self.lines[at]);
            let distance = at.wrapping_sub(hole) & mask;
            let movable = self.lines[at].iter().position(|slot| {
                *slot != 0 && at.wrapping_sub(self.home(*slot as u32)) & mask >= distance
            });
            if let Some(from) = movable {
                self.lines[hole][place] = std::mem::take(&mut self.lines[at][from]);
                (hole, place) = (at, from);
            }
            if !was_full {
                return;
            }
            at = self.next(at);
        }
    }
}

/// A cache line: a [`HugeVec`] is aligned to a cache line.
type Line = [u64; 8];

fn is_full(line: &Line) -> bool {
    line.iter().all(|slot| *slot != 0)
}

/// Encodes a slot: the tag in the low half, then the entry's number plus one, then the shard.
#[inline]
fn pack(tag: u32, reference: Reference) -> u64 {
    u64::from(tag)
        | u64::from(reference.entry + 1) << 32
        | u64::from(reference.shard) << (32 + ENTRY_BITS)
}

/// Reads a slot in use.
#[inline]
fn unpack(slot: u64) -> Reference {
    let entry = (slot >> 32) as u32 & ((1 << ENTRY_BITS) - 1);
    Reference { shard: (slot >> (32 + ENTRY_BITS)) as u8, entry: entry.wrapping_sub(1) }
}

const FIRST_LINES: usize = 16;
/// The average number of used slots per line at which the table grows.
const GROW_AT: usize = 5;
/// Number of lines that an insertion moves. A single line would be enough: at growth, the former
/// table has `GROW_AT` entries a line, and the table grows again only after as many insertions as
/// it has entries.
const MIGRATED_LINES: usize = 2;
/// The table shrinks below this fraction of the entries at which it grows.
const SHRINK_BELOW: usize = 8;
/// Number of lines that a call of `tidy` moves: half a mebibyte.
const TIDIED_LINES: usize = 8192;
const ENTRY_BITS: u32 = 26;
/// Maximum number of shards that a reference can name.
pub(super) const MAX_SHARDS: usize = 1 << (32 - ENTRY_BITS);
/// Maximum number of entries of a shard that a reference can name.
pub(super) const MAX_ENTRIES: u32 = (1 << ENTRY_BITS) - 2;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The test uses few distinct tags, so that lines overflow and wrap, and grows the index
        /// several times.
        #[test]
        fn the_connection_index_behaves_like_a_list(
            steps in prop::collection::vec((any::<bool>(), 0u32..40, 0u32..8), 1..2000),
            spread in prop::sample::select(vec![1u32, 0x0101_0101, 16, 15]),
        ) {
            let mut index = Index::new();
            let mut list: Vec<(u32, Reference)> = Vec::new();
            for (number, (is_insertion, tag, pick)) in steps.into_iter().enumerate() {
                let tag = tag.wrapping_mul(spread);
                if is_insertion || list.is_empty() {
                    let reference = Reference { shard: pick as u8, entry: number as u32 };
                    index.insert(tag, reference);
                    list.push((tag, reference));
                } else {
                    let (tag, reference) = list.swap_remove(pick as usize % list.len());
                    prop_assert!(index.remove(tag, reference));
                    prop_assert!(!index.remove(tag, reference));
                }
                prop_assert_eq!(index.len(), list.len());
                if pick == 7 {
                    index.tidy();
                }
            }
            for (tag, reference) in &list {
                prop_assert_eq!(index.find(*tag, |found| found == *reference), Some(*reference));
            }
            for tag in 0..40u32 {
                let tag = tag.wrapping_mul(spread);
                let mut count = 0;
                index.find(tag, |_| { count += 1; false });
                prop_assert_eq!(count, list.iter().filter(|(held, _)| *held == tag).count());
            }
        }
    }

    #[test]
    fn a_nearly_empty_connection_index_shrinks() {
        let mut index = Index::new();
        let reference = |entry| Reference { shard: 0, entry };
        let tag = |entry: u32| entry.wrapping_mul(0x9e37_79b9);
        for _ in 0..2 {
            (0..300_000).for_each(|entry| index.insert(tag(entry), reference(entry)));
            assert!(index.bytes() > 1 << 21);
            (100..300_000).for_each(|entry| assert!(index.remove(tag(entry), reference(entry))));
            (0..100).for_each(|_| index.tidy());
            assert!(index.bytes() <= 64 << 10, "{}", index.bytes());
            for entry in 0..100 {
                let found = index.find(tag(entry), |found| found == reference(entry));
                assert_eq!(found, Some(reference(entry)));
                assert!(index.remove(tag(entry), reference(entry)));
            }
        }
    }
}
