use std::sync::Arc;

use units::Time;

use super::{Conntrack, Headers};
use crate::{Awaited, Guess, Known, Moment, Packet, TrackCall, Tracked, Tracker};

/// A thread's access to connection tracking.
#[derive(Debug, Clone)]
pub struct ThreadTracker {
    table: Arc<Conntrack>,
}

impl ThreadTracker {
    #[must_use]
    pub fn new(table: Arc<Conntrack>) -> Self {
        Self { table }
    }
}

impl Tracker for ThreadTracker {
    #[inline]
    fn hash(&self, packet: &Packet, zone: u16) -> u64 {
        self.table.hash(&packet.key, packet.frame.bytes(), Headers::of(packet), zone)
    }

    #[inline]
    fn announce(&self, hash: u64) {
        self.table.announce(hash);
    }

    #[inline]
    fn warm(&self, hashes: &[u64], candidates: &mut [u32]) {
        self.table.warm(hashes, candidates);
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
        batch: &mut [Option<Awaited<'_>>],
        now: Time,
        then: impl FnMut(&mut Packet, &Awaited<'_>, Option<Guess>),
    ) {
        self.table.track_batch(packets, batch, now, then);
    }

    fn remember(&self, packet: &Packet, known: Known, moment: Moment, guess: Guess) {
        self.table.remember(packet, known, moment, guess);
    }

    #[inline]
    fn recall(
        &self,
        packets: &[Packet],
        hashes: &[u64],
        candidates: &[u32],
        guesses: &mut [Option<Guess>],
    ) {
        self.table.recall(packets, hashes, candidates, guesses);
    }
}
