use std::cell::RefCell;

use crate::frame::{Body, SHORT};

/// The buffers of dropped frames, kept for the next ones.
///
/// Every thread has its own pool, so that taking and returning a buffer are a few instructions
/// without lock or atomic. A frame that is dropped on another thread leaves its buffer there; that
/// costs an allocation, not correctness.
pub struct FramePool {
    bodies: Vec<Kept>,
    long: Vec<Box<[u8]>>,
}

/// A body keeps its address: it is too large to move.
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

    /// A body with a buffer of at least `len` bytes, whose contents are undefined.
    #[inline]
    pub(crate) fn take(len: usize) -> Box<Body> {
        let kept = with_pool(|pool| pool.bodies.pop()).flatten();
        let mut body = kept.map_or_else(Body::new, |kept| kept.0);
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
        with_pool(|pool| {
            if pool.bodies.len() < KEPT {
                pool.bodies.push(Kept(body));
            }
        });
    }
}

impl std::fmt::Debug for FramePool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FramePool").field("frames", &self.bodies.len()).finish_non_exhaustive()
    }
}

#[cold]
fn long(len: usize) -> Box<[u8]> {
    let kept = if len <= LONG { with_pool(|pool| pool.long.pop()).flatten() } else { None };
    kept.unwrap_or_else(|| vec![0; len.max(LONG)].into_boxed_slice())
}

#[cold]
fn keep_long(buffer: Box<[u8]>) {
    if buffer.len() == LONG {
        with_pool(|pool| {
            if pool.long.len() < KEPT_LONG {
                pool.long.push(buffer);
            }
        });
    }
}

/// `None` while the thread ends and its pool is already dropped.
fn with_pool<T>(work: impl FnOnce(&mut FramePool) -> T) -> Option<T> {
    POOL.try_with(|pool| work(&mut pool.borrow_mut())).ok()
}

thread_local! {
    static POOL: RefCell<FramePool> =
        const { RefCell::new(FramePool { bodies: Vec::new(), long: Vec::new() }) };
}

/// A jumbo frame of 9000 bytes.
const LONG: usize = 9216;
/// 132 MiB: a second at 500 Mbit/s in flight.
const KEPT: usize = 65536;
const KEPT_LONG: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back() {
        for (len, long) in [(60, 0), (SHORT, 0), (SHORT + 1, LONG), (70_000, 70_000)] {
            let body = FramePool::take(len);
            assert_eq!(body.long.len(), long);
            let first = (std::ptr::from_ref(&*body).addr(), body.long.as_ptr());
            FramePool::give_back(body);
            let again = FramePool::take(len);
            assert_eq!(std::ptr::from_ref(&*again).addr(), first.0);
            if long <= LONG {
                assert_eq!(again.long.as_ptr(), first.1);
            }
        }
    }
}
