//! Earlier passes of a packet through connection tracking, in the same zone.

use super::super::entry::Entry;
use super::super::view::state;
use super::Case;

impl Case<'_, '_, '_, '_> {
    /// Whether this pass translates a packet whose connection has a translation.
    #[inline]
    pub(super) fn applies_translation(&self) -> bool {
        self.call.has_nat && self.prior & state::TRANSLATED == 0
    }

    /// Drops the flags of an earlier pass if a rule has changed the packet's tuple since, because
    /// the earlier pass was for another connection. The flag `inv` stays, because checksums are
    /// verified only once.
    #[inline]
    pub(super) fn forget_other_connection(&mut self, entry: &Entry) {
        let keeps = state::TRANSLATED | state::RELATED | state::INVALID;
        if self.prior != 0 && self.prior & keeps == 0 && !self.view.shows(&entry.original()) {
            self.prior = 0;
        }
    }

    /// Whether this pass updates the connection with the packet. False if an earlier pass has
    /// already updated the connection, unless the connection was new then; a second update of a new
    /// connection does no harm.
    pub(super) fn is_uncounted(&self) -> bool {
        self.prior == 0 || self.prior & state::NEW != 0
    }
}
