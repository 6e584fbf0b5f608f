use crate::trace::Trace;
use crate::{LinkId, Node};
use link::{Count, Drops, Occupancy, Sojourns};
use units::{Bytes, Rate, Span, Time};

/// The results of a world.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub end: End,
    /// The time of the world's end.
    pub at: Time,
    /// The number of handled events.
    pub events: u64,
    /// Packets delivered by links: one for each link that a packet crosses.
    pub hops: u64,
    /// The tunnels, in the configured order.
    pub tunnels: Vec<TunnelOutcome>,
    pub flows: Vec<FlowOutcome>,
    /// Every link that is more than a wire.
    pub links: Vec<LinkOutcome>,
    pub packets: PacketBalance,
    /// The counts of each flow when the measurement began; empty if it never began.
    pub before: Vec<FlowCount>,
    /// The maximum of each link's queue in the opening.
    pub opening_peaks: Vec<(LinkId, Bytes)>,
}

/// The counts of a flow at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlowCount {
    /// Payload that reached the application.
    pub received: Bytes,
    /// Payload, retransmissions included.
    pub sent: Bytes,
    pub retransmitted: Bytes,
}

/// The counters of a tunnel's client at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TunnelCount {
    pub packets: u64,
    /// UDP payload.
    pub sent: Bytes,
    /// Packets counted as lost, whose contents the tunnel has retransmitted.
    pub packets_lost: u64,
    /// Packets that arrived after later packets. The sender had counted most of them as lost.
    pub packets_late: u64,
    /// Bytes counted as lost, less those acknowledged later.
    pub lost: Bytes,
}

#[derive(Debug, Clone)]
pub struct TunnelOutcome {
    pub from: Node,
    pub to: Node,
    /// The flows that it carried.
    pub flows: Vec<usize>,
    /// Why the connection ended before its flows.
    pub lost: Option<String>,
    pub total: TunnelCount,
    /// The counters of the measured time.
    pub measured: TunnelCount,
    pub min_rtt: Option<Span>,
    pub smoothed_rtt: Option<Span>,
}

/// The reason why a world ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Every flow was done and no packet was in flight any more.
    Finished,
    /// The world's time ended, and no flow had to be done by then.
    TimeUp,
    /// The world's time ended, and this many flows should have been done.
    Unfinished { flows: usize },
    /// The world had more events than allowed.
    EventBudget,
    /// No event was left, and this many flows were not done.
    Stalled { flows: usize },
}

/// The counts of packets over all links, which account for every packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PacketBalance {
    pub sent: u64,
    /// Packets that links made.
    pub duplicated: u64,
    /// Packets that reached their destination.
    pub arrived: u64,
    pub dropped: u64,
    pub inside: u64,
    /// The damaged packets among those that arrived.
    pub corrupt: u64,
}

#[derive(Debug, Clone)]
pub struct FlowOutcome {
    pub from: Node,
    pub to: Node,
    /// The rate of payload that reached the application in the measured time.
    pub goodput: Rate,
    /// All payload that reached the application.
    pub received: Bytes,
    /// The time from the start to the arrival of the last byte; `None` if it did not arrive, or if
    /// the flow has no end.
    pub completion: Option<Span>,
    /// The time from the start until the sender could send data.
    pub connected: Option<Span>,
    pub packets_sent: u64,
    /// Payload, retransmissions included.
    pub sent: Bytes,
    pub retransmitted: Bytes,
    pub timeouts: u32,
    /// Loss events that were not timeouts.
    pub recoveries: u32,
    /// Loss events that proved spurious.
    pub undone: u32,
    pub probes: u32,
    /// Data packets that carried a CAQM request.
    pub tagged: u64,
    pub min_rtt: Option<Span>,
    pub smoothed_rtt: Option<Span>,
    /// The algorithm's memory of the path for the next connection.
    pub noted: Option<cc::Memory>,
    pub trace: Option<Trace<FlowPoint>>,
}

/// A sender at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowPoint {
    pub at: Time,
    pub window: Bytes,
    pub inflight: Bytes,
    pub rate: Option<Rate>,
    pub rtt: Option<Span>,
    pub received: Bytes,
}

#[derive(Debug, Clone)]
pub struct LinkOutcome {
    pub id: LinkId,
    pub name: String,
    /// Counted from the beginning.
    pub delivered: Count,
    pub dropped: Drops,
    pub marked: Count,
    /// The rate that the link carried in the measured time.
    pub throughput: Rate,
    pub occupancy: Occupancy,
    pub sojourns: Sojourns,
    /// Drops in the measured time.
    pub dropped_measured: u64,
    pub trace: Option<Trace<QueuePoint>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuePoint {
    pub at: Time,
    pub queued: Bytes,
}

impl std::ops::Sub for TunnelCount {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            packets: self.packets - before.packets,
            sent: self.sent - before.sent,
            packets_lost: self.packets_lost - before.packets_lost,
            packets_late: self.packets_late.saturating_sub(before.packets_late),
            // Subtract with saturation: packets counted as lost before the measured time may have
            // arrived in it.
            lost: Bytes::new(self.lost.count().saturating_sub(before.lost.count())),
        }
    }
}

impl PacketBalance {
    pub fn holds(&self) -> bool {
        self.sent + self.duplicated == self.arrived + self.dropped + self.inside
    }
}

impl Outcome {
    /// Jain's index of the flows' goodput: 1 if all flows have the same, 1/n if one flow has all.
    pub fn jain(&self) -> f64 {
        let rates: Vec<f64> = self.flows.iter().map(|f| f.goodput.mbit_per_second()).collect();
        jain(&rates)
    }

    /// The counts of a flow in the measured time.
    pub fn measured(&self, flow: usize) -> FlowCount {
        let before = self.before.get(flow).copied().unwrap_or_default();
        self.flows.get(flow).map_or_else(FlowCount::default, |flow| FlowCount {
            received: flow.received - before.received,
            sent: flow.sent - before.sent,
            retransmitted: flow.retransmitted - before.retransmitted,
        })
    }

    /// The maximum of the link's queue in the opening.
    pub fn opening_peak(&self, id: LinkId) -> Option<Bytes> {
        self.opening_peaks.iter().find(|(link, _)| *link == id).map(|(_, peak)| *peak)
    }

    pub fn link(&self, id: LinkId) -> Option<&LinkOutcome> {
        self.links.iter().find(|link| link.id == id)
    }

    /// A hash of all results: equal for equal worlds, on any thread.
    pub fn hash(&self) -> u64 {
        let mut hash = Hash(0x5851_f42d_4c95_7f2d);
        hash.take(self.at.nanos());
        hash.take(self.events);
        hash.take(self.hops);
        let balance = &self.packets;
        for count in [balance.sent, balance.duplicated, balance.arrived, balance.dropped] {
            hash.take(count);
        }
        for flow in &self.flows {
            hash.take(flow.received.count());
            hash.take(flow.goodput.bits_per_second());
            hash.take(flow.completion.map_or(u64::MAX, Span::nanos));
            hash.take(flow.sent.count());
            hash.take(flow.retransmitted.count());
            hash.take(u64::from(flow.timeouts) << 32 | u64::from(flow.recoveries));
            hash.take(flow.smoothed_rtt.map_or(u64::MAX, Span::nanos));
            for point in flow.trace.iter().flat_map(Trace::points) {
                hash.take(point.at.nanos());
                hash.take(point.window.count());
                hash.take(point.inflight.count());
            }
        }
        for tunnel in &self.tunnels {
            hash.take(tunnel.total.packets);
            hash.take(tunnel.total.sent.count());
            hash.take(tunnel.total.packets_lost);
            hash.take(tunnel.smoothed_rtt.map_or(u64::MAX, Span::nanos));
        }
        for link in &self.links {
            hash.take(link.delivered.bytes.count());
            hash.take(link.dropped.total().packets);
            hash.take(link.marked.packets);
            hash.take(link.sojourns.mean().nanos());
            hash.take(link.occupancy.max().count());
        }
        hash.0
    }
}

/// Jain's index, (Σx)² / (n Σx²) (Jain, Chiu, Hawe 1984); 1 if all rates are zero.
pub fn jain(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    if squares == 0.0 { 1.0 } else { sum * sum / (rates.len() as f64 * squares) }
}

struct Hash(u64);

impl Hash {
    fn take(&mut self, word: u64) {
        self.0 = link::mix(self.0.rotate_left(5) ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
    }
}
