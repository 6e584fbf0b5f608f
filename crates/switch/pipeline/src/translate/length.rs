//! `check_pkt_larger`: a translation that branches by the length of the packet.
//!
//! The length is not part of a packet's key, so the length costs nothing if no rule checks it. As
//! in Open vSwitch, the actions after the check in the same rule are translated for both results,
//! and the datapath chooses. The later actions of enclosing rules are translated once, for both
//! results. If these later actions depend on the result, the packet is translated again for its own
//! length only, and the datapath does not cache this second translation.

use flow::action::{Action, Subfield};
use flow::step::{Branch, LengthCheck, Step, Translation};
use flow::{Key, word};

use super::{Failure, Observe, Saved, Way};

/// The part of a translation's state that concerns lengths.
#[derive(Debug, Default)]
pub(super) struct Lengths {
    /// Whether the translation is valid only for the length of its packet.
    is_fixed: bool,
    /// Whether the translation must be repeated for the packet's own length, because length checks
    /// in the datapath cannot express the result.
    must_be_fixed: bool,
    /// The number of enclosing lists, within this copy of the packet, that have further actions.
    outer: usize,
    is_copy: bool,
    /// Whether this branch is for a result of a length check other than the packet's own result.
    is_elsewhere: bool,
    /// The number of bytes that the steps before a copy have added to the packet.
    growth: i64,
    checks: usize,
    /// The bits in which the ends of the last check's branches differ.
    open: Option<Box<Key>>,
}

impl Lengths {
    pub(super) fn of_this_packet() -> Self {
        Self { is_fixed: true, ..Self::default() }
    }

    /// Whether this translation is abandoned.
    pub(super) fn is_over(&self) -> bool {
        self.must_be_fixed
    }

    pub(super) fn is_elsewhere(&self) -> bool {
        self.is_elsewhere
    }

    /// Enters a nested list of actions. `goes_on`: whether the enclosing list has further actions.
    pub(super) fn enter_list(&mut self, goes_on: bool) {
        self.outer += usize::from(goes_on);
    }

    pub(super) fn leave_list(&mut self, goes_on: bool) {
        self.outer -= usize::from(goes_on);
    }

    /// Enters a copy of the packet. Returns the state to restore.
    pub(super) fn enter_copy(&mut self, steps: &[Step]) -> Self {
        let inner = Self {
            outer: 0,
            is_copy: true,
            growth: self.growth + growth(steps),
            open: self.open.clone(),
            ..*self
        };
        std::mem::replace(self, inner)
    }

    /// Records that the copy runs through the pipeline of another bridge. At its end, that pipeline
    /// runs the action set.
    pub(super) fn enter_pipeline(&mut self) {
        self.is_copy = false;
    }

    pub(super) fn leave_copy(&mut self, former: Self) {
        let Self { must_be_fixed, checks, .. } = *self;
        *self = Self { must_be_fixed, checks, ..former };
    }

    /// Records that the steps depend on these bits.
    pub(super) fn depend(&mut self, index: usize, bits: u64) {
        if let Some(open) = &self.open {
            self.must_be_fixed |= open.words[index] & bits != 0;
        }
    }

    /// Records that an action set these bits, to the same values for packets of all lengths.
    pub(super) fn close(&mut self, bits: &Key) {
        if let Some(open) = &mut self.open {
            open.words.iter_mut().zip(&bits.words).for_each(|(open, bits)| *open &= !bits);
        }
    }
}

impl<'w> Way<'w> {
    /// Translates a packet, if possible for packets of all lengths.
    pub(super) fn complete(
        make: impl Fn() -> Self,
        begin: impl Fn(&mut Self),
        observer: Option<&'w mut dyn Observe>,
    ) -> (Translation, Key, Option<Failure>) {
        let made = make();
        let is_alike = made.is_alike || observer.is_some();
        let mut way = Self { observer, is_alike, ..made };
        begin(&mut way);
        way.end_pipeline();
        if way.lengths.must_be_fixed {
            let mut observer = way.observer.take();
            if let Some(observer) = &mut observer {
                observer.restarts();
            }
            let lengths = Lengths::of_this_packet();
            way = Self { observer, is_alike, lengths, ..make() };
            begin(&mut way);
            way.end_pipeline();
        }
        way.finish()
    }
}

impl Way<'_> {
    /// Checks the length, and runs the actions after the check. Returns `false` if the caller has
    /// to run these actions. This code is a separate function, because tables nest deeply: inside
    /// the caller, the state of the check would take stack space at each level.
    #[inline(never)]
    pub(super) fn check_length(
        &mut self,
        destination: Subfield,
        length: u16,
        rest: &[Action],
    ) -> bool {
        self.commit();
        let added = self.lengths.growth + growth(&self.steps);
        let is_larger = self.frame.len() as i64 + added > i64::from(length);
        if self.lengths.is_fixed {
            self.is_cacheable = false;
            self.write(destination, is_larger.into());
            return false;
        }
        self.lengths.checks += 1;
        if self.lengths.checks > MOST_CHECKS {
            self.lengths.must_be_fixed = true;
            return true;
        }
        let around = std::mem::replace(&mut self.lengths.growth, added);
        let mut before = Box::new(self.save());
        let steps = std::mem::take(&mut before.steps);
        let (larger, larger_end) = self.branch(&before, destination, true, is_larger, rest);
        let (others, others_end) = self.branch(&before, destination, false, !is_larger, rest);
        self.lengths.growth = around;
        before.steps = steps;
        // Differences in mirrored copies matter only if further actions follow.
        let is_followed = self.lengths.outer > 0 || self.lengths.is_copy;
        self.mirrored = others_end.mirrored;
        self.lengths.must_be_fixed |= is_followed && larger_end.mirrored != self.mirrored;
        if self.lengths.outer == 0 {
            self.restore(*before);
            // The branches have run the action set.
            self.action_set.clear();
            self.has_exited = true;
        } else {
            self.join(before, larger_end, others_end);
        }
        self.steps.push(Step::CheckLength(Box::new(LengthCheck { length, larger, others })));
        true
    }

    /// Translates one branch of a check. Returns the branch's steps and the state at its end.
    #[inline(never)]
    fn branch(
        &mut self,
        before: &Saved,
        destination: Subfield,
        result: bool,
        is_taken: bool,
        rest: &[Action],
    ) -> (Branch, End) {
        self.restore(before.clone());
        let counters = std::mem::take(&mut self.counters);
        let rule = (self.table, self.rule.clone(), self.cookie);
        let open = self.lengths.open.clone();
        let mirrored = self.mirrored;
        let was_elsewhere = self.lengths.is_elsewhere;
        self.lengths.is_elsewhere |= !is_taken;
        self.write(destination, result.into());
        self.run(rest);
        if self.lengths.outer > 0 {
            // Actions after the list would also have to wait for the datapath, but a branch cannot
            // express such a wait.
            self.lengths.must_be_fixed |= self.freezing.take().is_some();
            self.hashing = None;
        } else if self.lengths.is_copy {
            self.freeze();
        } else {
            self.end_pipeline();
        }
        self.flatten_last();
        (self.table, self.rule, self.cookie) = rule;
        self.lengths.is_elsewhere = was_elsewhere;
        let open = std::mem::replace(&mut self.lengths.open, open);
        let counters = std::mem::replace(&mut self.counters, counters);
        let mirrored = std::mem::replace(&mut self.mirrored, mirrored);
        let saved = Box::new(self.save());
        (Branch { steps: saved.steps.as_slice().into(), counters }, End { saved, open, mirrored })
    }

    /// Continues after both branches: restores the packet before the check, with the metadata that
    /// the branches left.
    #[inline(never)]
    fn join(&mut self, before: Box<Saved>, larger: End, others: End) {
        let ends = [&larger.saved, &others.saved];
        let are_equal = ends.iter().all(|end| end.is_packet_of(&before))
            && larger.saved.stack == others.saved.stack
            && larger.saved.action_set == others.saved.action_set;
        self.lengths.must_be_fixed |= !are_equal;
        let mut open = Key::ZERO;
        for key in [larger.open, others.open].into_iter().flatten() {
            open.unite(&key);
        }
        for index in 0..word::ETH_SRC {
            let differ = |key: fn(&Saved) -> &Key| {
                key(&larger.saved).words[index] ^ key(&others.saved).words[index]
            };
            open.words[index] |= differ(|end| &end.flow) | differ(|end| &end.written);
        }
        let metadata = 0..word::ETH_SRC;
        self.restore(*before);
        self.flow.words[metadata.clone()]
            .copy_from_slice(&others.saved.flow.words[metadata.clone()]);
        self.written.words[metadata.clone()].copy_from_slice(&others.saved.written.words[metadata]);
        self.stack = others.saved.stack;
        self.action_set = others.saved.action_set;
        self.lengths.open = Some(Box::new(open));
    }
}

/// The state at the end of a branch.
struct End {
    saved: Box<Saved>,
    open: Option<Box<Key>>,
    mirrored: u32,
}

impl Saved {
    /// Whether the packet is unchanged except for its metadata. A written field counts as changed
    /// even if this packet already had the value, because other packets of the megaflow may have
    /// had another value.
    fn is_packet_of(&self, before: &Self) -> bool {
        let have_same_headers =
            |one: &Key, other: &Key| one.words[word::ETH_SRC..] == other.words[word::ETH_SRC..];
        have_same_headers(&self.flow, &before.flow)
            && have_same_headers(&self.written, &before.written)
            && !self.has_exited
            && self.tags == before.tags
            && self.pushed_mpls == before.pushed_mpls
            && self.labels == before.labels
            && self.was_mpls == before.was_mpls
            && self.is_tracked == before.is_tracked
    }
}

/// Counts the bytes that steps add to a packet.
fn growth(steps: &[Step]) -> i64 {
    let of_step = |step: &Step| match step {
        Step::PushVlan { .. } | Step::PushMpls { .. } => 4,
        Step::PopVlan | Step::PopMpls { .. } => -4,
        _ => 0,
    };
    steps.iter().map(of_step).sum()
}

/// Maximum number of length checks of a translation. A translation with more checks is valid for
/// one packet only, because each check doubles the branches.
const MOST_CHECKS: usize = 64;
