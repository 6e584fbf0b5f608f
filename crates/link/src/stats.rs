use crate::histogram::{Occupancy, Sojourns};
use units::{Bytes, Time};

/// Counters and distributions of a link since its creation.
#[derive(Debug, Clone)]
pub struct LinkStats {
    /// Packets that arrived at the queue, including packets that the queue dropped.
    pub arrived: Count,
    /// Packets that the caller fetched, duplicates included.
    pub delivered: Count,
    /// Packets that the queue dropped or the medium lost.
    pub dropped: Drops,
    /// Copies that the link made. Each copy is delivered or in flight in addition to its original.
    pub duplicated: Count,
    /// Packets that departed with a flipped bit. The link delivers these packets like other
    /// packets.
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
    /// Creates empty statistics, for a queue without a link; a link keeps its own.
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
    /// Packets that a full queue dropped, or for which a queue that was made smaller had no room.
    pub overflow: Count,
    /// Packets that active queue management dropped: RED, CoDel, PIE.
    pub early: Count,
    /// Packets that the medium lost after serialisation.
    pub loss: Count,
}

impl Drops {
    /// Returns the drops of all causes together.
    pub fn total(&self) -> Count {
        self.overflow + self.early + self.loss
    }
}

/// Packets and their bytes, counted from the MAC addresses onwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Count {
    /// The number of packets.
    pub packets: u64,
    /// The sum of the sizes of the packets.
    pub bytes: Bytes,
}

impl Count {
    /// Counts another packet of `size`.
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

/// Accounts for every packet: each packet that entered the link was delivered, was dropped, or is
/// still in the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Balance {
    /// Packets that arrived, and copies that the link made.
    pub entered: Count,
    /// Packets that the caller fetched.
    pub delivered: Count,
    /// Packets that the queue dropped or the medium lost.
    pub dropped: Count,
    /// Packets in the queue, excluding the packet being serialised.
    pub queued: Count,
    /// Packets being serialised, propagating, or waiting for the caller to fetch them.
    pub in_flight: Count,
}

impl Balance {
    /// Whether the packets and bytes that entered equal the sum of the other counts.
    pub fn holds(&self) -> bool {
        self.entered == self.delivered + self.dropped + self.queued + self.in_flight
    }
}
