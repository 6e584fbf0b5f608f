use std::time::Duration;

use crate::port_number::PortNumber;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortDescription {
    pub number: PortNumber,
    pub hardware_address: [u8; 6],
    pub name: String,
    /// OFPPC_*: port down, no receive, no flood, no forward, no packet-in.
    pub config: u32,
    /// OFPPS_* of OpenFlow 1.1 and later: link down, blocked, live.
    pub state: u32,
    pub current_speed_kbit: u32,
    pub max_speed_kbit: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortMod {
    pub number: PortNumber,
    pub hardware_address: [u8; 6],
    pub config: u32,
    pub mask: u32,
}

/// The counters of a port; `None` for a counter that the port does not have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortStatistics {
    pub number: u32,
    pub received_packets: u64,
    pub received_bytes: u64,
    pub received_dropped: Option<u64>,
    pub received_errors: Option<u64>,
    pub sent_packets: u64,
    pub sent_bytes: u64,
    pub sent_dropped: Option<u64>,
    pub sent_errors: Option<u64>,
    pub frame_errors: Option<u64>,
    pub overruns: Option<u64>,
    pub crc_errors: Option<u64>,
    pub collisions: Option<u64>,
    /// Whether frames leave at a limited rate, through a queue.
    pub has_rate: bool,
    /// The egress queues. A port without configured queues has the queue 0 alone, whose counters
    /// are the counters of the port.
    pub queues: Vec<QueueStatistics>,
    pub duration: Duration,
}

/// The counters of an egress queue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueStatistics {
    pub queue: u32,
    pub sent_packets: u64,
    pub sent_bytes: u64,
    pub dropped: u64,
    pub duration: Duration,
}
