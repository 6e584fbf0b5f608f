use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc;

use rustix::event::{EventfdFlags, eventfd};
use units::Bytes;

use crate::clock::monotonic;
use crate::{Frame, Port, PortCounters, PortError, SendReport};

/// Creates two ports, each of which receives the frames that the other port sends. Tests use the
/// two ports as a link without the kernel. A frame arrives at the time at which it is sent.
pub fn pair() -> Result<(PairPort, PairPort), PortError> {
    let (left_sends, right_receives) = mpsc::channel();
    let (right_sends, left_receives) = mpsc::channel();
    let left_bell = bell()?;
    let right_bell = bell()?;
    let copy = |bell: &OwnedFd| {
        bell.try_clone().map_err(|error| PortError::from_io("duplicating an eventfd", error))
    };
    let left = PairPort {
        outgoing: left_sends,
        incoming: left_receives,
        peer_bell: copy(&right_bell)?,
        bell: copy(&left_bell)?,
        counters: PortCounters::default(),
    };
    let right = PairPort {
        outgoing: right_sends,
        incoming: right_receives,
        peer_bell: left_bell,
        bell: right_bell,
        counters: PortCounters::default(),
    };
    Ok((left, right))
}

#[derive(Debug)]
pub struct PairPort {
    outgoing: mpsc::Sender<Frame>,
    incoming: mpsc::Receiver<Frame>,
    /// An eventfd that is readable while frames are queued.
    bell: OwnedFd,
    peer_bell: OwnedFd,
    counters: PortCounters,
}

impl Port for PairPort {
    fn receive(&mut self, batch: &mut Vec<Frame>, limit: usize) -> Result<usize, PortError> {
        // Clear the bell before the poll, so that a frame that arrives meanwhile sets the bell
        // again.
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        let before = batch.len();
        batch.extend(self.incoming.try_iter().take(limit));
        let frames = &batch[before..];
        self.counters.received_frames += frames.len() as u64;
        self.counters.received_bytes += frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
        if frames.len() == limit {
            ring(&self.bell);
        }
        Ok(frames.len())
    }

    fn send(&mut self, frames: &[Frame]) -> Result<SendReport, PortError> {
        let mut report = SendReport::default();
        for frame in frames {
            match self.outgoing.send(Frame::from_bytes(frame.bytes(), monotonic())) {
                Ok(()) => {
                    report.sent += 1;
                    self.counters.sent_frames += 1;
                    self.counters.sent_bytes += frame.len() as u64;
                }
                Err(_) => {
                    report.dropped += 1;
                    self.counters.dropped_refused += 1;
                }
            }
        }
        ring(&self.peer_bell);
        Ok(report)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.bell.as_fd())
    }

    fn mtu(&self) -> Bytes {
        Bytes::new(65535)
    }

    fn counters(&mut self) -> PortCounters {
        self.counters
    }

    fn describe(&self) -> String {
        "pair: one of two ports joined in memory".to_owned()
    }
}

fn bell() -> Result<OwnedFd, PortError> {
    eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
        .map_err(|error| PortError::from_io("making an eventfd", error.into()))
}

/// Makes the descriptor readable. A write fails only if the counter is full, and then the
/// descriptor is already readable.
fn ring(bell: &OwnedFd) {
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Time;

    #[test]
    fn each_port_of_a_pair_receives_the_frames_of_the_other_port() {
        let (mut left, mut right) = pair().unwrap();
        let frames: Vec<_> =
            (0..5).map(|n| Frame::from_bytes(&[n; 60], Time::from_nanos(0))).collect();
        assert_eq!(left.send(&frames).unwrap(), SendReport { sent: 5, dropped: 0 });
        let mut batch = Vec::new();
        assert_eq!(right.receive(&mut batch, 3).unwrap(), 3);
        assert_eq!(right.receive(&mut batch, 3).unwrap(), 2);
        assert_eq!(right.receive(&mut batch, 3).unwrap(), 0);
        assert!(batch.iter().zip(0..).all(|(frame, n)| frame.bytes() == [n; 60]));
        assert!(batch.is_sorted_by_key(Frame::arrival));
        drop(right);
        assert_eq!(left.send(&frames[..1]).unwrap(), SendReport { sent: 0, dropped: 1 });
    }
}
