use std::sync::Arc;

use crate::Key;
use crate::step::{Step, Translation, sets_priority};

/// A megaflow as `dpctl/dump-flows` shows it.
#[derive(Debug, Clone)]
pub struct Megaflow {
    /// The megaflow matches the packets whose key, under `mask`, equals `key`.
    pub key: Key,
    pub mask: Key,
    pub steps: Arc<[Step]>,
    pub packets: u64,
    pub bytes: u64,
    /// The time of the megaflow's last packet, in milliseconds of the switch's clock.
    pub used_ms: Option<u64>,
    /// The TCP flags of all packets of the megaflow.
    pub tcp_flags: u16,
}

impl Megaflow {
    /// Builds the megaflow for a packet and its translation, with counters of zero.
    #[must_use]
    pub fn new(key: &Key, translation: &Translation) -> Self {
        let mut mask = translation.mask.clone();
        mask.remove_metadata();
        Self::show_priority(&mut mask, &translation.steps);
        Self {
            key: key.clone(),
            mask,
            steps: translation.steps.clone(),
            packets: 0,
            bytes: 0,
            used_ms: None,
            tcp_flags: 0,
        }
    }

    /// Adds the queue to the mask if a step sets it, as in Open vSwitch's megaflows. In this
    /// switch, all packets arrive with queue 0, so the cache need not match the queue.
    pub fn show_priority(mask: &mut Key, steps: &[Step]) {
        if sets_priority(steps) {
            mask.write_at(Key::PRIORITY, u128::MAX);
        }
    }
}
