use crate::queue::Queued;
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
