use units::{Bytes, Time};
use wire::Ecn;

use crate::pool::FramePool;

/// One Ethernet frame as on a wire, from the MAC addresses on and without the frame check sequence,
/// with its arrival time.
///
/// Its buffer comes from the thread's [`FramePool`] and returns there. A clone copies the bytes. In
/// front of the bytes there is room for headers that a switch pushes.
#[derive(Default)]
pub struct Frame {
    buffer: Box<[u8]>,
    /// The first byte of the frame in the buffer.
    start: usize,
    len: usize,
    arrival: Time,
}

impl Frame {
    /// A frame of `len` bytes that are yet to be written: a recycled buffer holds old bytes.
    #[inline]
    pub fn with_len(len: usize, arrival: Time) -> Self {
        Self { buffer: FramePool::take(HEADROOM + len), start: HEADROOM, len, arrival }
    }

    #[inline]
    pub fn from_bytes(bytes: &[u8], arrival: Time) -> Self {
        let mut frame = Self::with_len(bytes.len(), arrival);
        frame.bytes_mut().copy_from_slice(bytes);
        frame
    }

    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.start + self.len]
    }

    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.start + self.len]
    }

    /// Adds `count` bytes in front, whose contents are yet to be written.
    pub fn grow_front(&mut self, count: usize) {
        if count > self.start {
            let mut grown = Self::with_len(self.len + count, self.arrival);
            grown.bytes_mut()[count..].copy_from_slice(self.bytes());
            *self = grown;
            return;
        }
        self.start -= count;
        self.len += count;
    }

    /// Removes up to `count` bytes from the front.
    #[inline]
    pub fn cut_front(&mut self, count: usize) {
        let count = count.min(self.len);
        self.start += count;
        self.len -= count;
    }

    /// Removes the bytes behind the first `len`.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn size(&self) -> Bytes {
        Bytes::new(self.len as u64)
    }

    /// The time when the kernel received the frame, on `CLOCK_MONOTONIC`.
    pub fn arrival(&self) -> Time {
        self.arrival
    }

    /// A hash of addresses, protocol and ports.
    pub fn flow(&self, seed: u64) -> u64 {
        wire::flow::hash(self.bytes(), seed)
    }

    /// True if a queue may mark the frame instead of dropping it (RFC 3168).
    pub fn ecn_capable(&self) -> bool {
        Ecn::read(self.bytes()).is_some_and(Ecn::is_capable)
    }

    /// Sets "congestion experienced". Returns false and changes nothing if the frame is not
    /// ECN-capable.
    pub fn mark_congestion(&mut self) -> bool {
        wire::ecn::mark(self.bytes_mut())
    }

    /// Its CAQM tag.
    pub fn caqm(&self, tpid: u16) -> Option<wire::caqm::Info> {
        wire::caqm::read(self.bytes(), tpid)
    }

    /// Overwrites the tag that [`Self::caqm`] reads; does nothing without a tag.
    pub fn set_caqm(&mut self, tpid: u16, info: wire::caqm::Info) {
        wire::caqm::write(self.bytes_mut(), tpid, info);
    }

    /// Answers the question of a CAQM offer; does nothing without an offer.
    pub fn answer_caqm_offer(&mut self, tpid: u16) {
        wire::caqm::offer::answer(self.bytes_mut(), tpid);
    }

    /// Flips one bit behind the MAC header, chosen by `random`.
    pub fn corrupt(&mut self, random: u64) {
        wire::corrupt::flip_bit(self.bytes_mut(), random);
    }
}

impl Clone for Frame {
    fn clone(&self) -> Self {
        Self::from_bytes(self.bytes(), self.arrival)
    }
}

impl Drop for Frame {
    #[inline]
    fn drop(&mut self) {
        FramePool::give_back(std::mem::take(&mut self.buffer));
    }
}

impl std::fmt::Debug for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Frame")
            .field("len", &self.len)
            .field("arrival", &self.arrival)
            .finish_non_exhaustive()
    }
}

/// A cache line, so that the headers of most frames are within one too.
const HEADROOM: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_pushed_and_popped_in_front() {
        let mut frame = Frame::from_bytes(&[1, 2, 3], Time::ZERO);
        for push in 0..100 {
            frame.grow_front(4);
            frame.bytes_mut()[..4].copy_from_slice(&[push; 4]);
        }
        assert_eq!(frame.len(), 403);
        assert_eq!(frame.bytes()[..8], [99, 99, 99, 99, 98, 98, 98, 98]);
        frame.cut_front(400);
        assert_eq!(frame.bytes(), [1, 2, 3]);
        frame.truncate(2);
        frame.cut_front(9);
        assert!(frame.is_empty());
    }
}
