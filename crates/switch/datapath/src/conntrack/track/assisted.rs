//! The tracking of a packet whose connection has a helper, or was expected by a helper.

use super::super::Conntrack;
use super::super::entry::Entry;
use super::super::helpers::{FTP, Relations};
use super::super::tcp::Segment;
use super::super::view::state;
use super::Case;

impl Conntrack {
    /// Records the parent of a new connection, and the connections that its first packet announces.
    pub(super) fn start_assisting(&self, case: &mut Case<'_, '_, '_, '_>, entry: &Entry) {
        if let Some(parent) = &case.parent {
            self.helpers.adopt(&entry.original(), parent);
        }
        if entry.is_assisted() {
            // A malformed announcement in a connection's first packet has no effect.
            let _ = self.helpers.read(entry, case.view, false, false);
        }
    }

    /// Lets the helper of a connection read a packet. Returns `inv` if the packet is malformed.
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
    /// Sets the packet's parent, and maps the acknowledgement number to the sequence numbers of the
    /// packet's receiver.
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
