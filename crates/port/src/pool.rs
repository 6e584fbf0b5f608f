use std::cell::RefCell;

use units::Time;

use crate::Frame;
use crate::frame::{Body, SHORT};

/// The buffers of dropped frames, kept for later frames.
///
/// Every thread has its own pool, so that taking and returning a buffer takes only a few
/// instructions, without locks or atomics. A frame that is dropped on another thread leaves its
/// buffer there, which costs only an allocation.
#[derive(Default)]
pub struct FramePool {
    bodies: Vec<Kept>,
    long: Vec<Box<[u8]>>,
    huge: Vec<Box<[u8]>>,
}

/// A boxed body. The body itself would be too large to move.
struct Kept(Box<Body>);

impl FramePool {
    /// Prepares `frames` buffers for frames of up to 1,984 bytes on this thread and touches their
    /// memory, so that a running link meets no page faults.
    pub fn prepare(frames: usize) {
        with_pool(|pool| {
            let missing = frames.min(KEPT).saturating_sub(pool.bodies.len());
            pool.bodies.extend((0..missing).map(|_| Kept(Body::new())));
        });
    }

    /// Takes the thread's pool out for a batch of frames.
    #[inline]
    pub fn lease() -> Lease {
        Lease { pool: with_pool(std::mem::take).unwrap_or_default() }
    }

    /// Returns a body with a buffer of at least `len` bytes, whose contents are undefined.
    #[inline]
    pub(crate) fn take(len: usize) -> Box<Body> {
        let mut body = with_pool(Self::body).unwrap_or_else(Body::new);
        if len > SHORT {
            body.long = long(len);
        }
        body
    }

    #[inline]
    pub(crate) fn give_back(mut body: Box<Body>) {
        if !body.long.is_empty() {
            keep_long(std::mem::take(&mut body.long));
        }
        with_pool(|pool| pool.keep(body));
    }

    #[inline]
    fn body(&mut self) -> Box<Body> {
        self.bodies.pop().map_or_else(Body::new, |kept| kept.0)
    }

    #[inline]
    fn keep(&mut self, body: Box<Body>) {
        if self.bodies.len() < KEPT {
            self.bodies.push(Kept(body));
        }
    }
}

/// A thread's [`FramePool`] during a batch, so that the batch's frames need no access to
/// thread-local memory. Other frames that are made or dropped meanwhile do not use the pool.
#[derive(Debug)]
pub struct Lease {
    pool: FramePool,
}

impl Lease {
    #[inline]
    pub fn frame(&mut self, len: usize, arrival: Time) -> Frame {
        match Frame::is_short(len) {
            true => Frame::of_body(self.pool.body(), len, arrival),
            false => Frame::with_len(len, arrival),
        }
    }

    #[inline]
    pub fn discard(&mut self, frames: &mut Vec<Frame>) {
        for frame in frames.drain(..) {
            match frame.into_short_body() {
                Ok(body) => self.pool.keep(body),
                Err(frame) => drop(frame),
            }
        }
    }
}

impl Drop for Lease {
    #[inline]
    fn drop(&mut self) {
        let pool = std::mem::take(&mut self.pool);
        with_pool(|place| {
            let later = std::mem::replace(place, pool);
            let is_empty = later.long.is_empty() && later.huge.is_empty();
            if !later.bodies.is_empty() || !is_empty {
                place.merge(later);
            }
        });
    }
}

impl FramePool {
    #[cold]
    fn merge(&mut self, other: Self) {
        let room = KEPT.saturating_sub(self.bodies.len());
        self.bodies.extend(other.bodies.into_iter().take(room));
        let room = KEPT_LONG.saturating_sub(self.long.len());
        self.long.extend(other.long.into_iter().take(room));
        let room = KEPT_HUGE.saturating_sub(self.huge.len());
        self.huge.extend(other.huge.into_iter().take(room));
    }
}

impl std::fmt::Debug for FramePool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FramePool").field("frames", &self.bodies.len()).finish_non_exhaustive()
    }
}

#[cold]
fn long(len: usize) -> Box<[u8]> {
    let kept = with_pool(|pool| {
        let buffers = if len <= LONG { &mut pool.long } else { &mut pool.huge };
        (len <= HUGE).then(|| buffers.pop()).flatten()
    });
    kept.flatten().unwrap_or_else(|| {
        let size = if len <= LONG { LONG } else { len.max(HUGE) };
        vec![0; size].into_boxed_slice()
    })
}

#[cold]
fn keep_long(buffer: Box<[u8]>) {
    with_pool(|pool| {
        let (kept, most) = match buffer.len() {
            LONG => (&mut pool.long, KEPT_LONG),
            HUGE => (&mut pool.huge, KEPT_HUGE),
            _ => return,
        };
        if kept.len() < most {
            kept.push(buffer);
        }
    });
}

/// Calls `work` with the thread's pool. Returns `None` at the end of the thread, after the pool was
/// dropped.
fn with_pool<T>(work: impl FnOnce(&mut FramePool) -> T) -> Option<T> {
    POOL.try_with(|pool| work(&mut pool.borrow_mut())).ok()
}

thread_local! {
    static POOL: RefCell<FramePool> = const {
        RefCell::new(FramePool { bodies: Vec::new(), long: Vec::new(), huge: Vec::new() })
    };
}

/// The buffer size for a jumbo frame of 9000 bytes.
const LONG: usize = 9216;
/// The buffer size for a super-packet of 64 KiB with tags.
const HUGE: usize = 65_536 + 256;
/// Maximum number of kept buffers: 132 MiB, enough for the frames in flight at 500 Mbit/s with a
/// delay of one second.
const KEPT: usize = 65536;
const KEPT_LONG: usize = 4096;
/// Maximum number of kept buffers of `HUGE` bytes: 16 MiB.
const KEPT_HUGE: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buffer_of_a_dropped_frame_is_used_again() {
        for (len, long) in
            [(60, 0), (SHORT, 0), (SHORT + 1, LONG), (60_000, HUGE), (70_000, 70_000)]
        {
            let body = FramePool::take(len);
            assert_eq!(body.long.len(), long);
            let first = (std::ptr::from_ref(&*body).addr(), body.long.as_ptr());
            FramePool::give_back(body);
            let again = FramePool::take(len);
            assert_eq!(std::ptr::from_ref(&*again).addr(), first.0);
            if long <= HUGE {
                assert_eq!(again.long.as_ptr(), first.1);
            }
        }
    }

    #[test]
    fn a_lease_returns_its_buffers_and_the_buffers_of_frames_dropped_meanwhile() {
        let kept = || with_pool(|pool| (pool.bodies.len(), pool.long.len()));
        with_pool(std::mem::take);
        let mut lease = FramePool::lease();
        let frame = |number: usize| Frame::with_len(number * 3_000, Time::ZERO);
        let mut frames: Vec<Frame> = (0..4).map(|_| lease.frame(60, Time::ZERO)).collect();
        frames.extend([Frame::default(), frame(1)]);
        lease.discard(&mut frames);
        assert!(frames.is_empty());
        drop((frame(0), frame(1)));
        drop(lease);
        assert_eq!(kept(), Some((6, 1)));
    }
}
