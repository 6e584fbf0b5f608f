use port::HugeVec;
use port::prefetch::prefetch;

use super::entry::{Entry, NONE};
use super::index::MAX_ENTRIES;

/// Entries by number, in chunks that grow up to a huge page, so that growth copies little and few
/// slots are unused. An empty chunk frees its memory.
#[derive(Debug)]
pub(super) struct Slab {
    chunks: Vec<Chunk>,
    /// The first chunk that may have a slot that a removed entry left free.
    first_unused: usize,
    /// The first chunk that may have room for further entries.
    first_open: usize,
    len: u32,
    /// The number of slots that removed entries left free.
    unused: usize,
}

#[derive(Debug)]
struct Chunk {
    entries: HugeVec<Entry>,
    /// The first free slot; each free slot's `Entry::next` names the next free slot.
    free: u32,
    used: usize,
}

impl Slab {
    pub(super) fn new() -> Self {
        Self { chunks: Vec::new(), first_unused: 0, first_open: 0, len: 0, unused: 0 }
    }

    /// Returns the entry of this number, which is in use or was removed under the present lock.
    #[inline]
    pub(super) fn entry(&self, number: u32) -> &Entry {
        &self.chunks[number as usize / CHUNK].entries[number as usize % CHUNK]
    }

    /// Returns the entry of this number; `None` if the number is out of range.
    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<&Entry> {
        self.chunks.get(number as usize / CHUNK)?.entries.get(number as usize % CHUNK)
    }

    /// Returns the entry of this number, or a free entry if the chunk of that number was freed.
    #[inline]
    pub(super) fn any(&self, number: u32) -> &Entry {
        self.get(number).unwrap_or(&GONE)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Entry> {
        self.chunks.get_mut(number as usize / CHUNK)?.entries.get_mut(number as usize % CHUNK)
    }

    #[inline]
    pub(super) fn entry_mut(&mut self, number: u32) -> &mut Entry {
        &mut self.chunks[number as usize / CHUNK].entries[number as usize % CHUNK]
    }

    /// Returns the number after `number` in a cycle through all slots; skips chunks that have no
    /// memory.
    pub(super) fn after(&self, number: u32) -> u32 {
        let next = number as usize + 1;
        let (chunk, place) = (next / CHUNK, next % CHUNK);
        if self.chunks.get(chunk).is_some_and(|chunk| place < chunk.entries.len()) {
            return next as u32;
        }
        let mut behind = self.chunks.iter().enumerate().skip(number as usize / CHUNK + 1);
        let found = behind.find(|(_, chunk)| !chunk.entries.is_empty());
        found.map_or(0, |(chunk, _)| (chunk * CHUNK) as u32)
    }

    /// Starts to load an entry: its first cache line, or both cache lines.
    #[inline]
    pub(super) fn prefetch(&self, number: u32, has_far: bool) {
        let entry = self.entry(number);
        prefetch(entry);
        if has_far {
            prefetch(&entry.far);
        }
    }

    /// Stores an entry and returns its number. Returns `None` if the next number is too large for a
    /// reference.
    pub(super) fn insert(&mut self, entry: Entry) -> Option<u32> {
        if self.unused == 0 {
            return self.append(entry);
        }
        while self.chunks.get(self.first_unused)?.free == NONE {
            self.first_unused += 1;
        }
        let chunk = self.chunks.get_mut(self.first_unused)?;
        let number = chunk.free;
        let place = &mut chunk.entries[number as usize % CHUNK];
        chunk.free = place.next;
        *place = entry;
        chunk.used += 1;
        self.len += 1;
        self.unused -= 1;
        Some(number)
    }

    pub(super) fn remove(&mut self, number: u32) {
        let at = number as usize / CHUNK;
        let chunk = &mut self.chunks[at];
        chunk.entries[number as usize % CHUNK] = Entry::free(chunk.free);
        chunk.free = number;
        chunk.used -= 1;
        self.len -= 1;
        self.unused += 1;
        if self.len == 0 {
            *self = Self::new();
            return;
        }
        self.first_unused = self.first_unused.min(at);
        // A chunk is kept until enough other slots are free. Otherwise, connections that end and
        // start again would free and allocate the chunk each time.
        let freed = chunk.entries.len();
        if chunk.used == 0 && self.unused - freed >= SPARE {
            *chunk = Chunk { entries: HugeVec::new(), free: NONE, used: 0 };
            self.unused -= freed;
            self.first_open = self.first_open.min(at);
        }
    }

    pub(super) fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Entry)> {
        self.chunks.iter().enumerate().flat_map(|(at, chunk)| {
            let numbers = (at * CHUNK) as u32..;
            numbers.zip(chunk.entries.iter()).filter(|(_, entry)| entry.is_in_use())
        })
    }

    pub(super) fn bytes(&self) -> usize {
        let places = self.chunks.iter().map(|chunk| chunk.entries.capacity());
        places.sum::<usize>() * size_of::<Entry>()
    }

    fn append(&mut self, entry: Entry) -> Option<u32> {
        while self.chunks.get(self.first_open).is_some_and(|chunk| chunk.entries.len() == CHUNK) {
            self.first_open += 1;
        }
        let at = self.first_open;
        if at == self.chunks.len() {
            if (at + 1) * CHUNK > MAX_ENTRIES as usize {
                return None;
            }
            self.chunks.push(Chunk { entries: HugeVec::new(), free: NONE, used: 0 });
        }
        let chunk = self.chunks.get_mut(at)?;
        if chunk.entries.is_empty() {
            chunk.entries = HugeVec::with_capacity(if at == 0 { FIRST } else { CHUNK / 4 });
        }
        chunk.entries.push_within(CHUNK, entry);
        chunk.used += 1;
        self.len += 1;
        Some((at * CHUNK + chunk.entries.len() - 1) as u32)
    }
}

static GONE: Entry = Entry::FREE;
/// Number of entries in a chunk, which takes 2 MiB.
const CHUNK: usize = 16_384;
/// Initial number of entries in the first chunk. The other chunks start with a quarter of their
/// full size.
const FIRST: usize = 64;
/// The number of free slots that a shard keeps allocated for later connections.
const SPARE: usize = CHUNK / 4;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn entry(mark: u32) -> Entry {
        let mut entry = Entry::FREE;
        entry.mark = mark;
        entry
    }

    #[test]
    fn memory_is_returned_after_a_flood_and_does_not_grow_with_the_next_flood() {
        let mut slab = Slab::new();
        let kept = slab.insert(entry(7)).unwrap();
        let before = slab.bytes();
        let mut most = None;
        for _ in 0..3 {
            let flood: Vec<_> =
                (0..5 * CHUNK as u32).map(|mark| slab.insert(entry(mark)).unwrap()).collect();
            let used = slab.bytes();
            assert!(used >= 5 * CHUNK * size_of::<Entry>());
            assert_eq!(*most.get_or_insert(used), used);
            flood.iter().for_each(|number| slab.remove(*number));
            assert!(slab.bytes() <= before + 2 * CHUNK * size_of::<Entry>(), "{}", slab.bytes());
        }
        assert_eq!(slab.entry(kept).mark, 7);
        slab.remove(kept);
        assert!(slab.bytes() <= CHUNK * size_of::<Entry>());
        assert_eq!(slab.any(3 * CHUNK as u32).expires, 0);
    }

    proptest! {
        #[test]
        fn an_entry_keeps_its_number_until_it_is_removed(
            steps in prop::collection::vec((0u32..100, any::<u32>()), 1..100),
        ) {
            let mut slab = Slab::new();
            let mut held: HashMap<u32, u32> = HashMap::new();
            for (mark, (kind, pick)) in steps.into_iter().enumerate() {
                // Some steps insert or remove many entries at once, so that chunks are allocated
                // and freed.
                let count = if kind > 97 { CHUNK as u32 + pick % 999 } else { 1 };
                for _ in 0..count {
                    let number = held.keys().copied().nth(pick as usize % held.len().clamp(1, 50));
                    match number.filter(|_| kind % 2 == 0) {
                        Some(number) => {
                            prop_assert_eq!(slab.entry(number).mark, held[&number]);
                            slab.remove(number);
                            held.remove(&number);
                        }
                        None => {
                            let number = slab.insert(entry(mark as u32)).unwrap();
                            prop_assert!(held.insert(number, mark as u32).is_none());
                        }
                    }
                }
                prop_assert_eq!(slab.len() as usize, held.len());
            }
            for (number, mark) in &held {
                prop_assert_eq!(slab.any(*number).mark, *mark);
            }
        }
    }
}
