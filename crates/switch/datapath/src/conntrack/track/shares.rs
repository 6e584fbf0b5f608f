//! Fair shares of a full connection table: ports and zones with few connections still get entries.

use std::sync::atomic::{AtomicU32, Ordering};

use flow::word;

use super::Case;
use crate::conntrack::Conntrack;
use crate::conntrack::entry::Entry;

/// The number of connections of each holder. A holder is the port at which a connection began, in
/// one zone. Holders with the same 16 bits of hash share a counter.
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
    /// Removes a connection of a holder with many connections, in favour of a new connection of a
    /// holder with few connections. Chooses among all connections, or among the connections of one
    /// zone. `limit` is the limit of the table or of the zone. Looks only at a few connections, and
    /// returns false if none of these connections may be removed.
    ///
    /// A connection without a reply may be removed if its holder has more connections than the
    /// holder of the new connection. A connection with replies may be removed only under two
    /// conditions. Its holder has reached its share of the limit, and has more than twice as many
    /// connections as the holder of the new connection.
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
    /// Returns the index of the counter of a new connection's holder.
    pub(super) fn holder(&self) -> u16 {
        let port = self.view.key.words[word::IN_PORT] >> 32;
        let mixed = (port << 16 | u64::from(self.call.zone)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 48) as u16
    }
}

/// A holder's share is this fraction of the limit. A holder with more connections cannot replace
/// connections.
const SHARE: u32 = 4;
/// Connections that are considered per shard: up to this number of the connections that expire
/// soonest, and up to this number of all other connections.
const LOOKS: u32 = 32;
