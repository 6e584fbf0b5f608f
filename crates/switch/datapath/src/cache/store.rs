//! The megaflows of a mask, in slots that do not move in memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use flow::step::Counters;
use flow::word;
use port::HugeVec;
use port::prefetch::prefetch;

use super::programs::{Behaviour, NO_PROGRAM};
use crate::packet::{Packet, flag};

/// The part of a megaflow that is read for each of its packets: one cache line.
#[derive(Debug, Clone, Default)]
#[repr(C, align(64))]
pub(super) struct Head {
    /// The first words of the masked key. A tuple with more words has the rest in `tails`.
    pub(super) words: [u64; INLINE],
    pub(super) packets: u64,
    /// The number of bytes in the low 52 bits; above, the TCP flags of all packets.
    bytes_and_flags: u64,
    /// The time of the last packet, in milliseconds modulo 2^32.
    pub(super) used_ms: u32,
    /// The pipeline's generation, modulo 2^32.
    pub(super) generation: u32,
    pub(super) behaviour: Behaviour,
}

/// Packets and bytes that are to be added to a megaflow's counts.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Share {
    packets: u64,
    bytes: u64,
    tcp_flags: u64,
}

/// The part of a megaflow that only a credit reads.
#[derive(Debug)]
pub(super) struct Cold {
    counters: CounterList,
    /// The low bits of the counts that were credited to the counters: 26 of packets, 38 of bytes.
    credited: u64,
}

/// The counters of the rules that a megaflow applies, seldom more than two.
#[derive(Debug)]
enum CounterList {
    None,
    One(Arc<Counters>),
    Two(Arc<Counters>, Arc<Counters>),
    More(Box<[Arc<Counters>]>),
}

#[derive(Debug)]
pub(super) struct Store {
    heads: Vec<HugeVec<Head>>,
    /// Key words that do not fit in a head: `tail` words per megaflow.
    tails: Vec<HugeVec<u64>>,
    tail: usize,
    colds: Vec<HugeVec<Option<Cold>>>,
    free: Vec<u32>,
    /// Slots of removed megaflows. Packets of the current batch may still refer to these slots.
    freed: Vec<u32>,
    len: u32,
}

impl Head {
    /// Builds a head whose key is not set yet.
    pub(super) fn new(behaviour: Behaviour, generation: u32, now_ms: u32) -> Self {
        Self { behaviour, generation, used_ms: now_ms, ..Self::default() }
    }

    /// Continues the counts of the megaflow that this megaflow replaces.
    pub(super) fn inherit(&mut self, former: &Self) {
        (self.packets, self.bytes_and_flags) = (former.packets, former.bytes_and_flags);
    }

    /// Returns the credited counts, packed as in [`Cold`].
    fn credited(&self) -> u64 {
        let packets = self.packets & PACKET_CREDIT_MASK;
        packets << BYTE_CREDIT_BITS | self.bytes() & BYTE_CREDIT_MASK
    }

    /// Counts packets. Returns true if the caller must credit the counts now, before the credited
    /// bits overflow.
    #[inline(always)]
    pub(super) fn count(&mut self, share: Share, now_ms: u32) -> bool {
        let before = self.packets;
        self.packets += share.packets;
        self.bytes_and_flags = (self.bytes_and_flags + share.bytes) | share.tcp_flags << BYTES_BITS;
        self.used_ms = now_ms;
        (before ^ self.packets) > PACKET_CREDIT_MASK >> 2
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes_and_flags & ((1 << BYTES_BITS) - 1)
    }

    pub(super) fn tcp_flags(&self) -> u16 {
        (self.bytes_and_flags >> BYTES_BITS) as u16
    }

    /// Whether the slot holds a megaflow.
    #[inline(always)]
    pub(super) fn is_in_use(&self) -> bool {
        self.behaviour != Behaviour::NONE
    }

    /// Returns the number of the program, or [`NO_PROGRAM`] if the program is from another
    /// generation.
    #[inline(always)]
    pub(super) fn current_program(&self, generation: u64) -> u32 {
        if self.generation == generation as u32 { self.behaviour.program } else { NO_PROGRAM }
    }

    /// Whether a packet was counted.
    pub(super) fn is_used(&self) -> bool {
        self.packets != 0
    }
}

impl Store {
    /// `words`: the number of words of a key.
    pub(super) fn new(words: usize) -> Self {
        Self {
            heads: Vec::new(),
            tails: Vec::new(),
            tail: words.saturating_sub(INLINE),
            colds: Vec::new(),
            free: Vec::new(),
            freed: Vec::new(),
            len: 0,
        }
    }

    #[inline(always)]
    pub(super) fn head(&self, index: u32) -> &Head {
        &self.heads[(index >> CHUNK_BITS) as usize][(index & CHUNK_MASK) as usize]
    }

    #[inline(always)]
    pub(super) fn head_mut(&mut self, index: u32) -> &mut Head {
        &mut self.heads[(index >> CHUNK_BITS) as usize][(index & CHUNK_MASK) as usize]
    }

    #[inline(always)]
    pub(super) fn prefetch(&self, index: u32) {
        prefetch(self.head(index));
        if let Some(word) = self.tail(index).first() {
            prefetch(word);
        }
    }

    /// Like [`Store::prefetch`], for an index that may be out of range.
    #[inline(always)]
    pub(super) fn prefetch_any(&self, index: u32) -> Option<()> {
        self.has(index).then(|| self.prefetch(index))
    }

    /// Whether the index is in range: a megaflow has or had this index.
    #[inline(always)]
    pub(super) fn has(&self, index: u32) -> bool {
        index < self.len
    }

    /// Starts to load the parts of a megaflow that a sweep reads.
    pub(super) fn prefetch_all(&self, index: u32, is_crediting: bool) {
        prefetch(self.head(index));
        if !is_crediting {
            return;
        }
        prefetch(&self.colds[(index >> CHUNK_BITS) as usize][(index & CHUNK_MASK) as usize]);
    }

    /// Starts to load the counters to which a credit adds.
    pub(super) fn prefetch_counters(&self, index: u32) {
        let Some(cold) = self.cold(index) else { return };
        match &cold.counters {
            CounterList::None | CounterList::More(_) => {}
            CounterList::One(one) => prefetch(&**one),
            CounterList::Two(one, two) => {
                prefetch(&**one);
                prefetch(&**two);
            }
        }
    }

    /// Returns the words of a megaflow's key that are not in its head.
    #[inline(always)]
    pub(super) fn tail(&self, index: u32) -> &[u64] {
        if self.tail == 0 {
            return &[];
        }
        let start = (index & CHUNK_MASK) as usize * self.tail;
        &self.tails[(index >> CHUNK_BITS) as usize][start..start + self.tail]
    }

    #[inline(always)]
    fn cold(&self, index: u32) -> Option<&Cold> {
        self.colds[(index >> CHUNK_BITS) as usize][(index & CHUNK_MASK) as usize].as_ref()
    }

    fn cold_mut(&mut self, index: u32) -> &mut Option<Cold> {
        &mut self.colds[(index >> CHUNK_BITS) as usize][(index & CHUNK_MASK) as usize]
    }

    pub(super) fn insert(&mut self, head: Head, tail: &[u64], cold: Cold) -> u32 {
        if let Some(index) = self.free.pop() {
            *self.head_mut(index) = head;
            *self.cold_mut(index) = Some(cold);
            let start = (index & CHUNK_MASK) as usize * self.tail;
            self.tails[(index >> CHUNK_BITS) as usize][start..start + self.tail]
                .copy_from_slice(tail);
            return index;
        }
        let index = self.len;
        self.len += 1;
        if index & CHUNK_MASK == 0 {
            // The first chunk grows on demand; later chunks are allocated whole.
            let capacity = if index == 0 { 4 } else { 1 << CHUNK_BITS };
            self.heads.push(HugeVec::with_capacity(capacity));
            self.tails.push(HugeVec::with_capacity(capacity * self.tail));
            self.colds.push(HugeVec::with_capacity(capacity));
        }
        let chunk = (index >> CHUNK_BITS) as usize;
        let most = 1 << CHUNK_BITS;
        self.heads[chunk].push_within(most, head);
        for word in tail {
            self.tails[chunk].push_within(most * self.tail, *word);
        }
        self.colds[chunk].push_within(most, Some(cold));
        index
    }

    /// Returns the number of slots, used and free.
    pub(super) fn places(&self) -> usize {
        self.len as usize
    }

    /// Takes a megaflow out of this store, so that another store can hold the megaflow. This store
    /// never reuses the slot.
    pub(super) fn take(&mut self, index: u32) -> Option<(Head, &[u64], Cold)> {
        let cold = self.cold_mut(index).take()?;
        Some((self.head(index).clone(), self.tail(index), cold))
    }

    /// Credits a megaflow's counts and removes the megaflow; [`Store::reuse`] frees the slot.
    /// Returns the megaflow's behaviour.
    pub(super) fn remove(&mut self, index: u32, now_ms: u64) -> Behaviour {
        self.credit(index, now_ms);
        *self.cold_mut(index) = None;
        self.freed.push(index);
        self.head(index).behaviour
    }

    /// Frees the slots of removed megaflows. After the batch, only guesses may still refer to these
    /// slots.
    pub(super) fn reuse(&mut self) {
        for at in 0..self.freed.len() {
            self.head_mut(self.freed[at]).behaviour = Behaviour::NONE;
        }
        self.free.append(&mut self.freed);
    }

    /// Replaces the behaviour and the counters of a megaflow, after a credit to the former
    /// counters. Returns the former behaviour.
    pub(super) fn replace(
        &mut self,
        index: u32,
        behaviour: Behaviour,
        generation: u32,
        mut cold: Cold,
        now_ms: u64,
    ) -> Behaviour {
        self.credit(index, now_ms);
        cold.credited = self.cold(index).map_or(0, |cold| cold.credited);
        *self.cold_mut(index) = Some(cold);
        let head = self.head_mut(index);
        head.generation = generation;
        std::mem::replace(&mut head.behaviour, behaviour)
    }

    /// Adds the packets and bytes since the last credit to the megaflow's counters.
    pub(super) fn credit(&mut self, index: u32, now_ms: u64) {
        let head = self.head(index);
        let (packets, bytes, used_ms) = (head.packets, head.bytes(), widen(head.used_ms, now_ms));
        let credited = head.credited();
        let Some(cold) = self.cold_mut(index) else { return };
        let seen = cold.credited;
        let new_packets = packets.wrapping_sub(seen >> BYTE_CREDIT_BITS) & PACKET_CREDIT_MASK;
        if new_packets == 0 {
            return;
        }
        let new_bytes = bytes.wrapping_sub(seen) & BYTE_CREDIT_MASK;
        cold.credited = credited;
        cold.counters.add(new_packets, new_bytes, used_ms);
    }

    /// Returns the memory of all megaflows, without the steps and counters that they share with
    /// rules.
    pub(super) fn memory(&self) -> usize {
        let heads = self.heads.iter().map(HugeVec::capacity).sum::<usize>() * size_of::<Head>();
        let tails = self.tails.iter().map(HugeVec::capacity).sum::<usize>() * size_of::<u64>();
        let colds =
            self.colds.iter().map(HugeVec::capacity).sum::<usize>() * size_of::<Option<Cold>>();
        let places = (self.free.capacity() + self.freed.capacity()) * size_of::<u32>();
        heads + tails + colds + places
    }
}

impl Share {
    #[inline(always)]
    pub(super) fn of(packet: &Packet) -> Self {
        let tcp_flags = packet.key.words[word::NW] & 0xfff;
        let (packets, bytes) = if packet.layout.flags & flag::UNFINISHED == 0 {
            (1, packet.frame.len() as u64)
        } else {
            packet.frame.on_wire()
        };
        Self { packets, bytes, tcp_flags }
    }

    #[inline(always)]
    pub(super) fn add(&mut self, other: Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.tcp_flags |= other.tcp_flags;
    }
}

impl Cold {
    pub(super) fn new(counters: Vec<Arc<Counters>>) -> Self {
        let mut counters = counters;
        let list = match (counters.pop(), counters.pop()) {
            (None, _) => CounterList::None,
            (Some(one), None) => CounterList::One(one),
            (Some(one), Some(two)) if counters.is_empty() => CounterList::Two(one, two),
            (Some(one), Some(two)) => {
                counters.extend([one, two]);
                counters.shrink_to_fit();
                CounterList::More(counters.into_boxed_slice())
            }
        };
        Self { counters: list, credited: 0 }
    }

    /// Marks the megaflow's present counts as credited, because these counts belong to the former
    /// counters.
    pub(super) fn after(mut self, head: &Head) -> Self {
        self.credited = head.credited();
        self
    }
}

impl CounterList {
    fn add(&self, packets: u64, bytes: u64, used_ms: u64) {
        let counters: &[_] = match self {
            CounterList::None => &[],
            CounterList::One(one) => {
                add(one, packets, bytes, used_ms);
                &[]
            }
            CounterList::Two(one, two) => {
                add(one, packets, bytes, used_ms);
                add(two, packets, bytes, used_ms);
                &[]
            }
            CounterList::More(more) => more,
        };
        counters.iter().for_each(|counters| add(counters, packets, bytes, used_ms));
    }
}

fn add(counters: &Counters, packets: u64, bytes: u64, used_ms: u64) {
    counters.packets.fetch_add(packets, Ordering::Relaxed);
    counters.bytes.fetch_add(bytes, Ordering::Relaxed);
    counters.used.fetch_max(used_ms, Ordering::Relaxed);
}

/// Returns the full value of a past time whose low 32 bits are given.
pub(super) fn widen(low: u32, now_ms: u64) -> u64 {
    now_ms.saturating_sub((now_ms as u32).wrapping_sub(low).into())
}

pub(super) const INLINE: usize = 4;
const CHUNK_BITS: u32 = 15;
const CHUNK_MASK: u32 = (1 << CHUNK_BITS) - 1;
const BYTES_BITS: u32 = 52;
const BYTE_CREDIT_BITS: u32 = 38;
const BYTE_CREDIT_MASK: u64 = (1 << BYTE_CREDIT_BITS) - 1;
const PACKET_CREDIT_MASK: u64 = (1 << (64 - BYTE_CREDIT_BITS)) - 1;
const _: () = assert!(size_of::<Head>() == 64);
const _: () = assert!(size_of::<Option<Cold>>() == 32);
