use std::collections::HashMap;
use std::sync::Arc;

use flow::Key;
use flow::action::Action;
use flow::step::Counters;

/// The state with which a packet continues after the datapath has parsed the packet and looked it
/// up again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frozen {
    /// The index of the packet's bridge, if the packet reached that bridge through a patch port.
    pub bridge: Option<u16>,
    /// The table to search. `None`: run only the actions in `rest`.
    pub table: Option<u8>,
    /// The packet's in_port, registers, metadata and tunnel, without its `dp_hash`.
    pub metadata: Key,
    /// The values on the stack with their widths, the top value last.
    pub stack: Vec<(u8, u128)>,
    pub action_set: Vec<Action>,
    /// The zone of the preceding connection tracking, which traces show.
    pub zone: Option<u16>,
    /// Whether the packet has results of connection tracking.
    pub is_tracked: bool,
    /// Whether the datapath has hashed the packet for this state. If not, the pipeline ignores an
    /// older `dp_hash`.
    pub is_hashed: bool,
    /// A bit for each mirror that has already copied the packet.
    pub mirrored: u32,
    /// The remaining actions of each rule, the innermost rule first.
    pub rest: Vec<Rest>,
}

/// The remaining actions of a rule, with its table and cookie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rest {
    pub table: u8,
    pub cookie: u64,
    pub actions: Vec<Action>,
}

/// The states by number. A state exists as long as a megaflow uses the state: a translation that
/// recirculates holds the state's counters.
#[derive(Debug, Default)]
pub struct Recirculations {
    states: HashMap<u32, State>,
    by_hash: HashMap<u64, Vec<u32>>,
    last: u32,
}

#[derive(Debug)]
struct State {
    frozen: Arc<Frozen>,
    users: Arc<Counters>,
    hash: u64,
    interned_ms: u64,
}

impl Recirculations {
    /// Stores a state. Returns the state's number and its counters. The state exists as long as
    /// somebody holds these counters.
    pub fn intern(&mut self, frozen: Frozen, now_ms: u64) -> Option<(u32, Arc<Counters>)> {
        let hash = frozen.hash();
        for id in self.by_hash.get(&hash).into_iter().flatten() {
            if let Some(state) = self.states.get_mut(id)
                && *state.frozen == frozen
            {
                state.interned_ms = now_ms;
                return Some((*id, state.users.clone()));
            }
        }
        if self.states.len() >= CAPACITY {
            return None;
        }
        let id = self.free_number();
        let users = Arc::new(Counters::default());
        let state =
            State { frozen: Arc::new(frozen), users: users.clone(), hash, interned_ms: now_ms };
        self.states.insert(id, state);
        self.by_hash.entry(hash).or_default().push(id);
        Some((id, users))
    }

    #[must_use]
    pub fn state(&self, id: u32) -> Option<Arc<Frozen>> {
        self.states.get(&id).map(|state| state.frozen.clone())
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.states.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    /// Removes states that neither a megaflow nor a packet still in the datapath needs.
    pub fn sweep(&mut self, now_ms: u64) {
        let by_hash = &mut self.by_hash;
        self.states.retain(|id, state| {
            let is_used = Arc::strong_count(&state.users) > 1
                || now_ms < state.interned_ms.saturating_add(GRACE_MS);
            if !is_used && let Some(ids) = by_hash.get_mut(&state.hash) {
                ids.retain(|other| other != id);
                if ids.is_empty() {
                    by_hash.remove(&state.hash);
                }
            }
            is_used
        });
    }

    fn free_number(&mut self) -> u32 {
        loop {
            self.last = self.last.wrapping_add(1).max(1);
            if !self.states.contains_key(&self.last) {
                return self.last;
            }
        }
    }
}

impl Frozen {
    fn hash(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        (self.table, &self.metadata, &self.stack, self.zone).hash(&mut hasher);
        (self.is_tracked, self.is_hashed, self.bridge).hash(&mut hasher);
        (self.rest.len(), self.action_set.len()).hash(&mut hasher);
        hasher.finish()
    }
}

const CAPACITY: usize = 65_536;
const GRACE_MS: u64 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn frozen(table: u8) -> Frozen {
        Frozen {
            bridge: None,
            table: Some(table),
            metadata: Key::ZERO,
            stack: Vec::new(),
            action_set: Vec::new(),
            zone: None,
            is_tracked: false,
            mirrored: 0,
            is_hashed: false,
            rest: Vec::new(),
        }
    }

    #[test]
    fn equal_states_share_a_recirculation_id_until_no_packet_uses_it() {
        let mut states = Recirculations::default();
        let (one, users) = states.intern(frozen(1), 0).expect("space");
        let (same, _) = states.intern(frozen(1), 5).expect("space");
        let (two, _) = states.intern(frozen(2), 0).expect("space");
        assert_eq!(one, same);
        assert_ne!(one, two);
        states.sweep(20_000);
        assert!(states.state(one).is_some());
        assert!(states.state(two).is_none());
        drop(users);
        states.sweep(20_000);
        assert!(states.is_empty());
        assert!(states.by_hash.is_empty());
    }
}
