//! The megaflows of one mask.

use flow::{Key, WORDS};

use super::store::{Cold, Head, INLINE, Store};
use super::table::{FURTHER, NONE, Slot, Table};

/// A mask, and the table of its megaflows.
#[derive(Debug)]
pub(super) struct Tuple {
    pub(super) mask: Key,
    /// The words of the key that the mask uses: the number of each word and the mask's bits in the
    /// word.
    words: Box<[(u8, u64)]>,
    /// The first words of the mask, as in a [`Head`], padded with words whose mask is 0.
    first_words: [(u8, u64); INLINE],
    table: Table,
    len: usize,
    pub(super) store: Store,
    pub(super) hits: u64,
}

impl Tuple {
    pub(super) fn new(mask: &Key) -> Self {
        let used = (0..WORDS).filter(|index| mask.words[*index] != 0);
        let words: Box<[_]> = used.map(|index| (index as u8, mask.words[index])).collect();
        Self {
            mask: mask.clone(),
            store: Store::new(words.len()),
            first_words: std::array::from_fn(|at| words.get(at).copied().unwrap_or_default()),
            words,
            table: Table::new(),
            len: 0,
            hits: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn memory(&self) -> usize {
        self.table.memory() + self.store.memory()
    }

    /// Returns the number of buckets, for [`Tuple::in_bucket`].
    pub(super) fn buckets(&self) -> usize {
        self.table.len()
    }

    #[inline(always)]
    pub(super) fn hash(&self, key: &Key) -> u32 {
        let word = |(index, bits): &(u8, u64)| key.words[usize::from(*index)] & bits;
        let (pairs, last) = self.words.as_chunks::<2>();
        let mut hash = last.first().map_or(0, |last| fold(word(last) ^ KEYS[0].0, KEYS[0].1));
        // The multiplications are independent of each other, so that the processor overlaps them.
        for ([first, second], keys) in pairs.iter().zip(&KEYS[1..]) {
            hash ^= fold(word(first) ^ keys.0, word(second) ^ keys.1);
        }
        (fold(hash, MULTIPLIER) >> 32) as u32
    }

    #[inline(always)]
    pub(super) fn prefetch_bucket(&self, hash: u32) {
        self.table.prefetch(hash);
    }

    /// Returns the first megaflow in the bucket of a hash that may match the packet; starts to load
    /// it.
    #[inline(always)]
    pub(super) fn candidate(&self, hash: u32) -> u32 {
        let candidate = self.table.candidate(hash);
        if candidate != NONE && candidate != FURTHER {
            self.store.prefetch(candidate - 1);
        }
        candidate
    }

    /// Returns the megaflow of a packet, given the result of [`Tuple::candidate`].
    #[inline(always)]
    pub(super) fn confirm(&self, candidate: u32, hash: u32, key: &Key) -> Option<u32> {
        match candidate {
            NONE => None,
            FURTHER => self.find(hash, key),
            index if self.is_equal(index - 1, key) => Some(index - 1),
            _ => self.find(hash, key),
        }
    }

    pub(super) fn find(&self, hash: u32, key: &Key) -> Option<u32> {
        self.table.find(hash, |index| self.is_equal(index, key))
    }

    #[inline(always)]
    fn is_equal(&self, index: u32, key: &Key) -> bool {
        self.has_key(index, self.store.head(index), key)
    }

    #[inline(always)]
    fn has_key(&self, index: u32, head: &Head, key: &Key) -> bool {
        let mut difference = 0;
        for at in 0..INLINE {
            let (word, bits) = self.first_words[at];
            difference |= (key.words[usize::from(word)] & bits) ^ head.words[at];
        }
        if self.words.len() > INLINE {
            let tail = self.store.tail(index);
            for ((word, bits), value) in self.words[INLINE..].iter().zip(tail) {
                difference |= (key.words[usize::from(*word)] & bits) ^ value;
            }
        }
        difference == 0
    }

    /// Returns the head of a megaflow, which may have been removed long ago, if it matches the key.
    #[inline(always)]
    pub(super) fn matching_head(&self, index: u32, key: &Key) -> Option<&Head> {
        let head = self.store.head(index);
        (head.is_in_use() && self.has_key(index, head, key)).then_some(head)
    }

    /// Returns the key of a megaflow under the mask.
    pub(super) fn key(&self, index: u32) -> Key {
        let mut key = Key::ZERO;
        let inline = self.store.head(index).words.iter().take(self.words.len());
        for ((word, _), value) in self.words.iter().zip(inline.chain(self.store.tail(index))) {
            key.words[usize::from(*word)] = *value;
        }
        key
    }

    /// Adds a megaflow, whose key must be new.
    pub(super) fn insert(&mut self, key: &Key, mut head: Head, cold: Cold) -> u32 {
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
        self.table.insert(self.hash(key), index, self.len);
        self.len += 1;
        index
    }

    /// Removes a megaflow by its number.
    pub(super) fn remove(&mut self, hash: u32, index: u32) {
        self.len -= usize::from(self.table.remove(hash, index));
    }

    /// Whether most slots are free, and the megaflows are so few that a packet may wait while
    /// [`Tuple::compacted`] moves them.
    pub(super) fn is_sparse(&self) -> bool {
        let places = self.store.places();
        places > SPARSE_PLACES && self.len < places / 8 && self.len <= MOST_MOVED
    }

    /// Moves the megaflows to a smaller store.
    pub(super) fn compacted(mut self) -> Self {
        let mut copy = Self { hits: self.hits, ..Self::new(&self.mask) };
        for bucket in 0..self.buckets() {
            for (_, index) in self.in_bucket(bucket) {
                let hash = self.hash(&self.key(index));
                let Some((head, tail, cold)) = self.store.take(index) else { continue };
                let place = copy.store.insert(head, tail, cold);
                copy.table.insert(hash, place, copy.len);
                copy.len += 1;
            }
        }
        copy
    }

    /// Returns the megaflows of a bucket, with their positions.
    pub(super) fn in_bucket(&self, bucket: usize) -> impl Iterator<Item = (usize, u32)> + use<> {
        self.table.in_bucket(bucket)
    }

    /// If the table has grown lately, moves a few more buckets to the larger table.
    pub(super) fn migrate(&mut self) {
        self.table.migrate(SWEPT_BUCKETS);
    }

    /// Returns the megaflows of a few buckets, each with its bucket and its position there. Starts
    /// to load the megaflows' parts that the sweep reads, and the buckets of the next group.
    pub(super) fn prefetch_group<'a>(
        &self,
        group: std::ops::Range<usize>,
        found: &'a mut [(usize, usize, u32)],
        is_crediting: bool,
    ) -> &'a [(usize, usize, u32)] {
        let next = group.end..group.end + group.len();
        next.for_each(|bucket| self.table.prefetch_bucket(bucket));
        let slots = group.flat_map(|bucket| {
            self.in_bucket(bucket).map(move |(position, index)| (bucket, position, index))
        });
        let mut count = 0;
        for (place, slot) in found.iter_mut().zip(slots) {
            *place = slot;
            count += 1;
            self.store.prefetch_all(slot.2, is_crediting);
        }
        let found = &found[..count];
        if is_crediting {
            found.iter().for_each(|(_, _, index)| self.store.prefetch_counters(*index));
        }
        found
    }

    pub(super) fn clear_slot(&mut self, slot: Slot) {
        self.table.clear(slot);
        self.len -= 1;
    }
}

/// Multiplies, and returns the exclusive or of both halves of the product.
#[inline(always)]
fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    product as u64 ^ (product >> 64) as u64
}

/// Two keys for each pair of words, so that the hash depends on the order of the words
/// (SplitMix64).
const KEYS: [(u64, u64); WORDS / 2 + 1] = {
    let mut keys = [(0, 0); WORDS / 2 + 1];
    let mut at = 0;
    while at < keys.len() {
        keys[at] = (split_mix(2 * at as u64), split_mix(2 * at as u64 + 1));
        at += 1;
    }
    keys
};

const fn split_mix(number: u64) -> u64 {
    let state = number.wrapping_add(1).wrapping_mul(MULTIPLIER);
    let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
/// Buckets of a growing table that the sweep moves at a time.
const SWEPT_BUCKETS: usize = 64;
/// Number of slots below which a store is never compacted.
const SPARSE_PLACES: usize = 1 << 15;
/// Maximum number of megaflows that a compaction moves, which takes about a millisecond.
const MOST_MOVED: usize = 8192;

#[cfg(test)]
mod tests {
    use super::super::programs::Programs;
    use super::*;
    use flow::word;
    use std::sync::Arc;

    #[test]
    fn a_mask_with_few_megaflows_left_returns_memory_and_keeps_the_megaflows() {
        let mut mask = Key::ZERO;
        // The mask has more words than a head holds.
        for at in [word::IN_PORT, word::ETH_SRC, word::ETH_DST, word::IPV4, word::NW, word::TP] {
            mask.words[at] = u64::MAX;
        }
        let key = |number: u64| {
            let mut key = Key::ZERO;
            (key.words[word::IPV4], key.words[word::TP]) = (number, number << 7);
            key
        };
        let behaviour = Programs::default().intern(Arc::from([]));
        let mut tuple = Tuple::new(&mask);
        let head = || Head::new(behaviour, 1, 0);
        let places: Vec<_> =
            (0..100_000).map(|at| tuple.insert(&key(at), head(), Cold::new(Vec::new()))).collect();
        assert!(!tuple.is_sparse());
        let full = tuple.memory();
        for number in (0..100_000_u64).filter(|number| number % 500 != 3) {
            let place = places[number as usize];
            tuple.store.remove(place, 0);
            tuple.remove(tuple.hash(&key(number)), place);
        }
        assert!(tuple.is_sparse());
        let tuple = tuple.compacted();
        assert!(tuple.memory() < full / 50, "{full} {}", tuple.memory());
        assert_eq!(tuple.len(), 200);
        for number in 0..100_000 {
            let key = key(number);
            let found = tuple.find(tuple.hash(&key), &key);
            assert_eq!(found.is_some(), number % 500 == 3, "{number}");
            assert!(found.is_none_or(|place| tuple.key(place) == key));
        }
    }
}
