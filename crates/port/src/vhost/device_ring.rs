//! The device's side of a split ring (virtio 1.2, 2.7).

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use thiserror::Error;
use units::Time;
use wire::{Segmenter, VirtioHeader};

use super::chain::{ChainError, DESCRIPTOR, Descriptor, Piece, Table, walk};
use super::memory::{GuestMemory, Spot};
use super::message::RingAddresses;
use crate::bell::Watched;
use crate::intake::Intake;
use crate::{Accepted, Frame, Offload, PortCounters, Refusal};

#[derive(Debug)]
pub(super) struct DeviceRing {
    memory: Arc<GuestMemory>,
    table: Table,
    available: Spot,
    used: Spot,
    /// The indices, modulo 2^16, of the next entry in the available ring and of the next entry in
    /// the used ring.
    next_available: u16,
    next_used: u16,
    settings: RingSettings,
    pieces: Vec<Piece>,
    chains: Vec<Chain>,
    /// The heads of the entries that start at `ahead_from`, each with the first descriptor of its
    /// chain.
    ahead: Vec<(u16, Option<Descriptor>)>,
    ahead_from: u16,
    intake: Intake,
}

#[derive(Debug)]
pub(super) struct RingSettings {
    /// The length of the `virtio_net_hdr` before each frame.
    pub(super) header: usize,
    /// Whether a frame may use several chains.
    pub(super) is_mergeable: bool,
    /// Whether the driver's headers may describe offloads.
    pub(super) reads_offloads: bool,
    /// A descriptor that becomes readable when the driver has added entries.
    pub(super) kick: Option<Watched>,
    /// A descriptor that tells the driver that the device has used entries.
    pub(super) call: Option<OwnedFd>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(super) enum RingError {
    #[error("a ring of {0} descriptors is malformed")]
    Size(u32),
    #[error("a ring is outside the memory, or at an odd address")]
    Place,
    #[error("the driver's index moved by {0}, beyond the ring's size")]
    Index(u16),
    #[error("{0}")]
    Chain(#[from] ChainError),
    #[error("a buffer is outside the memory, or not to be used in this direction")]
    Buffer,
    #[error("the driver's memory was cut off")]
    Cut,
}

#[derive(Debug, Clone, Copy)]
struct Chain {
    head: u16,
    /// The index in `pieces` after the chain's last buffer.
    end: usize,
}

/// The number of frames that a call received, and the number of malformed frames among them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Received {
    pub(super) entries: usize,
    pub(super) malformed: u64,
}

impl DeviceRing {
    pub(super) fn new(
        memory: Arc<GuestMemory>,
        size: u32,
        addresses: RingAddresses,
        settings: RingSettings,
    ) -> Result<Self, RingError> {
        if !size.is_power_of_two() || size > MOST_DESCRIPTORS {
            return Err(RingError::Size(size));
        }
        let entries = u64::from(size);
        let spot = |address: u64, len: u64, alignment: usize| {
            memory.user_spot(address, len).filter(|spot| spot.at.is_multiple_of(alignment))
        };
        spot(addresses.descriptors, 16 * entries, 16).ok_or(RingError::Place)?;
        let table = memory.guest_address(addresses.descriptors, 16 * entries);
        let table = Table { address: table.ok_or(RingError::Place)?, size: size as u16 };
        let available = spot(addresses.available, 4 + 2 * entries, 2).ok_or(RingError::Place)?;
        let used = spot(addresses.used, 4 + 8 * entries, 4).ok_or(RingError::Place)?;
        let mut ring = Self {
            memory,
            table,
            available,
            used,
            next_available: 0,
            next_used: 0,
            settings,
            pieces: Vec::with_capacity(64),
            chains: Vec::with_capacity(64),
            ahead: Vec::with_capacity(AHEAD),
            ahead_from: 0,
            intake: Intake::new(true),
        };
        // The device returns every chain that it takes from the available ring, so both indices are
        // equal. The memory keeps the indices even if this process is killed.
        ring.next_used = ring.load(used, INDEX);
        ring.next_available = ring.next_used;
        // Ask for kicks now, because the receiving thread may already be asleep.
        ring.ask_for_kicks(true);
        Ok(ring)
    }

    pub(super) fn base(&self) -> u16 {
        self.next_available
    }

    pub(super) fn receive(
        &mut self,
        batch: &mut Vec<Frame>,
        limit: usize,
        now: impl FnOnce() -> Time,
    ) -> Result<Received, RingError> {
        let before = batch.len();
        let outcome = self.gather_all(batch, limit, now);
        // After a truncation of the memory, reads return zeros instead of frames.
        if self.memory.is_cut() {
            batch.truncate(before);
            return Err(RingError::Cut);
        }
        outcome
    }

    fn gather_all(
        &mut self,
        batch: &mut Vec<Frame>,
        limit: usize,
        now: impl FnOnce() -> Time,
    ) -> Result<Received, RingError> {
        let waiting = self.waiting()?;
        let mut received = Received::default();
        if waiting == 0 {
            return Ok(received);
        }
        let arrival = now();
        let limit = limit.min(usize::from(waiting));
        let (mut kept, mut frames) = (0, 0);
        let outcome = loop {
            if received.entries == limit || kept >= MOST_KEPT || frames >= MOST_FRAMES {
                break Ok(());
            }
            if received.entries.is_multiple_of(AHEAD) {
                self.prefetch(AHEAD.min(limit - received.entries), false);
            }
            self.pieces.clear();
            let head = match self.follow(self.next_available) {
                Ok(head) => head,
                Err(error) => break Err(error.into()),
            };
            match self.gather(arrival) {
                Some((frame, None)) => batch.push(frame),
                Some((frame, Some(virtio))) => {
                    kept += if virtio.gso.is_some() { frame.len() } else { 0 };
                    let before = batch.len();
                    self.intake.keep(frame, false, &virtio, batch, &mut PortCounters::default());
                    frames += batch[before..].iter().map(|frame| frame.on_wire().0).sum::<u64>();
                    received.malformed += u64::from(batch.len() == before);
                }
                None => received.malformed += 1,
            }
            self.next_available = self.next_available.wrapping_add(1);
            self.write_used(head, 0);
            received.entries += 1;
        };
        if received.entries > 0 {
            self.publish();
        }
        outcome.map(|()| received)
    }

    /// Passes frames to the driver, in order, as long as the driver has buffers. `offloads`: the
    /// missing checksum and segmentation of each packet; empty if all packets are finished.
    pub(super) fn send(
        &mut self,
        packets: &[&[u8]],
        offloads: &[Offload],
    ) -> Result<Accepted, RingError> {
        let outcome = self.scatter_all(packets, offloads);
        if self.memory.is_cut() { Err(RingError::Cut) } else { outcome }
    }

    fn scatter_all(
        &mut self,
        packets: &[&[u8]],
        offloads: &[Offload],
    ) -> Result<Accepted, RingError> {
        let mut waiting = self.waiting()?;
        let mut accepted = Accepted { sent: 0, refusal: None };
        for packet in packets {
            if accepted.sent.is_multiple_of(AHEAD) {
                let rest = packets.len() - accepted.sent;
                self.prefetch(AHEAD.min(rest).min(usize::from(waiting)), true);
            }
            let taken = match self.reserve(packet.len(), waiting) {
                Ok(Some(count)) => count,
                Ok(None) => {
                    accepted.refusal = Some(Refusal::Full);
                    break;
                }
                Err(Unfit::TooLong) => {
                    accepted.refusal = Some(Refusal::TooLong);
                    break;
                }
                Err(Unfit::Broken(error)) => {
                    self.publish();
                    return Err(error);
                }
            };
            let offload = offloads.get(accepted.sent).copied().unwrap_or_default();
            if let Err(error) = self.scatter(packet, offload) {
                self.publish();
                return Err(error);
            }
            waiting -= taken;
            accepted.sent += 1;
        }
        if accepted.sent > 0 {
            self.publish();
        }
        Ok(accepted)
    }

    /// Asks the driver for a kick when it adds entries. Returns false if entries already wait.
    pub(super) fn prepare_to_sleep(&mut self) -> Result<bool, RingError> {
        if let Some(kick) = &self.settings.kick {
            let _ = rustix::io::read(kick, &mut [0; 8]);
        }
        self.ask_for_kicks(true);
        fence(Ordering::SeqCst);
        Ok(self.waiting()? == 0)
    }

    pub(super) fn ask_for_kicks(&self, wanted: bool) {
        let flag = if wanted { 0 } else { NO_NOTIFY };
        if let Some(word) = self.memory.of(self.used).word16(self.used.at + FLAGS) {
            word.store(flag, Ordering::Relaxed);
        }
    }

    /// Returns the number of entries that the driver has added.
    #[inline]
    fn waiting(&self) -> Result<u16, RingError> {
        let moved = self.load(self.available, INDEX).wrapping_sub(self.next_available);
        match moved <= self.table.size {
            true => Ok(moved),
            false => Err(RingError::Index(moved)),
        }
    }

    /// Reads the descriptors of the next entries, and prefetches the start of their buffers. These
    /// buffers are in the cache of the other process.
    #[inline]
    fn prefetch(&mut self, count: usize, is_written: bool) {
        self.ahead.clear();
        self.ahead_from = self.next_available;
        for number in 0..count as u16 {
            let head = self.head(self.next_available.wrapping_add(number));
            let address = self.table.address.checked_add(u64::from(head) * DESCRIPTOR);
            let address = address.filter(|_| head < self.table.size);
            let mut bytes = [0; DESCRIPTOR as usize];
            let is_read = address.is_some_and(|address| self.memory.read(address, &mut bytes));
            let descriptor = is_read.then(|| Descriptor::parse(bytes));
            if let Some(Descriptor { address, .. }) = descriptor {
                for line in [address, address.saturating_add(LINE)] {
                    self.memory.prefetch(line, is_written);
                }
            }
            self.ahead.push((head, descriptor));
        }
    }

    #[inline]
    fn head(&self, entry: u16) -> u16 {
        let slot = usize::from(entry & (self.table.size - 1));
        self.load(self.available, ENTRIES + 2 * slot)
    }

    #[inline]
    fn load(&self, spot: Spot, offset: usize) -> u16 {
        let word = self.memory.of(spot).word16(spot.at + offset);
        word.map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Appends the buffers of an entry's chain. Returns the chain's head.
    #[inline]
    fn follow(&mut self, entry: u16) -> Result<u16, ChainError> {
        let ahead = usize::from(entry.wrapping_sub(self.ahead_from));
        if let Some((head, Some(descriptor))) = self.ahead.get(ahead)
            && let Some(piece) = descriptor.alone()
        {
            self.pieces.push(piece);
            return Ok(*head);
        }
        let (memory, head) = (&self.memory, self.head(entry));
        walk(self.table, head, |address, out| memory.read(address, out), &mut self.pieces)?;
        Ok(head)
    }

    /// Builds the frame in the buffers, and returns the frame with its virtio header if that header
    /// describes an offload. Returns `None` if the buffers hold no valid frame.
    #[inline]
    fn gather(&self, arrival: Time) -> Option<(Frame, Option<VirtioHeader>)> {
        let total: u64 = self.pieces.iter().map(|piece| u64::from(piece.len)).sum();
        let len = total.checked_sub(self.settings.header as u64)?;
        if !(SHORTEST..=LONGEST as u64).contains(&len)
            || self.pieces.iter().any(|piece| piece.is_writable)
        {
            return None;
        }
        let mut frame = Frame::with_len(len as usize, arrival);
        let out = frame.bytes_mut();
        let (mut skip, mut done) = (self.settings.header, 0);
        let mut header = [0; HEADER];
        for piece in &self.pieces {
            let len = piece.len as usize;
            let skipped = skip.min(len);
            if self.settings.reads_offloads && skipped > 0 {
                let at = self.settings.header - skip;
                let part = header.get_mut(at..at + skipped)?;
                if !self.memory.read(piece.address, part) {
                    return None;
                }
            }
            skip -= skipped;
            let end = done + len - skipped;
            let address = piece.address.checked_add(skipped as u64)?;
            if !self.memory.read(address, &mut out[done..end]) {
                return None;
            }
            done = end;
        }
        let virtio = (header[..2] != [0, 0]).then(|| VirtioHeader::parse(&header)).flatten();
        let has_work =
            |virtio: &VirtioHeader| virtio.partial_checksum.is_some() || virtio.gso.is_some();
        Some((frame, virtio.filter(has_work)))
    }

    /// Finds enough waiting chains for a frame of `len` bytes, without taking the chains. Returns
    /// the number of chains, or `None` if too few chains wait.
    fn reserve(&mut self, len: usize, waiting: u16) -> Result<Option<u16>, Unfit> {
        self.pieces.clear();
        self.chains.clear();
        let needed = (self.settings.header + len) as u64;
        if len > LONGEST {
            return Err(Unfit::TooLong);
        }
        let mut room = 0;
        for number in 0..waiting {
            let start = self.pieces.len();
            let entry = self.next_available.wrapping_add(number);
            let head = self.follow(entry).map_err(|error| Unfit::Broken(error.into()))?;
            let pieces = &self.pieces[start..];
            if pieces.iter().any(|piece| !piece.is_writable) {
                return Err(Unfit::Broken(RingError::Buffer));
            }
            room += pieces.iter().map(|piece| u64::from(piece.len)).sum::<u64>();
            self.chains.push(Chain { head, end: self.pieces.len() });
            if room >= needed {
                return Ok(Some(number + 1));
            }
            if !self.settings.is_mergeable {
                return Err(Unfit::TooLong);
            }
        }
        // A frame that does not fit into all buffers of a full ring can never be sent.
        if waiting == self.table.size { Err(Unfit::TooLong) } else { Ok(None) }
    }

    /// Writes the frame into the reserved chains, and returns them to the driver.
    fn scatter(&mut self, packet: &[u8], offload: Offload) -> Result<(), RingError> {
        let mut header = [0; HEADER];
        if offload.is_some() {
            header = offload.virtio().to_bytes();
        }
        let count = self.chains.len() as u16;
        header[10..].copy_from_slice(&count.to_le_bytes());
        let mut sources = [&header[..self.settings.header.min(HEADER)], packet];
        let mut first = 0;
        for number in 0..self.chains.len() {
            let Chain { head, end } = self.chains[number];
            let mut written = 0;
            for piece in &self.pieces[first..end] {
                written += fill(&self.memory, *piece, &mut sources)?;
            }
            first = end;
            self.next_available = self.next_available.wrapping_add(1);
            self.write_used(head, written);
        }
        Ok(())
    }

    #[inline]
    fn write_used(&mut self, head: u16, len: u32) {
        let slot = usize::from(self.next_used & (self.table.size - 1));
        let at = self.used.at + ENTRIES + 8 * slot;
        let memory = self.memory.of(self.used);
        // Write only changed words: an unchanged cache line stays in the caches of both processes.
        for (at, value) in [(at, u32::from(head)), (at + 4, len)] {
            if let Some(word) = memory.word32(at)
                && word.load(Ordering::Relaxed) != value
            {
                word.store(value, Ordering::Relaxed);
            }
        }
        self.next_used = self.next_used.wrapping_add(1);
    }

    /// Publishes the used entries to the driver. Calls the driver if the driver asked for calls.
    #[inline]
    fn publish(&self) {
        if let Some(word) = self.memory.of(self.used).word16(self.used.at + INDEX) {
            word.store(self.next_used, Ordering::Release);
        }
        fence(Ordering::SeqCst);
        if self.load(self.available, FLAGS) & NO_INTERRUPT == 0
            && let Some(call) = &self.settings.call
        {
            let _ = rustix::io::write(call.as_fd(), &1_u64.to_ne_bytes());
        }
    }
}

/// The reason for which a frame cannot be written to the driver's buffers.
enum Unfit {
    TooLong,
    Broken(RingError),
}

/// Moves bytes from the sources to a buffer. Returns the number of bytes moved.
fn fill(memory: &GuestMemory, piece: Piece, sources: &mut [&[u8]; 2]) -> Result<u32, RingError> {
    let mut done = 0;
    for source in sources {
        let count = source.len().min((piece.len - done) as usize);
        if count == 0 {
            continue;
        }
        let address = piece.address.checked_add(u64::from(done)).ok_or(RingError::Buffer)?;
        let (now, later) = source.split_at(count);
        if !memory.write(address, now) {
            return Err(RingError::Buffer);
        }
        *source = later;
        done += count as u32;
    }
    Ok(done)
}

const MOST_DESCRIPTORS: u32 = 32768;
/// Offsets in the available ring and in the used ring.
const FLAGS: usize = 0;
const INDEX: usize = 2;
const ENTRIES: usize = 4;
/// The values of VIRTQ_USED_F_NO_NOTIFY and VIRTQ_AVAIL_F_NO_INTERRUPT.
const NO_NOTIFY: u16 = 1;
const NO_INTERRUPT: u16 = 1;
/// The length of a `virtio_net_hdr` whose last field is the number of buffers.
const HEADER: usize = 12;
const SHORTEST: u64 = 14;
/// Maximum number of bytes of super-packets that are received at once, as for packet sockets.
const MOST_KEPT: usize = 256 << 10;
/// Maximum number of segments of all super-packets in one call, because a later stage may cut the
/// super-packets into frames.
const MOST_FRAMES: u64 = Segmenter::MOST_FRAMES as u64;
/// The number of entries whose buffers are prefetched at the same time.
const AHEAD: usize = 32;
const LINE: u64 = 64;
pub(super) const LONGEST: usize = 65_535 + 22;
