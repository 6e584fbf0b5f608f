//! The event queue: a hierarchical timing wheel (Varghese and Lauck 1987) to the nanosecond.
//!
//! Each level has 64 slots, and each slot spans the whole level below. Events due at the same time
//! come out in the order of insertion: a slot is a queue, and the wheel empties a slot into the
//! level below before new events can go there directly. So events need no sequence number.

use units::Time;

#[derive(Debug)]
pub(crate) struct Wheel<E> {
    now: u64,
    len: usize,
    /// For each level, the slots in use.
    occupied: [u64; LEVELS],
    slots: Box<[Vec<Entry<E>>]>,
    /// The events due at `now`, and how many of them were taken.
    due: Vec<Entry<E>>,
    taken: usize,
}

#[derive(Debug, Clone, Copy)]
struct Entry<E> {
    at: u64,
    event: E,
}

impl<E: Copy> Wheel<E> {
    pub(crate) fn new() -> Self {
        Self {
            now: 0,
            len: 0,
            occupied: [0; LEVELS],
            slots: (0..LEVELS * SLOTS).map(|_| Vec::new()).collect(),
            due: Vec::new(),
            taken: 0,
        }
    }

    /// Inserts an event. A time in the past counts as the present time.
    #[inline]
    pub(crate) fn push(&mut self, at: Time, event: E) {
        let at = at.nanos().max(self.now);
        self.len += 1;
        self.place(Entry { at, event });
    }

    /// Removes the earliest event; of several, the first inserted.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(Time, E)> {
        if self.taken == self.due.len() && !self.refill() {
            return None;
        }
        let entry = self.due[self.taken];
        self.taken += 1;
        self.len -= 1;
        Some((Time::from_nanos(entry.at), entry.event))
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn place(&mut self, entry: Entry<E>) {
        let differs = entry.at ^ self.now;
        if differs == 0 {
            self.due.push(entry);
            return;
        }
        let level = (63 - differs.leading_zeros()) as usize / BITS;
        let slot = (entry.at >> (level * BITS)) as usize & (SLOTS - 1);
        self.occupied[level] |= 1 << slot;
        self.slots[level * SLOTS + slot].push(entry);
    }

    /// Advances to the next time with an event.
    fn refill(&mut self) -> bool {
        self.due.clear();
        self.taken = 0;
        if self.len == 0 {
            return false;
        }
        while self.due.is_empty() {
            let Some(level) = self.occupied.iter().position(|slots| *slots != 0) else {
                return false;
            };
            let slot = self.occupied[level].trailing_zeros() as usize;
            self.occupied[level] &= !(1 << slot);
            let index = level * SLOTS + slot;
            if level == 0 {
                self.now = self.now & !(SLOTS as u64 - 1) | slot as u64;
                std::mem::swap(&mut self.due, &mut self.slots[index]);
                return true;
            }
            let mut entries = std::mem::take(&mut self.slots[index]);
            // Move the clock to the earliest entry, so that the entries cascade through few levels.
            // A single entry is the next event, because the levels below are empty.
            self.now = entries.iter().map(|entry| entry.at).min().unwrap_or(self.now);
            for entry in entries.drain(..) {
                self.place(entry);
            }
            self.slots[index] = entries;
        }
        true
    }
}

const BITS: usize = 6;
const SLOTS: usize = 1 << BITS;
const LEVELS: usize = 64usize.div_ceil(BITS);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    proptest! {
        /// Compares the wheel with a heap of (time, sequence).
        #[test]
        fn the_wheel_returns_events_in_order_of_time_and_insertion(
            steps in prop::collection::vec((0u8..4, any::<u64>(), 0u32..64), 1..400),
        ) {
            let mut wheel = Wheel::new();
            let mut heap = BinaryHeap::new();
            let mut now = 0u64;
            for (sequence, (pops, delta, shift)) in steps.into_iter().enumerate() {
                let at = now.saturating_add(delta >> shift);
                wheel.push(Time::from_nanos(at), sequence);
                heap.push(Reverse((at, sequence)));
                for _ in 0..pops / 2 {
                    let expected = heap.pop().map(|Reverse((at, s))| (Time::from_nanos(at), s));
                    let found = wheel.pop();
                    prop_assert_eq!(found, expected);
                    now = found.map_or(now, |(at, _)| at.nanos());
                }
                prop_assert_eq!(wheel.len(), heap.len());
            }
            while let Some(Reverse((at, sequence))) = heap.pop() {
                prop_assert_eq!(wheel.pop(), Some((Time::from_nanos(at), sequence)));
            }
            prop_assert_eq!(wheel.pop(), None);
        }
    }

    #[test]
    fn an_event_in_the_past_is_due_now() {
        let mut wheel = Wheel::new();
        wheel.push(Time::from_nanos(100), 'a');
        assert_eq!(wheel.pop(), Some((Time::from_nanos(100), 'a')));
        wheel.push(Time::from_nanos(7), 'b');
        wheel.push(Time::NEVER, 'c');
        assert_eq!(wheel.pop(), Some((Time::from_nanos(100), 'b')));
        assert_eq!(wheel.pop(), Some((Time::NEVER, 'c')));
    }
}
