//! The tracking of a fragment.

use units::Time;

use super::super::Conntrack;
use super::super::fragments::Taken;
use super::super::view::View;
use crate::{Packet, TrackCall, Tracked};

impl Conntrack {
    /// Tracks a fragment. Returns `None` if the fragment is to be tracked like a whole packet.
    #[inline(never)]
    pub(super) fn track_fragment(
        &self,
        packet: &mut Packet,
        call: &TrackCall<'_>,
        now: Time,
    ) -> Option<Tracked> {
        match self.fragments.take(packet, call.zone, now, self.verify_checksums) {
            Taken::Whole => None,
            Taken::Invalid => Some(self.invalid(&mut View::of(packet), call.zone, None)),
            Taken::Waits => Some(Tracked::Held),
            Taken::Complete(mut assembled) => {
                let mut view = View::of(&mut assembled.packet);
                if self.track(&mut view, call, None, now) == Tracked::Dropped {
                    return Some(Tracked::Dropped);
                }
                packet.released = Some(Box::new(assembled.spread()));
                Some(Tracked::Held)
            }
        }
    }
}
