use std::cell::RefCell;

/// The buffers of dropped frames, kept for the next ones.
///
/// Every thread has its own pool, so that taking and returning a buffer are a few instructions
/// without lock or atomic. A frame that is dropped on another thread leaves its buffer there; that
/// costs an allocation, not correctness.
#[derive(Debug)]
pub struct FramePool {
    small: Vec<Box<[u8]>>,
    large: Vec<Box<[u8]>>,
}

impl FramePool {
    /// Prepares `frames` buffers for frames of up to 2 KiB on this thread and touches their memory,
    /// so that a running link meets no page faults.
    pub fn prepare(frames: usize) {
        with_pool(|pool| {
            let missing = frames.min(KEPT_SMALL).saturating_sub(pool.small.len());
            pool.small.extend((0..missing).map(|_| vec![1; SMALL].into_boxed_slice()));
        });
    }

    /// A buffer of at least `len` bytes with undefined contents.
    #[inline]
    pub(crate) fn take(len: usize) -> Box<[u8]> {
        let kept = if len <= SMALL {
            with_pool(|pool| pool.small.pop())
        } else if len <= LARGE {
            with_pool(|pool| pool.large.pop())
        } else {
            None
        };
        kept.flatten().unwrap_or_else(|| {
            let class = [SMALL, LARGE].into_iter().find(|class| len <= *class);
            vec![0; class.unwrap_or(len)].into_boxed_slice()
        })
    }

    #[inline]
    pub(crate) fn give_back(buffer: Box<[u8]>) {
        match buffer.len() {
            SMALL => with_pool(|pool| keep(&mut pool.small, buffer, KEPT_SMALL)),
            LARGE => with_pool(|pool| keep(&mut pool.large, buffer, KEPT_LARGE)),
            _ => None,
        };
    }
}

fn keep(kept: &mut Vec<Box<[u8]>>, buffer: Box<[u8]>, most: usize) {
    if kept.len() < most {
        kept.push(buffer);
    }
}

/// `None` while the thread ends and its pool is already dropped.
fn with_pool<T>(work: impl FnOnce(&mut FramePool) -> T) -> Option<T> {
    POOL.try_with(|pool| work(&mut pool.borrow_mut())).ok()
}

thread_local! {
    static POOL: RefCell<FramePool> =
        const { RefCell::new(FramePool { small: Vec::new(), large: Vec::new() }) };
}

/// A frame of the usual MTU with two tags, and a whole number of cache lines.
const SMALL: usize = 2048;
/// A jumbo frame of 9000 bytes.
const LARGE: usize = 9216;
/// 128 MiB: a second at 500 Mbit/s in flight.
const KEPT_SMALL: usize = 65536;
const KEPT_LARGE: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back() {
        for (len, size) in [(60, SMALL), (SMALL, SMALL), (SMALL + 1, LARGE), (70_000, 70_000)] {
            let buffer = FramePool::take(len);
            assert_eq!(buffer.len(), size);
            let first = buffer.as_ptr();
            FramePool::give_back(buffer);
            if size <= LARGE {
                let again = FramePool::take(len);
                assert_eq!(again.as_ptr(), first);
            }
        }
    }
}
