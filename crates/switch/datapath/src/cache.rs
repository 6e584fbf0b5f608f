//! The megaflow cache: translations by the bits of a packet that they depend on.
//!
//! Each mask has a hash table ([`tuple`]). A lookup searches the tables in the order of their hits.
//! Megaflows do not contradict each other, so the lookup ends at the first megaflow that matches
//! the packet. With many masks, the lookup first tries the mask that matched the previous packet of
//! the same connection.

mod prefetch;
mod programs;
mod store;
mod table;
mod tuple;

use std::collections::HashMap;

use flow::step::{Step, Translation};
use flow::{Key, Megaflow, word};
use units::Time;

pub(super) use self::prefetch::MegaflowPrefetch;
use self::programs::Programs;
pub(super) use self::programs::{NO_PROGRAM, Program, Rest, Tracking};
use self::store::{Cold, Head, Share, Store, widen};
use self::table::SLOTS;
use self::tuple::Tuple;
use super::packet::Packet;
use super::{BATCH, milliseconds};

#[derive(Debug)]
pub(super) struct Cache {
    /// Indexed by tuple number. A tuple keeps its number while a batch is processed.
    tuples: Vec<Option<Tuple>>,
    by_mask: HashMap<Key, u32>,
    /// The numbers of the tuples, sorted by use, the most used first.
    order: Vec<u32>,
    /// For each value of [`hint_of`], the tuple that matched the last packet with this value. A
    /// lookup in many masks begins with that tuple.
    hints: Vec<u32>,
    programs: Programs,
    len: usize,
    pub(super) limit: usize,
    /// Whether megaflows were removed since the last [`Cache::settle`].
    is_unsettled: bool,
    sweep: Sweep,
}

/// The slot of a megaflow: the number of its tuple in the upper half, its index in the tuple in the
/// lower half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place(u64);

/// The progress of the sweep, the search for idle megaflows.
#[derive(Debug, Default)]
struct Sweep {
    position: usize,
    bucket: usize,
    last_ms: u64,
    /// Buckets that the sweep still has to visit, in thousandths of a bucket.
    due: u64,
    /// `is_crediting`: whether this round adds the megaflows' counts to their rules' counters.
    /// `credited_ms`: start of the last round that added counts.
    is_crediting: bool,
    credited_ms: u64,
}

/// A lookup of a batch, with its intermediate results.
#[derive(Debug)]
pub(super) struct Lookup {
    pub(super) places: [Place; BATCH],
    /// The numbers of the megaflows' programs; [`NO_PROGRAM`] if there is no megaflow, or an
    /// outdated megaflow.
    pub(super) programs: [u32; BATCH],
    hashes: [u32; BATCH],
    candidates: [u32; BATCH],
    /// The positions in the batch of the packets for which no megaflow is found yet.
    waiting: [u8; BATCH],
    /// The index of each packet in [`Cache::hints`].
    hints: [u16; BATCH],
    pub(super) probed: u64,
    pub(super) prefetch: MegaflowPrefetch,
}

impl Place {
    pub(super) const NONE: Self = Self(u64::MAX);

    fn new(tuple: u32, index: u32) -> Self {
        Self(u64::from(tuple) << 32 | u64::from(index))
    }

    #[inline(always)]
    fn tuple(self) -> usize {
        (self.0 >> 32) as usize
    }

    #[inline(always)]
    fn index(self) -> u32 {
        self.0 as u32
    }
}

impl Default for Lookup {
    fn default() -> Self {
        Self {
            places: [Place::NONE; BATCH],
            programs: [NO_PROGRAM; BATCH],
            hashes: [0; BATCH],
            candidates: [0; BATCH],
            waiting: [0; BATCH],
            hints: [0; BATCH],
            probed: 0,
            prefetch: MegaflowPrefetch::default(),
        }
    }
}

impl Lookup {
    fn begin(&mut self, count: usize) {
        self.places[..count].fill(Place::NONE);
        self.programs = [NO_PROGRAM; BATCH];
        for (position, waits) in self.waiting.iter_mut().enumerate() {
            *waits = position as u8;
        }
    }
}

impl Cache {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            tuples: Vec::new(),
            by_mask: HashMap::new(),
            order: Vec::new(),
            hints: Vec::new(),
            programs: Programs::default(),
            len: 0,
            limit: limit.max(1),
            is_unsettled: false,
            sweep: Sweep::default(),
        }
    }

    /// Whether the cache accepts no further megaflow.
    pub(super) fn is_full(&self) -> bool {
        self.len >= self.limit
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn memory(&self) -> usize {
        self.tuples.iter().flatten().map(Tuple::memory).sum()
    }

    pub(super) fn masks(&self) -> usize {
        self.order.len()
    }

    /// Finds the megaflow of each packet in `chosen`, at most [`BATCH`], and writes the megaflow's
    /// slot to [`Lookup::places`].
    pub(super) fn lookup(
        &mut self,
        packets: &[Packet],
        chosen: &[u16],
        generation: u64,
        lookup: &mut Lookup,
    ) {
        let mut count = chosen.len().min(BATCH);
        lookup.begin(count);
        count = self.resolve_prefetched(packets, chosen, generation, lookup, count);
        let is_hinted = self.order.len() > SEARCHED_MASKS;
        if is_hinted && count > 0 {
            count = self.lookup_hinted(packets, chosen, generation, lookup, count);
        }
        for number in &self.order {
            if count == 0 {
                return;
            }
            let Some(tuple) = &mut self.tuples[*number as usize] else { continue };
            let Lookup { places, programs, hashes, candidates, waiting, probed, hints, .. } =
                &mut *lookup;
            *probed += count as u64;
            for position in &waiting[..count] {
                let position = usize::from(*position) & (BATCH - 1);
                let hash = tuple.hash(&packets[usize::from(chosen[position])].key);
                hashes[position] = hash;
                tuple.prefetch_bucket(hash);
            }
            for position in &waiting[..count] {
                let position = usize::from(*position) & (BATCH - 1);
                candidates[position] = tuple.candidate(hashes[position]);
            }
            let mut left = 0;
            for next in 0..count {
                let position = usize::from(waiting[next]) & (BATCH - 1);
                let key = &packets[usize::from(chosen[position])].key;
                match tuple.confirm(candidates[position], hashes[position], key) {
                    Some(index) => {
                        places[position] = Place::new(*number, index);
                        programs[position] = tuple.store.head(index).current_program(generation);
                        if is_hinted {
                            self.hints[usize::from(hints[position])] = *number;
                        }
                    }
                    None => {
                        waiting[left] = position as u8;
                        left += 1;
                    }
                }
            }
            tuple.hits += (count - left) as u64;
            count = left;
        }
    }

    /// Looks for each packet in the mask that matched the last packet with the same fields. Returns
    /// the number of packets that still have no megaflow.
    fn lookup_hinted(
        &mut self,
        packets: &[Packet],
        chosen: &[u16],
        generation: u64,
        lookup: &mut Lookup,
        count: usize,
    ) -> usize {
        self.hints.resize(HINTS, u32::MAX);
        let Lookup { places, programs, hashes, candidates, waiting, probed, hints, .. } = lookup;
        *probed += count as u64;
        let mut tuples = [u32::MAX; BATCH];
        for position in &waiting[..count] {
            let position = usize::from(*position) & (BATCH - 1);
            let key = &packets[usize::from(chosen[position])].key;
            let hint = hint_of(key);
            hints[position] = hint;
            tuples[position] = self.hints[usize::from(hint)];
            if let Some(Some(tuple)) = self.tuples.get(tuples[position] as usize) {
                hashes[position] = tuple.hash(key);
                tuple.prefetch_bucket(hashes[position]);
            }
        }
        for position in &waiting[..count] {
            let position = usize::from(*position) & (BATCH - 1);
            if let Some(Some(tuple)) = self.tuples.get(tuples[position] as usize) {
                candidates[position] = tuple.candidate(hashes[position]);
            }
        }
        let mut left = 0;
        for next in 0..count {
            let position = usize::from(waiting[next]) & (BATCH - 1);
            let key = &packets[usize::from(chosen[position])].key;
            if let Some(Some(tuple)) = self.tuples.get_mut(tuples[position] as usize)
                && let Some(index) = tuple.confirm(candidates[position], hashes[position], key)
            {
                tuple.hits += 1;
                places[position] = Place::new(tuples[position], index);
                programs[position] = tuple.store.head(index).current_program(generation);
                continue;
            }
            waiting[left] = position as u8;
            left += 1;
        }
        left
    }

    /// Finds the megaflow of one packet.
    pub(super) fn find(&self, key: &Key) -> Place {
        for number in &self.order {
            let Some(tuple) = &self.tuples[*number as usize] else { continue };
            if let Some(index) = tuple.find(tuple.hash(key), key) {
                return Place::new(*number, index);
            }
        }
        Place::NONE
    }

    #[inline(always)]
    pub(super) fn is_current(&self, place: Place, generation: u64) -> bool {
        self.head(place).generation == generation as u32
    }

    #[inline(always)]
    pub(super) fn program(&self, number: u32) -> &Program {
        self.programs.program(number)
    }

    pub(super) fn program_of(&self, place: Place) -> &Program {
        self.programs.program(self.head(place).behaviour.program)
    }

    /// Adds a packet to the counts of its megaflow.
    pub(super) fn count(&mut self, place: Place, packet: &Packet, now: Time) {
        self.add(place, Share::of(packet), now);
    }

    /// Counts each packet of a batch at its megaflow. `places`: the slots of the megaflows.
    #[inline]
    pub(super) fn count_all(
        &mut self,
        places: &[Place],
        chosen: &[u16],
        packets: &[Packet],
        now: Time,
    ) {
        // Consecutive packets often have the same megaflow. These packets are counted together,
        // because consecutive writes to one counter wait for each other.
        let (mut former, mut share) = (Place::NONE, Share::default());
        for (place, index) in places.iter().zip(chosen) {
            if *place != former {
                if former != Place::NONE {
                    self.add(former, share, now);
                }
                (former, share) = (*place, Share::default());
            }
            share.add(Share::of(&packets[usize::from(*index)]));
        }
        if former != Place::NONE {
            self.add(former, share, now);
        }
    }

    #[inline(always)]
    fn add(&mut self, place: Place, share: Share, now: Time) {
        let store = self.store_mut(place);
        let head = store.head_mut(place.index());
        if head.count(share, milliseconds(now) as u32) {
            store.credit(place.index(), milliseconds(now));
        }
    }

    /// Returns the steps of a megaflow.
    pub(super) fn steps(&self, place: Place) -> &[Step] {
        self.programs.steps(self.head(place).behaviour)
    }

    /// Stores a translation. `former` is the outdated megaflow of the packet, or [`Place::NONE`].
    pub(super) fn install(
        &mut self,
        key: &Key,
        translation: Translation,
        generation: u64,
        former: Place,
        now_ms: u64,
    ) -> Place {
        let mut mask = translation.mask;
        mask.remove_metadata();
        let behaviour = self.programs.intern(translation.steps);
        let cold = Cold::new(translation.counters);
        let mut head = Head::new(behaviour, generation as u32, now_ms as u32);
        if former != Place::NONE {
            let tuple = self.tuples[former.tuple()].as_mut();
            if let Some(tuple) = tuple.filter(|tuple| tuple.mask == mask) {
                let generation = generation as u32;
                let store = &mut tuple.store;
                let unused = store.replace(former.index(), behaviour, generation, cold, now_ms);
                self.programs.release(unused);
                return former;
            }
            // The new mask may be narrower, so the former megaflow's other packets may get separate
            // megaflows. The first new megaflow continues the counts of the former megaflow.
            head.inherit(self.head(former));
            self.remove(former, key, now_ms);
        }
        let number = self.tuple_number(&mask);
        let Some(tuple) = &mut self.tuples[number as usize] else { return Place::NONE };
        // The lookup may have stopped at an outdated megaflow of another mask, although this mask
        // also has a megaflow for the packet.
        if let Some(index) = tuple.find(tuple.hash(key), key) {
            let unused = tuple.store.replace(index, behaviour, generation as u32, cold, now_ms);
            self.programs.release(unused);
            return Place::new(number, index);
        }
        self.len += 1;
        let cold = cold.after(&head);
        Place::new(number, tuple.insert(key, head, cold))
    }

    /// Removes the megaflow that matches `key`.
    pub(super) fn remove(&mut self, place: Place, key: &Key, now_ms: u64) {
        let Some(tuple) = &mut self.tuples[place.tuple()] else { return };
        let unused = tuple.store.remove(place.index(), now_ms);
        tuple.remove(tuple.hash(key), place.index());
        self.programs.release(unused);
        self.len -= 1;
        self.is_unsettled = true;
    }

    /// Frees the slots of removed megaflows: no packet refers to these slots now.
    #[inline]
    pub(super) fn settle(&mut self) {
        if !std::mem::take(&mut self.is_unsettled) {
            return;
        }
        for tuple in self.tuples.iter_mut().flatten() {
            tuple.store.reuse();
        }
    }

    pub(super) fn credit_all(&mut self, now_ms: u64) {
        for tuple in self.tuples.iter_mut().flatten() {
            for bucket in 0..tuple.buckets() {
                for (_, index) in tuple.in_bucket(bucket) {
                    tuple.store.credit(index, now_ms);
                }
            }
        }
    }

    pub(super) fn clear(&mut self, now_ms: u64) {
        self.credit_all(now_ms);
        *self = Self::new(self.limit);
    }

    pub(super) fn megaflows(&self, now_ms: u64) -> impl Iterator<Item = Megaflow> + '_ {
        self.order.iter().filter_map(|number| self.tuples[*number as usize].as_ref()).flat_map(
            move |tuple| {
                (0..tuple.buckets()).flat_map(|bucket| tuple.in_bucket(bucket)).map(
                    move |(_, index)| {
                        let head = tuple.store.head(index);
                        let steps = self.programs.steps(head.behaviour).clone();
                        let mut mask = tuple.mask.clone();
                        Megaflow::show_priority(&mut mask, &steps);
                        Megaflow {
                            key: tuple.key(index),
                            mask,
                            steps,
                            packets: head.packets,
                            bytes: head.bytes(),
                            used_ms: head.is_used().then(|| widen(head.used_ms, now_ms)),
                            tcp_flags: head.tcp_flags(),
                        }
                    },
                )
            },
        )
    }

    /// Goes through the megaflows that are due since the last call, covering at most one second,
    /// and removes idle and outdated megaflows. Some rounds also credit counts. Returns the number
    /// of removed megaflows.
    pub(super) fn sweep(&mut self, generation: u64, now_ms: u64) -> u64 {
        let passed = now_ms.saturating_sub(self.sweep.last_ms).min(SWEEP_MS);
        self.sweep.last_ms = now_ms;
        self.tuples.iter_mut().flatten().for_each(Tuple::migrate);
        let total: usize = self.tuples.iter().flatten().map(Tuple::buckets).sum();
        // The sweep of a full cache is ten times as fast.
        let is_full = self.is_full();
        let each_second = if is_full { total * 10 } else { total.min(SWEPT_EACH_SECOND) };
        self.sweep.due += passed * each_second as u64;
        let mut buckets = (self.sweep.due / SWEEP_MS).min(total as u64);
        self.sweep.due -= buckets * SWEEP_MS;
        if buckets == total as u64 {
            self.sweep.due = 0;
        }
        let mut removed = 0;
        while buckets > 0 {
            let Some(number) = self.order.get(self.sweep.position).copied() else {
                self.sweep.position = 0;
                self.end_round(now_ms);
                if self.order.is_empty() {
                    break;
                }
                continue;
            };
            let Some(tuple) = &mut self.tuples[number as usize] else { break };
            let end = tuple.buckets().min(self.sweep.bucket + buckets as usize);
            let start = self.sweep.bucket.min(end);
            for first in (start..end).step_by(SWEPT_TOGETHER) {
                let group = first..end.min(first + SWEPT_TOGETHER);
                let mut found = [(0, 0, 0); SWEPT_TOGETHER * SLOTS];
                let is_crediting = self.sweep.is_crediting;
                let found = tuple.prefetch_group(group, &mut found, is_crediting);
                // The loop runs backwards, because a removal moves the bucket's last slot.
                for (bucket, position, index) in found.iter().rev().copied() {
                    if is_crediting {
                        tuple.store.credit(index, now_ms);
                    }
                    let head = tuple.store.head(index);
                    let idle = now_ms - widen(head.used_ms, now_ms);
                    let is_outdated = head.generation != generation as u32 && idle > SWEEP_MS;
                    if idle >= IDLE_MS || is_outdated || is_full && idle > SWEEP_MS {
                        let unused = tuple.store.remove(index, now_ms);
                        self.programs.release(unused);
                        tuple.clear_slot((bucket, position));
                        removed += 1;
                    }
                }
            }
            buckets -= (end - start).max(1).min(buckets as usize) as u64;
            self.sweep.bucket = end;
            if end >= tuple.buckets() {
                self.sweep.bucket = 0;
                self.sweep.position += 1;
            }
        }
        self.len -= removed as usize;
        self.is_unsettled |= removed > 0;
        removed
    }

    /// Drops masks without megaflows, and sorts the other masks by their hits.
    fn end_round(&mut self, now_ms: u64) {
        self.sweep.is_crediting = now_ms.saturating_sub(self.sweep.credited_ms) >= CREDIT_MS;
        if self.sweep.is_crediting {
            self.sweep.credited_ms = now_ms;
        }
        let tuples = &mut self.tuples;
        let by_mask = &mut self.by_mask;
        self.order.retain(|number| {
            let tuple = &mut tuples[*number as usize];
            let is_empty = tuple.as_ref().is_none_or(|tuple| tuple.len() == 0);
            if is_empty && let Some(tuple) = tuple.take() {
                by_mask.remove(&tuple.mask);
            }
            !is_empty
        });
        for place in tuples.iter_mut().filter(|place| place.as_ref().is_some_and(Tuple::is_sparse))
        {
            *place = place.take().map(Tuple::compacted);
        }
        if self.order.is_empty() {
            // No megaflow is left, so no megaflow uses a program.
            self.programs = Programs::default();
        }
        let hits = |number: &u32| tuples[*number as usize].as_ref().map_or(0, |tuple| tuple.hits);
        self.order.sort_by_key(|number| std::cmp::Reverse(hits(number)));
        for tuple in tuples.iter_mut().flatten() {
            tuple.hits /= 2;
        }
    }

    fn tuple_number(&mut self, mask: &Key) -> u32 {
        if let Some(number) = self.by_mask.get(mask) {
            return *number;
        }
        let free = self.tuples.iter().position(Option::is_none);
        let number = free.unwrap_or_else(|| {
            self.tuples.push(None);
            self.tuples.len() - 1
        });
        self.tuples[number] = Some(Tuple::new(mask));
        self.by_mask.insert(mask.clone(), number as u32);
        self.order.push(number as u32);
        number as u32
    }

    #[inline(always)]
    fn head(&self, place: Place) -> &Head {
        self.store(place).head(place.index())
    }

    #[inline(always)]
    fn store(&self, place: Place) -> &Store {
        match &self.tuples[place.tuple()] {
            Some(tuple) => &tuple.store,
            // The slot comes from this batch, and masks are removed only between batches.
            None => unreachable!("a place in a mask without megaflows"),
        }
    }

    #[inline(always)]
    fn store_mut(&mut self, place: Place) -> &mut Store {
        match &mut self.tuples[place.tuple()] {
            Some(tuple) => &mut tuple.store,
            None => unreachable!("a place in a mask without megaflows"),
        }
    }
}

/// Returns a hash that is the same for all packets of a connection in one direction.
fn hint_of(key: &Key) -> u16 {
    let words = &key.words;
    let mut sum = words[word::IN_PORT];
    for index in HINT_WORDS {
        sum = sum.rotate_left(5) ^ words[index];
        sum = sum.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    (sum >> 48) as u16
}

const HINT_WORDS: [usize; 8] = [
    word::CT,
    word::ETH_SRC,
    word::ETH_DST,
    word::IPV4,
    word::IPV6_SRC + 1,
    word::IPV6_DST + 1,
    word::NW,
    word::TP,
];
const HINTS: usize = 1 << 16;
/// Number of masks above which a lookup tries hints first.
const SEARCHED_MASKS: usize = 3;
/// Duration of one sweep through all megaflows, if they need at most [`SWEPT_EACH_SECOND`] buckets.
const SWEEP_MS: u64 = 1000;
/// Maximum number of buckets that the sweep visits in a second: about 65,536 megaflows. Without
/// this bound, the delay of packets by the sweep would grow with the number of megaflows. A request
/// for counts reads all megaflows at once.
const SWEPT_EACH_SECOND: usize = 16_384;
/// Buckets whose megaflows the sweep loads at the same time.
const SWEPT_TOGETHER: usize = 4;
/// Interval at which the sweep adds the megaflows' counts to their rules, even if nobody requests
/// counts. A credit takes more memory accesses than the rest of the sweep, and only the ages of
/// addresses that NORMAL learned need it.
const CREDIT_MS: u64 = 30_000;
/// A megaflow without packets for this time is removed, as in Open vSwitch.
const IDLE_MS: u64 = 10_000;
