//! The four rings between a socket and the kernel. A ring's indices wrap at 2^32; its size is a
//! power of two.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use units::Time;

use super::socket::Offsets;
use crate::shared_memory::SharedMemory;
use crate::{Accepted, Frame, Refusal};

/// A shared ring. This process is its producer or its consumer.
#[derive(Debug)]
pub(super) struct KernelRing {
    memory: SharedMemory,
    offsets: Offsets,
    /// The index of this process in the ring.
    own: u32,
}

/// The fill ring has buffers for the kernel to fill, and the receive ring has filled buffers.
#[derive(Debug)]
pub(super) struct ReceiveQueue {
    buffers: Arc<SharedMemory>,
    chunk: u64,
    fill: KernelRing,
    receive: KernelRing,
}

/// The transmit ring has buffers for the kernel to send, and the completion ring has sent buffers.
#[derive(Debug)]
pub(super) struct TransmitQueue {
    buffers: Arc<SharedMemory>,
    chunk: u64,
    transmit: KernelRing,
    completion: KernelRing,
    free: Vec<u64>,
}

impl KernelRing {
    pub(super) fn map(
        socket: &OwnedFd,
        place: u64,
        offsets: Offsets,
        entry: usize,
    ) -> io::Result<Self> {
        let len = offsets.entries + ENTRIES as usize * entry;
        Ok(Self { memory: SharedMemory::map_present(socket, place, len)?, offsets, own: 0 })
    }

    #[inline]
    fn load(&self, at: usize) -> u32 {
        self.memory.word32(at).map_or(0, |word| word.load(Ordering::Acquire))
    }

    #[inline]
    fn store(&self, at: usize) {
        if let Some(word) = self.memory.word32(at) {
            word.store(self.own, Ordering::Release);
        }
    }

    /// Returns the number of entries that this process, as the consumer, may take.
    #[inline]
    fn filled(&self) -> u32 {
        self.load(self.offsets.producer).wrapping_sub(self.own).min(ENTRIES)
    }

    /// Returns the number of entries that this process, as the producer, has written and that the
    /// kernel has not taken yet.
    #[inline]
    fn pending(&self) -> u32 {
        self.own.wrapping_sub(self.load(self.offsets.consumer)).min(ENTRIES)
    }

    fn needs_wakeup(&self) -> bool {
        self.load(self.offsets.flags) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    #[inline]
    fn entry(&self, size: usize) -> usize {
        self.offsets.entries + (self.own & (ENTRIES - 1)) as usize * size
    }

    #[inline]
    fn read_address(&self, at: usize) -> u64 {
        self.memory.word64(at).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    #[inline]
    fn write_address(&self, at: usize, address: u64) {
        if let Some(word) = self.memory.word64(at) {
            word.store(address, Ordering::Relaxed);
        }
    }
}

impl ReceiveQueue {
    /// Gives the first [`ENTRIES`] buffers to the kernel.
    pub(super) fn new(
        buffers: Arc<SharedMemory>,
        chunk: u64,
        fill: KernelRing,
        receive: KernelRing,
    ) -> Self {
        let mut this = Self { buffers, chunk, fill, receive };
        for number in 0..u64::from(ENTRIES) {
            this.give(number * chunk);
        }
        this.fill.store(this.fill.offsets.producer);
        this
    }

    pub(super) fn receive(
        &mut self,
        batch: &mut Vec<Frame>,
        limit: usize,
        now: impl FnOnce() -> Time,
    ) -> usize {
        let count = (self.receive.filled() as usize).min(limit);
        if count == 0 {
            return 0;
        }
        let arrival = now();
        for _ in 0..count {
            let at = self.receive.entry(DESCRIPTOR);
            let address = self.receive.read_address(at);
            let len = self.receive.memory.word32(at + 8).map_or(0, |w| w.load(Ordering::Relaxed));
            let mut frame = Frame::with_len((len as usize).min(self.chunk as usize), arrival);
            if self.buffers.read(address as usize, frame.bytes_mut()) {
                batch.push(frame);
            }
            self.receive.own = self.receive.own.wrapping_add(1);
            self.give(address & !(self.chunk - 1));
        }
        self.receive.store(self.receive.offsets.consumer);
        self.fill.store(self.fill.offsets.producer);
        count
    }

    pub(super) fn needs_wakeup(&self) -> bool {
        self.fill.needs_wakeup()
    }

    /// Gives a buffer to the kernel. The ring always has space, because it has as many entries as
    /// there are buffers.
    #[inline]
    fn give(&mut self, address: u64) {
        let at = self.fill.entry(ADDRESS);
        self.fill.write_address(at, address);
        self.fill.own = self.fill.own.wrapping_add(1);
    }
}

impl TransmitQueue {
    /// Creates the queue, which uses [`ENTRIES`] buffers after the receive buffers.
    pub(super) fn new(
        buffers: Arc<SharedMemory>,
        chunk: u64,
        transmit: KernelRing,
        completion: KernelRing,
    ) -> Self {
        let first = u64::from(ENTRIES);
        let free = (first..2 * first).map(|number| number * chunk).collect();
        Self { buffers, chunk, transmit, completion, free }
    }

    /// Puts packets into the ring until no buffer is free. `longest`: the maximum length of a frame
    /// at the interface.
    pub(super) fn send(&mut self, packets: &[&[u8]], longest: usize) -> Accepted {
        if self.free.len() < packets.len() {
            self.collect();
        }
        let mut sent = 0;
        let mut refusal = None;
        for packet in packets {
            if packet.len() > longest.min(self.chunk as usize) {
                refusal = Some(Refusal::TooLong);
                break;
            }
            if packet.len() < SHORTEST {
                refusal = Some(Refusal::Refused);
                break;
            }
            let Some(address) = self.free.pop() else {
                refusal = Some(Refusal::Full);
                break;
            };
            self.buffers.write(address as usize, packet);
            let at = self.transmit.entry(DESCRIPTOR);
            self.transmit.write_address(at, address);
            // Write the length of the packet, and options of 0.
            self.transmit.write_address(at + 8, packet.len() as u64);
            self.transmit.own = self.transmit.own.wrapping_add(1);
            sent += 1;
        }
        self.transmit.store(self.transmit.offsets.producer);
        Accepted { sent, refusal }
    }

    /// Returns the number of entries that the kernel has not taken yet.
    pub(super) fn pending(&self) -> u32 {
        self.transmit.pending()
    }

    pub(super) fn needs_wakeup(&self) -> bool {
        self.transmit.needs_wakeup()
    }

    /// Frees the buffers whose packets were sent.
    fn collect(&mut self) {
        let count = self.completion.filled();
        for _ in 0..count {
            let at = self.completion.entry(ADDRESS);
            let address = self.completion.read_address(at) & !(self.chunk - 1);
            self.completion.own = self.completion.own.wrapping_add(1);
            if self.free.len() < ENTRIES as usize {
                self.free.push(address);
            }
        }
        if count > 0 {
            self.completion.store(self.completion.offsets.consumer);
        }
    }
}

/// The number of entries of each ring, and the number of buffers for each direction.
pub(super) const ENTRIES: u32 = 4096;
pub(super) const DESCRIPTOR: usize = size_of::<libc::xdp_desc>();
pub(super) const ADDRESS: usize = 8;
const SHORTEST: usize = 14;
