use crate::trace::Trace;
use crate::{LinkId, Node};
use link::{Count, Drops, Occupancy, Sojourns};
use units::{Bytes, Rate, Span, Time};

/// The results of a world.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The reason why the world ended.
    pub end: End,
    /// The time of the world's end.
    pub at: Time,
    /// The number of handled events.
    pub events: u64,
    /// Packets delivered by links: one for each link that a packet crosses.
    pub hops: u64,
    /// The tunnels, in the configured order.
    pub tunnels: Vec<TunnelOutcome>,
    /// The flows, in the given order.
    pub flows: Vec<FlowOutcome>,
    /// Every link that is more than a wire.
    pub links: Vec<LinkOutcome>,
    /// The counts that account for every packet.
    pub packets: PacketBalance,
    /// The counts of each flow when the measurement began; empty if the measurement never began.
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
    /// Payload sent again.
    pub retransmitted: Bytes,
}

/// The counters of a tunnel's client at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TunnelCount {
    /// UDP datagrams sent.
    pub packets: u64,
    /// UDP payload.
    pub sent: Bytes,
    /// Packets counted as lost, whose contents the tunnel has retransmitted.
    pub packets_lost: u64,
    /// Packets that arrived after later packets. The sender had counted most of these packets as
    /// lost.
    pub packets_late: u64,
    /// Bytes counted as lost, without lost bytes that were acknowledged later.
    pub lost: Bytes,
}

/// The results of a tunnel.
#[derive(Debug, Clone)]
pub struct TunnelOutcome {
    /// The node of the client.
    pub from: Node,
    /// The node of the server.
    pub to: Node,
    /// The flows that the tunnel carried.
    pub flows: Vec<usize>,
    /// The reason why the connection ended before its flows; `None` if the connection outlived its
    /// flows.
    pub lost: Option<String>,
    /// The counters of the whole time.
    pub total: TunnelCount,
    /// The counters of the measured time.
    pub measured: TunnelCount,
    /// Minimum round-trip time of the path; `None` without a sample.
    pub min_rtt: Option<Span>,
    /// Smoothed round-trip time at the end; `None` if the tunnel never began.
    pub smoothed_rtt: Option<Span>,
}

/// The reason why a world ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Every flow was done and no packet was in flight any more.
    Finished,
    /// The world's time ended, and no flow had to be done by then.
    TimeUp,
    /// The world's time ended before all flows were done.
    Unfinished {
        /// The number of flows that were not done.
        flows: usize,
    },
    /// The world had more events than allowed.
    EventBudget,
    /// No event was left, and this many flows were not done.
    Stalled {
        /// The number of flows that were not done.
        flows: usize,
    },
}

/// The counts of packets over all links, which account for every packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PacketBalance {
    /// Packets that ends of flows and tunnels sent.
    pub sent: u64,
    /// Copies of packets that links made.
    pub duplicated: u64,
    /// Packets that reached their destination.
    pub arrived: u64,
    /// Packets that queues and policers dropped or links lost.
    pub dropped: u64,
    /// Packets in links when the world ended.
    pub inside: u64,
    /// The damaged packets among the packets that arrived.
    pub corrupt: u64,
}

/// The results of a flow.
#[derive(Debug, Clone)]
pub struct FlowOutcome {
    /// The node of the sender.
    pub from: Node,
    /// The node of the receiver.
    pub to: Node,
    /// The rate of payload that reached the application in the measured time.
    pub goodput: Rate,
    /// All payload that reached the application.
    pub received: Bytes,
    /// The time from the start to the arrival of the last byte; `None` if the last byte did not
    /// arrive, or if the flow has no end.
    pub completion: Option<Span>,
    /// The time from the start until the sender could send data.
    pub connected: Option<Span>,
    /// Packets that the sender sent, without packets of the receiver.
    pub packets_sent: u64,
    /// Payload, retransmissions included.
    pub sent: Bytes,
    /// Payload sent again.
    pub retransmitted: Bytes,
    /// Retransmission timeouts, including spurious timeouts.
    pub timeouts: u32,
    /// Loss events that were not timeouts.
    pub recoveries: u32,
    /// Loss events that proved spurious.
    pub undone: u32,
    /// Tail loss probes sent.
    pub probes: u32,
    /// Data packets that carried a CAQM request.
    pub tagged: u64,
    /// Minimum round-trip time at the sender; `None` without a sample.
    pub min_rtt: Option<Span>,
    /// Smoothed round-trip time at the end (RFC 6298, SRTT); `None` without a sample.
    pub smoothed_rtt: Option<Span>,
    /// The algorithm's memory of the path for the next connection.
    pub noted: Option<cc::Memory>,
    /// The sender over time; `None` unless [`FlowSpec::traced`](crate::FlowSpec::traced) is set.
    pub trace: Option<Trace<FlowPoint>>,
}

/// A sender at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowPoint {
    /// The time of this observation.
    pub at: Time,
    /// Congestion window.
    pub window: Bytes,
    /// Data sent and neither acknowledged nor counted as lost.
    pub inflight: Bytes,
    /// Pacing rate; `None` if the sender does not pace.
    pub rate: Option<Rate>,
    /// The latest round-trip sample; `None` before the first sample.
    pub rtt: Option<Span>,
    /// Payload that the receiver has received so far.
    pub received: Bytes,
}

/// The results of a link.
#[derive(Debug, Clone)]
pub struct LinkOutcome {
    /// The link in its topology.
    pub id: LinkId,
    /// The link's name in its topology.
    pub name: String,
    /// Packets delivered, counted from the beginning.
    pub delivered: Count,
    /// Drops by cause, counted from the beginning. A policer's drops count as early.
    pub dropped: Drops,
    /// Packets that the queue marked "congestion experienced", counted from the beginning.
    pub marked: Count,
    /// The rate that the link carried in the measured time.
    pub throughput: Rate,
    /// The queue's size over the measured time.
    pub occupancy: Occupancy,
    /// The queueing delay of packets that left the queue in the measured time.
    pub sojourns: Sojourns,
    /// Drops in the measured time.
    pub dropped_measured: u64,
    /// The queue over time; `None` unless [`WorldConfig::traced`](crate::WorldConfig::traced) names
    /// the link.
    pub trace: Option<Trace<QueuePoint>>,
}

/// A link's queue at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuePoint {
    /// The time of this observation.
    pub at: Time,
    /// Bytes in the queue, excluding the packet being serialised.
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
            // arrived in the measured time.
            lost: Bytes::new(self.lost.count().saturating_sub(before.lost.count())),
        }
    }
}

impl PacketBalance {
    /// Whether every packet that was sent or duplicated has arrived, was dropped or is in a link.
    pub fn holds(&self) -> bool {
        self.sent + self.duplicated == self.arrived + self.dropped + self.inside
    }
}

impl Outcome {
    /// Returns Jain's index of the flows' goodput: 1 if all flows have equal goodput, 1/n if a
    /// single one of n flows has goodput.
    pub fn jain(&self) -> f64 {
        let rates: Vec<f64> = self.flows.iter().map(|f| f.goodput.mbit_per_second()).collect();
        jain(&rates)
    }

    /// Returns the counts of a flow in the measured time.
    pub fn measured(&self, flow: usize) -> FlowCount {
        let before = self.before.get(flow).copied().unwrap_or_default();
        self.flows.get(flow).map_or_else(FlowCount::default, |flow| FlowCount {
            received: flow.received - before.received,
            sent: flow.sent - before.sent,
            retransmitted: flow.retransmitted - before.retransmitted,
        })
    }

    /// Returns the maximum of the link's queue in the opening.
    pub fn opening_peak(&self, id: LinkId) -> Option<Bytes> {
        self.opening_peaks.iter().find(|(link, _)| *link == id).map(|(_, peak)| *peak)
    }

    /// Returns the results of a link; `None` for a wire.
    pub fn link(&self, id: LinkId) -> Option<&LinkOutcome> {
        self.links.iter().find(|link| link.id == id)
    }

    /// Returns a hash of all results: equal for equal worlds, on any thread.
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

/// Returns Jain's index, (Σx)² / (n Σx²) (Jain, Chiu, Hawe 1984); 1 if all rates are zero.
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
