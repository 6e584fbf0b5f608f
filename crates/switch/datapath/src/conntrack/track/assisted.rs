//! The way of a packet whose connection has a helper, or was expected by one.

use super::super::Conntrack;
use super::super::entry::Entry;
use super::super::helpers::{FTP, Relations};
use super::super::tcp::Segment;
use super::super::view::state;
use super::Case;

impl Conntrack {
    /// A new connection announces others, or was announced itself.
    pub(super) fn start_assisting(&self, case: &mut Case<'_, '_, '_, '_>, entry: &Entry) {
        if let Some(parent) = &case.parent {
            self.helpers.adopt(&entry.original(), parent);
        }
        if entry.is_assisted() {
            // Nothing in a first packet can be malformed.
            let _ = self.helpers.read(entry, case.view, false, false);
        }
    }

    /// Lets the helper of a connection read a packet. Returns flags.
    #[inline(never)]
    pub(super) fn assist(
        &self,
        case: &mut Case<'_, '_, '_, '_>,
        entry: &Entry,
        is_reply: bool,
    ) -> u16 {
        if case.extracted.inner.is_some() {
            return 0;
        }
        let rewrites = case.applies_translation() && case.view.is_resizable;
        let read = self.helpers.read(entry, case.view, is_reply, rewrites);
        if case.applies_translation() && entry.helper == FTP {
            let relations = self.helpers.relations(&entry.original());
            relations.correct_sequence(case.view, is_reply);
        }
        if read.is_err() { state::INVALID } else { 0 }
    }
}

impl Case<'_, '_, '_, '_> {
    /// Brings a packet of a connection with relations to what its receiver's end understands.
    #[inline(never)]
    pub(super) fn begin_assisted(&mut self, relations: &Relations, is_reply: bool) {
        self.parent = relations.parent;
        if self.segment.is_some() && self.applies_translation() {
            relations.correct_acknowledgement(self.view, is_reply);
            let range = self.view.headers.transport..self.view.headers.end;
            self.segment = self.view.frame.get(range).and_then(Segment::read);
        }
    }
}
