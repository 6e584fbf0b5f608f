//! Connection tracking.

use flow::action::{Ct, CtZone};
use flow::step::{Step, Track};
use flow::{Field, Key, word};

use super::Way;

impl Way<'_> {
    pub(super) fn track(&mut self, ct: &Ct) {
        self.commit();
        let zone = match ct.zone {
            CtZone::Number(zone) => zone,
            CtZone::From(source) => self.read(source) as u16,
        };
        let (mark, label) = self.marks(ct);
        let track = Track {
            zone,
            commit: ct.commit,
            force: ct.force,
            mark,
            label,
            nat: ct.nat.clone(),
            alg: ct.alg,
        };
        match ct.table {
            None => self.steps.push(Step::Track(Box::new(track))),
            Some(table) => {
                self.on_a_copy_with_set(|way| {
                    way.steps.push(Step::Track(Box::new(track)));
                    way.is_tracked = true;
                    way.recirculate(Some(table), Vec::new(), Some(zone));
                });
                self.note(&format!(
                    "-> A clone of the packet is forked to recirculate. The forked pipeline will \
                     be resumed at table {table}."
                ));
            }
        }
        self.note("-> Sets the packet to an untracked state, and clears all the conntrack fields.");
        self.clear_tracking(false);
    }

    /// Handles `ct_clear`, which does nothing to an untracked packet.
    pub(super) fn clear_if_tracked(&mut self) {
        if self.is_tracked {
            self.clear_tracking(true);
        }
    }

    /// Clears the results of tracking in this copy of the packet.
    pub(super) fn clear_tracking(&mut self, in_datapath: bool) {
        if in_datapath {
            self.steps.push(Step::ClearTracking);
        }
        self.is_tracked = false;
        for index in word::CT..word::ETH_SRC {
            self.flow.words[index] = 0;
            self.written.words[index] = u64::MAX;
        }
    }

    /// Returns the mark and the label that `exec` sets, each with its mask.
    fn marks(&mut self, ct: &Ct) -> (Masked<u32>, Masked<u128>) {
        if ct.exec.is_empty() {
            return (None, None);
        }
        let former = (self.flow.clone(), self.written.clone(), self.pending.clone());
        // Clear the bits first: after `exec` has run, `written` then holds only the bits that
        // `exec` wrote.
        self.written.write(Field::CtMark, 0);
        self.written.write(Field::CtLabel, 0);
        self.lengths.enter_list(true);
        self.run(&ct.exec);
        self.lengths.leave_list(true);
        let bits = |key: &Key, field| key.read(field);
        let mark_mask = bits(&self.written, Field::CtMark);
        let label_mask = bits(&self.written, Field::CtLabel);
        let mark = bits(&self.flow, Field::CtMark) & mark_mask;
        let label = bits(&self.flow, Field::CtLabel) & label_mask;
        (self.flow, self.written, self.pending) = former;
        let mark = (mark_mask != 0).then_some((mark as u32, mark_mask as u32));
        (mark, (label_mask != 0).then_some((label, label_mask)))
    }

    /// Like `on_a_copy`, but the copy keeps the packet's action set.
    fn on_a_copy_with_set(&mut self, act: impl FnOnce(&mut Self)) {
        let set = self.action_set.clone();
        self.on_a_copy(|way| {
            way.action_set = set;
            act(way);
        });
    }
}

/// A value and its mask.
type Masked<T> = Option<(T, T)>;
