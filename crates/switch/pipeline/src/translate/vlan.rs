//! VLAN tags. As with changes of fields, pushes and pops are collected and become steps later.

use flow::step::Step;
use flow::{Field, Key, word};

use super::Way;
use super::fields::PRESENT;

/// The pushes and pops of tags so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Tags {
    /// The tags under the outer tag, the innermost tag first.
    hidden: Vec<Hidden>,
    /// The number of tags to remove from the packet. Afterwards come the types of the tags to add.
    pops: usize,
    pushes: Vec<u16>,
}

/// A tag, with those of its written bits that no step has written yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Hidden {
    tci: u64,
    written: u64,
    pending: u64,
    /// The type of the tag and the tag under this tag, with their written bits.
    types: u64,
    types_written: u64,
}

/// The outer tag of a packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct OuterTag {
    tpid: u16,
    pub(super) tci: u16,
    /// The bits of the tag under this tag, and a mask of those bits that actions have written.
    inner: u64,
    inner_written: u64,
}

impl Way<'_> {
    pub(super) fn is_tagged(&mut self) -> bool {
        self.depend(word::ETH_DST, PRESENT.into());
        self.flow.words[word::ETH_DST] & u64::from(PRESENT) != 0
    }

    pub(super) fn push_vlan(&mut self, tpid: u16) {
        let is_tagged = self.is_tagged();
        if is_tagged && self.tags.pushes.is_empty() && self.pending.words[word::ETH_DST] & TCI != 0
        {
            self.commit();
        }
        if is_tagged {
            self.tags.hidden.push(Hidden {
                tci: self.flow.words[word::ETH_DST] & TCI,
                written: self.written.words[word::ETH_DST] & TCI,
                pending: self.pending.words[word::ETH_DST] & TCI,
                types: self.flow.words[word::VLAN_TPID] & TYPES,
                types_written: self.written.words[word::VLAN_TPID] & TYPES,
            });
        }
        self.tags.pushes.push(tpid);
        self.assume(Field::VlanTci, PRESENT.into());
        self.set_types(tpid.into(), TYPES);
    }

    pub(super) fn pop_vlan(&mut self) {
        if !self.is_tagged() {
            return;
        }
        if self.tags.pushes.pop().is_none() {
            self.tags.pops += 1;
        }
        self.assume(Field::VlanTci, 0);
        self.set_types(0, TYPES);
        if let Some(hidden) = self.tags.hidden.pop() {
            let index = word::ETH_DST;
            self.flow.words[index] = self.flow.words[index] & !TCI | hidden.tci;
            self.written.words[index] = self.written.words[index] & !TCI | hidden.written;
            self.pending.words[index] = self.pending.words[index] & !TCI | hidden.pending;
            self.set_types(hidden.types, hidden.types_written);
        }
    }

    fn set_types(&mut self, types: u64, written: u64) {
        let index = word::VLAN_TPID;
        self.flow.words[index] = self.flow.words[index] & !TYPES | types;
        self.written.words[index] = self.written.words[index] & !TYPES | written;
    }

    /// Returns the type of the outer tag. A packet that a user describes for a trace may have a tag
    /// without a type, which counts as 802.1Q.
    pub(super) fn tag_type(&mut self) -> u16 {
        self.depend(word::VLAN_TPID, TYPES & 0xffff);
        match self.flow.read_at(Key::TAG_TYPE) as u16 {
            0 => DOT1Q,
            tpid => tpid,
        }
    }

    /// Returns the VLAN of the tag under the outer tag; 0 if there is no second tag. The steps do
    /// not depend on this tag's priority.
    pub(super) fn inner_vlan(&mut self) -> u16 {
        let wanted = u64::from(PRESENT | VLAN);
        if let Some(hidden) = self.tags.hidden.last() {
            let (tci, bits) = (hidden.tci as u16, wanted & !hidden.written);
            self.mask.words[word::ETH_DST] |= bits;
            self.lengths.depend(word::ETH_DST, bits);
            return tci & VLAN;
        }
        self.depend(word::VLAN_TPID, wanted << Key::INNER_TCI.shift);
        self.flow.read_at(Key::INNER_TCI) as u16 & VLAN
    }

    /// Returns the outer tag of a tagged packet.
    pub(super) fn outer_tag(&mut self) -> OuterTag {
        let tpid = self.tag_type();
        let tci = self.read_field(Field::VlanTci) as u16;
        let inner = |key: &Key| key.words[word::VLAN_TPID] & TYPES & !0xffff;
        OuterTag { tpid, tci, inner: inner(&self.flow), inner_written: inner(&self.written) }
    }

    /// Gives the packet this outer tag. If the former outer tag was removed, puts the new tag on
    /// top of the other tags.
    pub(super) fn put_tag(&mut self, tag: OuterTag, is_removed: bool) {
        if is_removed {
            self.push_vlan(tag.tpid);
            self.set_types(u64::from(tag.tpid) | tag.inner, 0xffff | tag.inner_written);
        }
        self.store(Field::VlanTci, tag.tci.into(), (!PRESENT).into());
    }

    /// Sets bits of the outer tag. Adds or removes the tag if its presence bit changes.
    pub(super) fn write_tci(&mut self, value: u16, mask: u16) {
        let had = self.is_tagged();
        let has = if mask & PRESENT == 0 { had } else { value & PRESENT != 0 };
        match (had, has) {
            (false, false) => {}
            (true, false) => self.pop_vlan(),
            (had, true) => {
                if !had {
                    self.push_vlan(DOT1Q);
                }
                self.store(Field::VlanTci, value.into(), (mask & !PRESENT).into());
            }
        }
    }

    /// Adds steps for the pops and pushes. The pushes include the tags' fields.
    pub(super) fn commit_tags(&mut self) {
        for _ in 0..std::mem::take(&mut self.tags.pops) {
            self.steps.push(Step::PopVlan);
        }
        let pushes = std::mem::take(&mut self.tags.pushes);
        let under = self.tags.hidden.len().saturating_sub(pushes.len().saturating_sub(1));
        for (step, tpid) in pushes.iter().enumerate() {
            let tci = match self.tags.hidden.get_mut(under + step) {
                Some(hidden) if step + 1 < pushes.len() => {
                    hidden.pending = 0;
                    hidden.tci
                }
                _ => self.flow.words[word::ETH_DST] & TCI,
            };
            self.steps.push(Step::PushVlan { tpid: *tpid, tci: tci as u16 });
        }
    }

    pub(super) fn has_pushed_tag(&self) -> bool {
        !self.tags.pushes.is_empty()
    }

    pub(super) fn has_popped_tag(&self) -> bool {
        self.tags.pops > 0
    }
}

pub(super) const TCI: u64 = 0xffff;
/// The bits of a tag that hold the VLAN.
pub(super) const VLAN: u16 = 0xfff;
/// The bits of the outer tag's type and of the inner tag, in their word.
const TYPES: u64 = 0xffff_ffff;
const DOT1Q: u16 = 0x8100;
