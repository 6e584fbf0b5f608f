use std::sync::Arc;

use port::{Frame, FramePool};
use units::Time;

use super::pcap::Capture;

/// The frames of a capture that one queue plays.
#[derive(Debug)]
pub(super) struct CaptureSource {
    capture: Arc<Capture>,
    /// The numbers of this queue's frames; `None` means all frames.
    chosen: Option<Vec<u32>>,
    next: usize,
    repeats: bool,
}

impl CaptureSource {
    /// Splits a capture into one source per queue. A hash of addresses and ports chooses a frame's
    /// queue, as in a network card.
    pub(super) fn split(capture: Capture, queues: usize, repeats: bool) -> Vec<Self> {
        let capture = Arc::new(capture);
        let source = |chosen| Self { capture: capture.clone(), chosen, next: 0, repeats };
        if queues == 1 {
            return vec![source(None)];
        }
        let mut chosen = vec![Vec::new(); queues];
        for index in 0..capture.len() {
            let frame = capture.frame(index).unwrap_or_default();
            let hash = Frame::from_bytes(frame, Time::ZERO).flow(0);
            chosen[(hash % queues as u64) as usize].push(index as u32);
        }
        chosen.into_iter().map(|chosen| source(Some(chosen))).collect()
    }

    /// Appends up to `limit` frames.
    pub(super) fn play(&mut self, limit: usize, batch: &mut Vec<Frame>) -> usize {
        let len = self.chosen.as_ref().map_or(self.capture.len(), Vec::len);
        if len == 0 {
            return 0;
        }
        let mut pool = FramePool::lease();
        for played in 0..limit {
            if self.next == len {
                if !self.repeats {
                    return played;
                }
                self.next = 0;
            }
            self.capture.prefetch(self.index(self.next + AHEAD));
            batch.extend(self.capture.copy(self.index(self.next), &mut pool));
            self.next += 1;
        }
        limit
    }

    /// Converts a position in this queue to the frame's index in the capture.
    #[inline]
    fn index(&self, position: usize) -> usize {
        match &self.chosen {
            None => position,
            Some(chosen) => chosen.get(position).map_or(usize::MAX, |index| *index as usize),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        let len = self.chosen.as_ref().map_or(self.capture.len(), Vec::len);
        len == 0 || !self.repeats && self.next == len
    }

    pub(super) fn frames(&self) -> usize {
        self.capture.len()
    }

    pub(super) fn repeats(&self) -> bool {
        self.repeats
    }
}

/// Distance, in frames, between the frame that is played and the frame that is prefetched.
const AHEAD: usize = 32;
