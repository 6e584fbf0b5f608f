use std::os::fd::BorrowedFd;

use units::Bytes;

use crate::{Frame, Port, PortCounters, PortError, SendReport};

/// Discards every frame and never receives a frame.
#[derive(Debug, Default)]
pub struct NullPort {
    counters: PortCounters,
}

impl NullPort {
    pub fn new() -> Self {
        Self::default()
    }
}

impl Port for NullPort {
    fn receive(&mut self, _: &mut Vec<Frame>, _: usize) -> Result<usize, PortError> {
        Ok(0)
    }

    fn send(&mut self, frames: &[Frame]) -> Result<SendReport, PortError> {
        self.counters.sent_frames += frames.len() as u64;
        self.counters.sent_bytes += frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
        Ok(SendReport { sent: frames.len(), dropped: 0 })
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn mtu(&self) -> Bytes {
        Bytes::new(65535)
    }

    fn counters(&mut self) -> PortCounters {
        self.counters
    }

    fn describe(&self) -> String {
        "null: discards every frame, never receives one".to_owned()
    }
}
