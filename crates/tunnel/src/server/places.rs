//! Slots for tunnels and listeners. Each tunnel and each listener occupies a file descriptor, so
//! the process's limit of descriptors bounds the number of slots, too.

use super::division::{Division, Exceeded};
use super::limits::Limits;
use crate::descriptors::Descriptors;
use crate::identity::PeerName;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub(super) struct Places {
    division: Mutex<Division>,
    are_few_by_descriptors: bool,
}

/// One slot. Dropping the value frees the slot.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    peer: PeerName,
}

impl Places {
    pub(super) fn new(limits: &Limits, descriptors: Option<Descriptors>) -> Arc<Self> {
        let by_descriptors = descriptors.map_or(usize::MAX, |all| all.for_tunnels());
        let are_few_by_descriptors = by_descriptors < limits.tunnels;
        if are_few_by_descriptors {
            tracing::info!(
                tunnels = by_descriptors,
                "the limit of open files bounds the tunnels: for more, raise it (LimitNOFILE, ulimit -n)"
            );
        }
        let division = Division::new(limits.tunnels.min(by_descriptors), limits.tunnels_each);
        Arc::new(Self { division: Mutex::new(division), are_few_by_descriptors })
    }

    /// Takes a slot for `peer`, one of `identities` identities. The error names the limit.
    pub(super) fn take(
        self: &Arc<Self>,
        peer: &PeerName,
        identities: usize,
    ) -> Result<Place, String> {
        let taken = self.division().take(peer, identities);
        taken.map_err(|Exceeded { used, capacity }| {
            let advice = match self.are_few_by_descriptors {
                true => "raise the server's limit of open files (LimitNOFILE, ulimit -n)",
                false => "use another server",
            };
            format!(
                "this identity has its share, {used} of {capacity} tunnels: close idle ones, or {advice}"
            )
        })?;
        Ok(Place { places: Arc::clone(self), peer: peer.clone() })
    }

    fn division(&self) -> MutexGuard<'_, Division> {
        self.division.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.division().give_back(&self.peer, 1);
    }
}
