use std::ops::{Add, Sub};

/// A port's counters. The counters count frames after segmentation, as on a wire.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortCounters {
    pub received_frames: u64,
    pub received_bytes: u64,
    /// The number of super-packets. `segments` counts the frames into which super-packets were cut.
    pub super_packets: u64,
    pub segments: u64,
    /// Single frames whose partial checksum the port completed. Checksums of segments are not
    /// counted.
    pub checksums_completed: u64,
    /// VLAN tags put back into frames.
    pub tags_inserted: u64,
    /// Packets that the kernel dropped because this port did not fetch them in time
    /// (`PACKET_STATISTICS`; for TAP the device's `tx_dropped`).
    pub kernel_drops: u64,
    /// Packets that the interface dropped before they reached the port (`rx_dropped`), such as
    /// packets beyond `net.core.netdev_max_backlog`.
    pub backlog_drops: u64,
    /// Packets that the kernel truncated, and that the port dropped for that reason.
    pub truncated: u64,
    /// Super-packets dropped because this port cannot segment their type.
    pub unsegmentable: u64,

    pub sent_frames: u64,
    pub sent_bytes: u64,
    /// Frames for which the kernel had no space even after repeated attempts: the transmit queue or
    /// the backlog of a veth peer was full.
    pub dropped_queue_full: u64,
    /// Frames longer than the interface's MTU.
    pub dropped_too_long: u64,
    /// Frames that the kernel refused for another reason, for example because a frame is shorter
    /// than a MAC header.
    pub dropped_refused: u64,
    /// Repeated attempts to send because the kernel had no space. Usually such a frame is not lost.
    pub send_retries: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SendReport {
    pub sent: usize,
    pub dropped: usize,
}

impl PortCounters {
    /// Frames that this port itself lost, in both directions; zero on a valid link.
    pub fn drops(&self) -> u64 {
        self.kernel_drops
            + self.backlog_drops
            + self.truncated
            + self.unsegmentable
            + self.dropped_queue_full
            + self.dropped_too_long
            + self.dropped_refused
    }

    fn zip(self, other: Self, with: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            received_frames: with(self.received_frames, other.received_frames),
            received_bytes: with(self.received_bytes, other.received_bytes),
            super_packets: with(self.super_packets, other.super_packets),
            segments: with(self.segments, other.segments),
            checksums_completed: with(self.checksums_completed, other.checksums_completed),
            tags_inserted: with(self.tags_inserted, other.tags_inserted),
            kernel_drops: with(self.kernel_drops, other.kernel_drops),
            backlog_drops: with(self.backlog_drops, other.backlog_drops),
            truncated: with(self.truncated, other.truncated),
            unsegmentable: with(self.unsegmentable, other.unsegmentable),
            sent_frames: with(self.sent_frames, other.sent_frames),
            sent_bytes: with(self.sent_bytes, other.sent_bytes),
            dropped_queue_full: with(self.dropped_queue_full, other.dropped_queue_full),
            dropped_too_long: with(self.dropped_too_long, other.dropped_too_long),
            dropped_refused: with(self.dropped_refused, other.dropped_refused),
            send_retries: with(self.send_retries, other.send_retries),
        }
    }
}

impl Add for PortCounters {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        self.zip(other, u64::saturating_add)
    }
}

impl Sub for PortCounters {
    type Output = Self;
    fn sub(self, earlier: Self) -> Self {
        self.zip(earlier, u64::saturating_sub)
    }
}
