use crate::queue::backlog::Backlog;
use crate::queue::codel::{Control, INTERVAL, Law, TARGET, validate_times};
use crate::queue::limit::limit_of;
use crate::queue::{Discipline, Limit, Queued};
use crate::random::Stream;
use crate::text::{Term, terms};
use crate::{LinkError, LinkStats, Packet};
use std::collections::VecDeque;
use units::{Bytes, Rate, Span, Time};

/// Serves flow queues in turn, new flows first, each under CoDel (RFC 8290).
#[derive(Debug)]
pub struct FqCoDel<P> {
    config: FqCoDelConfig,
    flows: Vec<Flow<P>>,
    /// Flows that have not used their first quantum; `old` has the other flows (section 4.2).
    new: VecDeque<u32>,
    old: VecDeque<u32>,
    packets: usize,
    bytes: Bytes,
    /// The salt that makes hash collisions differ between links (section 8).
    salt: u64,
}

/// Written `fq_codel:limit=10240p,target=5ms,interval=100ms,flows=1024,quantum=1514B`, with `ecn`
/// as a flag.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FqCoDelConfig {
    /// The limit for all flows together.
    pub limit: Limit,
    /// The standing queueing delay that CoDel accepts in each flow's queue; 5 ms by default.
    pub target: Span,
    /// The time for which a flow's waits must exceed the target before its first drop; 100 ms by
    /// default.
    pub interval: Span,
    /// The number of flow queues. Flows whose hashes fall on the same queue share the queue.
    pub flows: u32,
    /// The bytes that a flow may send in one turn of the round robin.
    pub quantum: Bytes,
    /// Whether to mark ECN-capable packets instead of dropping them.
    pub ecn: bool,
}

impl FqCoDelConfig {
    pub(super) const EXAMPLES: &[&str] = &["fq_codel:limit=10240p,ecn"];

    /// Checks the limit, CoDel's times, the number of flows and the quantum (64 B to 1 GiB).
    pub fn validate(&self) -> Result<(), LinkError> {
        self.limit.validate("fq_codel's limit")?;
        validate_times("fq_codel", self.target, self.interval)?;
        if !(1..=MOST_FLOWS).contains(&self.flows) {
            return Err(LinkError::invalid(
                "fq_codel's flows",
                format!("must be from 1 to {MOST_FLOWS}: the usual number is 1024"),
            ));
        }
        if !(LEAST_QUANTUM..=MOST_QUANTUM).contains(&self.quantum.count()) {
            return Err(LinkError::invalid(
                "fq_codel's quantum",
                "must be from 64B to 1GiB: the usual one is a full frame, 1514B",
            ));
        }
        Ok(())
    }

    pub(super) fn parse(text: &str) -> Result<Self, LinkError> {
        let mut config = Self::default();
        for term in terms(text) {
            match term {
                Term::Pair("target", value) => config.target = value.parse()?,
                Term::Pair("interval", value) => config.interval = value.parse()?,
                Term::Pair("quantum", value) => config.quantum = value.parse()?,
                Term::Pair("flows", value) => {
                    config.flows = value.parse().map_err(|_| {
                        LinkError::invalid(
                            "fq_codel's flows",
                            format!("is a number from 1 to {MOST_FLOWS}, not `{value}`"),
                        )
                    })?;
                }
                Term::Word("ecn") => config.ecn = true,
                other => config.limit = limit_of(other, "fq_codel", &SETTINGS)?,
            }
        }
        Ok(config)
    }
}

impl Default for FqCoDelConfig {
    fn default() -> Self {
        Self {
            limit: Limit::Packets(10_240),
            target: TARGET,
            interval: INTERVAL,
            flows: 1024,
            quantum: Bytes::new(1514),
            ecn: false,
        }
    }
}

impl std::fmt::Display for FqCoDelConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { limit, target, interval, flows, quantum, ecn } = self;
        let ecn = if *ecn { ",ecn" } else { "" };
        write!(
            f,
            "limit={limit},target={target},interval={interval},flows={flows},quantum={quantum}{ecn}"
        )
    }
}

impl<P: Packet> Discipline<P> for FqCoDel<P> {
    type Config = FqCoDelConfig;

    fn new(config: &FqCoDelConfig, _pace: Option<Rate>, seed: u64) -> Self {
        Self {
            config: *config,
            flows: (0..config.flows).map(|_| Flow::new()).collect(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            packets: 0,
            bytes: Bytes::ZERO,
            salt: Stream::new(seed, "fq_codel").bits(),
        }
    }

    fn retune(&mut self, config: &FqCoDelConfig, _pace: Option<Rate>) {
        if self.config.flows != config.flows {
            self.flows = (0..config.flows).map(|_| Flow::new()).collect();
        }
        self.config = *config;
    }

    fn enqueue(&mut self, _now: Time, item: Queued<P>, stats: &mut LinkStats) {
        self.admit(item, stats);
    }

    fn admit(&mut self, item: Queued<P>, stats: &mut LinkStats) {
        // Do not empty the queue for a packet that is too large even for the empty queue.
        if !self.config.limit.has_room(0, Bytes::ZERO, item.size) {
            stats.dropped.overflow.add(item.size);
            return;
        }
        let index = self.bucket(item.packet.flow());
        let flow = &mut self.flows[index as usize];
        self.packets += 1;
        self.bytes += item.size;
        flow.backlog.push(item);
        if !flow.listed {
            flow.listed = true;
            flow.deficit = self.config.quantum.count() as i64;
            self.new.push_back(index);
        }
        while self.too_full() {
            self.drop_from_the_fattest(stats);
        }
    }

    /// Removes the next packet by deficit round robin, new flows first (section 4.2).
    fn dequeue(&mut self, now: Time, stats: &mut LinkStats) -> Option<Queued<P>> {
        let law = Law {
            target: self.config.target,
            interval: self.config.interval,
            ecn: self.config.ecn,
        };
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let index = *list.front()?;
            let flow = &mut self.flows[index as usize];
            if flow.deficit <= 0 {
                flow.deficit += self.config.quantum.count() as i64;
                list.pop_front();
                self.old.push_back(index);
                continue;
            }
            let (packets, bytes) = (flow.backlog.packets(), flow.backlog.bytes());
            let item = flow.control.dequeue(law, now, &mut flow.backlog, stats);
            self.packets -= packets - flow.backlog.packets();
            self.bytes -= bytes - flow.backlog.bytes();
            if let Some(item) = item {
                flow.deficit -= item.size.count().min(MOST_QUANTUM) as i64;
                return Some(item);
            }
            // Move an empty new flow to the old flows for one turn. Otherwise a flow that sends one
            // packet per turn would starve the old flows.
            list.pop_front();
            if is_new && !self.old.is_empty() {
                self.old.push_back(index);
            } else {
                flow.listed = false;
            }
        }
    }

    fn packets(&self) -> usize {
        self.packets
    }

    fn bytes(&self) -> Bytes {
        self.bytes
    }

    fn for_each(&self, see: &mut dyn FnMut(&P)) {
        self.flows.iter().for_each(|flow| flow.backlog.for_each(see));
    }

    fn take_all(&mut self) -> Vec<Queued<P>> {
        let mut all = Vec::with_capacity(self.packets);
        for flow in &mut self.flows {
            all.append(&mut flow.backlog.take_all());
            flow.listed = false;
        }
        all.sort_by_key(|item| item.arrived);
        self.new.clear();
        self.old.clear();
        (self.packets, self.bytes) = (0, Bytes::ZERO);
        all
    }
}

#[derive(Debug)]
struct Flow<P> {
    backlog: Backlog<P>,
    control: Control,
    /// Bytes the flow may still send in this turn.
    deficit: i64,
    listed: bool,
}

impl<P> Flow<P> {
    fn new() -> Self {
        Self { backlog: Backlog::new(), control: Control::default(), deficit: 0, listed: false }
    }
}

impl<P: Packet> FqCoDel<P> {
    fn bucket(&self, flow: u64) -> u32 {
        let hash = crate::random::mix(flow ^ self.salt);
        // Take the high half of the product, which distributes as evenly as a remainder and needs
        // no division.
        ((u128::from(hash) * u128::from(self.config.flows)) >> 64) as u32
    }

    fn too_full(&self) -> bool {
        match self.config.limit {
            Limit::Bytes(limit) => self.bytes > limit,
            Limit::Packets(limit) => self.packets as u64 > limit,
        }
    }

    /// Drops packets from the head of the flow with the largest backlog (section 4.1). Drops half
    /// of its backlog at once, at most 64 packets, so that the search stays rare under attack
    /// (fq_codel_drop in the kernel's net/sched/sch_fq_codel.c).
    fn drop_from_the_fattest(&mut self, stats: &mut LinkStats) {
        let fattest = self.new.iter().chain(&self.old).max_by_key(|index| {
            let backlog = &self.flows[**index as usize].backlog;
            (backlog.bytes(), backlog.packets())
        });
        let Some(index) = fattest else { return };
        let flow = &mut self.flows[*index as usize];
        let half = Bytes::new(flow.backlog.bytes().count() / 2);
        let (mut packets, mut bytes) = (0, Bytes::ZERO);
        while packets < MOST_DROPS {
            let Some(item) = flow.backlog.pop_head() else {
                break;
            };
            packets += 1;
            bytes += item.size;
            stats.dropped.overflow.add(item.size);
            if bytes >= half {
                break;
            }
        }
        self.packets -= packets;
        self.bytes -= bytes;
    }
}

const MOST_DROPS: usize = 64;
const MOST_FLOWS: u32 = 65_536;
/// The minimum quantum in bytes. With a smaller quantum, a large frame would wait for thousands
/// of turns.
const LEAST_QUANTUM: u64 = 64;
const MOST_QUANTUM: u64 = 1 << 30;
const SETTINGS: [&str; 6] = ["limit=", "target=", "interval=", "flows=", "quantum=", "ecn"];
