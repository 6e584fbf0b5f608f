use super::{Counter, Header};
use crate::event::Datagrams;
use units::Span;

/// Counts the datagrams of a stream by their sequence numbers. The counts are exact unless a
/// datagram arrives more than [`WINDOW`] numbers late. A bit per number records the arrivals, which
/// distinguishes a reordered datagram from a duplicate. A datagram that arrives later than the
/// window stays counted as lost ([`Self::too_late`]).
///
/// A datagram's number decides whether it is omitted. After [`Self::reset`], the numbers up to the
/// highest number so far belong to omitted datagrams, whenever these arrive.
#[derive(Debug)]
pub struct Arrivals {
    counter: Counter,
    /// The highest number so far. The first datagram is number 1.
    highest: u64,
    /// The highest omitted number.
    boundary: u64,
    omitted: Count,
    current: Count,
    /// A bit for each of the last [`WINDOW`] numbers.
    came: Box<[u64]>,
    /// A datagram with a number far ahead, until a second datagram confirms it.
    leap: Option<Arrival>,
    jitter: Jitter,
    too_late: u64,
    foreign: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// `None` if the datagram is too short for a header.
    pub header: Option<Header>,
    /// Length of the whole datagram.
    pub bytes: u64,
    /// Time of arrival in nanoseconds, on any clock that does not jump.
    pub nanos: i64,
}

/// Size of the window of sequence numbers in which a late datagram is distinguished from a
/// duplicate: 1.5 s at 1 Gbit/s in datagrams of 1448 bytes. The window takes 16 KiB of memory.
pub const WINDOW: u64 = 1 << 17;

/// Maximum leap of the sequence number that a second datagram can confirm: 40 s at 100 million
/// datagrams a second. No path loses so long a row of datagrams. Without this bound, two wrong
/// numbers could count more datagrams as lost than were ever sent.
const FARTHEST: u64 = 1 << 32;

#[derive(Debug, Clone, Copy, Default)]
struct Count {
    received: u64,
    reordered: u64,
    duplicates: u64,
    bytes: u64,
}

/// Interarrival jitter (RFC 3550, section 6.4.1 and appendix A.8).
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

    /// Counts datagrams, given in the order of their arrival.
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

    /// Returns the bytes of all distinct datagrams.
    pub fn bytes(&self) -> u64 {
        self.current.bytes
    }

    pub fn omitted(&self) -> Datagrams {
        self.omitted.datagrams(self.boundary)
    }

    pub fn omitted_bytes(&self) -> u64 {
        self.omitted.bytes
    }

    /// Returns the number of datagrams that were too late to be distinguished from duplicates.
    /// These datagrams count as lost.
    pub fn too_late(&self) -> u64 {
        self.too_late
    }

    /// Returns the number of datagrams without a header, or with a number far from all others.
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

    /// Accepts a number far ahead only if the next number far ahead is close to it (as in RFC 3550,
    /// appendix A.1). Otherwise a single wrong number would count all numbers below it as lost.
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

    /// Extends a 32-bit number to the value closest to the highest number so far. `None` if this
    /// value would be below the first number.
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

    /// Clears the bits between the highest number so far and the new number.
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
        // Wraps only for absurd times; differences of wrapped values stay correct.
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
