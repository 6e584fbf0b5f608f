//! Packets in flight, in the order of delivery times.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use units::{Bytes, Time};

#[derive(Debug)]
pub(crate) struct InFlight<P> {
    pub(crate) at: Time,
    /// The position in the departure order, which breaks ties and shows which packets were
    /// overtaken.
    pub(crate) sequence: u64,
    pub(crate) arrived: Time,
    pub(crate) size: Bytes,
    pub(crate) packet: P,
}

/// The packets in flight: a queue for packets that keep their order, as most packets do, and a heap
/// for packets that overtake or are overtaken.
#[derive(Debug)]
pub(crate) struct Flight<P> {
    ordered: VecDeque<InFlight<P>>,
    unordered: BinaryHeap<ByDeliveryTime<P>>,
}

impl<P> Flight<P> {
    pub(crate) fn new() -> Self {
        Self { ordered: VecDeque::new(), unordered: BinaryHeap::new() }
    }

    /// Delivers the packet no earlier than the packet ahead of it.
    #[inline]
    pub(crate) fn push_in_order(&mut self, mut item: InFlight<P>) {
        if let Some(ahead) = self.ordered.back() {
            item.at = item.at.max(ahead.at);
        }
        self.ordered.push_back(item);
    }

    /// Delivers the packet at its own time, regardless of other packets.
    #[inline]
    pub(crate) fn push_free(&mut self, item: InFlight<P>) {
        match self.ordered.back() {
            Some(ahead) if ahead.at > item.at => self.unordered.push(ByDeliveryTime(item)),
            _ => self.ordered.push_back(item),
        }
    }

    /// Delivers the packet at its own time, and later packets do not wait for it.
    pub(crate) fn push_held_back(&mut self, item: InFlight<P>) {
        self.unordered.push(ByDeliveryTime(item));
    }

    #[inline]
    pub(crate) fn next(&self) -> Option<Time> {
        match (self.ordered.front(), self.unordered.peek()) {
            (Some(ordered), Some(unordered)) => Some(ordered.at.min(unordered.0.at)),
            (Some(ordered), None) => Some(ordered.at),
            (None, Some(unordered)) => Some(unordered.0.at),
            (None, None) => None,
        }
    }

    #[inline]
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<InFlight<P>> {
        let unordered_first = match (self.ordered.front(), self.unordered.peek()) {
            (Some(ordered), Some(unordered)) => {
                (unordered.0.at, unordered.0.sequence) < (ordered.at, ordered.sequence)
            }
            (None, Some(_)) => true,
            _ => false,
        };
        if unordered_first {
            let due = self.unordered.peek().is_some_and(|item| item.0.at <= now);
            return if due { self.unordered.pop().map(|item| item.0) } else { None };
        }
        let due = self.ordered.front().is_some_and(|item| item.at <= now);
        if due { self.ordered.pop_front() } else { None }
    }

    pub(crate) fn for_each(&self, see: &mut dyn FnMut(&P)) {
        self.ordered.iter().for_each(|item| see(&item.packet));
        self.unordered.iter().for_each(|item| see(&item.0.packet));
    }

    pub(crate) fn len(&self) -> usize {
        self.ordered.len() + self.unordered.len()
    }
}

/// A packet whose order is reversed, so that the heap, which pops the largest item, pops the
/// packet with the earliest delivery time.
#[derive(Debug)]
struct ByDeliveryTime<P>(InFlight<P>);

impl<P> Ord for ByDeliveryTime<P> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.0.at, other.0.sequence).cmp(&(self.0.at, self.0.sequence))
    }
}

impl<P> PartialOrd for ByDeliveryTime<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<P> PartialEq for ByDeliveryTime<P> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<P> Eq for ByDeliveryTime<P> {}
