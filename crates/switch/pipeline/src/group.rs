use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use flow::action::Action;
use flow::port_number::PortNumber;
use flow::request::{
    Bucket, BucketStatistics, GroupCommand, GroupEntry, GroupMod, GroupStatistics, GroupType,
    Refusal,
};
use flow::step::Counters;

use super::ports::{BridgePort, Ports};
use super::slots::Slots;

/// A group with its counters.
#[derive(Debug, Clone)]
pub struct Group {
    pub entry: GroupEntry,
    pub counters: Arc<Counters>,
    /// The counters of the buckets, in the order of the buckets.
    pub bucket_counters: Vec<Arc<Counters>>,
    pub created_ms: u64,
    /// The slots of a group that chooses its buckets by the datapath's hash of the packet.
    pub(super) slots: Option<Slots>,
}

impl Group {
    fn new(change: &GroupMod, created_ms: u64) -> Self {
        let entry = GroupEntry {
            group: change.group,
            kind: change.kind,
            buckets: change.buckets.clone(),
            selection: change.selection.clone(),
        };
        let bucket_counters = entry.buckets.iter().map(|_| Arc::default()).collect();
        let slots = Slots::new(&entry);
        Self { entry, counters: Arc::default(), bucket_counters, created_ms, slots }
    }

    #[must_use]
    pub fn statistics(&self, references: u32, now_ms: u64) -> GroupStatistics {
        let read = |counters: &Counters| BucketStatistics {
            packets: counters.packets.load(Ordering::Relaxed),
            bytes: counters.bytes.load(Ordering::Relaxed),
        };
        let total = read(&self.counters);
        GroupStatistics {
            group: self.entry.group,
            references,
            packets: total.packets,
            bytes: total.bytes,
            duration: Duration::from_millis(now_ms.saturating_sub(self.created_ms)),
            buckets: self.bucket_counters.iter().map(|counters| read(counters)).collect(),
        }
    }
}

/// The groups of a bridge.
#[derive(Debug, Clone, Default)]
pub(super) struct Groups {
    by_id: BTreeMap<u32, Group>,
}

impl Groups {
    pub(super) fn group(&self, id: u32) -> Option<&Group> {
        self.by_id.get(&id)
    }

    /// Returns the groups with numbers in a range.
    pub(super) fn within(&self, numbers: RangeInclusive<u32>) -> impl Iterator<Item = &Group> {
        self.by_id.range(numbers).map(|(_, group)| group)
    }

    /// Adds, changes or deletes groups. Returns the numbers of deleted groups.
    pub(super) fn change(&mut self, change: &GroupMod, now_ms: u64) -> Result<Vec<u32>, Refusal> {
        let exists = self.by_id.contains_key(&change.group);
        match change.command {
            GroupCommand::Add if exists => return Err(Refusal::GroupExists),
            GroupCommand::Modify if !exists => return Err(Refusal::UnknownGroup),
            GroupCommand::Add | GroupCommand::Modify | GroupCommand::AddOrModify => {
                self.set(change, now_ms)?;
            }
            GroupCommand::Delete if change.group == GroupMod::ALL => {
                return Ok(std::mem::take(&mut self.by_id).into_keys().collect());
            }
            GroupCommand::Delete => {
                return Ok(self
                    .by_id
                    .remove(&change.group)
                    .map(|group| group.entry.group)
                    .into_iter()
                    .collect());
            }
            GroupCommand::InsertBucket | GroupCommand::RemoveBucket => {
                let group = self.by_id.get(&change.group).ok_or(Refusal::UnknownGroup)?;
                let mut entry = group.entry.clone();
                if change.command == GroupCommand::InsertBucket {
                    insert_buckets(&mut entry.buckets, change)?;
                } else {
                    remove_buckets(&mut entry.buckets, change.bucket)?;
                }
                let changed = GroupMod {
                    command: GroupCommand::Modify,
                    group: change.group,
                    kind: entry.kind,
                    buckets: entry.buckets,
                    bucket: GroupMod::EVERY,
                    selection: entry.selection,
                };
                self.set(&changed, now_ms)?;
            }
        }
        Ok(Vec::new())
    }

    /// Whether a group of this type may choose the bucket.
    pub(super) fn is_live(
        &self,
        kind: GroupType,
        bucket: &Bucket,
        ports: &Ports,
        depth: u32,
    ) -> bool {
        let watches_port = bucket.watch_port != PortNumber::NONE;
        let watches_group = bucket.watch_group != NO_GROUP;
        if kind == GroupType::Select && bucket.weight == 0 {
            return false;
        }
        if !watches_port && !watches_group {
            return kind != GroupType::FastFailover;
        }
        let is_port_live = ports.port(bucket.watch_port).is_some_and(BridgePort::is_live);
        let is_group_live = || {
            let group = self.by_id.get(&bucket.watch_group).filter(|_| depth < MAX_DEPTH);
            group.is_some_and(|group| {
                let mut buckets = group.entry.buckets.iter();
                buckets.any(|bucket| self.is_live(group.entry.kind, bucket, ports, depth + 1))
            })
        };
        (watches_port && is_port_live) || (watches_group && is_group_live())
    }

    fn set(&mut self, change: &GroupMod, now_ms: u64) -> Result<(), Refusal> {
        if change.group >= FIRST_RESERVED {
            return Err(Refusal::BadGroup);
        }
        if change.kind == GroupType::Indirect && change.buckets.len() != 1 {
            return Err(Refusal::BadGroup);
        }
        if change.buckets.iter().any(|bucket| self.leads_to(&bucket.actions, change.group, 0)) {
            return Err(Refusal::GroupLoop);
        }
        let mut group = Group::new(change, now_ms);
        if let Some(former) = self.by_id.get(&change.group) {
            group.created_ms = former.created_ms;
            group.counters = former.counters.clone();
        }
        self.by_id.insert(change.group, group);
        Ok(())
    }

    fn leads_to(&self, actions: &[Action], target: u32, depth: u32) -> bool {
        super::rule::any(actions, &|action| {
            let Action::Group(id) = action else { return false };
            *id == target
                || depth < MAX_DEPTH
                    && self.by_id.get(id).is_some_and(|group| {
                        let mut buckets = group.entry.buckets.iter();
                        buckets.any(|bucket| self.leads_to(&bucket.actions, target, depth + 1))
                    })
        })
    }
}

fn insert_buckets(buckets: &mut Vec<Bucket>, change: &GroupMod) -> Result<(), Refusal> {
    let is_known = |new: &Bucket| buckets.iter().any(|bucket| bucket.id == new.id);
    if change.buckets.iter().any(is_known) {
        return Err(Refusal::BucketExists);
    }
    let at = match change.bucket {
        GroupMod::FIRST => 0,
        GroupMod::LAST => buckets.len(),
        id => position(buckets, id)? + 1,
    };
    buckets.splice(at..at, change.buckets.iter().cloned());
    Ok(())
}

fn remove_buckets(buckets: &mut Vec<Bucket>, bucket: u32) -> Result<(), Refusal> {
    match bucket {
        GroupMod::EVERY => buckets.clear(),
        GroupMod::FIRST if buckets.is_empty() => {}
        GroupMod::FIRST => drop(buckets.remove(0)),
        GroupMod::LAST => drop(buckets.pop()),
        id => drop(buckets.remove(position(buckets, id)?)),
    }
    Ok(())
}

fn position(buckets: &[Bucket], id: u32) -> Result<usize, Refusal> {
    buckets.iter().position(|bucket| bucket.id == id).ok_or(Refusal::UnknownBucket)
}

/// The first reserved group number.
const FIRST_RESERVED: u32 = 0xffff_ff01;
const NO_GROUP: u32 = 0xffff_ffff;
const MAX_DEPTH: u32 = 64;
