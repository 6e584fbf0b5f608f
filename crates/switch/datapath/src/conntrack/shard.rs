use super::entry::{Entry, NONE, Rules};
use super::index::{Index, Reference};
use super::slab::Slab;
use super::tuple::{Place, Tuple};
use super::wheel::Wheel;

/// A part of the connections.
///
/// A connection is stored in the shard of its original tuple. The index of this shard and the index
/// of the reply tuple's shard have a reference to the connection. The two shards differ only if a
/// translation changed the addresses.
///
/// Threads hold the locks of different shards at the same time, so two shards have no common cache
/// line.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Shard {
    pub(super) number: u8,
    pub(super) index: Index,
    pub(super) entries: Slab,
    pub(super) wheel: Wheel,
    pub(super) rules: Rules,
    pub(super) counts: ShardCounts,
    /// The entry at which the last search for an entry to evict ended; the next search begins after
    /// this entry.
    hand: u32,
}

/// Counters that packets change, under the shard's lock.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ShardCounts {
    pub(super) created: u64,
    pub(super) expired: u64,
    pub(super) reclaimed: u64,
    pub(super) removed: u64,
}

/// The result of a lookup.
#[derive(Debug, Clone, Copy)]
pub(super) enum Found {
    Here {
        entry: u32,
        is_reply: bool,
    },
    /// Only entries of other shards have the tag of the lookup. The connection may be among these
    /// entries.
    Elsewhere(Candidates),
    Nowhere,
}

/// References to entries of other shards that have the tag of a lookup, usually one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Candidates {
    list: [Option<Reference>; 4],
}

/// A reference to a removed connection, which must be removed from the index of another shard.
#[derive(Debug, Clone, Copy)]
pub(super) struct Remainder {
    pub(super) place: Place,
    pub(super) reference: Reference,
}

impl Candidates {
    fn push(&mut self, reference: Reference) {
        if let Some(free) = self.list.iter_mut().find(|place| place.is_none()) {
            *free = Some(reference);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Reference> {
        self.list.into_iter().flatten()
    }
}

impl Shard {
    pub(super) fn new(number: u8, rules: Rules) -> Self {
        Self {
            number,
            index: Index::new(),
            entries: Slab::new(),
            wheel: Wheel::new(),
            rules,
            counts: ShardCounts::default(),
            hand: 0,
        }
    }

    #[inline]
    pub(super) fn find(&self, tuple: &Tuple, tag: u32) -> Found {
        let mut elsewhere = Candidates::default();
        let mut direction = false;
        let here = self.index.find(tag, |reference| {
            if reference.shard != self.number {
                elsewhere.push(reference);
                return false;
            }
            match self.entries.entry(reference.entry).direction(tuple) {
                Some(is_reply) => {
                    direction = is_reply;
                    true
                }
                None => false,
            }
        });
        match here {
            Some(reference) => Found::Here { entry: reference.entry, is_reply: direction },
            None if elsewhere.list[0].is_some() => Found::Elsewhere(elsewhere),
            None => Found::Nowhere,
        }
    }

    /// Returns the first entry of this shard that has the tag of a lookup, or
    /// [`super::entry::NONE`]. Starts to load the entry.
    #[inline]
    pub(super) fn candidate(&self, tag: u32, has_far: bool) -> u32 {
        let found = self.index.find(tag, |reference| reference.shard == self.number);
        found.map_or(NONE, |reference| {
            self.entries.prefetch(reference.entry, has_far);
            reference.entry
        })
    }

    /// Finds a connection to evict, for which `may_go` is true. Looks at the `looks` connections
    /// that expire soonest, then at `looks` further connections, starting where the last search
    /// ended.
    pub(super) fn victim(&mut self, looks: u32, may_go: impl Fn(&Entry) -> bool) -> Option<u32> {
        let entries = &self.entries;
        let soonest = self.wheel.soonest(entries, looks, |number| may_go(entries.entry(number)));
        if let Some(number) = soonest.first() {
            return Some(*number);
        }
        for _ in 0..looks {
            self.hand = entries.after(self.hand);
            if entries.get(self.hand).is_some_and(|entry| entry.is_in_use() && may_go(entry)) {
                return Some(self.hand);
            }
        }
        None
    }

    /// Frees memory that the present number of connections does not need.
    pub(super) fn tidy(&mut self) {
        self.index.tidy();
    }

    /// Stores a connection, and indexes its original tuple's tag. If the reply tuple has another
    /// tag, the caller indexes that tag.
    pub(super) fn insert(&mut self, entry: Entry, tag: u32, now: u64) -> Option<u32> {
        if self.entries.len() == 0 {
            self.wheel.start(now);
        }
        let number = self.entries.insert(entry)?;
        self.wheel.insert(&mut self.entries, number);
        self.index.insert(tag, Reference { shard: self.number, entry: number });
        self.counts.created += 1;
        Some(number)
    }

    /// Removes a connection and its references in this shard's index. `places`: the hashes of the
    /// connection's original tuple and reply tuple. `home` maps a tuple's hash to its shard.
    pub(super) fn remove(
        &mut self,
        number: u32,
        places: [Place; 2],
        home: impl Fn(Place) -> u8,
    ) -> Option<Remainder> {
        let reference = Reference { shard: self.number, entry: number };
        let is_translated = self.entries.entry(number).translation().is_some();
        self.wheel.remove(&mut self.entries, number);
        self.entries.remove(number);
        self.index.remove(places[0].tag, reference);
        if !is_translated {
            return None;
        }
        if home(places[1]) == self.number {
            self.index.remove(places[1].tag, reference);
            return None;
        }
        Some(Remainder { place: places[1], reference })
    }
}
