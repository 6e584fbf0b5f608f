//! The interface between the pipeline and the datapath: the pipeline translates the first packet of
//! a megaflow to steps, and the datapath repeats the steps for each later packet.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Key;
use crate::action::Nat;

/// A port of the datapath: its index in the switch, not its OpenFlow number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortIndex(pub u16);

impl PortIndex {
    /// The index of patch ports, which the datapath does not have.
    pub const NONE: Self = Self(u16::MAX);
}

/// A meter, with the index of its bridge in the switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MeterId {
    pub bridge: u16,
    pub meter: u32,
}

impl From<u32> for MeterId {
    /// Returns the id of a meter of the first bridge.
    fn from(meter: u32) -> Self {
        Self { bridge: 0, meter }
    }
}

/// An operation of the datapath on a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Output(PortIndex),
    /// Changes header fields. Steps such as `PushVlan` add or remove headers.
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
    /// Parses the packet and looks it up again with this `recirc_id`. Always the last step.
    Recirculate(u32),
    Meter(MeterId),
    /// Sets the egress queue that later outputs use.
    SetPriority(u32),
    /// Truncates the packet for the next output only.
    Truncate(u32),
    /// Runs these steps on a copy of the packet.
    Clone(Arc<[Step]>),
    /// Runs steps on a copy of the packet, depending on its length.
    CheckLength(Box<LengthCheck>),
    Controller(Box<ControllerStep>),
}

/// Whether a step sets the packet's queue.
#[must_use]
pub fn sets_priority(steps: &[Step]) -> bool {
    steps.iter().any(|step| match step {
        Step::SetPriority(_) => true,
        Step::Clone(nested) => sets_priority(nested),
        Step::CheckLength(check) => check.branches().any(|branch| sets_priority(&branch.steps)),
        _ => false,
    })
}

/// Runs one branch for packets larger than `length`, and another branch for all other packets. The
/// key does not include the length, so only megaflows with this step check the length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LengthCheck {
    pub length: u16,
    pub larger: Branch,
    pub others: Branch,
}

/// The steps of one branch of a length check, and the counters that count only the packets of this
/// branch.
#[derive(Debug, Clone)]
pub struct Branch {
    pub steps: Arc<[Step]>,
    pub counters: Vec<Arc<Counters>>,
}

impl LengthCheck {
    /// Returns the two branches, in the order in which their steps are numbered.
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

/// Sets header fields: the bits of `mask` become those of `value`. `value` and `mask` have a key's
/// layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewrite {
    pub value: Key,
    pub mask: Key,
}

/// A hash by which groups of type select spread connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PacketHash {
    /// Whether both directions of a connection have the same hash.
    pub is_symmetric: bool,
    pub basis: u32,
}

/// Connection tracking of a packet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Track {
    pub zone: u16,
    pub commit: bool,
    pub force: bool,
    /// The new value of ct_mark, and the mask of the bits that change.
    pub mark: Option<(u32, u32)>,
    pub label: Option<(u128, u128)>,
    pub nat: Option<Nat>,
    pub alg: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerStep {
    /// The index of the bridge whose controllers get the packet, if the packet reached that bridge
    /// through a patch port.
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
    /// Whether the connection-tracking fields are taken from the packet instead of from `metadata`.
    pub is_tracked: bool,
    /// The number of the state in which the packet waits until the controller resumes it.
    pub continuation: Option<u32>,
    /// The meter that limits these packet-ins.
    pub meter: Option<MeterId>,
}

/// The counters of a rule, group or table, to which megaflows add their packets.
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

/// The translation of a packet by the pipeline.
#[derive(Debug, Clone)]
pub struct Translation {
    /// The bits of the key on which the translation depends.
    pub mask: Key,
    pub steps: Arc<[Step]>,
    /// All counters that count this packet.
    pub counters: Vec<Arc<Counters>>,
    /// Whether later packets may use the translation. False, for example, if the packet met a learn
    /// action, which must run for each packet.
    pub is_cacheable: bool,
}

/// The interface to the pipeline, which translates packets without a megaflow.
pub trait Translate {
    /// Translates a packet. `key.recirc_id` says where in the pipeline the packet continues.
    fn translate(&mut self, key: &Key, frame: &[u8], now_ms: u64) -> Translation;

    /// Returns the generation of the tables, which changes whenever earlier translations may be
    /// outdated.
    fn generation(&self) -> u64;
}
