//! The megaflows of one mask, in a hash table of cache lines.

use port::HugeVec;

use super::store::{Cold, Head, INLINE, Store};
use crate::datapath::prefetch::prefetch;
use crate::flow::{Key, WORDS};

/// A mask, and the table of its megaflows.
///
/// A bucket is a cache line of eight slots, each with 32 bits of the hash and the number of a
/// megaflow. A megaflow whose bucket is full lies in one that follows.
#[derive(Debug)]
pub(super) struct Tuple {
    pub(super) mask: Key,
    /// Numbers of the words that the mask uses, with its bits.
    words: Box<[(u8, u64)]>,
    buckets: HugeVec<Bucket>,
    /// Slots in use, and those whose megaflow is gone but which a search must pass.
    len: usize,
    graves: usize,
    pub(super) store: Store,
    pub(super) hits: u64,
}

/// A cache line: [`HugeVec`] begins at one.
type Bucket = [u64; SLOTS];

impl Tuple {
    pub(super) fn new(mask: &Key) -> Self {
        let used = (0..WORDS).filter(|index| mask.words[*index] != 0);
        let words: Box<_> = used.map(|index| (index as u8, mask.words[index])).collect();
        Self {
            mask: mask.clone(),
            store: Store::new(words.len()),
            words,
            buckets: HugeVec::zeroed(1),
            len: 0,
            graves: 0,
            hits: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn memory(&self) -> usize {
        self.buckets.capacity() * size_of::<Bucket>() + self.store.memory()
    }

    pub(super) fn buckets(&self) -> usize {
        self.buckets.len()
    }

    #[inline(always)]
    pub(super) fn hash(&self, key: &Key) -> u32 {
        let mut hash = SEED;
        for (index, bits) in &self.words {
            hash = mix(hash, key.words[usize::from(*index)] & bits);
        }
        (hash >> 32) as u32
    }

    #[inline(always)]
    pub(super) fn prefetch_bucket(&self, hash: u32) {
        prefetch(&self.buckets[self.home(hash)]);
    }

    /// The first megaflow in the bucket of a hash that may be the packet's; starts to load it.
    #[inline(always)]
    pub(super) fn candidate(&self, hash: u32) -> u32 {
        let bucket = &self.buckets[self.home(hash)];
        let mut matches = 0_u32;
        for (position, slot) in bucket.iter().enumerate() {
            matches |= u32::from((slot >> 32) as u32 == hash) << position;
        }
        if matches == 0 {
            return if bucket.iter().all(|slot| *slot as u32 != 0) { FULL } else { NONE };
        }
        let slot = bucket[matches.trailing_zeros() as usize & (SLOTS - 1)];
        let index = slot as u32;
        if index == 0 || index == GRAVE {
            return FULL;
        }
        self.store.prefetch(index - 1);
        index
    }

    /// The megaflow of a packet, given the result of [`Tuple::candidate`].
    #[inline(always)]
    pub(super) fn confirm(&self, candidate: u32, hash: u32, key: &Key) -> Option<u32> {
        match candidate {
            NONE => None,
            FULL => self.find(hash, key),
            index if self.is_equal(index - 1, key) => Some(index - 1),
            _ => self.find(hash, key),
        }
    }

    pub(super) fn find(&self, hash: u32, key: &Key) -> Option<u32> {
        let mut home = self.home(hash);
        for _ in 0..self.buckets.len() {
            for slot in &self.buckets[home] {
                let index = *slot as u32;
                if index == 0 {
                    return None;
                }
                let is_candidate = (slot >> 32) as u32 == hash && index != GRAVE;
                if is_candidate && self.is_equal(index - 1, key) {
                    return Some(index - 1);
                }
            }
            home = self.after(home);
        }
        None
    }

    #[inline(always)]
    fn is_equal(&self, index: u32, key: &Key) -> bool {
        let head = self.store.head(index);
        let mut difference = 0;
        for ((word, bits), value) in self.words.iter().zip(&head.words) {
            difference |= (key.words[usize::from(*word)] & bits) ^ value;
        }
        if self.words.len() > INLINE {
            let tail = self.store.tail(index);
            for ((word, bits), value) in self.words[INLINE..].iter().zip(tail) {
                difference |= (key.words[usize::from(*word)] & bits) ^ value;
            }
        }
        difference == 0
    }

    /// The key of a megaflow under the mask.
    pub(super) fn key(&self, index: u32) -> Key {
        let mut key = Key::ZERO;
        let inline = self.store.head(index).words.iter().take(self.words.len());
        for ((word, _), value) in self.words.iter().zip(inline.chain(self.store.tail(index))) {
            key.words[usize::from(*word)] = *value;
        }
        key
    }

    /// Adds a megaflow whose key is not there yet.
    pub(super) fn insert(&mut self, key: &Key, mut head: Head, cold: Cold) -> u32 {
        if (self.len + self.graves + 1) * 10 > self.buckets.len() * SLOTS * 6 {
            self.resize();
        }
        let values = self.words.iter().map(|(index, bits)| key.words[usize::from(*index)] & bits);
        let mut tail = [0; WORDS];
        for (position, value) in values.enumerate() {
            match position.checked_sub(INLINE) {
                None => head.words[position] = value,
                Some(position) => tail[position] = value,
            }
        }
        let tail = &tail[..self.words.len().saturating_sub(INLINE)];
        let index = self.store.insert(head, tail, cold);
        self.put(self.hash(key), index);
        self.len += 1;
        index
    }

    /// Removes a megaflow by its number.
    pub(super) fn remove(&mut self, hash: u32, index: u32) {
        let mut home = self.home(hash);
        for _ in 0..self.buckets.len() {
            let bucket = &self.buckets[home];
            if let Some(position) = bucket.iter().position(|slot| *slot as u32 == index + 1) {
                self.clear_slot(home, position);
                return;
            }
            if bucket.contains(&0) {
                return;
            }
            home = self.after(home);
        }
    }

    /// The megaflows of a bucket, with their positions.
    pub(super) fn in_bucket(&self, bucket: usize) -> impl Iterator<Item = (usize, u32)> + use<> {
        let slots = self.buckets[bucket].into_iter().enumerate();
        slots.filter_map(|(position, slot)| match slot as u32 {
            0 | GRAVE => None,
            index => Some((position, index - 1)),
        })
    }

    /// The megaflows of a few buckets, each with its bucket and its position there. All that the
    /// sweep needs of them is on its way, and so are the buckets of the next group.
    pub(super) fn prefetch_group<'a>(
        &self,
        group: std::ops::Range<usize>,
        found: &'a mut [(usize, usize, u32)],
    ) -> &'a [(usize, usize, u32)] {
        self.buckets.iter().skip(group.end).take(group.len()).for_each(prefetch);
        let slots = group.flat_map(|bucket| {
            self.in_bucket(bucket).map(move |(position, index)| (bucket, position, index))
        });
        let mut count = 0;
        for (place, slot) in found.iter_mut().zip(slots) {
            *place = slot;
            count += 1;
            self.store.prefetch_all(slot.2);
        }
        let found = &found[..count];
        found.iter().for_each(|(_, _, index)| self.store.prefetch_counters(*index));
        found
    }

    pub(super) fn clear_slot(&mut self, bucket: usize, position: usize) {
        let slots = &mut self.buckets[bucket];
        // A search passes a full bucket, so a slot of one may not become empty.
        let is_full = !slots.contains(&0);
        if is_full {
            slots[position] = GRAVE.into();
            self.graves += 1;
        } else {
            // Searches stop at the first empty slot, which must not come before one in use.
            let last = slots.iter().rposition(|slot| *slot != 0).unwrap_or(position);
            slots[position] = slots[last];
            slots[last] = 0;
        }
        self.len -= 1;
    }

    /// Makes room for growth, or drops the graves if they are what fills the table.
    fn resize(&mut self) {
        let buckets = if self.graves > self.len / 2 {
            self.buckets.len()
        } else {
            (self.buckets.len() * 3).div_ceil(2)
        };
        let former = std::mem::replace(&mut self.buckets, HugeVec::zeroed(buckets));
        self.graves = 0;
        for slot in former.iter().flat_map(|bucket| *bucket) {
            match slot as u32 {
                0 | GRAVE => {}
                index => self.put((slot >> 32) as u32, index - 1),
            }
        }
    }

    fn put(&mut self, hash: u32, index: u32) {
        let mut home = self.home(hash);
        loop {
            let slots = &mut self.buckets[home];
            if let Some(slot) = slots.iter_mut().find(|slot| matches!(**slot as u32, 0 | GRAVE)) {
                self.graves -= usize::from(*slot as u32 == GRAVE);
                *slot = u64::from(hash) << 32 | u64::from(index + 1);
                return;
            }
            home = self.after(home);
        }
    }

    /// The bucket of a hash: its upper bits, scaled to a number of buckets that is no power of two.
    #[inline(always)]
    fn home(&self, hash: u32) -> usize {
        ((u64::from(hash) * self.buckets.len() as u64) >> 32) as usize
    }

    fn after(&self, bucket: usize) -> usize {
        if bucket + 1 == self.buckets.len() { 0 } else { bucket + 1 }
    }
}

/// Mixes a word into a hash; both halves of the product count.
#[inline(always)]
fn mix(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word) * u128::from(MULTIPLIER);
    (product as u64 ^ (product >> 64) as u64).wrapping_add(SEED)
}

/// Results of [`Tuple::candidate`] beside the number of a megaflow, which is counted from 1: there
/// is none, and the search must go on elsewhere.
const NONE: u32 = 0;
const FULL: u32 = u32::MAX;
/// In a slot, the number of a megaflow that is gone.
const GRAVE: u32 = u32::MAX;
pub(super) const SLOTS: usize = 8;
const SEED: u64 = 0x243f_6a88_85a3_08d3;
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
const _: () = assert!(size_of::<Bucket>() == 64);
