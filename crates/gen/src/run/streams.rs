use hdrhistogram::Histogram;
use units::{Span, Time};

use crate::traffic::Stamp;

/// The packets of one stream, by their sequence numbers.
#[derive(Debug, Clone)]
pub struct StreamCounts {
    pub stream: u16,
    pub sent: u64,
    /// Arrived packets, including duplicates. Packets that came back to the sending port are not
    /// included.
    pub received: u64,
    pub duplicates: u64,
    /// Packets that arrived after a packet with a higher sequence number.
    pub reordered: u64,
    /// Arrivals that come too late to be distinguished from duplicates. Such packets count as lost;
    /// otherwise, a device that repeats old packets would hide its losses.
    pub too_late: u64,
    /// Arrivals at the port that had sent the packet, if the generator has several ports. The
    /// device has not forwarded these packets, so they count as lost.
    pub returned: u64,
    /// Packets that arrived too late after the end of the run.
    pub late: u64,
    pub longest_gap: Span,
    /// The mean difference between consecutive transit times (RFC 3550 section 6.4.1).
    pub jitter: Span,
    /// Nanoseconds from the start of sending to the arrival at the receiving port.
    pub latency: Histogram<u64>,
    shortest: Span,
    window: Window,
    last_arrival: Option<Time>,
    last_transit: Option<u64>,
    jitter_nanos: f64,
}

impl StreamCounts {
    pub(crate) fn new(stream: u16) -> Self {
        Self {
            stream,
            sent: 0,
            received: 0,
            duplicates: 0,
            reordered: 0,
            too_late: 0,
            returned: 0,
            late: 0,
            longest_gap: Span::ZERO,
            shortest: Span::MAX,
            jitter: Span::ZERO,
            latency: new_histogram(),
            window: Window::default(),
            last_arrival: None,
            last_transit: None,
            jitter_nanos: 0.0,
        }
    }

    pub fn unique(&self) -> u64 {
        self.received.saturating_sub(self.duplicates).saturating_sub(self.too_late)
    }

    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.unique())
    }

    pub(super) fn take(&mut self, stamp: Stamp, arrival: Time, late: Option<(Time, Span)>) {
        if !self.is_plausible(stamp, arrival) {
            return;
        }
        self.received += 1;
        if let Some(last) = self.last_arrival.replace(arrival) {
            self.longest_gap = self.longest_gap.max(arrival.since(last));
        }
        match self.window.see(stamp.sequence) {
            Seen::Next => {}
            Seen::Earlier => self.reordered += 1,
            Seen::Again => {
                self.duplicates += 1;
                return;
            }
            Seen::TooLate => {
                self.too_late += 1;
                return;
            }
        }
        self.shortest = self.shortest.min(arrival.since(stamp.sent));
        if let Some((end, grace)) = late
            && arrival > end + self.shortest + grace
        {
            self.late += 1;
        }
        let transit = arrival.since(stamp.sent).nanos();
        self.latency.saturating_record(transit.max(1));
        if let Some(last) = self.last_transit.replace(transit) {
            self.jitter_nanos += (transit.abs_diff(last) as f64 - self.jitter_nanos) / 16.0;
            self.jitter = Span::from_nanos(self.jitter_nanos as u64);
        }
    }
}

impl StreamCounts {
    /// Returns false for a sequence number that the generator cannot have reached since the last
    /// arrival. Such a number comes from a corrupted stamp: one of 65,536 corrupted stamps passes
    /// the check. With such a number in the window, all later packets would count as too late.
    fn is_plausible(&self, stamp: Stamp, arrival: Time) -> bool {
        let Some(last) = self.last_arrival else { return true };
        let ahead = stamp.sequence.saturating_sub(self.window.next);
        ahead <= AT_ONCE.saturating_add(arrival.since(last).nanos() / NANOS_OF_A_PACKET)
    }
}

/// Returns a histogram for latencies of up to a minute, with three significant digits.
pub(crate) fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1_000, 60_000_000_000, 3)
        .unwrap_or_else(|_| unreachable!("the bounds are constants"))
}

/// A window of the most recent sequence numbers, as in RFC 6479.
#[derive(Debug, Clone, Default)]
struct Window {
    /// The highest number seen, plus one.
    next: u64,
    bits: Vec<u64>,
}

#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Next,
    Earlier,
    Again,
    TooLate,
}

impl Window {
    fn see(&mut self, sequence: u64) -> Seen {
        if self.bits.is_empty() {
            self.bits = vec![0; WORDS as usize];
        }
        if sequence >= self.next {
            let (first, last) = (self.next / 64, sequence / 64);
            // Clear the words that still hold the numbers of the previous window.
            let start = if self.next == 0 { first } else { (self.next - 1) / 64 + 1 };
            if last >= start {
                for word in start..=last.min(start + WORDS - 1) {
                    self.bits[(word % WORDS) as usize] = 0;
                }
                if last - start >= WORDS {
                    self.bits.fill(0);
                }
            }
            self.next = sequence + 1;
            self.mark(sequence);
            return Seen::Next;
        }
        // The oldest word of the window is being reused.
        if self.next - sequence > (WORDS - 1) * 64 {
            return Seen::TooLate;
        }
        if self.mark(sequence) { Seen::Again } else { Seen::Earlier }
    }

    /// Marks a number. Returns true if the number was already marked.
    fn mark(&mut self, sequence: u64) -> bool {
        let word = &mut self.bits[((sequence / 64) % WORDS) as usize];
        let bit = 1 << (sequence % 64);
        let before = *word & bit != 0;
        *word |= bit;
        before
    }
}

/// Maximum number of packets of a stream that are in flight at once. The next constant is the
/// minimum time between two packets.
const AT_ONCE: u64 = 1 << 26;
const NANOS_OF_A_PACKET: u64 = 5;
/// Number of words in the window. The words hold 262,144 numbers: a quarter of a second at a
/// million packets per second.
const WORDS: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn loss_reordering_and_duplicates_are_counted_separately() {
        let mut counts = StreamCounts::new(0);
        counts.sent = 6;
        for sequence in [0, 1, 3, 2, 2, 5] {
            let sent = Time::from_nanos(1_000_000);
            counts.take(Stamp { stream: 0, sequence, sent }, Time::from_nanos(1_050_000), None);
        }
        assert_eq!((counts.received, counts.unique(), counts.lost()), (6, 5, 1));
        assert_eq!((counts.duplicates, counts.reordered), (1, 1));
        assert_eq!(counts.longest_gap, Span::ZERO);
        let later = Stamp { stream: 0, sequence: 6, sent: Time::from_nanos(9_000_000) };
        counts.take(later, Time::from_nanos(9_050_000), None);
        assert_eq!(counts.longest_gap, Span::from_millis(8));
        assert_eq!(counts.latency.max() / 1000, 50);
    }

    fn take(counts: &mut StreamCounts, sequence: u64) {
        let (sent, arrival) = (Time::from_nanos(1_000_000), Time::from_nanos(1_050_000));
        counts.take(Stamp { stream: 0, sequence, sent }, arrival, None);
    }

    #[test]
    fn loss_is_counted_if_a_device_repeats_old_packets() {
        let mut counts = StreamCounts::new(0);
        counts.sent = 1_000_000;
        for sequence in (0..1_000_000).filter(|number| number % 2 == 0) {
            take(&mut counts, sequence);
        }
        for sequence in 0..500_000 {
            take(&mut counts, sequence % 4);
        }
        assert_eq!((counts.unique(), counts.lost()), (500_000, 500_000));
        assert_eq!((counts.received, counts.too_late), (1_000_000, 500_000));
    }

    #[test]
    fn a_corrupted_sequence_number_does_not_move_the_window() {
        let mut counts = StreamCounts::new(0);
        counts.sent = 4;
        for sequence in [0, 1, (1 << 48) - 1, 1 << 40, 2, 3] {
            take(&mut counts, sequence);
        }
        assert_eq!((counts.received, counts.unique(), counts.lost()), (4, 4, 0));
        assert_eq!(counts.reordered, 0);
    }

    proptest! {
        #[test]
        fn the_window_of_sequence_numbers_agrees_with_a_set(steps in prop::collection::vec((0u64..4, 0u64..70_000), 1..300)) {
            let (mut window, mut set, mut highest) = (Window::default(), HashSet::new(), None);
            let mut at = 0u64;
            for (kind, step) in steps {
                let sequence = match kind {
                    0 => { at += 1; at }
                    1 => { at += step; at }
                    2 => at.saturating_sub(step),
                    _ => at.saturating_sub(step % 5),
                };
                let expected = match highest {
                    Some(highest) if sequence <= highest => {
                        if highest + 1 - sequence > (WORDS - 1) * 64 {
                            Seen::TooLate
                        } else if set.contains(&sequence) { Seen::Again } else { Seen::Earlier }
                    }
                    _ => Seen::Next,
                };
                prop_assert_eq!(window.see(sequence), expected);
                highest = highest.max(Some(sequence));
                set.insert(sequence);
            }
        }
    }
}
