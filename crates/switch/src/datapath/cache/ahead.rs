//! Lookups that begin before their pass.

use super::{BATCH, Cache, Lookup, Place};
use crate::datapath::packet::Packet;
use crate::flow::Key;

/// Lookups of a batch in the mask that took the last batch. They begin while packets are parsed or
/// tracked, so that memory answers meanwhile.
///
/// The lookup of the pass compares whole keys, so that a wrong guess costs time alone.
#[derive(Debug)]
pub(in crate::datapath) struct Ahead {
    /// The tuples that took most packets of the last first pass and of the last later one.
    usual: [u32; 2],
    tuple: u32,
    /// By the numbers of packets.
    hashes: [u32; BATCH],
    candidates: [u32; BATCH],
    /// The packets whose lookup has begun, in their order. The buckets of the first `loaded` were
    /// read.
    begun: [u8; BATCH],
    count: usize,
    loaded: usize,
}

impl Default for Ahead {
    fn default() -> Self {
        Self {
            usual: [NO_TUPLE; 2],
            tuple: NO_TUPLE,
            hashes: [0; BATCH],
            candidates: [0; BATCH],
            begun: [0; BATCH],
            count: 0,
            loaded: 0,
        }
    }
}

impl Ahead {
    /// Prepares for the lookups of a pass.
    #[inline]
    pub(in crate::datapath) fn prepare(&mut self, pass: usize) {
        self.tuple = self.usual[pass.min(1)];
        (self.count, self.loaded) = (0, 0);
    }

    /// Begins the lookup of a packet.
    #[inline(always)]
    pub(in crate::datapath) fn begin(&mut self, cache: &Cache, index: usize, key: &Key) {
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

    /// Reads the buckets that are left.
    #[inline]
    pub(in crate::datapath) fn finish(&mut self, cache: &Cache) {
        let Some(Some(tuple)) = cache.tuples.get(self.tuple as usize) else { return };
        for index in &self.begun[self.loaded..self.count] {
            let index = usize::from(*index) & (BATCH - 1);
            self.candidates[index] = tuple.candidate(self.hashes[index]);
        }
        self.loaded = self.count;
    }

    /// Remembers which mask took the packets of a pass, if one took most of them.
    pub(in crate::datapath) fn learn(&mut self, pass: usize, places: &[Place]) {
        let Some(first) = places.first() else { return };
        let same = places.iter().filter(|place| place.tuple() == first.tuple()).count();
        let is_usual = *first != Place::NONE && same * 4 >= places.len() * 3;
        self.usual[pass.min(1)] = if is_usual { first.tuple() as u32 } else { NO_TUPLE };
    }
}

impl Cache {
    /// Ends the lookups that have begun. Returns the number of packets that still wait.
    pub(super) fn lookup_ahead(
        &mut self,
        packets: &[Packet],
        chosen: &[u16],
        lookup: &mut Lookup,
        count: usize,
    ) -> usize {
        let Lookup { places, waiting, probed, ahead, .. } = lookup;
        let begun = std::mem::take(&mut ahead.count).min(ahead.loaded);
        // Removed megaflows still have their keys.
        if begun == 0 || self.is_unsettled {
            return count;
        }
        let Some(Some(tuple)) = self.tuples.get_mut(ahead.tuple as usize) else { return count };
        let mut known = 0_u32;
        for index in &ahead.begun[..begun] {
            known |= 1 << (index & (BATCH as u8 - 1));
        }
        let mut left = 0;
        for (position, index) in chosen[..count].iter().map(|index| usize::from(*index)).enumerate()
        {
            if index < BATCH && known & 1 << index != 0 {
                *probed += 1;
                let (candidate, hash) = (ahead.candidates[index], ahead.hashes[index]);
                if let Some(found) = tuple.confirm(candidate, hash, &packets[index].key) {
                    places[position] = Place::new(ahead.tuple, found);
                    continue;
                }
            }
            waiting[left] = position as u8;
            left += 1;
        }
        tuple.hits += (count - left) as u64;
        left
    }
}

/// The number of no tuple.
const NO_TUPLE: u32 = u32::MAX;
/// Packets between the request for a bucket and its use: longer than memory takes.
const LAG: usize = 8;
const _: () = assert!(BATCH <= 32);
