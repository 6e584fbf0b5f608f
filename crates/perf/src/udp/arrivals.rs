use super::{Counter, Header};
use crate::event::Datagrams;
use units::Span;

/// Counts the datagrams of one stream exactly, as long as none arrives more than [`WINDOW`] numbers
/// late. One bit per number remembers what has arrived, which distinguishes a reordered datagram
/// from a duplicate. A datagram that arrives later stays counted as lost ([`Self::too_late`]).
///
/// A datagram's number decides whether it is omitted: after [`Self::reset`], numbers up to the
/// highest number until then belong to the omitted datagrams, whenever they arrive.
#[derive(Debug)]
pub struct Arrivals {
    counter: Counter,
    /// The highest number so far. The first datagram is number 1.
    highest: u64,
    /// The highest omitted number.
    boundary: u64,
    omitted: Count,
    current: Count,
    /// One bit for each of the last [`WINDOW`] numbers.
    came: Box<[u64]>,
    /// A datagram far ahead of all others, until a second one confirms it.
    leap: Option<Arrival>,
    jitter: Jitter,
    too_late: u64,
    foreign: u64,
}

/// One datagram as it arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// `None` if it is too short to have a header.
    pub header: Option<Header>,
    /// Length of the whole datagram.
    pub bytes: u64,
    /// Time of arrival on any clock that does not jump.
    pub nanos: i64,
}

/// How late a datagram may arrive and still be distinguished from a duplicate: 1.5 s at 1 Gbit/s in
/// datagrams of 1448 bytes, in 16 KiB of memory.
pub const WINDOW: u64 = 1 << 17;

/// Largest leap that a second datagram can confirm: no path loses this many datagrams in a row, 40
/// s at 100 million datagrams a second. Otherwise two wrong numbers could count more datagrams as
/// lost than were ever sent.
const FARTHEST: u64 = 1 << 32;

#[derive(Debug, Clone, Copy, Default)]
struct Count {
    received: u64,
    reordered: u64,
    duplicates: u64,
    bytes: u64,
}

/// Interarrival jitter: RFC 3550, section 6.4.1 and appendix A.8.
#[derive(Debug, Clone, Copy, Default)]
struct Jitter {
    transit: Option<i64>,
    nanos: f64,
}

impl Arrivals {
    pub fn new(wide: bool) -> Self {
        Self {
            counter: Counter::of(wide),
            highest: 0,
            boundary: 0,
            omitted: Count::default(),
            current: Count::default(),
            came: vec![0; (WINDOW / 64) as usize].into_boxed_slice(),
            leap: None,
            jitter: Jitter::default(),
            too_late: 0,
            foreign: 0,
        }
    }

    /// Takes datagrams in the order in which they arrived.
    pub fn take(&mut self, batch: &[Arrival]) {
        for arrival in batch {
            self.arrived(*arrival);
        }
    }

    /// Ends the omitted time: later numbers belong to a new count.
    pub fn reset(&mut self) {
        self.omitted = Count {
            received: self.omitted.received + self.current.received,
            reordered: self.omitted.reordered + self.current.reordered,
            duplicates: self.omitted.duplicates + self.current.duplicates,
            bytes: self.omitted.bytes + self.current.bytes,
        };
        self.current = Count::default();
        self.boundary = self.highest;
        self.jitter = Jitter::default();
    }

    pub fn datagrams(&self) -> Datagrams {
        let jitter = Span::from_nanos(self.jitter.nanos as u64);
        Datagrams { jitter, ..self.current.datagrams(self.highest - self.boundary) }
    }

    /// Bytes of different datagrams.
    pub fn bytes(&self) -> u64 {
        self.current.bytes
    }

    pub fn omitted(&self) -> Datagrams {
        self.omitted.datagrams(self.boundary)
    }

    pub fn omitted_bytes(&self) -> u64 {
        self.omitted.bytes
    }

    /// Datagrams too late to tell them from duplicates; counted as lost.
    pub fn too_late(&self) -> u64 {
        self.too_late
    }

    /// Datagrams without a header, or with a number far from every other datagram's.
    pub fn foreign(&self) -> u64 {
        self.foreign + u64::from(self.leap.is_some())
    }

    fn arrived(&mut self, arrival: Arrival) {
        let Some(header) = arrival.header else {
            self.foreign += 1;
            return;
        };
        let Some(number) = self.full_number(header.number) else {
            self.too_late += 1;
            return;
        };
        if number.saturating_sub(self.highest) > FARTHEST {
            self.foreign += 1;
            return;
        }
        if number > self.highest
            && number - self.highest > WINDOW
            && !self.is_confirmed(number, arrival)
        {
            return;
        }
        self.numbered(number, header, arrival);
    }

    /// Accepts a number far ahead only when the next number far ahead is near it (as in RFC 3550,
    /// appendix A.1). A single wrong number would otherwise count all numbers up to it as lost.
    fn is_confirmed(&mut self, number: u64, arrival: Arrival) -> bool {
        let earlier = self.leap.replace(arrival);
        let Some((earlier, header)) =
            earlier.and_then(|leap| leap.header.map(|header| (leap, header)))
        else {
            return false;
        };
        match self.full_number(header.number) {
            Some(leapt) if leapt.abs_diff(number) < WINDOW => {
                self.leap = None;
                self.numbered(leapt, header, earlier);
                true
            }
            _ => {
                self.foreign += 1;
                false
            }
        }
    }

    fn numbered(&mut self, number: u64, header: Header, arrival: Arrival) {
        let ahead = number > self.highest;
        if ahead {
            self.advance(number);
        } else if self.highest - number >= WINDOW {
            self.too_late += 1;
            return;
        }
        let count = if number > self.boundary { &mut self.current } else { &mut self.omitted };
        let (word, bit) = place(number);
        if self.came[word] & bit != 0 {
            count.duplicates += 1;
            return;
        }
        self.came[word] |= bit;
        count.received += 1;
        count.reordered += u64::from(!ahead);
        count.bytes += arrival.bytes;
        self.jitter.take(header.sent_nanos(), arrival.nanos);
    }

    /// Extends a narrow number to the value nearest to the highest number. `None` if that value
    /// lies before the first.
    fn full_number(&self, number: u64) -> Option<u64> {
        let full = match self.counter {
            Counter::Wide => number,
            Counter::Narrow => {
                let ahead = (number as u32).wrapping_sub(self.highest as u32) as i32;
                self.highest.checked_add_signed(ahead.into())?
            }
        };
        (full > 0).then_some(full)
    }

    /// Clears the bits between the highest number so far and a new one.
    fn advance(&mut self, to: u64) {
        if to - self.highest >= WINDOW {
            self.came.fill(0);
        } else {
            let mut next = self.highest + 1;
            while next <= to {
                if next.is_multiple_of(64) && to - next >= 64 {
                    self.came[place(next).0] = 0;
                    next += 64;
                    continue;
                }
                let (word, bit) = place(next);
                self.came[word] &= !bit;
                if next == to {
                    break;
                }
                next += 1;
            }
        }
        self.highest = to;
    }
}

impl Count {
    fn datagrams(&self, count: u64) -> Datagrams {
        Datagrams {
            count,
            received: self.received,
            lost: count - self.received.min(count),
            reordered: self.reordered,
            duplicates: self.duplicates,
            jitter: Span::ZERO,
        }
    }
}

impl Jitter {
    fn take(&mut self, sent: i64, arrived: i64) {
        // Wraps only on times that no clock shows; differences of wrapped values stay correct.
        let transit = arrived.wrapping_sub(sent);
        if let Some(before) = self.transit.replace(transit) {
            let difference = transit.wrapping_sub(before).unsigned_abs() as f64;
            self.nanos += (difference - self.nanos) / 16.0;
        }
    }
}

fn place(number: u64) -> (usize, u64) {
    ((number % WINDOW / 64) as usize, 1 << (number % 64))
}

#[cfg(test)]
mod tests;
