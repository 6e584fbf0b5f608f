//! Packets in flight, in the order of delivery times.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use units::{Bytes, Time};

#[derive(Debug)]
pub(crate) struct Airborne<P> {
    pub(crate) at: Time,
    /// The departure order. It breaks ties and shows which packets were overtaken.
    pub(crate) sequence: u64,
    pub(crate) arrived: Time,
    pub(crate) size: Bytes,
    pub(crate) packet: P,
}

/// Most packets keep their order and need only a queue. Only packets that overtake, or are
/// overtaken, need a heap.
#[derive(Debug)]
pub(crate) struct Flight<P> {
    line: VecDeque<Airborne<P>>,
    astray: BinaryHeap<Astray<P>>,
}

impl<P> Flight<P> {
    pub(crate) fn new() -> Self {
        Self { line: VecDeque::new(), astray: BinaryHeap::new() }
    }

    /// Delivers the packet no earlier than the packet ahead of it.
    #[inline]
    pub(crate) fn push_in_order(&mut self, mut item: Airborne<P>) {
        if let Some(ahead) = self.line.back() {
            item.at = item.at.max(ahead.at);
        }
        self.line.push_back(item);
    }

    /// Delivers the packet at its own time, regardless of the others.
    #[inline]
    pub(crate) fn push_free(&mut self, item: Airborne<P>) {
        match self.line.back() {
            Some(ahead) if ahead.at > item.at => self.astray.push(Astray(item)),
            _ => self.line.push_back(item),
        }
    }

    /// Delivers the packet at its own time, and later packets do not wait for it.
    pub(crate) fn push_held_back(&mut self, item: Airborne<P>) {
        self.astray.push(Astray(item));
    }

    #[inline]
    pub(crate) fn next(&self) -> Option<Time> {
        match (self.line.front(), self.astray.peek()) {
            (Some(line), Some(astray)) => Some(line.at.min(astray.0.at)),
            (Some(line), None) => Some(line.at),
            (None, Some(astray)) => Some(astray.0.at),
            (None, None) => None,
        }
    }

    #[inline]
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<Airborne<P>> {
        let astray_first = match (self.line.front(), self.astray.peek()) {
            (Some(line), Some(astray)) => {
                (astray.0.at, astray.0.sequence) < (line.at, line.sequence)
            }
            (None, Some(_)) => true,
            _ => false,
        };
        if astray_first {
            let due = self.astray.peek().is_some_and(|item| item.0.at <= now);
            return if due { self.astray.pop().map(|item| item.0) } else { None };
        }
        let due = self.line.front().is_some_and(|item| item.at <= now);
        if due { self.line.pop_front() } else { None }
    }

    pub(crate) fn for_each(&self, see: &mut dyn FnMut(&P)) {
        self.line.iter().for_each(|item| see(&item.packet));
        self.astray.iter().for_each(|item| see(&item.0.packet));
    }

    pub(crate) fn len(&self) -> usize {
        self.line.len() + self.astray.len()
    }
}

/// Reversed order: the heap pops the largest item, which is the earliest.
#[derive(Debug)]
struct Astray<P>(Airborne<P>);

impl<P> Ord for Astray<P> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.0.at, other.0.sequence).cmp(&(self.0.at, self.0.sequence))
    }
}

impl<P> PartialOrd for Astray<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<P> PartialEq for Astray<P> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<P> Eq for Astray<P> {}
