//! Starts the lookups of a pass before the pass, so that the processor loads the memory meanwhile.

use flow::Key;

use super::{BATCH, Cache, Lookup, NO_PROGRAM, Place};
use crate::packet::Packet;
use crate::{Guess, GuessFor, Prefetched, Tracker};

/// The megaflows that are prefetched for a batch while its packets are parsed or tracked.
///
/// A guess comes from former packets: the megaflow that matched three quarters of the last batch,
/// the megaflow that matched the connection's last packet, or the mask that matched three quarters
/// of the last batch. The cache compares the first guess at once, because its memory is loaded
/// already. The cache prefetches the other guesses, and [`Cache::resolve_prefetched`] compares the
/// prefetched guesses. A comparison covers the whole key, so a wrong guess costs only time.
#[derive(Debug)]
pub(crate) struct MegaflowPrefetch {
    /// The guessed mask and megaflow for the next first pass of a batch, then for the next later
    /// pass.
    guessed_tuples: [u32; 2],
    guessed_megaflows: [Place; 2],
    /// The guessed mask and the guessed megaflow for this pass.
    tuple: u32,
    megaflow: Place,
    /// A bit for each packet that `megaflow` matches.
    resolved: u32,
    /// Indexed by packet number: the packet's hash in `tuple`, and the megaflow in its bucket.
    hashes: [u32; BATCH],
    candidates: [u32; BATCH],
    /// The packets whose bucket is prefetched, in order. The buckets of the first `read` were read,
    /// and their megaflows are prefetched.
    packets: [u8; BATCH],
    count: usize,
    read: usize,
    /// Indexed by packet number, for packets whose bit in `guessed` is set: the megaflow that the
    /// packet's connection guesses.
    guesses: [Place; BATCH],
    guessed: u32,
    /// The connections of packets whose bit in `unresolved` is set. Such a connection has no guess
    /// yet, or its guess is wrong or not compared yet.
    connections: [Prefetched; BATCH],
    unresolved: u32,
}

impl Default for MegaflowPrefetch {
    fn default() -> Self {
        Self {
            guessed_tuples: [NO_TUPLE; 2],
            guessed_megaflows: [Place::NONE; 2],
            tuple: NO_TUPLE,
            megaflow: Place::NONE,
            resolved: 0,
            hashes: [0; BATCH],
            candidates: [0; BATCH],
            packets: [0; BATCH],
            count: 0,
            read: 0,
            guesses: [Place::NONE; BATCH],
            guessed: 0,
            connections: [Prefetched::default(); BATCH],
            unresolved: 0,
        }
    }
}

impl MegaflowPrefetch {
    /// Takes the guesses that former passes left for this pass.
    #[inline]
    pub(crate) fn prepare(&mut self, pass: usize, cache: &Cache) {
        self.tuple = self.guessed_tuples[pass.min(1)];
        let megaflow = cache.existing(self.guessed_megaflows[pass.min(1)]);
        self.megaflow = megaflow.unwrap_or(Place::NONE);
        (self.count, self.read) = (0, 0);
        (self.resolved, self.guessed, self.unresolved) = (0, 0, 0);
    }

    /// Whether one megaflow is guessed for all packets of the pass.
    pub(crate) fn guesses_one_megaflow(&self) -> bool {
        self.megaflow != Place::NONE
    }

    /// Resolves the packet's megaflow, if the guess for all packets of the pass is right.
    #[inline(always)]
    fn resolve(&mut self, cache: &Cache, index: usize, key: &Key) -> bool {
        let Some(Some(tuple)) = cache.tuples.get(self.megaflow.tuple()) else { return false };
        let is_right = index < BATCH && tuple.matching_head(self.megaflow.index(), key).is_some();
        self.resolved |= if is_right { 1 << index } else { 0 };
        is_right
    }

    /// Whether the guessed mask of this pass holds at least `megaflows` megaflows.
    pub(crate) fn has_at_least(&self, megaflows: usize, cache: &Cache) -> bool {
        let tuple = cache.tuples.get(self.tuple as usize).and_then(Option::as_ref);
        tuple.is_some_and(|tuple| tuple.len() >= megaflows)
    }

    /// Prefetches the megaflow that a packet's connection guesses. `guess` is `None` if the
    /// connection cannot have a guess.
    #[inline(always)]
    pub(crate) fn prefetch_guessed(
        &mut self,
        cache: &Cache,
        index: usize,
        key: &Key,
        connection: Prefetched,
        guess: Option<Guess>,
    ) {
        let Some(guess) = guess else { return self.prefetch(cache, index, key) };
        if index >= BATCH || self.resolve(cache, index, key) {
            return;
        }
        self.connections[index] = connection;
        self.unresolved |= 1 << index;
        match cache.prefetch_guess(guess) {
            Some(place) => {
                self.guesses[index] = place;
                self.guessed |= 1 << index;
            }
            None => self.prefetch_bucket(cache, index, key),
        }
    }

    /// Prefetches the megaflow of a packet whose connection has no guess.
    #[inline(always)]
    pub(crate) fn prefetch(&mut self, cache: &Cache, index: usize, key: &Key) {
        if !self.resolve(cache, index, key) {
            self.prefetch_bucket(cache, index, key);
        }
    }

    #[inline(always)]
    fn prefetch_bucket(&mut self, cache: &Cache, index: usize, key: &Key) {
        let Some(Some(tuple)) = cache.tuples.get(self.tuple as usize) else { return };
        if index >= BATCH || self.count >= BATCH {
            return;
        }
        let hash = tuple.hash(key);
        tuple.prefetch_bucket(hash);
        self.hashes[index] = hash;
        self.packets[self.count] = index as u8;
        self.count += 1;
        if self.count > self.read + LAG {
            let index = usize::from(self.packets[self.read]) & (BATCH - 1);
            self.candidates[index] = tuple.candidate(self.hashes[index]);
            self.read += 1;
        }
    }

    /// Reads the prefetched buckets that were not read yet, and prefetches the megaflows in these
    /// buckets.
    #[inline]
    pub(crate) fn finish(&mut self, cache: &Cache) {
        let Some(Some(tuple)) = cache.tuples.get(self.tuple as usize) else { return };
        for index in &self.packets[self.read..self.count] {
            let index = usize::from(*index) & (BATCH - 1);
            self.candidates[index] = tuple.candidate(self.hashes[index]);
        }
        self.read = self.count;
    }

    /// Guesses the mask and the megaflow of most packets of a pass for the next pass of its kind.
    pub(crate) fn guess_next(&mut self, pass: usize, places: &[Place]) {
        let Some(first) = places.first() else { return };
        let are_most = |count: usize| *first != Place::NONE && count * 4 >= places.len() * 3;
        let same = places.iter().filter(|place| *place == first).count();
        let is_one_megaflow = are_most(same);
        self.guessed_megaflows[pass.min(1)] = if is_one_megaflow { *first } else { Place::NONE };
        let same = || places.iter().filter(|place| place.tuple() == first.tuple()).count();
        let is_one_tuple = is_one_megaflow || are_most(same());
        self.guessed_tuples[pass.min(1)] =
            if is_one_tuple { first.tuple() as u32 } else { NO_TUPLE };
    }

    #[inline(always)]
    pub(crate) fn has_unresolved(&self) -> bool {
        self.unresolved != 0
    }

    /// Stores the packets' megaflows as guesses in their connections, for some of the packets whose
    /// connection had no right guess.
    #[cold]
    pub(crate) fn store_guesses<K: Tracker + ?Sized>(
        &mut self,
        packets: &[Packet],
        chosen: &[u16],
        places: &[Place],
        lookup: GuessFor,
        tracker: &K,
    ) {
        let unresolved = std::mem::take(&mut self.unresolved);
        let wrong = chosen.iter().zip(places).filter(|(index, place)| {
            usize::from(**index) < BATCH && unresolved & 1 << **index != 0 && **place != Place::NONE
        });
        for (index, place) in wrong.take(STORED_GUESSES) {
            let index = usize::from(*index);
            tracker.store_guess(&packets[index], self.connections[index], lookup, place.guess());
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
    /// Returns the slot, if it holds a megaflow, even a removed megaflow.
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

    /// Compares the prefetched megaflows with their packets. Returns the number of packets whose
    /// megaflow is not resolved.
    pub(super) fn resolve_prefetched(
        &mut self,
        packets: &[Packet],
        chosen: &[u16],
        generation: u64,
        lookup: &mut Lookup,
        count: usize,
    ) -> usize {
        let Lookup { places, programs, waiting, probed, prefetch, .. } = lookup;
        let read = std::mem::take(&mut prefetch.count).min(prefetch.read);
        let guessed = std::mem::take(&mut prefetch.guessed);
        let resolved = std::mem::take(&mut prefetch.resolved);
        // Keys of removed megaflows still match, so the guesses are not used after a removal.
        if read == 0 && guessed | resolved == 0 || self.is_unsettled {
            return count;
        }
        let mut searched = 0_u32;
        for index in &prefetch.packets[..read] {
            searched |= 1 << (index & (BATCH as u8 - 1));
        }
        let of_guessed = match resolved {
            0 => NO_PROGRAM,
            _ => self.head(prefetch.megaflow).current_program(generation),
        };
        // The mask that matched the packets before this packet, and the number of those packets.
        let (mut mask, mut hits) = (NO_TUPLE, 0);
        let mut left = 0;
        for (position, index) in chosen[..count].iter().map(|index| usize::from(*index)).enumerate()
        {
            let bit = if index < BATCH { 1 << index } else { 0 };
            let found = if resolved & bit != 0 {
                Some((prefetch.megaflow, of_guessed))
            } else if guessed & bit != 0 {
                let place = prefetch.guesses[index];
                let tuple = self.tuples.get(place.tuple()).and_then(Option::as_ref);
                let head =
                    tuple.and_then(|tuple| tuple.matching_head(place.index(), &packets[index].key));
                prefetch.unresolved &= !if head.is_some() { bit } else { 0 };
                head.map(|head| (place, head.current_program(generation)))
            } else if searched & bit != 0 {
                let tuple = self.tuples.get(prefetch.tuple as usize).and_then(Option::as_ref);
                let (candidate, hash) = (prefetch.candidates[index], prefetch.hashes[index]);
                tuple.and_then(|tuple| {
                    let found = tuple.confirm(candidate, hash, &packets[index].key)?;
                    let program = tuple.store.head(found).current_program(generation);
                    Some((Place::new(prefetch.tuple, found), program))
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

/// The number that means "no tuple".
const NO_TUPLE: u32 = u32::MAX;
/// Number of packets between the prefetch of a bucket and the use of the bucket. These packets take
/// longer than a memory access.
const LAG: usize = 8;
/// Maximum number of connections of a batch that get a new guess: each new guess takes a lock.
const STORED_GUESSES: usize = 4;
/// The bits of a guess that hold the megaflow's index in its mask; the other bits number the mask.
const INDEX_BITS: u32 = 22;
const _: () = assert!(BATCH <= 32);
