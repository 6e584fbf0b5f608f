use std::sync::Arc;
use std::sync::atomic::Ordering;

use units::Time;

use super::domain::Start;
use super::{Conntrack, Headers};
use crate::{Guess, GuessFor, Packet, Prefetched, ToTrack, TrackCall, Tracked, Tracker};

/// A thread's access to connection tracking.
#[derive(Debug, Clone)]
pub struct ThreadTracker {
    table: Arc<Conntrack>,
    start: Start,
}

impl ThreadTracker {
    #[must_use]
    pub fn new(table: Arc<Conntrack>) -> Self {
        let thread = table.trackers.fetch_add(1, Ordering::Relaxed);
        Self { table, start: Start::of(thread) }
    }
}

impl Tracker for ThreadTracker {
    #[inline]
    fn hash(&self, packet: &Packet, zone: u16) -> u64 {
        self.table.hash(&packet.key, packet.frame.bytes(), Headers::of(packet), zone)
    }

    #[inline]
    fn prefetch_index(&self, hash: u64) {
        self.table.prefetch_index(hash);
    }

    #[inline]
    fn prefetch(&self, hashes: &[u64], candidates: &mut [u32]) {
        self.table.prefetch_from(self.start, hashes, candidates);
    }

    #[inline]
    fn track(
        &mut self,
        packet: &mut Packet,
        call: &TrackCall<'_>,
        hash: Option<u64>,
        now: Time,
    ) -> Tracked {
        self.table.track_packet(packet, call, now, |view| self.table.track(view, call, hash, now))
    }

    fn track_batch(
        &mut self,
        packets: &mut [Packet],
        batch: &mut [Option<ToTrack<'_>>],
        now: Time,
        then: impl FnMut(&mut Packet, &ToTrack<'_>, Option<Guess>),
    ) {
        self.table.track_batch(self.start, packets, batch, now, then);
    }

    fn store_guess(&self, packet: &Packet, connection: Prefetched, lookup: GuessFor, guess: Guess) {
        self.table.store_guess(packet, connection, lookup, guess);
    }

    #[inline]
    fn guesses(
        &self,
        packets: &[Packet],
        hashes: &[u64],
        candidates: &[u32],
        guesses: &mut [Option<Guess>],
    ) {
        self.table.guesses(self.start, packets, hashes, candidates, guesses);
    }
}
