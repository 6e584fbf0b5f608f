//! Groups, and the choice of their buckets.

use flow::Field;
use flow::request::{Bucket, GroupType};

use super::{Failure, Way};
use crate::group::Group;
use crate::slots::Slots;

impl Way<'_> {
    pub(super) fn group(&mut self, id: u32) {
        let tables = self.tables;
        let Some(group) = tables.groups.group(id) else {
            self.note(">> output to nonexistent group");
            return;
        };
        if self.nesting >= MAX_NESTING {
            return self.fail(Failure::TooDeep, "groups are nested too deeply");
        }
        let chosen = match (group.entry.kind, &group.slots) {
            (GroupType::All | GroupType::Indirect, _) => {
                self.counters.push(group.counters.clone());
                for index in 0..group.entry.buckets.len() {
                    self.bucket(group, index);
                }
                return;
            }
            (GroupType::FastFailover, _) => {
                group.entry.buckets.iter().position(|bucket| self.is_live(group, bucket))
            }
            (GroupType::Select, Some(slots)) => match self.flow.read(Field::DpHash) {
                // The datapath has not hashed the packet yet.
                0 => {
                    self.hashing = Some(slots.hash);
                    self.freezing = Some(Vec::new());
                    return;
                }
                hash => self.select_by_slot(group, slots, hash as u32),
            },
            (GroupType::Select, None) => self.select(group),
        };
        self.counters.push(group.counters.clone());
        match chosen {
            Some(index) => {
                self.note(&format!("-> using bucket {}", group.entry.buckets[index].id));
                self.bucket(group, index);
            }
            None => self.note("-> no live bucket"),
        }
    }

    fn bucket(&mut self, group: &Group, index: usize) {
        self.counters.extend(group.bucket_counters.get(index).cloned());
        let bucket = &group.entry.buckets[index];
        let depth = self.nesting;
        if let Some(observer) = self.observer.as_deref_mut() {
            observer.enters(depth, bucket.id);
        }
        self.nesting += 1;
        let was_in_bucket = std::mem::replace(&mut self.is_in_bucket, true);
        self.on_a_copy(|way| way.run_set(&bucket.actions));
        self.is_in_bucket = was_in_bucket;
        self.nesting -= 1;
    }

    fn is_live(&self, group: &Group, bucket: &Bucket) -> bool {
        self.tables.groups.is_live(group.entry.kind, bucket, self.tables.port_set(), 0)
    }

    /// Returns the first live bucket, starting at the hash's slot.
    fn select_by_slot(&mut self, group: &Group, slots: &Slots, hash: u32) -> Option<usize> {
        let mut bits = flow::Key::ZERO;
        bits.write(Field::DpHash, slots.mask().into());
        self.depend_on(&bits);
        slots.of(hash).find(|index| self.is_live(group, &group.entry.buckets[*index]))
    }

    /// Returns the live bucket of the packet's flow. A bucket's share of all flows equals the share
    /// of its weight in the sum of all weights. A flow keeps its bucket when other buckets are
    /// added or removed.
    fn select(&mut self, group: &Group) -> Option<usize> {
        let hash = match &group.entry.selection {
            Some((_, parameter, fields)) if !fields.is_empty() => {
                let fields: Vec<(Field, u128)> = fields.clone();
                self.hash_fields(&fields, *parameter)
            }
            _ => self.hash_connection(0),
        };
        let buckets = group.entry.buckets.iter().enumerate();
        let live = buckets.filter(|(_, bucket)| self.is_live(group, bucket));
        let best = live.max_by(|(_, a), (_, b)| {
            super::hash::score(hash, a.id, a.weight)
                .total_cmp(&super::hash::score(hash, b.id, b.weight))
        });
        best.map(|(index, _)| index)
    }
}

const MAX_NESTING: usize = 512;
