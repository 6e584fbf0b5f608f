//! Turns the changes of a packet into steps, before an output or a recirculation.

use flow::step::{Rewrite, Step};
use flow::{Field, Key, WORDS, word};

use super::vlan::TCI;
use super::{Failure, Way};

impl Way<'_> {
    pub(super) fn commit(&mut self) {
        let mut mask = std::mem::take(&mut self.pending);
        // The steps that push tags include the fields of the tags. A tag that a pop uncovers
        // changes only after the pops.
        let mut uncovered = Key::ZERO;
        if self.has_popped_tag() && !self.has_pushed_tag() {
            uncovered.words[word::ETH_DST] = mask.words[word::ETH_DST] & TCI;
        }
        if self.has_popped_tag() || self.has_pushed_tag() {
            mask.words[word::ETH_DST] &= !TCI;
        }
        if self.pushed_mpls.is_some() {
            mask.words[word::MPLS] &= !ENTRY;
        }
        if self.is_alike {
            self.narrow(&mut mask);
        }
        self.rewrite(mask);
        if let Some(ethertype) = self.pushed_mpls.take() {
            let entry = (self.flow.words[word::MPLS] >> 32) as u32;
            self.steps.push(Step::PushMpls { ethertype, entry });
        }
        self.commit_tags();
        self.rewrite(uncovered);
        let priority = self.flow.read_at(Key::PRIORITY) as u32;
        if priority != self.priority {
            self.priority = priority;
            self.steps.push(Step::SetPriority(priority));
        }
        if self.is_alike {
            self.base = self.flow.clone();
        }
    }

    fn rewrite(&mut self, mask: Key) {
        if mask != Key::ZERO {
            let value = self.flow.masked(&mask);
            self.steps.push(Step::Rewrite(Box::new(Rewrite { value, mask })));
        }
    }

    /// As in Open vSwitch, removes from `mask` the bits that already have the wanted value in the
    /// packet, and bits of network headers that the datapath leaves unchanged.
    fn narrow(&mut self, mask: &mut Key) {
        if self.flow.read(Field::NwProto) == 0 {
            (0..WORDS).filter(|index| word::is_network(*index)).for_each(|index| {
                mask.words[index] = 0;
            });
        }
        for field in Field::ALL {
            let is_changed = self.base.read(*field) != self.flow.read(*field);
            if field.place().width <= 64 && mask.read(*field) != 0 && !is_changed {
                mask.write(*field, 0);
            }
        }
    }

    pub(super) fn push_mpls(&mut self, ethertype: u16) {
        let is_mpls = matches!(self.eth_type(), 0x8847 | 0x8848);
        if is_mpls && self.labels >= MOST_LABELS {
            let reason = "an MPLS label would be one more than the 3 that packets may have";
            return self.fail(Failure::TooManyLabels, reason);
        }
        self.commit();
        self.labels += 1;
        let entry = if is_mpls {
            self.depend(word::MPLS, ENTRY);
            self.flow.words[word::MPLS] & ENTRY & !BOTTOM
        } else {
            let is_ipv4 = self.eth_type() == super::fields::IPV4;
            let is_ip = is_ipv4 || self.eth_type() == super::fields::IPV6;
            let ttl = match is_ip {
                true => self.read_field(Field::NwTtl) as u64,
                false => 0,
            };
            // As in Open vSwitch, an MPLS entry gets the TTL of its IP packet unless that TTL is 0.
            let ttl = if ttl == 0 { 64 } else { ttl };
            let class = if is_ip {
                self.read_field(Field::NwTos);
                self.flow.words[word::NW] >> 45 & 7
            } else {
                0
            };
            let label = if is_ipv4 || !is_ip { 0 } else { 2 };
            // Drop the packet's hash, because it covered headers that are now under the MPLS entry.
            self.assume(Field::DpHash, 0);
            label << 44 | class << 41 | BOTTOM | ttl << 32
        };
        self.flow.words[word::MPLS] = self.flow.words[word::MPLS] & !ENTRY | entry;
        self.written.words[word::MPLS] |= ENTRY;
        self.assume(Field::EthType, ethertype.into());
        self.pushed_mpls = Some(ethertype);
    }

    pub(super) fn pop_mpls(&mut self, ethertype: u16) {
        if !matches!(self.eth_type(), 0x8847 | 0x8848) {
            return;
        }
        self.commit();
        self.depend(word::MPLS, BOTTOM);
        self.steps.push(Step::PopMpls { ethertype });
        self.assume(Field::EthType, ethertype.into());
        self.labels = self.labels.saturating_sub(1);
        self.was_mpls = true;
    }
}

/// The bits of an MPLS entry in the key's word.
const ENTRY: u64 = 0xffff_ffff_0000_0000;
const BOTTOM: u64 = 1 << 40;
/// Maximum number of MPLS entries that actions can push, as in Open vSwitch.
const MOST_LABELS: usize = 3;
