//! Events since the start, with their rates.

use std::collections::VecDeque;

use pipeline::Failure;

use super::switch::Switch;

/// The counters of Open vSwitch's `coverage/show` for the events that the switch also counts.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    /// The values of the counters of threads and bridges at the last reading. Commands may clear
    /// these counters.
    read: [u64; EVENTS.len()],
    totals: [u64; EVENTS.len()],
    /// The totals every few seconds of the last hour, the newest first.
    history: VecDeque<Sample>,
}

#[derive(Debug)]
struct Sample {
    seconds: u64,
    totals: [u64; EVENTS.len()],
}

/// A counter with its rates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Event {
    pub(super) name: &'static str,
    pub(super) total: u64,
    /// Events per second over the last five seconds, the last minute and the last hour.
    pub(super) rates: [f64; 3],
}

impl Coverage {
    /// Adds the events since the last call. `read`: the present counters of threads and bridges.
    fn count(&mut self, read: [u64; EVENTS.len()], seconds: u64) {
        let mut more = [0; EVENTS.len()];
        for ((more, former), now) in more.iter_mut().zip(&self.read).zip(read) {
            // A counter that is lower than before was cleared meanwhile.
            *more = if now >= *former { now - former } else { now };
        }
        self.read = read;
        // A packet that a limit dropped is not counted as dropped by the rules.
        let failed = more[FAILURES..].iter().sum();
        more[DROPPED] = more[DROPPED].saturating_sub(failed);
        self.totals.iter_mut().zip(more).for_each(|(total, more)| *total += more);
        let newest = self.history.front().map(|sample| sample.seconds);
        if newest.is_none_or(|newest| seconds >= newest + INTERVAL) {
            self.history.push_front(Sample { seconds, totals: self.totals });
            self.history.truncate(SAMPLES);
        }
    }

    /// Returns the counters, sorted by name.
    pub(super) fn events(&self, seconds: u64) -> Vec<Event> {
        let mut events: Vec<_> = EVENTS
            .iter()
            .enumerate()
            .map(|(index, name)| Event {
                name,
                total: self.totals[index],
                rates: WINDOWS.map(|window| self.rate(index, window, seconds)),
            })
            .collect();
        events.sort_by_key(|event| event.name);
        events
    }

    /// Returns the events per second since the last sample before a time window. As in Open
    /// vSwitch, the rate is per length of the window, even if the switch started within the window.
    fn rate(&self, index: usize, window: u64, seconds: u64) -> f64 {
        let start = seconds.checked_sub(window);
        let before = start.and_then(|start| self.history.iter().find(|s| s.seconds <= start));
        let (count, span) =
            before.map_or((0, window), |sample| (sample.totals[index], seconds - sample.seconds));
        (self.totals[index] - count) as f64 / span as f64
    }
}

impl Switch {
    /// Reads the counters of all threads and bridges for `coverage/show`.
    pub(super) fn count_events(&self) {
        let total = self.total_statistics();
        let packets = &total.datapath;
        let tracked = self.conntrack().statistics();
        let mut macs = [0; 5];
        let mut failed = [0; Failure::ALL.len()];
        for bridge in self.bridges() {
            self.credit(&bridge);
            for (sum, failure) in failed.iter_mut().zip(Failure::ALL) {
                *sum += bridge.tables().failed_packets(failure);
            }
            let counts = bridge.tables().mac_counts();
            let of =
                [counts.evicted, counts.expired, counts.learned, counts.moved, counts.not_moved];
            macs.iter_mut().zip(of).for_each(|(sum, count)| *sum += count);
        }
        let read = [
            tracked.full,
            tracked.zone_full,
            packets.dropped_by_meter,
            packets.dropped_by_depth,
            packets.dropped,
            macs[0],
            macs[1],
            macs[2],
            macs[3],
            macs[4],
            packets.batches,
            total.sent_batches,
            packets.upcalls,
            failed[0],
            failed[1],
            failed[2],
            failed[3],
            failed[4],
        ];
        let seconds = self.seconds();
        self.coverage_mut().count(read, seconds);
    }
}

/// The names of the counters, in the order of [`Switch::count_events`].
const EVENTS: [&str; 18] = [
    "conntrack_full",
    "conntrack_zone_full",
    "datapath_drop_meter",
    "datapath_drop_recirc_error",
    "drop_action_of_pipeline",
    "mac_learning_evicted",
    "mac_learning_expired",
    "mac_learning_learned",
    "mac_learning_moved",
    "mac_learning_static_none_move",
    "netdev_received",
    "netdev_sent",
    "xlate_actions",
    "drop_action_recursion_too_deep",
    "drop_action_too_many_resubmit",
    "drop_action_stack_too_deep",
    "drop_action_no_recirculation_context",
    "drop_action_too_many_mpls_labels",
];
/// The index of `drop_action_of_pipeline`, and of the first counter of drops by a limit.
const DROPPED: usize = 4;
const FAILURES: usize = 13;
/// Seconds between samples, and the number of samples in an hour.
const INTERVAL: u64 = 5;
const SAMPLES: usize = 721;
const WINDOWS: [u64; 3] = [INTERVAL, 60, 3600];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coverage_totals_continue_when_thread_counters_are_cleared() {
        let mut coverage = Coverage::default();
        let read = |count| [count; EVENTS.len()];
        coverage.count(read(100), 0);
        coverage.count(read(160), 3);
        coverage.count(read(20), 6);
        coverage.count(read(30), 8);
        let event = coverage.events(8)[0];
        assert_eq!((event.name, event.total), ("conntrack_full", 190));
        // The sample before the last five seconds was taken at the start.
        assert_eq!(event.rates, [90.0 / 8.0, 190.0 / 60.0, 190.0 / 3600.0]);
    }

    #[test]
    fn a_packet_dropped_by_a_limit_is_counted_once() {
        let mut coverage = Coverage::default();
        let mut read = [0; EVENTS.len()];
        (read[DROPPED], read[FAILURES]) = (5, 2);
        coverage.count(read, 0);
        let total = |name| {
            coverage.events(1).iter().find(|event| event.name == name).map(|event| event.total)
        };
        assert_eq!(total("drop_action_of_pipeline"), Some(3));
        assert_eq!(total("drop_action_recursion_too_deep"), Some(2));
    }

    #[test]
    fn the_history_of_coverage_counters_is_bounded() {
        let mut coverage = Coverage::default();
        (0..10_000).for_each(|seconds| coverage.count([seconds; EVENTS.len()], seconds));
        assert_eq!(coverage.history.len(), SAMPLES);
        assert_eq!(coverage.events(9_999)[0].rates, [1.0; 3]);
    }
}
