//! Earlier passes of a packet through connection tracking, in the same zone.

use super::super::entry::Entry;
use super::super::view::state;
use super::Case;

impl Case<'_, '_, '_, '_> {
    /// Whether this pass translates the packet, if its connection has a translation.
    #[inline]
    pub(super) fn applies_translation(&self) -> bool {
        self.call.has_nat && self.prior & state::TRANSLATED == 0
    }

    /// A rule may have changed the packet's tuple since the earlier pass: then that was for another
    /// connection. An invalid packet stays invalid, because its checksums are looked at once.
    #[inline]
    pub(super) fn forget_other_connection(&mut self, entry: &Entry) {
        let keeps = state::TRANSLATED | state::RELATED | state::INVALID;
        if self.prior != 0 && self.prior & keeps == 0 && !self.view.shows(&entry.original()) {
            self.prior = 0;
        }
    }

    /// Whether no earlier pass has shown this packet to its connection. After a pass that found no
    /// connection, or a new one, another look does no harm.
    pub(super) fn is_uncounted(&self) -> bool {
        self.prior == 0 || self.prior & state::NEW != 0
    }
}
