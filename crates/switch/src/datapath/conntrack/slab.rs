use port::HugeVec;

use super::entry::{Entry, NONE};
use super::index::MAX_ENTRIES;
use port::prefetch::prefetch;

/// Entries by number, in pieces that grow up to a huge page, so that growth copies little and few
/// places are unused.
#[derive(Debug)]
pub(super) struct Slab {
    chunks: Vec<HugeVec<Entry>>,
    /// The first entry that was removed; the others follow by `next`.
    free: u32,
    len: u32,
}

impl Slab {
    pub(super) fn new() -> Self {
        Self { chunks: Vec::new(), free: NONE, len: 0 }
    }

    #[inline]
    pub(super) fn entry(&self, number: u32) -> &Entry {
        &self.chunks[number as usize / CHUNK][number as usize % CHUNK]
    }

    /// `None` for a number that no entry has had.
    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<&Entry> {
        self.chunks.get(number as usize / CHUNK)?.get(number as usize % CHUNK)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Entry> {
        self.chunks.get_mut(number as usize / CHUNK)?.get_mut(number as usize % CHUNK)
    }

    #[inline]
    pub(super) fn entry_mut(&mut self, number: u32) -> &mut Entry {
        &mut self.chunks[number as usize / CHUNK][number as usize % CHUNK]
    }

    /// Starts to load an entry: its first cache line, or both.
    #[inline]
    pub(super) fn prefetch(&self, number: u32, has_far: bool) {
        let entry = self.entry(number);
        prefetch(entry);
        if has_far {
            prefetch(&entry.far);
        }
    }

    /// The number of the stored entry; `None` if a reference cannot name another one.
    pub(super) fn insert(&mut self, entry: Entry) -> Option<u32> {
        let number = self.free;
        if number == NONE {
            return self.append(entry);
        }
        let place = self.entry_mut(number);
        let next = place.next;
        *place = entry;
        self.free = next;
        self.len += 1;
        Some(number)
    }

    pub(super) fn remove(&mut self, number: u32) {
        let next = self.free;
        *self.entry_mut(number) = Entry::free(next);
        self.free = number;
        self.len -= 1;
    }

    pub(super) fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Entry)> {
        let entries = self.chunks.iter().flat_map(|chunk| chunk.iter());
        (0..).zip(entries).filter(|(_, entry)| entry.is_in_use())
    }

    pub(super) fn bytes(&self) -> usize {
        self.chunks.iter().map(HugeVec::capacity).sum::<usize>() * size_of::<Entry>()
    }

    fn append(&mut self, entry: Entry) -> Option<u32> {
        let is_full = self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK);
        if is_full {
            let first = self.chunks.len() * CHUNK;
            if first + CHUNK > MAX_ENTRIES as usize {
                return None;
            }
            let capacity = if first == 0 { FIRST } else { CHUNK / 4 };
            self.chunks.push(HugeVec::with_capacity(capacity));
        }
        let before = (self.chunks.len() - 1) * CHUNK;
        let chunk = self.chunks.last_mut()?;
        chunk.push_within(CHUNK, entry);
        self.len += 1;
        Some((before + chunk.len() - 1) as u32)
    }
}

/// Entries of a piece: 2 MiB.
const CHUNK: usize = 16_384;
/// Entries of the first piece at its start; the others start with a quarter of their size.
const FIRST: usize = 64;
