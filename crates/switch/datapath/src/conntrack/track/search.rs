//! The search for the connections of a batch, before its packets are tracked.

use flow::{Key, word};

use super::{FAR, MOST_WARM, place, protocol};
use crate::conntrack::Conntrack;
use crate::conntrack::domain::ones;
use crate::conntrack::extract::{Verify, extract, quick_tuple};
use crate::conntrack::tuple::TCP;
use crate::conntrack::view::{Headers, state};
use crate::tracker::Known;
use crate::{Guess, Moment, Packet};

impl Conntrack {
    /// A packet's place in the table: shard and tag, as one number for [`Conntrack::warm`] and
    /// [`Conntrack::track`]. 0 for a packet that has none.
    #[must_use]
    #[inline]
    pub fn hash(&self, key: &Key, frame: &[u8], headers: Headers, zone: u16) -> u64 {
        // Checksums do not matter for the place.
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

    /// Starts to load the part of the index that [`Conntrack::warm`] reads for a hash.
    #[inline]
    pub fn announce(&self, hash: u64) {
        let place = place(hash);
        self.lines[usize::from(self.home(place))].prefetch(place.tag);
    }

    /// Finds the entries of up to 64 hashes that were announced, and starts to load them. A lock is
    /// taken once. `found` gets the numbers of the entries; a hash whose first entry is in another
    /// shard has none.
    pub fn warm(&self, hashes: &[u64], found: &mut [u32]) {
        let hashes = &hashes[..hashes.len().min(MOST_WARM).min(found.len())];
        let homes = hashes.iter().map(|hash| self.home(place(*hash)));
        self.domains.group(homes, |first, group| {
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

    /// Leaves a guess at the connection of a packet.
    pub(crate) fn remember(&self, packet: &Packet, known: Known, moment: Moment, guess: Guess) {
        let mut shard = self.shard(self.home(place(known.hash)));
        // If another connection took the place meanwhile, its next packet finds the guess wrong.
        if let Some(entry) = shard.entries.get_mut(known.candidate) {
            let words = &packet.key.words;
            let is_reply = match moment {
                Moment::Arrival => entry.is_reply_v4(words[word::IPV4]),
                Moment::Tracked => words[word::CT] as u16 & state::REPLY != 0,
            };
            entry.set_guess(moment, is_reply, guess);
        }
    }

    /// Writes the guesses that [`Conntrack::remember`] left for the arrival of packets whose
    /// entries [`Conntrack::warm`] found.
    #[inline]
    pub(crate) fn recall(
        &self,
        packets: &[Packet],
        hashes: &[u64],
        found: &[u32],
        guesses: &mut [Option<Guess>],
    ) {
        let homes = hashes.iter().map(|hash| self.home(place(*hash)));
        self.domains.group(homes, |first, group| {
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
