use crate::LinkStats;
use crate::queue::{Limit, Queued};
use std::collections::VecDeque;
use units::Bytes;

#[derive(Debug)]
pub(super) struct Backlog<P> {
    items: VecDeque<Queued<P>>,
    bytes: Bytes,
}

impl<P> Backlog<P> {
    pub(super) fn new() -> Self {
        Self { items: VecDeque::new(), bytes: Bytes::ZERO }
    }

    /// Queues a packet if it fits within the limit. Counts the packet as dropped otherwise.
    #[inline]
    pub(super) fn admit(&mut self, limit: Limit, item: Queued<P>, stats: &mut LinkStats) {
        if limit.has_room(self.packets(), self.bytes, item.size) {
            self.push(item);
        } else {
            stats.dropped.overflow.add(item.size);
        }
    }

    #[inline]
    pub(super) fn push(&mut self, item: Queued<P>) {
        self.bytes += item.size;
        self.items.push_back(item);
    }

    #[inline]
    pub(super) fn pop_head(&mut self) -> Option<Queued<P>> {
        let item = self.items.pop_front()?;
        self.bytes -= item.size;
        Some(item)
    }

    #[inline]
    pub(super) fn packets(&self) -> usize {
        self.items.len()
    }

    #[inline]
    pub(super) fn bytes(&self) -> Bytes {
        self.bytes
    }

    pub(super) fn for_each(&self, see: &mut dyn FnMut(&P)) {
        self.items.iter().for_each(|item| see(&item.packet));
    }

    pub(super) fn take_all(&mut self) -> Vec<Queued<P>> {
        self.bytes = Bytes::ZERO;
        self.items.drain(..).collect()
    }
}

/// Implements the methods of a [`Discipline`](crate::queue::Discipline) that read or empty the
/// queue, for a discipline whose packets are all in its field `backlog`.
macro_rules! of_backlog {
    () => {
        #[inline]
        fn packets(&self) -> usize {
            self.backlog.packets()
        }

        #[inline]
        fn bytes(&self) -> units::Bytes {
            self.backlog.bytes()
        }

        fn for_each(&self, see: &mut dyn FnMut(&P)) {
            self.backlog.for_each(see);
        }

        fn take_all(&mut self) -> Vec<Queued<P>> {
            self.backlog.take_all()
        }
    };
}
pub(super) use of_backlog;
