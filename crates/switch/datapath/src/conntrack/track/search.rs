//! The search for the connections of a batch, before its packets are tracked.

use flow::{Key, word};

use super::{FAR, MOST_PREFETCHED, place, protocol};
use crate::conntrack::Conntrack;
use crate::conntrack::domain::{Start, ones};
use crate::conntrack::extract::{Verify, extract, quick_tuple};
use crate::conntrack::tuple::TCP;
use crate::conntrack::view::{Headers, state};
use crate::tracker::Prefetched;
use crate::{Guess, GuessFor, Packet};

impl Conntrack {
    /// Returns the shard and the tag of a packet's tuple, as one number for [`Conntrack::prefetch`]
    /// and [`Conntrack::track`]; 0 for a packet without a tuple.
    #[must_use]
    #[inline]
    pub fn hash(&self, key: &Key, frame: &[u8], headers: Headers, zone: u16) -> u64 {
        // The tuple does not depend on the checksums, so they are not verified here.
        let tuple = quick_tuple(key, zone).or_else(|| {
            let found = extract(frame, headers, zone, protocol(key), Verify::default())?;
            Some(found.tuple)
        });
        tuple.map_or(0, |tuple| {
            let place = self.hasher.place(&tuple);
            let has_far = tuple.protocol == TCP || tuple.kind.is_v6();
            let far = if has_far { FAR } else { 0 };
            (u64::from(place.home) << 32 | u64::from(place.tag)) & !FAR | far
        })
    }

    /// Starts to load the part of the index that [`Conntrack::prefetch`] reads for a hash.
    #[inline]
    pub fn prefetch_index(&self, hash: u64) {
        let place = place(hash);
        self.lines[usize::from(self.home(place))].prefetch(place.tag);
    }

    /// Finds the entries of up to 64 hashes whose index was prefetched, and starts to load the
    /// entries. Takes each lock once. Writes the entries' numbers to `found`; a hash without an
    /// entry in its own shard gets `NONE`.
    pub fn prefetch(&self, hashes: &[u64], found: &mut [u32]) {
        self.prefetch_from(Start::default(), hashes, found);
    }

    pub(in crate::conntrack) fn prefetch_from(
        &self,
        start: Start,
        hashes: &[u64],
        found: &mut [u32],
    ) {
        let hashes = &hashes[..hashes.len().min(MOST_PREFETCHED).min(found.len())];
        let homes = hashes.iter().map(|hash| self.home(place(*hash)));
        self.domains.group(start, homes, |first, group| {
            let mut shard = self.shard(first);
            for at in ones(group) {
                let (hash, place) = (hashes[at], place(hashes[at]));
                let home = self.home(place);
                if !shard.turn(home) {
                    drop(shard);
                    shard = self.shard(home);
                }
                found[at] = shard.candidate(place.tag, hash & FAR != 0);
            }
        });
    }

    /// Stores a guess in the connection of a packet.
    pub(crate) fn store_guess(
        &self,
        packet: &Packet,
        connection: Prefetched,
        lookup: GuessFor,
        guess: Guess,
    ) {
        let mut shard = self.shard(self.home(place(connection.hash)));
        // If another connection has taken the slot meanwhile, the next packet of that connection
        // finds the guess wrong.
        if let Some(entry) = shard.entries.get_mut(connection.candidate) {
            let words = &packet.key.words;
            let is_reply = match lookup {
                GuessFor::Arrival => entry.is_reply_v4(words[word::IPV4]),
                GuessFor::Tracked => words[word::CT] as u16 & state::REPLY != 0,
            };
            entry.set_guess(lookup, is_reply, guess);
        }
    }

    /// Writes the packets' guesses for [`GuessFor::Arrival`]. `found`: the result of
    /// [`Conntrack::prefetch`].
    #[inline]
    pub(in crate::conntrack) fn guesses(
        &self,
        start: Start,
        packets: &[Packet],
        hashes: &[u64],
        found: &[u32],
        guesses: &mut [Option<Guess>],
    ) {
        let homes = hashes.iter().map(|hash| self.home(place(*hash)));
        self.domains.group(start, homes, |first, group| {
            let mut shard = self.shard(first);
            for at in ones(group) {
                let home = self.home(place(hashes[at]));
                if !shard.turn(home) {
                    drop(shard);
                    shard = self.shard(home);
                }
                let entry = shard.entries.get(found[at]);
                let addresses = packets[at].key.words[word::IPV4];
                guesses[at] = entry.and_then(|entry| entry.guess_at_arrival(addresses));
            }
        });
    }
}
