use std::sync::atomic::{AtomicU64, Ordering};

use units::Span;

use super::Job;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LaneCounts {
    pub name: String,
    pub sent: u64,
    pub sent_bytes: u64,
    /// Frames that the port refused, or for which the port had no room until the end of the run.
    pub send_errors: u64,
    /// Sent frames for which the device's ring had no room. These frames count as lost by the
    /// device.
    pub ring_full: u64,
    /// Arrived frames, except housekeeping frames such as ARP.
    pub received: u64,
    pub received_bytes: u64,
    /// Arrived frames that are neither IP nor housekeeping.
    pub receive_errors: u64,
    /// Frames that this machine dropped before the port could fetch them.
    pub sink_drops: u64,
    /// Number of times that the port may have been full: the device may then have lost frames
    /// because of this machine.
    pub sink_full: u64,
    pub arp_sent: u64,
    pub arp_received: u64,
    /// Frames of ARP and neighbour discovery, and multicast frames of other hosts.
    pub housekeeping: u64,
}

#[derive(Debug, Clone)]
pub struct Snapshot {
    pub elapsed: Span,
    pub duration: Span,
    pub lanes: Vec<LaneCounts>,
    pub opened: u64,
    pub active: u64,
    pub busy: Span,
}

/// Counts that several threads change.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) lanes: Vec<LiveLane>,
    pub(super) opened: AtomicU64,
    pub(super) active: AtomicU64,
    pub(super) busy: AtomicU64,
}

#[derive(Debug, Default)]
pub(super) struct LiveLane {
    pub(super) sent: AtomicU64,
    pub(super) sent_bytes: AtomicU64,
    pub(super) send_errors: AtomicU64,
    pub(super) ring_full: AtomicU64,
    pub(super) received: AtomicU64,
    pub(super) received_bytes: AtomicU64,
    pub(super) receive_errors: AtomicU64,
    pub(super) sink_drops: AtomicU64,
    pub(super) sink_full: AtomicU64,
    pub(super) arp_sent: AtomicU64,
    pub(super) arp_received: AtomicU64,
    pub(super) housekeeping: AtomicU64,
}

impl Live {
    pub(super) fn new(lanes: usize) -> Self {
        Self {
            lanes: (0..lanes).map(|_| LiveLane::default()).collect(),
            opened: AtomicU64::new(0),
            active: AtomicU64::new(0),
            busy: AtomicU64::new(0),
        }
    }

    pub(super) fn counts(&self, lane: usize, name: &str) -> LaneCounts {
        let lane = &self.lanes[lane];
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LaneCounts {
            name: name.to_owned(),
            sent: of(&lane.sent),
            sent_bytes: of(&lane.sent_bytes),
            send_errors: of(&lane.send_errors),
            ring_full: of(&lane.ring_full),
            received: of(&lane.received),
            received_bytes: of(&lane.received_bytes),
            receive_errors: of(&lane.receive_errors),
            sink_drops: of(&lane.sink_drops),
            sink_full: of(&lane.sink_full),
            arp_sent: of(&lane.arp_sent),
            arp_received: of(&lane.arp_received),
            housekeeping: of(&lane.housekeeping),
        }
    }

    pub(super) fn snapshot(&self, elapsed: Span, job: &Job) -> Snapshot {
        Snapshot {
            elapsed,
            duration: job.duration,
            lanes: (0..self.lanes.len()).map(|lane| self.counts(lane, "")).collect(),
            opened: self.opened.load(Ordering::Relaxed),
            active: self.active.load(Ordering::Relaxed),
            busy: Span::from_nanos(self.busy.load(Ordering::Relaxed)),
        }
    }
}

pub(super) fn add(counter: &AtomicU64, count: u64) {
    if count > 0 {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}
