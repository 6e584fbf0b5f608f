//! Space in a full table for ports and zones that have few connections.

use std::sync::atomic::{AtomicU32, Ordering};

use flow::word;

use super::Case;
use crate::conntrack::Conntrack;
use crate::conntrack::entry::Entry;

/// The connections of each holder: the port at which a connection began, in one zone. Two holders
/// of 65,536 may share a counter.
#[derive(Debug)]
pub(in crate::conntrack) struct Holders(Box<[AtomicU32]>);

impl Holders {
    pub(in crate::conntrack) fn new() -> Self {
        Self((0..=u16::MAX).map(|_| AtomicU32::new(0)).collect())
    }

    pub(in crate::conntrack) fn add(&self, holder: u16) {
        self.0[usize::from(holder)].fetch_add(1, Ordering::Relaxed);
    }

    pub(in crate::conntrack) fn subtract(&self, holder: u16) {
        self.0[usize::from(holder)].fetch_sub(1, Ordering::Relaxed);
    }

    fn count(&self, holder: u16) -> u32 {
        self.0[usize::from(holder)].load(Ordering::Relaxed)
    }
}

impl Conntrack {
    /// Removes a connection of a holder that has many, in favour of a new one of a holder that has
    /// few, out of all connections or of those of one zone; `limit` is the most of these. False if
    /// none of a few that it looks at may go.
    ///
    /// A connection without a reply goes if its holder has more than the new one's. A connection
    /// with replies goes only if its holder has its share, and twice as many as the other one.
    pub(super) fn evict(&self, case: &Case<'_, '_, '_, '_>, zone: Option<u16>, limit: u32) -> bool {
        let own = self.totals.holders.count(case.holder());
        if own >= limit / SHARE {
            return false;
        }
        let may_go = |entry: &Entry| {
            let count = self.totals.holders.count(entry.holder());
            let is_less_entitled = match entry.has_reply() {
                true => count >= limit / SHARE && count / 2 > own,
                false => count > own.saturating_add(1),
            };
            is_less_entitled && zone.is_none_or(|zone| entry.zone() == zone)
        };
        let home = self.home(case.place);
        let count = self.domains.shards() as u8;
        for number in (home..count).chain(0..home) {
            let mut shard = self.shard(number);
            let Some(entry) = shard.victim(LOOKS, may_go) else { continue };
            shard.counts.reclaimed += 1;
            let remainder = self.remove(&mut shard, entry);
            drop(shard);
            self.forget(remainder.as_slice());
            return true;
        }
        false
    }
}

impl Case<'_, '_, '_, '_> {
    /// The number of the counter of a new connection.
    pub(super) fn holder(&self) -> u16 {
        let port = self.view.key.words[word::IN_PORT] >> 32;
        let mixed = (port << 16 | u64::from(self.call.zone)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 48) as u16
    }
}

/// The part of the limit that is a holder's share: with more, its new connections replace none.
const SHARE: u32 = 4;
/// Connections that are looked at in a shard, of the soonest to expire and of all.
const LOOKS: u32 = 32;
