use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A port's counters since it was opened.
///
/// Several packet threads may send to a port, and receive from different queues of a port. Each
/// thread adds to its own part of the counters, so that no two threads write to the same cache
/// line. A reader sums the parts.
#[derive(Debug, Default)]
pub(super) struct PortCounts {
    parts: Box<[Part; PARTS]>,
}

/// The counters of some threads. A part fills two cache lines, because x86 fetches cache lines in
/// pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Part {
    received_packets: AtomicU64,
    received_bytes: AtomicU64,
    sent_packets: AtomicU64,
    sent_bytes: AtomicU64,
    sent_dropped: AtomicU64,
    policed: AtomicU64,
}

/// The sums over all threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PortTotals {
    pub(super) received_packets: u64,
    pub(super) received_bytes: u64,
    pub(super) sent_packets: u64,
    pub(super) sent_bytes: u64,
    pub(super) sent_dropped: u64,
    /// Received frames beyond the limits of the port's policing.
    pub(super) policed: u64,
}

impl PortCounts {
    pub(super) fn add_received(&self, packets: u64, bytes: u64) {
        let part = self.part();
        part.received_packets.fetch_add(packets, Ordering::Relaxed);
        part.received_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn add_sent(&self, packets: u64, bytes: u64) {
        let part = self.part();
        part.sent_packets.fetch_add(packets, Ordering::Relaxed);
        part.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn add_dropped(&self, packets: u64) {
        self.part().sent_dropped.fetch_add(packets, Ordering::Relaxed);
    }

    pub(super) fn add_policed(&self, frames: u64) {
        self.part().policed.fetch_add(frames, Ordering::Relaxed);
    }

    /// Sums the parts. No counter decreases between two calls.
    pub(super) fn totals(&self) -> PortTotals {
        let sum = |counter: fn(&Part) -> &AtomicU64| -> u64 {
            self.parts.iter().map(|part| counter(part).load(Ordering::Relaxed)).sum()
        };
        PortTotals {
            received_packets: sum(|part| &part.received_packets),
            received_bytes: sum(|part| &part.received_bytes),
            sent_packets: sum(|part| &part.sent_packets),
            sent_bytes: sum(|part| &part.sent_bytes),
            sent_dropped: sum(|part| &part.sent_dropped),
            policed: sum(|part| &part.policed),
        }
    }

    fn part(&self) -> &Part {
        &self.parts[NUMBER.with(|number| *number) % PARTS]
    }
}

thread_local! {
    /// The threads that count frames have consecutive numbers. Even if two threads share a part,
    /// the counts are correct, because the counters are atomic.
    static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed);
}

static NEXT: AtomicUsize = AtomicUsize::new(0);
const PARTS: usize = 16;
const _: () = assert!(size_of::<Part>() == 128);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_totals_of_a_port_have_the_counts_of_all_threads() {
        let counts = PortCounts::default();
        std::thread::scope(|scope| {
            for thread in 0..2 * PARTS as u64 {
                let counts = &counts;
                scope.spawn(move || {
                    for _ in 0..100 {
                        counts.add_received(1, 60);
                        counts.add_sent(2, thread);
                        counts.add_dropped(3);
                        counts.add_policed(4);
                    }
                });
            }
        });
        let threads = 2 * PARTS as u64;
        let wanted = PortTotals {
            received_packets: 100 * threads,
            received_bytes: 6_000 * threads,
            sent_packets: 200 * threads,
            sent_bytes: 100 * (0..threads).sum::<u64>(),
            sent_dropped: 300 * threads,
            policed: 400 * threads,
        };
        assert_eq!(counts.totals(), wanted);
    }
}
