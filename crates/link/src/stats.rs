use crate::histogram::{Occupancy, Sojourns};
use units::{Bytes, Time};

/// Counters and distributions of a link since its creation.
#[derive(Debug, Clone)]
pub struct LinkStats {
    pub arrived: Count,
    pub delivered: Count,
    pub dropped: Drops,
    /// Copies made. Each copy is delivered or in flight in addition to its original.
    pub duplicated: Count,
    pub corrupted: Count,
    /// Packets delivered after a packet that had departed later (RFC 4737, section 3).
    pub reordered: Count,
    /// Packets marked "congestion experienced" by the queue.
    pub marked: Count,
    /// The queue's size over time, excluding the packet being serialised.
    pub occupancy: Occupancy,
    /// The queueing delay of packets that left the queue.
    pub sojourns: Sojourns,
}

impl LinkStats {
    /// Empty statistics. A link keeps its own; a queue used without a link needs one.
    pub fn new(start: Time) -> Self {
        Self {
            arrived: Count::default(),
            delivered: Count::default(),
            dropped: Drops::default(),
            duplicated: Count::default(),
            corrupted: Count::default(),
            reordered: Count::default(),
            marked: Count::default(),
            occupancy: Occupancy::new(start),
            sojourns: Sojourns::default(),
        }
    }
}

/// Packets that were not delivered, by cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Drops {
    /// The queue was full, or was made smaller while it held them.
    pub overflow: Count,
    /// The queue's active management dropped them: RED, CoDel, PIE.
    pub early: Count,
    /// Lost by the medium after serialisation.
    pub loss: Count,
}

impl Drops {
    pub fn total(&self) -> Count {
        self.overflow + self.early + self.loss
    }
}

/// Packets and their bytes, counted from the MAC addresses onwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Count {
    pub packets: u64,
    pub bytes: Bytes,
}

impl Count {
    #[inline]
    pub fn add(&mut self, size: Bytes) {
        self.packets += 1;
        self.bytes += size;
    }

    #[inline]
    pub(crate) fn remove(&mut self, size: Bytes) {
        self.packets -= 1;
        self.bytes -= size;
    }
}

impl std::ops::Add for Count {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { packets: self.packets + other.packets, bytes: self.bytes + other.bytes }
    }
}

/// Accounts for every packet: each one that entered was delivered, dropped, or is still inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Balance {
    /// Arrived or duplicated.
    pub entered: Count,
    pub delivered: Count,
    pub dropped: Count,
    pub queued: Count,
    /// Being serialised, propagating, or waiting to be fetched.
    pub in_flight: Count,
}

impl Balance {
    pub fn holds(&self) -> bool {
        self.entered == self.delivered + self.dropped + self.queued + self.in_flight
    }
}
