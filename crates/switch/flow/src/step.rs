//! The agreement between the pipeline and the datapath: the pipeline translates the first packet
//! of a megaflow to steps, and the datapath repeats them for each later packet.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Key;
use crate::action::Nat;

/// A port of the datapath: its index in the switch, not its OpenFlow number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortIndex(pub u16);

impl PortIndex {
    /// The index of ports that the datapath does not have: patch ports.
    pub const NONE: Self = Self(u16::MAX);
}

/// A meter, and the place in the switch of the bridge that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MeterId {
    pub bridge: u16,
    pub meter: u32,
}

impl From<u32> for MeterId {
    /// A meter of the first bridge.
    fn from(meter: u32) -> Self {
        Self { bridge: 0, meter }
    }
}

/// One thing that the datapath does with a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Output(PortIndex),
    /// Changes of header fields; `PushVlan` and its like change the structure.
    Rewrite(Box<Rewrite>),
    PushVlan {
        tpid: u16,
        tci: u16,
    },
    PopVlan,
    PushMpls {
        ethertype: u16,
        entry: u32,
    },
    PopMpls {
        ethertype: u16,
    },
    Track(Box<Track>),
    ClearTracking,
    /// Stores a hash of the packet in its `dp_hash`.
    Hash(PacketHash),
    /// The packet is parsed and looked up again with this `recirc_id`; always the last step.
    Recirculate(u32),
    Meter(MeterId),
    /// Sets the queue of later outputs. It is for texts alone: no port has several queues.
    SetPriority(u32),
    /// Cuts the packet for the next output alone.
    Truncate(u32),
    /// Steps on a copy of the packet.
    Clone(Arc<[Step]>),
    /// Steps on a copy of the packet that depend on its length.
    CheckLength(Box<LengthCheck>),
    Controller(Box<ControllerStep>),
}

/// Whether one of the steps sets the packet's queue.
#[must_use]
pub fn sets_priority(steps: &[Step]) -> bool {
    steps.iter().any(|step| match step {
        Step::SetPriority(_) => true,
        Step::Clone(nested) => sets_priority(nested),
        Step::CheckLength(check) => check.branches().any(|branch| sets_priority(&branch.steps)),
        _ => false,
    })
}

/// The steps of packets that are larger than a length, and of the others. Only the megaflows of
/// packets whose length is checked have one, and other packets do not pay for it: the length is no
/// part of the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LengthCheck {
    pub length: u16,
    pub larger: Branch,
    pub others: Branch,
}

/// The steps of some of a megaflow's packets, and what counts these alone.
#[derive(Debug, Clone)]
pub struct Branch {
    pub steps: Arc<[Step]>,
    pub counters: Vec<Arc<Counters>>,
}

impl LengthCheck {
    /// The branches in the order in which steps are numbered.
    #[inline]
    pub fn branches(&self) -> impl Iterator<Item = &Branch> {
        [&self.larger, &self.others].into_iter()
    }

    #[inline]
    #[must_use]
    pub fn branch(&self, length: usize) -> &Branch {
        if length > usize::from(self.length) { &self.larger } else { &self.others }
    }
}

impl PartialEq for Branch {
    fn eq(&self, other: &Self) -> bool {
        let (ours, theirs) = (&self.counters, &other.counters);
        self.steps == other.steps
            && ours.len() == theirs.len()
            && ours.iter().zip(theirs).all(|(one, other)| Arc::ptr_eq(one, other))
    }
}

impl Eq for Branch {}

/// Header fields to set: the bits of `mask` become those of `value`. The layout is a key's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewrite {
    pub value: Key,
    pub mask: Key,
}

/// A hash by which groups of the type select spread connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PacketHash {
    /// Both directions of a connection have the same hash.
    pub is_symmetric: bool,
    pub basis: u32,
}

/// Connection tracking of a packet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Track {
    pub zone: u16,
    pub commit: bool,
    pub force: bool,
    /// Value and mask.
    pub mark: Option<(u32, u32)>,
    pub label: Option<(u128, u128)>,
    pub nat: Option<Nat>,
    pub alg: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerStep {
    /// The place of the bridge whose controllers get the packet, if a patch port has brought the
    /// packet there.
    pub bridge: Option<u16>,
    pub max_len: u16,
    pub controller: u16,
    /// OpenFlow's reason of a packet-in: 0 no match, 1 action, 2 invalid TTL, 3 action set,
    /// 4 group, 5 packet-out; and 6 for the action of a table-miss rule.
    pub reason: u8,
    pub table: u8,
    pub cookie: u64,
    pub userdata: Vec<u8>,
    /// The metadata fields of the packet at this point, and the Ethernet type if it is tracked.
    pub metadata: Key,
    /// The results of tracking are those of the packet, not of `metadata`.
    pub is_tracked: bool,
    /// The state in which the packet waits until the controller lets it continue.
    pub continuation: Option<u32>,
    /// The meter that limits these packets.
    pub meter: Option<MeterId>,
}

/// The counters of a rule, group or table, to which megaflows add.
#[derive(Debug, Default)]
pub struct Counters {
    pub packets: AtomicU64,
    pub bytes: AtomicU64,
    /// Milliseconds of the switch's clock at the last packet.
    pub used: AtomicU64,
}

impl Counters {
    #[inline]
    pub fn add(&self, packets: u64, bytes: u64, used: u64) {
        self.packets.fetch_add(packets, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.used.fetch_max(used, Ordering::Relaxed);
    }
}

/// The result of a packet's way through the pipeline.
#[derive(Debug, Clone)]
pub struct Translation {
    /// The bits of the key that the result depends on.
    pub mask: Key,
    pub steps: Arc<[Step]>,
    /// All that count this packet.
    pub counters: Vec<Arc<Counters>>,
    /// `false` if the next packet has to be translated too: a learn action that must run, for
    /// example.
    pub is_cacheable: bool,
}

/// The slow path, as the datapath sees it.
pub trait Translate {
    /// Translates a packet. `key.recirc_id` says where in the pipeline it continues.
    fn translate(&mut self, key: &Key, frame: &[u8], now_ms: u64) -> Translation;

    /// A number that changes whenever an earlier translation may be wrong.
    fn generation(&self) -> u64;
}
