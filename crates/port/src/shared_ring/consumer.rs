use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use units::Time;

use super::layout::{Descriptor, Direction, Geometry, Places, Violation, waiting};
use crate::shared_memory::SharedMemory;
use crate::{Frame, FramePool};

#[derive(Debug)]
pub(super) struct Consumer {
    memory: Arc<SharedMemory>,
    geometry: Geometry,
    places: Places,
    consumed: u32,
    /// The producer's index at the last reading.
    produced: u32,
}

impl Consumer {
    pub(super) fn new(memory: Arc<SharedMemory>, geometry: Geometry, direction: Direction) -> Self {
        let places = geometry.places(direction);
        Self { memory, geometry, places, consumed: 0, produced: 0 }
    }

    pub(super) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Appends at most `limit` frames. Calls `now` once, and only if there are frames.
    #[inline]
    pub(super) fn receive(
        &mut self,
        batch: &mut Vec<Frame>,
        limit: usize,
        now: impl FnOnce() -> Time,
    ) -> Result<usize, Violation> {
        let mut waiting = self.produced.wrapping_sub(self.consumed);
        if waiting == 0 {
            waiting = self.look()?;
            if waiting == 0 {
                return Ok(0);
            }
        }
        let count = (waiting as usize).min(limit);
        let arrival = now();
        batch.reserve(count);
        let mut pool = FramePool::lease();
        for _ in 0..count {
            let slot = (self.consumed & (self.geometry.descriptors - 1)) as usize;
            let Some(word) = self.memory.word64(self.places.descriptors + slot * 8) else { break };
            let descriptor = Descriptor::check(word.load(Ordering::Relaxed), self.geometry)?;
            let mut frame = pool.frame(descriptor.len as usize, arrival);
            let at = self.places.area + descriptor.offset as usize;
            self.memory.read(at, frame.bytes_mut());
            batch.push(frame);
            self.consumed = self.consumed.wrapping_add(1);
        }
        if let Some(word) = self.memory.word32(self.places.consumed) {
            word.store(self.consumed, Ordering::Release);
        }
        Ok(count)
    }

    /// Asks the producer to wake the consumer when further frames come. Returns false if frames
    /// already wait.
    pub(super) fn prepare_to_sleep(&mut self) -> Result<bool, Violation> {
        if let Some(flag) = self.memory.word32(self.places.sleeps) {
            flag.store(1, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
        self.look().map(|waiting| waiting == 0)
    }

    #[inline]
    fn look(&mut self) -> Result<u32, Violation> {
        let Some(word) = self.memory.word32(self.places.produced) else { return Ok(0) };
        let produced = word.load(Ordering::Acquire);
        let waiting = waiting(produced, self.consumed, self.geometry)?;
        self.produced = produced;
        Ok(waiting)
    }
}
