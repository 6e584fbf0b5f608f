//! Groups, and the choice of their buckets.

use super::{Failure, Way};
use crate::flow::Field;
use crate::pipeline::group::Group;
use crate::port_number::PortNumber;
use crate::request::{Bucket, GroupType};

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
        self.counters.push(group.counters.clone());
        let buckets = &group.entry.buckets;
        match group.entry.kind {
            GroupType::All | GroupType::Indirect => {
                for index in 0..buckets.len() {
                    self.bucket(group, index);
                }
            }
            GroupType::FastFailover => {
                let is_live = |bucket: &Bucket| tables.groups.is_live(bucket, tables.port_set(), 0);
                if let Some(index) = buckets.iter().position(is_live) {
                    self.bucket(group, index);
                }
            }
            GroupType::Select => {
                if let Some(index) = self.select(group) {
                    self.bucket(group, index);
                }
            }
        }
    }

    fn bucket(&mut self, group: &Group, index: usize) {
        self.counters.extend(group.bucket_counters.get(index).cloned());
        self.note(&format!("-> using bucket {}", group.entry.buckets[index].id));
        self.nesting += 1;
        let was_in_bucket = std::mem::replace(&mut self.is_in_bucket, true);
        self.on_a_copy(|way| way.run_set(&group.entry.buckets[index].actions));
        self.is_in_bucket = was_in_bucket;
        self.nesting -= 1;
    }

    /// The live bucket that the packet's flow belongs to: each bucket has a share of all flows as
    /// its weight is a share of all weights, and a flow stays if other buckets come or go.
    fn select(&mut self, group: &Group) -> Option<usize> {
        let hash = match &group.entry.selection {
            Some((_, parameter, fields)) if !fields.is_empty() => {
                let fields: Vec<(Field, u128)> = fields.clone();
                self.hash_fields(&fields, *parameter)
            }
            _ => self.hash_connection(0),
        };
        let tables = self.tables;
        let is_usable = |bucket: &Bucket| {
            let is_watching =
                bucket.watch_port != PortNumber::NONE || bucket.watch_group != u32::MAX;
            bucket.weight > 0
                && (!is_watching || tables.groups.is_live(bucket, tables.port_set(), 0))
        };
        let buckets = group.entry.buckets.iter().enumerate();
        let usable = buckets.filter(|(_, bucket)| is_usable(bucket));
        let best = usable.max_by(|(_, a), (_, b)| {
            super::hash::score(hash, a.id, a.weight)
                .total_cmp(&super::hash::score(hash, b.id, b.weight))
        });
        best.map(|(index, _)| index)
    }
}

const MAX_NESTING: usize = 512;
