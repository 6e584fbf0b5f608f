use super::entry::{Entry, NONE};
use super::index::MAX_ENTRIES;
use crate::datapath::prefetch::prefetch;

/// Entries by number, in pieces that never move, so that growth copies nothing.
#[derive(Debug)]
pub(super) struct Slab {
    chunks: Vec<Box<[Entry]>>,
    /// The first free entry; the others follow by `next`.
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

    #[inline]
    pub(super) fn entry_mut(&mut self, number: u32) -> &mut Entry {
        &mut self.chunks[number as usize / CHUNK][number as usize % CHUNK]
    }

    /// Starts to load both cache lines of an entry.
    #[inline]
    pub(super) fn prefetch(&self, number: u32) {
        let entry = self.entry(number);
        prefetch(entry);
        prefetch(&entry.label);
    }

    /// The number of the stored entry; `None` if a reference cannot name another one.
    pub(super) fn insert(&mut self, entry: Entry) -> Option<u32> {
        if self.free == NONE {
            self.add_chunk()?;
        }
        let number = self.free;
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
        self.chunks.len() * CHUNK * size_of::<Entry>()
    }

    fn add_chunk(&mut self) -> Option<()> {
        let first = u32::try_from(self.chunks.len() * CHUNK).ok()?;
        if first + CHUNK as u32 > MAX_ENTRIES {
            return None;
        }
        let mut chunk = vec![Entry::FREE; CHUNK].into_boxed_slice();
        for (number, entry) in (first..).zip(chunk.iter_mut()) {
            entry.next = number + 1;
        }
        if let Some(last) = chunk.last_mut() {
            last.next = NONE;
        }
        self.free = first;
        self.chunks.push(chunk);
        Some(())
    }
}

/// Entries of a piece: 128 KiB.
const CHUNK: usize = 1024;
