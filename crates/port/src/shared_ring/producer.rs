use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::layout::{Descriptor, Direction, Geometry, LONGEST, Places, Violation, returned};
use crate::shared_memory::SharedMemory;
use crate::{Accepted, Refusal};

#[derive(Debug)]
pub(super) struct Producer {
    memory: Arc<SharedMemory>,
    geometry: Geometry,
    places: Places,
    produced: u32,
    /// The consumer's index at the last reading.
    consumed: u32,
    /// The offset of the next free byte in the area.
    head: u32,
    /// The number of bytes of the area that frames in flight occupy, including the bytes that were
    /// skipped at the end.
    taken: u32,
    /// The number of bytes that each frame in flight occupies, oldest first.
    sizes: VecDeque<u32>,
}

impl Producer {
    pub(super) fn new(memory: Arc<SharedMemory>, geometry: Geometry, direction: Direction) -> Self {
        Self {
            places: geometry.places(direction),
            sizes: VecDeque::with_capacity(geometry.descriptors as usize),
            memory,
            geometry,
            produced: 0,
            consumed: 0,
            head: 0,
            taken: 0,
        }
    }

    /// Sends packets in order while the ring has space. Also returns whether the consumer sleeps
    /// and must be woken.
    #[inline]
    pub(super) fn send(&mut self, packets: &[&[u8]]) -> Result<(Accepted, bool), Violation> {
        let mut sent = 0;
        let mut refusal = None;
        let mut has_looked = self.sizes.len() >= MANY;
        if has_looked {
            self.look()?;
        }
        for packet in packets {
            if packet.len() > LONGEST {
                refusal = Some(Refusal::TooLong);
                break;
            }
            let mut place = self.place(packet.len());
            if place.is_none() && !has_looked {
                has_looked = true;
                self.look()?;
                place = self.place(packet.len());
            }
            let Some((offset, size)) = place else {
                refusal = Some(Refusal::Full);
                break;
            };
            let len = packet.len() as u32;
            self.memory.write(self.places.area + offset as usize, packet);
            let slot = (self.produced & (self.geometry.descriptors - 1)) as usize;
            if let Some(word) = self.memory.word64(self.places.descriptors + slot * 8) {
                word.store(Descriptor { offset, len }.to_word(), Ordering::Relaxed);
            }
            self.produced = self.produced.wrapping_add(1);
            self.head = offset + (size - self.skipped(offset));
            self.taken += size;
            self.sizes.push_back(size);
            sent += 1;
        }
        let sleeps = sent > 0 && self.publish();
        Ok((Accepted { sent, refusal }, sleeps))
    }

    /// Returns the offset of a new frame, and the number of bytes that the frame occupies,
    /// including skipped bytes.
    #[inline]
    fn place(&mut self, len: usize) -> Option<(u32, u32)> {
        if self.sizes.len() == self.geometry.descriptors as usize {
            return None;
        }
        if self.sizes.is_empty() {
            // If the area starts again at its first cache lines, these lines stay in the cache.
            self.head = 0;
        }
        let size = (len.max(1) as u32).next_multiple_of(LINE);
        let left = self.geometry.area - self.head;
        let (offset, size) = match size <= left {
            true => (self.head, size),
            false => (0, size + left),
        };
        (self.taken + size <= self.geometry.area).then_some((offset, size))
    }

    /// Returns the number of bytes at the area's end that a frame at this offset skips.
    #[inline]
    fn skipped(&self, offset: u32) -> u32 {
        match offset < self.head {
            true => self.geometry.area - self.head,
            false => 0,
        }
    }

    /// Frees the space of consumed frames.
    fn look(&mut self) -> Result<(), Violation> {
        let Some(word) = self.memory.word32(self.places.consumed) else { return Ok(()) };
        let consumed = word.load(Ordering::Acquire);
        let count = returned(consumed, self.consumed, self.sizes.len() as u32)?;
        self.consumed = consumed;
        self.taken -= self.sizes.drain(..count as usize).sum::<u32>();
        Ok(())
    }

    /// Publishes the frames to the consumer. Returns whether the consumer sleeps.
    #[inline]
    fn publish(&self) -> bool {
        if let Some(word) = self.memory.word32(self.places.produced) {
            word.store(self.produced, Ordering::Release);
        }
        // The consumer sets its flag and then reads the index. The producer stores the index and
        // then reads the flag. So at least one side sees the store of the other side.
        fence(Ordering::SeqCst);
        let Some(flag) = self.memory.word32(self.places.sleeps) else { return false };
        flag.load(Ordering::Relaxed) != 0 && flag.swap(0, Ordering::Relaxed) != 0
    }
}

const LINE: u32 = 64;
/// Number of frames in flight from which reading the consumer's index is worth a cache miss: if the
/// consumer has caught up, the producer continues at the start of the area, whose lines are in the
/// cache.
const MANY: usize = 256;
