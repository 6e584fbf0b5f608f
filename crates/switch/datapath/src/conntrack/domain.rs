//! Locks of shards: a domain is the shards behind one lock.
//!
//! Two packet threads that want the same lock wait for each other, so several threads need many
//! locks. Each lock that a batch takes costs time, so a single thread should need one lock. The
//! number of domains follows the number of packet threads ([`Domains::divide`]). A shard keeps its
//! number and moves as a whole, so its connections stay where they are in the shard.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::index::MAX_SHARDS;
use super::shard::Shard;

/// All shards. The number of shards and the number of domains are powers of two.
#[derive(Debug)]
pub(super) struct Domains {
    /// A lock for each shard; the domains from number `count` on are empty.
    locks: Box<[Padded]>,
    count: AtomicUsize,
}

/// A lock that shares its cache lines with no other lock.
#[derive(Debug)]
#[repr(align(128))]
struct Padded(Mutex<Domain>);

/// The shards whose number, modulo the number of domains, is the domain's number.
#[derive(Debug)]
struct Domain {
    number: usize,
    /// The number of domains as a power of two. After a thread has waited for the lock, this number
    /// tells the thread whether its shard has moved meanwhile.
    bits: u32,
    /// The number of packets of known connections. Each such packet changes this counter, so the
    /// counter is in the cache line of the lock. While no connection begins or ends, the lines of a
    /// shard do not change.
    hits: u64,
    shards: Vec<Shard>,
}

/// The domain at which a thread begins with a batch, as a share of 256. Threads that begin at the
/// same domain and are equally fast would wait for each other at each lock.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Start(u8);

/// A shard whose domain is locked.
#[derive(Debug)]
pub(super) struct Held<'a> {
    domain: MutexGuard<'a, Domain>,
    at: usize,
}

/// The shards of a connection's two tuples, whose domains are locked.
#[derive(Debug)]
pub(super) struct Both<'a> {
    own: Held<'a>,
    other: Other<'a>,
}

#[derive(Debug)]
enum Other<'a> {
    /// The index of the shard in the locked domain of `own`.
    Near(usize),
    Far(Held<'a>),
}

impl Domains {
    /// Puts each shard into a separate domain.
    pub(super) fn new(shards: Vec<Shard>) -> Self {
        let count = shards.len();
        let bits = count.trailing_zeros();
        let domain = |(number, shard)| Domain { number, bits, hits: 0, shards: vec![shard] };
        let domains = shards.into_iter().enumerate().map(domain);
        let locks = domains.map(|domain| Padded(Mutex::new(domain))).collect();
        Self { locks, count: AtomicUsize::new(count) }
    }

    pub(super) fn shards(&self) -> usize {
        self.locks.len()
    }

    /// Returns the number of domains.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Divides the shards into this number of domains, or the next power of two. Meanwhile, threads
    /// that want a shard wait.
    pub(super) fn divide(&self, count: usize) {
        let count = count.clamp(1, self.locks.len()).next_power_of_two();
        if count == self.count.load(Ordering::Relaxed) {
            return;
        }
        // Lock the domains in the order of `lock_both`, so that no deadlock arises.
        let mut domains: Vec<_> = self.locks.iter().map(Padded::lock).collect();
        let mut shards: Vec<Shard> = Vec::with_capacity(domains.len());
        domains.iter_mut().for_each(|domain| shards.append(&mut domain.shards));
        shards.sort_by_key(|shard| shard.number);
        for shard in shards {
            domains[usize::from(shard.number) & (count - 1)].shards.push(shard);
        }
        domains.iter_mut().for_each(|domain| domain.bits = count.trailing_zeros());
        self.count.store(count, Ordering::Relaxed);
    }

    pub(super) fn lock(&self, shard: u8) -> Held<'_> {
        loop {
            let domain = self.domain(shard).lock();
            if let Some(held) = Held::new(domain, shard) {
                return held;
            }
        }
    }

    /// Locks a shard's domain. Returns `None` if another thread holds the lock.
    pub(super) fn try_lock(&self, shard: u8) -> Option<Held<'_>> {
        Held::new(self.domain(shard).0.try_lock().ok()?, shard)
    }

    /// Locks the shard of a connection's original tuple and the shard of its reply tuple.
    pub(super) fn lock_both(&self, own: u8, other: u8) -> Both<'_> {
        loop {
            let mask = self.count.load(Ordering::Relaxed) - 1;
            let (number, foreign) = (usize::from(own) & mask, usize::from(other) & mask);
            let (first, second) = (number.min(foreign), number.max(foreign));
            let first = self.locks[first].lock();
            if number == foreign {
                // Another thread may have called `divide` since the number of domains was read.
                if let Some(own) = Held::new(first, own)
                    && own.domain.has(other)
                {
                    let place = own.place(other);
                    return Both { own, other: Other::Near(place) };
                }
                continue;
            }
            let second = self.locks[second].lock();
            let (near, far) = if number < foreign { (first, second) } else { (second, first) };
            if let (Some(own), Some(far)) = (Held::new(near, own), Held::new(far, other)) {
                return Both { own, other: Other::Far(far) };
            }
        }
    }

    /// Returns the number of packets of known connections so far.
    pub(super) fn hits(&self) -> u64 {
        self.locks.iter().map(|domain| domain.lock().hits).sum()
    }

    /// Groups up to 64 shards by domain. Calls `visit` once for each domain, with the domain's
    /// number and a bit set: the positions in `shards` of the domain's shards. `start` decides
    /// which domain is the first.
    #[inline]
    pub(super) fn group(
        &self,
        start: Start,
        shards: impl ExactSizeIterator<Item = u8>,
        mut visit: impl FnMut(u8, u64),
    ) {
        let mask = self.count() - 1;
        if mask == 0 {
            match shards.len() {
                0 => {}
                count @ 1..64 => visit(0, (1 << count) - 1),
                _ => visit(0, u64::MAX),
            }
            return;
        }
        let mut groups = [0_u64; MAX_SHARDS];
        let mut used = 0_u64;
        for (at, shard) in shards.take(64).enumerate() {
            let domain = usize::from(shard) & mask & (MAX_SHARDS - 1);
            groups[domain] |= 1 << at;
            used |= 1 << domain;
        }
        let before = (1_u64 << start.domain(mask + 1)) - 1;
        for domain in ones(used & !before).chain(ones(used & before)) {
            visit(domain as u8, groups[domain & (MAX_SHARDS - 1)]);
        }
    }

    #[inline]
    fn domain(&self, shard: u8) -> &Padded {
        let mask = self.count.load(Ordering::Relaxed) - 1;
        &self.locks[usize::from(shard) & mask]
    }
}

impl Padded {
    #[inline]
    fn lock(&self) -> MutexGuard<'_, Domain> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Start {
    /// Returns the start of a thread. The starts of the first threads are far from each other.
    pub(super) fn of(thread: u8) -> Self {
        Self(thread.reverse_bits())
    }

    /// Returns the first of `count` domains.
    fn domain(self, count: usize) -> usize {
        (usize::from(self.0) * count) >> u8::BITS
    }
}

impl<'a> Held<'a> {
    /// Counts a packet of a known connection.
    #[inline(always)]
    pub(super) fn count_hit(&mut self) {
        self.domain.hits += 1;
    }

    /// `None` if the shard has moved to another domain.
    #[inline]
    fn new(domain: MutexGuard<'a, Domain>, shard: u8) -> Option<Self> {
        domain.has(shard).then(|| Self { at: usize::from(shard) >> domain.bits, domain })
    }

    /// Switches to another shard of the locked domain. Returns false if the shard is in another
    /// domain.
    #[inline(always)]
    pub(super) fn turn(&mut self, shard: u8) -> bool {
        let has = self.domain.has(shard);
        if has {
            self.at = self.place(shard);
        }
        has
    }

    #[inline(always)]
    fn place(&self, shard: u8) -> usize {
        usize::from(shard) >> self.domain.bits
    }
}

impl Domain {
    #[inline(always)]
    fn has(&self, shard: u8) -> bool {
        usize::from(shard) & ((1 << self.bits) - 1) == self.number
    }
}

impl Deref for Held<'_> {
    type Target = Shard;

    #[inline(always)]
    fn deref(&self) -> &Shard {
        &self.domain.shards[self.at]
    }
}

impl DerefMut for Held<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Shard {
        &mut self.domain.shards[self.at]
    }
}

impl<'a> Both<'a> {
    /// Returns the shard of the original tuple.
    pub(super) fn own(&mut self) -> &mut Shard {
        &mut self.own
    }

    /// Returns the shard of the reply tuple, which may also be the shard of the original tuple.
    pub(super) fn other(&mut self) -> &mut Shard {
        match &mut self.other {
            Other::Near(at) => &mut self.own.domain.shards[*at],
            Other::Far(held) => held,
        }
    }

    pub(super) fn into_own(self) -> Held<'a> {
        self.own
    }
}

/// Returns the positions of the bits that are set, in ascending order.
#[inline]
pub(super) fn ones(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let position = bits.trailing_zeros() as usize;
        bits &= bits.wrapping_sub(1);
        (position < 64).then_some(position)
    })
}

const _: () = assert!(MAX_SHARDS <= 64);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conntrack::entry::Rules;
    use crate::conntrack::settings::{Lifetimes, Timeouts};

    #[test]
    fn threads_begin_at_different_domains_and_visit_each_packet_once() {
        let lifetimes = Lifetimes::new(&Timeouts::default());
        let rules = Rules { lifetimes, checks_tcp_sequence: true };
        let domains = Domains::new((0..8).map(|number| Shard::new(number, rules)).collect());
        let shards = [3, 0, 7, 3, 5, 5, 1, 0];
        let mut firsts = Vec::new();
        for thread in 0..4 {
            let (mut order, mut visited) = (Vec::new(), 0);
            domains.group(Start::of(thread), shards.into_iter(), |domain, group| {
                assert_eq!(visited & group, 0);
                visited |= group;
                assert!(ones(group).all(|at| shards[at] == domain));
                order.push(domain);
            });
            assert_eq!(visited, (1 << shards.len()) - 1);
            firsts.push(order[0]);
        }
        assert_eq!(firsts, [0, 5, 3, 7]);
    }
}
