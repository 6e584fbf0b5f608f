//! Divides a limited resource among identities. This module does no I/O.
//!
//! One half is divided equally: each identity always gets its part, whatever the other identities
//! do. The other half is common: an identity may take from the common half as long as the
//! identity's take does not exceed the free rest (dynamic thresholds, Choudhury and Hahne 1998). A
//! single busy identity thus gets more than half of the resource, and several hostile identities
//! still leave a part free. If there is only one identity, it may use the whole resource.

use crate::identity::PeerName;
use std::collections::HashMap;

#[derive(Debug)]
pub(super) struct Division {
    capacity: usize,
    /// Maximum number of units that one identity may use.
    each: usize,
    identities: usize,
    used: HashMap<PeerName, usize>,
    all: usize,
    /// Units from the common pool: units that identities use beyond their own parts.
    common: usize,
}

/// An identity may take no more units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exceeded {
    /// The units that the identity uses.
    pub(super) used: usize,
    pub(super) capacity: usize,
}

impl Division {
    pub(super) fn new(capacity: usize, each: usize) -> Self {
        Self { capacity, each, identities: 1, used: HashMap::new(), all: 0, common: 0 }
    }

    /// Takes one unit. `identities` is the number of identities that may use the resource.
    pub(super) fn take(&mut self, peer: &PeerName, identities: usize) -> Result<(), Exceeded> {
        self.set_identities(identities.max(1));
        let used = self.used.get(peer).copied().unwrap_or(0);
        let own = self.own_part();
        let room = (self.capacity - own * self.identities).saturating_sub(self.common);
        let is_entitled = used < own || used - own < room;
        if used >= self.each || self.all >= self.capacity || !is_entitled {
            return Err(Exceeded { used, capacity: self.capacity });
        }
        *self.used.entry(peer.clone()).or_default() += 1;
        self.all += 1;
        self.common += usize::from(used >= own);
        Ok(())
    }

    pub(super) fn give_back(&mut self, peer: &PeerName, units: usize) {
        let own = self.own_part();
        let Some(used) = self.used.get_mut(peer) else { return };
        let before = *used;
        *used = before.saturating_sub(units);
        let after = *used;
        if after == 0 {
            self.used.remove(peer);
        }
        self.all -= before - after;
        self.common -= before.saturating_sub(own) - after.saturating_sub(own);
    }

    pub(super) fn used(&self) -> usize {
        self.all
    }

    fn set_identities(&mut self, identities: usize) {
        if self.identities != identities {
            self.identities = identities;
            let own = self.own_part();
            self.common = self.used.values().map(|used| used.saturating_sub(own)).sum();
        }
    }

    fn own_part(&self) -> usize {
        match self.identities {
            1 => self.capacity,
            identities => self.capacity / 2 / identities,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> PeerName {
        format!("peer-{number}").parse().unwrap()
    }

    /// Lets each of `greedy` identities take as many units as it can, in turn. Returns the total.
    fn fill(division: &mut Division, identities: usize, greedy: usize) -> usize {
        let mut taken = 0;
        loop {
            let round =
                (0..greedy).filter(|one| division.take(&name(*one), identities).is_ok()).count();
            if round == 0 {
                return taken;
            }
            taken += round;
        }
    }

    fn take_all(division: &mut Division, identities: usize, peer: usize) -> usize {
        (0..).take_while(|_| division.take(&name(peer), identities).is_ok()).count()
    }

    #[test]
    fn every_identity_gets_its_share_beside_any_number_of_greedy_identities() {
        for capacity in [23, 100, 940, 20_000] {
            for identities in [2, 3, 5, 10] {
                for greedy in 1..identities {
                    let mut division = Division::new(capacity, usize::MAX);
                    fill(&mut division, identities, greedy);
                    let own = capacity / 2 / identities;
                    for other in greedy..identities {
                        let got = take_all(&mut division, identities, other);
                        assert!(got >= own, "{got} of {capacity} for one of {identities}");
                    }
                    assert!(division.used() <= capacity);
                }
            }
        }
    }

    #[test]
    fn greedy_identities_leave_units_free_when_there_are_more_identities_than_units() {
        for greedy in [1, 2, 7, 30] {
            let mut division = Division::new(1000, usize::MAX);
            fill(&mut division, 5000, greedy);
            assert!(take_all(&mut division, 5000, greedy) >= 1000 / (greedy + 2) / 2);
        }
    }

    #[test]
    fn a_busy_identity_beside_idle_identities_gets_more_than_half_and_a_single_identity_gets_all() {
        let mut division = Division::new(1000, usize::MAX);
        assert_eq!(take_all(&mut division, 1, 0), 1000);
        let mut division = Division::new(1000, 600);
        assert_eq!(take_all(&mut division, 1, 0), 600);
        let mut division = Division::new(1000, usize::MAX);
        assert_eq!(take_all(&mut division, 4, 0), 125 + 250);
        let exceeded = division.take(&name(0), 4).unwrap_err();
        assert_eq!(exceeded, Exceeded { used: 375, capacity: 1000 });
    }

    #[test]
    fn returned_units_can_be_taken_again_although_the_number_of_identities_changes() {
        let mut division = Division::new(100, usize::MAX);
        for identities in [3, 1, 8, 2, 50, 400] {
            let first = fill(&mut division, identities, 2);
            assert!(first > 0);
            division.give_back(&name(0), 40);
            fill(&mut division, identities, 3);
            for peer in 0..3 {
                division.give_back(&name(peer), usize::MAX);
            }
            assert_eq!((division.used(), division.common, division.used.len()), (0, 0, 0));
        }
    }
}
