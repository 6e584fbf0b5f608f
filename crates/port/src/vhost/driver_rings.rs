//! The driver's side of two split rings and their buffers, in memory shared with the device (virtio
//! 1.2, 2.7).

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use rustix::fs::{MemfdFlags, SealFlags};
use thiserror::Error;
use units::Time;

use super::chain::{Descriptor, NEXT, WRITE};
use super::message::{Region, RingAddresses};
use crate::shared_memory::SharedMemory;
use crate::{Accepted, Frame, Refusal};

#[derive(Debug)]
pub(super) struct DriverMemory {
    pub(super) file: OwnedFd,
    pub(super) memory: Arc<SharedMemory>,
}

/// The ring into which the device writes frames.
#[derive(Debug)]
pub(super) struct ReceiveRing {
    ring: Ring,
}

/// The ring from which the device reads frames.
#[derive(Debug)]
pub(super) struct TransmitRing {
    ring: Ring,
    /// The free buffers. The buffer that has been free for longest is used first, so that the rings
    /// of both processes hold the same entries again and again.
    free: VecDeque<u16>,
    /// For each descriptor, the next descriptor in its chain.
    next: Vec<Option<u16>>,
    /// For each descriptor, whether the device has the chain that begins with this descriptor.
    is_lent: Vec<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(super) enum DeviceFault {
    #[error("the device's index moved by {0}, beyond the ring's size")]
    Index(u16),
    #[error("the device returns descriptor {0}, which it does not have")]
    Descriptor(u32),
    #[error("the device returns {len} bytes in {count} buffers, which does not fit")]
    Frame { len: u64, count: u16 },
}

#[derive(Debug)]
struct Ring {
    memory: Arc<SharedMemory>,
    places: Places,
    next_available: u16,
    next_used: u16,
    /// A descriptor that tells the device that the driver has added entries.
    kick: OwnedFd,
}

#[derive(Debug, Clone, Copy)]
struct Places {
    descriptors: usize,
    available: usize,
    used: usize,
    buffers: usize,
}

impl DriverMemory {
    pub(super) fn new() -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("weir-virtio", flags)?;
        rustix::fs::ftruncate(&file, LEN as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let memory = Arc::new(SharedMemory::map_present(&file, 0, LEN)?);
        Ok(Self { file, memory })
    }

    pub(super) fn region() -> Region {
        Region { guest_address: BASE, size: LEN as u64, user_address: BASE, file_offset: 0 }
    }

    /// Returns the addresses of ring 0, into which the device writes, or of ring 1, from which the
    /// device reads.
    pub(super) fn addresses(ring: u32) -> RingAddresses {
        let places = places(ring);
        let address = |place: usize| BASE + place as u64;
        RingAddresses {
            ring,
            descriptors: address(places.descriptors),
            used: address(places.used),
            available: address(places.available),
        }
    }
}

impl ReceiveRing {
    /// Makes all buffers available to the device.
    pub(super) fn new(memory: &DriverMemory, kick: OwnedFd) -> Self {
        let mut ring = Ring::new(memory, 0, kick);
        for number in 0..SIZE {
            let address = BASE + ring.buffer(number) as u64;
            let descriptor = Descriptor { address, len: BUFFER as u32, flags: WRITE, next: 0 };
            ring.describe(number, descriptor);
            ring.lend(number);
        }
        ring.publish();
        Self { ring }
    }

    pub(super) fn receive(
        &mut self,
        batch: &mut Vec<Frame>,
        limit: usize,
        now: impl FnOnce() -> Time,
    ) -> Result<usize, DeviceFault> {
        let mut waiting = self.ring.returned()?;
        if waiting == 0 {
            return Ok(0);
        }
        let arrival = now();
        let before = batch.len();
        let mut loaded = 0;
        while waiting > 0 && batch.len() - before < limit {
            if loaded == 0 {
                loaded = waiting.min(AHEAD);
                for (buffer, _) in (0..loaded).flat_map(|number| self.ring.used(number)) {
                    self.ring.prefetch(buffer, false);
                }
            }
            let taken = self.take(batch, waiting, arrival)?;
            waiting -= taken;
            loaded = loaded.saturating_sub(taken);
        }
        self.ring.publish();
        Ok(batch.len() - before)
    }

    /// Asks the device for a call when a frame arrives. Returns false if a frame has already
    /// arrived.
    pub(super) fn prepare_to_sleep(&self) -> Result<bool, DeviceFault> {
        self.ask_for_calls(true);
        fence(Ordering::SeqCst);
        Ok(self.ring.returned()? == 0)
    }

    pub(super) fn ask_for_calls(&self, wanted: bool) {
        self.ring.store(self.ring.places.available, if wanted { 0 } else { NO_INTERRUPT });
    }

    /// Takes a received frame. Returns the number of the frame's buffers.
    fn take(
        &mut self,
        batch: &mut Vec<Frame>,
        waiting: u16,
        arrival: Time,
    ) -> Result<u16, DeviceFault> {
        let ring = &mut self.ring;
        let (first, _) = ring.used(0)?;
        let mut count = [0; 2];
        ring.memory.read(ring.buffer(first) + HEADER - 2, &mut count);
        let count = u16::from_le_bytes(count);
        if count == 0 || count > waiting.min(MOST_BUFFERS) {
            return Err(DeviceFault::Frame { len: 0, count });
        }
        let mut total = 0;
        for number in 0..count {
            total += u64::from(ring.used(number)?.1);
        }
        let len = total.checked_sub(HEADER as u64).filter(|len| *len > 0);
        let len = len.ok_or(DeviceFault::Frame { len: total, count })?;
        let mut frame = Frame::with_len(len as usize, arrival);
        let out = frame.bytes_mut();
        let (mut skip, mut done) = (HEADER, 0);
        for number in 0..count {
            // Read the entry again, because the device may have changed it meanwhile.
            let (buffer, len) = ring.used(number)?;
            let skipped = skip.min(len as usize);
            skip -= skipped;
            let end = (done + len as usize - skipped).min(out.len());
            ring.memory.read(ring.buffer(buffer) + skipped, &mut out[done..end]);
            done = end;
        }
        frame.truncate(done);
        batch.push(frame);
        for number in 0..count {
            let (buffer, _) = ring.used(number)?;
            // Write the length again, because the device may have changed the descriptor.
            let address = BASE + ring.buffer(buffer) as u64;
            let descriptor = Descriptor { address, len: BUFFER as u32, flags: WRITE, next: 0 };
            ring.describe(buffer, descriptor);
            ring.lend(buffer);
        }
        ring.next_used = ring.next_used.wrapping_add(count);
        Ok(count)
    }
}

/// Returns the share of the receive ring's buffers that these frames used.
pub(super) fn occupancy(frames: &[Frame]) -> f64 {
    let buffers = |frame: &Frame| (HEADER + frame.bytes().len()).div_ceil(BUFFER);
    frames.iter().map(buffers).sum::<usize>() as f64 / f64::from(SIZE)
}

impl TransmitRing {
    pub(super) fn new(memory: &DriverMemory, kick: OwnedFd) -> Self {
        let ring = Ring::new(memory, 1, kick);
        // The driver reads the used ring only when it needs free buffers, so it asks for no calls.
        ring.store(ring.places.available, NO_INTERRUPT);
        Self {
            ring,
            free: (0..SIZE).collect(),
            next: vec![None; usize::from(SIZE)],
            is_lent: vec![false; usize::from(SIZE)],
        }
    }

    pub(super) fn send(&mut self, packets: &[&[u8]]) -> Result<Accepted, DeviceFault> {
        if self.free.len() < usize::from(SIZE) / 2 {
            self.collect()?;
        }
        for buffer in self.free.iter().take(packets.len()) {
            self.ring.prefetch(*buffer, true);
        }
        let mut accepted = Accepted { sent: 0, refusal: None };
        for packet in packets {
            if packet.len() > LONGEST {
                accepted.refusal = Some(Refusal::TooLong);
                break;
            }
            if self.free.len() < (HEADER + packet.len()).div_ceil(BUFFER) {
                accepted.refusal = Some(Refusal::Full);
                break;
            }
            self.put(packet);
            accepted.sent += 1;
        }
        if accepted.sent > 0 {
            self.ring.publish();
        }
        Ok(accepted)
    }

    /// Writes a packet into free buffers. The caller ensures that enough buffers are free.
    fn put(&mut self, packet: &[u8]) {
        let mut rest = packet;
        let mut skip = HEADER;
        let Some(head) = self.free.pop_front() else { return };
        let mut current = head;
        loop {
            let at = self.ring.buffer(current);
            let (now, later) = rest.split_at(rest.len().min(BUFFER - skip));
            self.ring.memory.write(at, &[0; HEADER][..skip]);
            self.ring.memory.write(at + skip, now);
            let following = if later.is_empty() { None } else { self.free.pop_front() };
            self.next[usize::from(current)] = following;
            let flags = if following.is_some() { NEXT } else { 0 };
            self.ring.describe(
                current,
                Descriptor {
                    address: BASE + at as u64,
                    len: (skip + now.len()) as u32,
                    flags,
                    next: following.unwrap_or(0),
                },
            );
            rest = later;
            skip = 0;
            match following {
                Some(next) => current = next,
                None => break,
            }
        }
        self.is_lent[usize::from(head)] = true;
        self.ring.lend(head);
    }

    /// Frees the buffers of frames that the device has sent.
    fn collect(&mut self) -> Result<(), DeviceFault> {
        for _ in 0..self.ring.returned()? {
            let (head, _) = self.ring.used(0)?;
            if !std::mem::take(&mut self.is_lent[usize::from(head)]) {
                return Err(DeviceFault::Descriptor(u32::from(head)));
            }
            let mut current = Some(head);
            while let Some(buffer) = current {
                current = self.next[usize::from(buffer)].take();
                self.free.push_back(buffer);
            }
            self.ring.next_used = self.ring.next_used.wrapping_add(1);
        }
        Ok(())
    }
}

impl Ring {
    fn new(memory: &DriverMemory, ring: u32, kick: OwnedFd) -> Self {
        let places = places(ring);
        let ring =
            Self { memory: memory.memory.clone(), places, next_available: 0, next_used: 0, kick };
        ring.store(places.available, NO_INTERRUPT);
        ring
    }

    fn buffer(&self, number: u16) -> usize {
        self.places.buffers + usize::from(number) * BUFFER
    }

    fn describe(&self, number: u16, descriptor: Descriptor) {
        let at = self.places.descriptors + usize::from(number) * 16;
        let (mut old, new) = ([0; 16], descriptor.to_bytes());
        // Write only changed bytes: an unchanged cache line stays in the caches of both processes.
        if !self.memory.read(at, &mut old) || old != new {
            self.memory.write(at, &new);
        }
    }

    /// Prefetches the header and the start of a frame. Both are in the cache of the other process.
    #[inline]
    fn prefetch(&self, buffer: u16, is_written: bool) {
        let at = self.buffer(buffer);
        self.memory.prefetch(at, is_written);
        self.memory.prefetch(at + 64, is_written);
    }

    /// Adds a chain to the available ring. [`Self::publish`] makes the chain visible to the device.
    fn lend(&mut self, head: u16) {
        let slot = usize::from(self.next_available & (SIZE - 1));
        let at = self.places.available + ENTRIES + 2 * slot;
        if self.load(at) != head {
            self.store(at, head);
        }
        self.next_available = self.next_available.wrapping_add(1);
    }

    /// Publishes the added entries to the device, and kicks the device if it asked for kicks.
    fn publish(&self) {
        if let Some(word) = self.memory.word16(self.places.available + INDEX) {
            word.store(self.next_available, Ordering::Release);
        }
        fence(Ordering::SeqCst);
        if self.load(self.places.used) & NO_NOTIFY == 0 {
            let _ = rustix::io::write(&self.kick, &1_u64.to_ne_bytes());
        }
    }

    /// Returns the number of chains that the device has returned.
    fn returned(&self) -> Result<u16, DeviceFault> {
        let moved = self.load(self.places.used + INDEX).wrapping_sub(self.next_used);
        let lent = self.next_available.wrapping_sub(self.next_used);
        if moved <= lent { Ok(moved) } else { Err(DeviceFault::Index(moved)) }
    }

    /// Reads a chain that the device has returned: the chain's head, and the number of bytes that
    /// the device wrote. `number`: the chain's distance from the next chain to read.
    fn used(&self, number: u16) -> Result<(u16, u32), DeviceFault> {
        let slot = usize::from(self.next_used.wrapping_add(number) & (SIZE - 1));
        let at = self.places.used + ENTRIES + 8 * slot;
        let read = |at| self.memory.word32(at).map_or(0, |word| word.load(Ordering::Relaxed));
        let (id, len) = (read(at), read(at + 4));
        let head = u16::try_from(id).ok().filter(|head| *head < SIZE);
        let head = head.ok_or(DeviceFault::Descriptor(id))?;
        match len as usize <= BUFFER {
            true => Ok((head, len)),
            false => Err(DeviceFault::Frame { len: u64::from(len), count: 1 }),
        }
    }

    fn load(&self, at: usize) -> u16 {
        self.memory.word16(at).map_or(0, |word| word.load(Ordering::Acquire))
    }

    fn store(&self, at: usize, value: u16) {
        if let Some(word) = self.memory.word16(at) {
            word.store(value, Ordering::Relaxed);
        }
    }
}

fn places(ring: u32) -> Places {
    let start = ring as usize * (LEN / 2);
    Places {
        descriptors: start,
        available: start + 16 * SIZE as usize,
        used: start + 24 * SIZE as usize,
        buffers: start + 40 * SIZE as usize,
    }
}

/// The number of descriptors in each ring: at 4 million frames a second, a device or driver may
/// stall for a millisecond without loss.
pub(super) const SIZE: u16 = 4096;
const BUFFER: usize = 2048;
/// The length of virtio 1's `virtio_net_hdr`, which ends with the number of buffers.
const HEADER: usize = 12;
pub(super) const LONGEST: usize = 65_535 + 22;
/// The number of frames whose buffers are prefetched at the same time.
const AHEAD: u16 = 32;
const MOST_BUFFERS: u16 = ((HEADER + LONGEST) / BUFFER + 1) as u16;
/// The length in bytes of both rings with their buffers.
const LEN: usize = 2 * SIZE as usize * (40 + BUFFER);
/// The guest address of the memory. No process has memory mapped at this address.
const BASE: u64 = 1 << 32;
const INDEX: usize = 2;
const ENTRIES: usize = 4;
const NO_NOTIFY: u16 = 1;
const NO_INTERRUPT: u16 = 1;
