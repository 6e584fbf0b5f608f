use units::{Bytes, Time};
use wire::Ecn;

use crate::Offload;
use crate::pool::FramePool;

/// An Ethernet frame as on a wire, with its arrival time. The frame starts with the MAC addresses
/// and has no frame check sequence.
///
/// A port that keeps offloads also delivers unfinished frames, with an [`Offload`].
///
/// The frame's buffer comes from the thread's [`FramePool`], and goes back to this pool when the
/// frame is dropped. A clone copies the bytes. Before the bytes, the buffer has headroom for
/// headers that a switch pushes.
///
/// A frame is one pointer, so that it moves between queues in a register. A larger frame would be
/// moved by wider words than were just stored, which stalls a processor for a dozen cycles.
#[derive(Default)]
pub struct Frame {
    /// `None` for an empty frame.
    body: Option<Box<Body>>,
}

impl Frame {
    /// Creates a frame of `len` bytes. The caller must write the bytes, because a recycled buffer
    /// holds old bytes.
    #[inline]
    pub fn with_len(len: usize, arrival: Time) -> Self {
        Self::of_body(FramePool::take(HEADROOM + len), len, arrival)
    }

    /// Creates a frame with this body, whose buffer must hold `len` bytes.
    #[inline]
    pub(crate) fn of_body(mut body: Box<Body>, len: usize, arrival: Time) -> Self {
        (body.start, body.len, body.arrival) = (HEADROOM as u32, len as u32, arrival);
        body.offload = Offload::NONE;
        Self { body: Some(body) }
    }

    /// Whether a frame of this length fits into the short buffer that each body has.
    #[inline]
    pub(crate) fn is_short(len: usize) -> bool {
        len <= SHORT - HEADROOM
    }

    /// Returns the body of a frame whose bytes are in the short buffer. If the frame has a long
    /// buffer or no bytes, returns the frame itself.
    #[inline]
    pub(crate) fn into_short_body(mut self) -> Result<Box<Body>, Self> {
        match self.body.take_if(|body| body.long.is_empty()) {
            Some(body) => Ok(body),
            None => Err(self),
        }
    }

    /// Copies all of `lines` if the buffer has enough space; the frame's bytes are at the start of
    /// the lines. Copying whole lines is faster than copying exactly the bytes of a short frame.
    #[inline]
    pub fn fill_from_lines(&mut self, lines: &[[u8; LINE]]) {
        if let [line] = lines
            && let Some(body) = &mut self.body
            && body.long.is_empty()
            && let Some(place) = body.short[body.start as usize..].first_chunk_mut()
        {
            *place = *line;
            return;
        }
        let len = self.len();
        if let Some(bytes) = lines.as_flattened().get(..len) {
            self.bytes_mut().copy_from_slice(bytes);
        }
    }

    #[inline]
    pub fn from_bytes(bytes: &[u8], arrival: Time) -> Self {
        let mut frame = Self::with_len(bytes.len(), arrival);
        frame.bytes_mut().copy_from_slice(bytes);
        frame
    }

    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match &self.body {
            Some(body) => body.bytes(),
            None => &[],
        }
    }

    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.body {
            Some(body) => body.bytes_mut(),
            None => &mut [],
        }
    }

    /// Adds `count` bytes at the front, which the caller must write.
    pub fn grow_front(&mut self, count: usize) {
        if let Some(body) = &mut self.body
            && count <= body.start as usize
        {
            body.start -= count as u32;
            body.len += count as u32;
            body.move_offload(count as i32);
            return;
        }
        let mut grown = Self::with_len(self.len() + count, self.arrival());
        grown.bytes_mut()[count..].copy_from_slice(self.bytes());
        grown.set_offload(self.offload());
        *self = grown;
        if let Some(body) = &mut self.body {
            body.move_offload(count as i32);
        }
    }

    /// Removes up to `count` bytes from the front.
    #[inline]
    pub fn cut_front(&mut self, count: usize) {
        if let Some(body) = &mut self.body {
            let count = count.min(body.len as usize) as u32;
            body.start += count;
            body.len -= count;
            body.move_offload(-(count as i32));
        }
    }

    /// Removes the bytes after the first `len` bytes. The frame must be finished.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        if let Some(body) = &mut self.body {
            body.len = len.min(body.len as usize) as u32;
        }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.body.as_ref().map_or(0, |body| body.len as usize)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn size(&self) -> Bytes {
        Bytes::new(self.len() as u64)
    }

    /// Returns the offload of the frame: the checksum and segmentation that the sender left to a
    /// network card.
    #[inline]
    pub fn offload(&self) -> Offload {
        self.body.as_ref().map_or(Offload::NONE, |body| body.offload)
    }

    /// Sets the offload of the frame. The offload must fit the frame's bytes ([`Offload::of`]).
    #[inline]
    pub fn set_offload(&mut self, offload: Offload) {
        if let Some(body) = &mut self.body {
            body.offload = offload;
        }
    }

    /// Whether the frame is unfinished: the sender left an offload to a network card.
    #[inline(always)]
    pub fn is_unfinished(&self) -> bool {
        match &self.body {
            Some(body) => body.offload.is_some(),
            None => false,
        }
    }

    /// Returns the number of frames that this frame becomes on the wire, and their bytes. Only a
    /// super-packet becomes several frames.
    #[inline(always)]
    pub fn on_wire(&self) -> (u64, u64) {
        match &self.body {
            Some(body) if body.offload.is_super() => body.offload.on_wire(body.len as usize),
            Some(body) => (1, body.len.into()),
            None => (1, 0),
        }
    }

    #[inline]
    pub fn longest_on_wire(&self) -> usize {
        self.body.as_ref().map_or(0, |body| body.offload.longest_on_wire(body.len as usize))
    }

    /// Returns the time at which the kernel received the frame, on `CLOCK_MONOTONIC`.
    pub fn arrival(&self) -> Time {
        self.body.as_ref().map_or(Time::ZERO, |body| body.arrival)
    }

    pub(crate) fn set_arrival(&mut self, arrival: Time) {
        if let Some(body) = &mut self.body {
            body.arrival = arrival;
        }
    }

    /// Hashes addresses, protocol and ports.
    pub fn flow(&self, seed: u64) -> u64 {
        wire::flow::hash(self.bytes(), seed)
    }

    /// Whether a queue may mark the frame instead of dropping it (RFC 3168).
    pub fn ecn_capable(&self) -> bool {
        Ecn::read(self.bytes()).is_some_and(Ecn::is_capable)
    }

    /// Sets the ECN codepoint "congestion experienced". If the frame is not ECN-capable, returns
    /// false and changes nothing.
    pub fn mark_congestion(&mut self) -> bool {
        wire::ecn::mark(self.bytes_mut())
    }

    pub fn caqm(&self, tpid: u16) -> Option<wire::caqm::Info> {
        wire::caqm::read(self.bytes(), tpid)
    }

    /// Overwrites the tag that [`Self::caqm`] reads. Does nothing without a tag.
    pub fn set_caqm(&mut self, tpid: u16, info: wire::caqm::Info) {
        wire::caqm::write(self.bytes_mut(), tpid, info);
    }

    /// Answers a CAQM offer. Does nothing without an offer.
    pub fn answer_caqm_offer(&mut self, tpid: u16) {
        wire::caqm::offer::answer(self.bytes_mut(), tpid);
    }

    /// Flips one bit after the MAC header. `random` chooses the bit.
    pub fn corrupt(&mut self, random: u64) {
        wire::corrupt::flip_bit(self.bytes_mut(), random);
    }
}

impl Clone for Frame {
    fn clone(&self) -> Self {
        match &self.body {
            Some(body) => {
                let mut copy = Self::from_bytes(body.bytes(), body.arrival);
                copy.set_offload(body.offload);
                copy
            }
            None => Self::default(),
        }
    }
}

impl Drop for Frame {
    #[inline]
    fn drop(&mut self) {
        if let Some(body) = self.body.take() {
            FramePool::give_back(body);
        }
    }
}

impl std::fmt::Debug for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Frame")
            .field("len", &self.len())
            .field("arrival", &self.arrival())
            .finish_non_exhaustive()
    }
}

/// The bytes of a frame, and their position in the buffer.
///
/// The size of a body is an odd number of cache lines, so that the headers of many frames use
/// different cache sets.
#[repr(C, align(64))]
pub(crate) struct Body {
    /// The offset of the frame's first byte in the buffer.
    start: u32,
    len: u32,
    arrival: Time,
    /// The buffer of a long frame; empty for most frames.
    pub(crate) long: Box<[u8]>,
    offload: Offload,
    short: [u8; SHORT],
}

impl Body {
    pub(crate) fn new() -> Box<Self> {
        Box::new(Self {
            start: 0,
            len: 0,
            arrival: Time::ZERO,
            long: Box::default(),
            offload: Offload::NONE,
            short: [0; SHORT],
        })
    }

    #[inline]
    fn move_offload(&mut self, bytes: i32) {
        if self.offload.is_some() {
            self.offload = self.offload.moved(bytes);
        }
    }

    #[inline]
    fn range(&self) -> std::ops::Range<usize> {
        self.start as usize..self.start as usize + self.len as usize
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        let buffer = if self.long.is_empty() { &self.short[..] } else { &self.long };
        &buffer[self.range()]
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        let range = self.range();
        let buffer = if self.long.is_empty() { &mut self.short[..] } else { &mut self.long };
        &mut buffer[range]
    }
}

const LINE: usize = 64;
/// With this headroom, the headers of most frames begin at the start of a cache line, and fit in
/// this line.
const HEADROOM: usize = 88;
/// Size of the short buffer, which holds a frame with the usual MTU and tags.
pub(crate) const SHORT: usize = 33 * 64 - 40;
const _: () = assert!(size_of::<Body>() == 33 * 64);
const _: () = assert!((std::mem::offset_of!(Body, short) + HEADROOM).is_multiple_of(LINE));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_all_lengths_keep_their_bytes() {
        for len in [0, 1, SHORT - HEADROOM, SHORT - HEADROOM + 1, 9000, 70_000] {
            let bytes: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let arrival = Time::from_nanos(7);
            let mut frame = Frame::from_bytes(&bytes, arrival);
            let copy = frame.clone();
            frame.bytes_mut().fill(9);
            frame.truncate(2);
            assert_eq!(frame.len(), len.min(2));
            assert_eq!((copy.bytes(), copy.arrival()), (&bytes[..], arrival));
        }
        let mut none = Frame::default();
        none.cut_front(1);
        none.truncate(1);
        assert!(none.clone().is_empty());
        none.grow_front(2);
        none.bytes_mut().fill(4);
        assert_eq!(none.bytes(), [4, 4]);
    }

    #[test]
    fn a_frame_grows_and_shrinks_at_its_front() {
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
