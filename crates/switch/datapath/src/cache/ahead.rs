//! Lookups that begin before their pass, so that memory is loaded meanwhile.

use flow::Key;

use super::{BATCH, Cache, Lookup, NO_PROGRAM, Place};
use crate::packet::Packet;
use crate::{Guess, Known, Moment, Tracker};

/// Lookups of a batch that begin while packets are parsed or tracked, so that memory is loaded
/// meanwhile. If one megaflow matched most of the last batch, a packet is compared with that
/// megaflow first, without a hash table. A packet of a known connection is compared with the
/// megaflow that matched the connection's last packet. The lookup of any other packet begins in the
/// mask that matched the last batch.
///
/// A lookup compares whole keys, so a wrong guess costs only time.
#[derive(Debug)]
pub(crate) struct Ahead {
    /// The tuples that matched most packets of the last first pass and of the last later pass.
    usual: [u32; 2],
    tuple: u32,
    /// The megaflows that matched most packets of the last first pass and of the last later pass.
    favorites: [Place; 2],
    favorite: Place,
    /// A bit for each packet that the favorite matches.
    taken: u32,
    /// Indexed by packet number.
    hashes: [u32; BATCH],
    candidates: [u32; BATCH],
    /// The packets whose lookup has begun, in order. The buckets of the first `loaded` were read.
    begun: [u8; BATCH],
    count: usize,
    loaded: usize,
    /// Indexed by packet number, for packets whose bit in `guessed` is set.
    guesses: [Place; BATCH],
    guessed: u32,
    /// The connections of packets whose bit in `known` is set: their guess is not confirmed yet.
    connections: [Known; BATCH],
    known: u32,
}

impl Default for Ahead {
    fn default() -> Self {
        Self {
            usual: [NO_TUPLE; 2],
            tuple: NO_TUPLE,
            favorites: [Place::NONE; 2],
            favorite: Place::NONE,
            taken: 0,
            hashes: [0; BATCH],
            candidates: [0; BATCH],
            begun: [0; BATCH],
            count: 0,
            loaded: 0,
            guesses: [Place::NONE; BATCH],
            guessed: 0,
            connections: [Known::default(); BATCH],
            known: 0,
        }
    }
}

impl Ahead {
    /// Prepares for the lookups of a pass.
    #[inline]
    pub(crate) fn prepare(&mut self, pass: usize, cache: &Cache) {
        self.tuple = self.usual[pass.min(1)];
        self.favorite = cache.existing(self.favorites[pass.min(1)]).unwrap_or(Place::NONE);
        (self.count, self.loaded) = (0, 0);
        (self.taken, self.guessed, self.known) = (0, 0, 0);
    }

    /// Whether one megaflow took most packets of the last pass of this kind, first or later.
    pub(crate) fn has_favorite(&self) -> bool {
        self.favorite != Place::NONE
    }

    /// Whether the favorite matches the packet. If so, the packet's lookup is complete.
    #[inline(always)]
    fn favors(&mut self, cache: &Cache, index: usize, key: &Key) -> bool {
        let Some(Some(tuple)) = cache.tuples.get(self.favorite.tuple()) else { return false };
        let is_taken = index < BATCH && tuple.matching_head(self.favorite.index(), key).is_some();
        self.taken |= if is_taken { 1 << index } else { 0 };
        is_taken
    }

    /// Whether this pass's usual mask holds at least `megaflows` megaflows.
    pub(crate) fn has_at_least(&self, megaflows: usize, cache: &Cache) -> bool {
        let tuple = cache.tuples.get(self.tuple as usize).and_then(Option::as_ref);
        tuple.is_some_and(|tuple| tuple.len() >= megaflows)
    }

    /// Begins the lookup of a packet with its connection's guess. `None`: the connection cannot
    /// have a guess.
    #[inline(always)]
    pub(crate) fn begin_known(
        &mut self,
        cache: &Cache,
        index: usize,
        key: &Key,
        known: Known,
        guess: Option<Guess>,
    ) {
        let Some(guess) = guess else { return self.begin(cache, index, key) };
        if index >= BATCH || self.favors(cache, index, key) {
            return;
        }
        self.connections[index] = known;
        self.known |= 1 << index;
        match cache.prefetch_guess(guess) {
            Some(place) => {
                self.guesses[index] = place;
                self.guessed |= 1 << index;
            }
            None => self.begin_by_mask(cache, index, key),
        }
    }

    /// Begins the lookup of a packet.
    #[inline(always)]
    pub(crate) fn begin(&mut self, cache: &Cache, index: usize, key: &Key) {
        if !self.favors(cache, index, key) {
            self.begin_by_mask(cache, index, key);
        }
    }

    #[inline(always)]
    fn begin_by_mask(&mut self, cache: &Cache, index: usize, key: &Key) {
        let Some(Some(tuple)) = cache.tuples.get(self.tuple as usize) else { return };
        if index >= BATCH || self.count >= BATCH {
            return;
        }
        let hash = tuple.hash(key);
        tuple.prefetch_bucket(hash);
        self.hashes[index] = hash;
        self.begun[self.count] = index as u8;
        self.count += 1;
        if self.count > self.loaded + LAG {
            let index = usize::from(self.begun[self.loaded]) & (BATCH - 1);
            self.candidates[index] = tuple.candidate(self.hashes[index]);
            self.loaded += 1;
        }
    }

    /// Reads the remaining buckets.
    #[inline]
    pub(crate) fn finish(&mut self, cache: &Cache) {
        let Some(Some(tuple)) = cache.tuples.get(self.tuple as usize) else { return };
        for index in &self.begun[self.loaded..self.count] {
            let index = usize::from(*index) & (BATCH - 1);
            self.candidates[index] = tuple.candidate(self.hashes[index]);
        }
        self.loaded = self.count;
    }

    /// Remembers the mask and the megaflow that matched most packets of a pass.
    pub(crate) fn learn(&mut self, pass: usize, places: &[Place]) {
        let Some(first) = places.first() else { return };
        let are_most = |count: usize| *first != Place::NONE && count * 4 >= places.len() * 3;
        let same = places.iter().filter(|place| *place == first).count();
        let is_favorite = are_most(same);
        self.favorites[pass.min(1)] = if is_favorite { *first } else { Place::NONE };
        let same = || places.iter().filter(|place| place.tuple() == first.tuple()).count();
        let is_usual = is_favorite || are_most(same());
        self.usual[pass.min(1)] = if is_usual { first.tuple() as u32 } else { NO_TUPLE };
    }
}

impl Ahead {
    #[inline(always)]
    pub(crate) fn has_unguessed(&self) -> bool {
        self.known != 0
    }

    /// Stores the packets' megaflows as guesses in their connections, for some of the packets whose
    /// guess was not confirmed.
    #[cold]
    pub(crate) fn remember<K: Tracker + ?Sized>(
        &mut self,
        packets: &[Packet],
        chosen: &[u16],
        places: &[Place],
        moment: Moment,
        tracker: &K,
    ) {
        let known = std::mem::take(&mut self.known);
        let unguessed = chosen.iter().zip(places).filter(|(index, place)| {
            usize::from(**index) < BATCH && known & 1 << **index != 0 && **place != Place::NONE
        });
        for (index, place) in unguessed.take(REMEMBERED) {
            let index = usize::from(*index);
            let known = self.connections[index];
            tracker.remember(&packets[index], known, moment, place.guess());
        }
    }
}

impl Place {
    /// Returns the guess that names this slot, or [`Guess::NONE`] if the slot's number is too large
    /// for a guess.
    fn guess(self) -> Guess {
        let (tuple, index) = (self.tuple() as u64 + 1, u64::from(self.index()));
        let is_small = tuple >> (32 - INDEX_BITS) == 0 && index >> INDEX_BITS == 0;
        if is_small { Guess((tuple << INDEX_BITS | index) as u32) } else { Guess::NONE }
    }

    #[inline(always)]
    fn of_guess(Guess(guess): Guess) -> Option<Self> {
        let tuple = (guess >> INDEX_BITS).checked_sub(1)?;
        Some(Self::new(tuple, guess & ((1 << INDEX_BITS) - 1)))
    }
}

impl Cache {
    /// Returns the slot, if it holds a megaflow or a removed megaflow.
    #[inline]
    fn existing(&self, place: Place) -> Option<Place> {
        let tuple = self.tuples.get(place.tuple())?.as_ref()?;
        tuple.store.has(place.index()).then_some(place)
    }

    /// Returns the slot that a guess names, if the slot holds a megaflow. Starts to load the
    /// megaflow.
    #[inline(always)]
    fn prefetch_guess(&self, guess: Guess) -> Option<Place> {
        let place = Place::of_guess(guess)?;
        let tuple = self.tuples.get(place.tuple())?.as_ref()?;
        tuple.store.prefetch_any(place.index())?;
        Some(place)
    }

    /// Completes the lookups that have begun. Returns the number of packets without a megaflow.
    pub(super) fn lookup_ahead(
        &mut self,
        packets: &[Packet],
        chosen: &[u16],
        generation: u64,
        lookup: &mut Lookup,
        count: usize,
    ) -> usize {
        let Lookup { places, programs, waiting, probed, ahead, .. } = lookup;
        let begun = std::mem::take(&mut ahead.count).min(ahead.loaded);
        let guessed = std::mem::take(&mut ahead.guessed);
        let taken = std::mem::take(&mut ahead.taken);
        // The keys of removed megaflows still match.
        if begun == 0 && guessed | taken == 0 || self.is_unsettled {
            return count;
        }
        let mut searched = 0_u32;
        for index in &ahead.begun[..begun] {
            searched |= 1 << (index & (BATCH as u8 - 1));
        }
        let of_favorite = match taken {
            0 => NO_PROGRAM,
            _ => self.head(ahead.favorite).current_program(generation),
        };
        // The mask that matched the packets before this packet, and the number of those packets.
        let (mut mask, mut hits) = (NO_TUPLE, 0);
        let mut left = 0;
        for (position, index) in chosen[..count].iter().map(|index| usize::from(*index)).enumerate()
        {
            let bit = if index < BATCH { 1 << index } else { 0 };
            let found = if taken & bit != 0 {
                Some((ahead.favorite, of_favorite))
            } else if guessed & bit != 0 {
                let place = ahead.guesses[index];
                let tuple = self.tuples.get(place.tuple()).and_then(Option::as_ref);
                let head =
                    tuple.and_then(|tuple| tuple.matching_head(place.index(), &packets[index].key));
                ahead.known &= !if head.is_some() { bit } else { 0 };
                head.map(|head| (place, head.current_program(generation)))
            } else if searched & bit != 0 {
                let tuple = self.tuples.get(ahead.tuple as usize).and_then(Option::as_ref);
                let (candidate, hash) = (ahead.candidates[index], ahead.hashes[index]);
                tuple.and_then(|tuple| {
                    let found = tuple.confirm(candidate, hash, &packets[index].key)?;
                    let program = tuple.store.head(found).current_program(generation);
                    Some((Place::new(ahead.tuple, found), program))
                })
            } else {
                waiting[left] = position as u8;
                left += 1;
                continue;
            };
            *probed += 1;
            let Some((place, program)) = found else {
                waiting[left] = position as u8;
                left += 1;
                continue;
            };
            (places[position], programs[position]) = (place, program);
            if place.tuple() as u32 != mask {
                self.hit(mask, std::mem::take(&mut hits));
                mask = place.tuple() as u32;
            }
            hits += 1;
        }
        self.hit(mask, hits);
        left
    }

    fn hit(&mut self, tuple: u32, hits: u64) {
        if let Some(Some(tuple)) = self.tuples.get_mut(tuple as usize) {
            tuple.hits += hits;
        }
    }
}

/// Stands for no tuple.
const NO_TUPLE: u32 = u32::MAX;
/// Packets between the prefetch of a bucket and its use: longer than a memory access takes.
const LAG: usize = 8;
/// Maximum number of connections of a batch that get a new guess: each new guess takes a lock.
const REMEMBERED: usize = 4;
/// The bits of a guess that hold the megaflow's index in its mask; the other bits number the mask.
const INDEX_BITS: u32 = 22;
const _: () = assert!(BATCH <= 32);
