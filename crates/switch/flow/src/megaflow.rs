use std::sync::Arc;

use crate::Key;
use crate::step::{Step, Translation, sets_priority};

/// A megaflow, as `dpctl/dump-flows` shows it.
#[derive(Debug, Clone)]
pub struct Megaflow {
    /// The packets that it takes: those whose key, under `mask`, equals `key`.
    pub key: Key,
    pub mask: Key,
    pub steps: Arc<[Step]>,
    pub packets: u64,
    pub bytes: u64,
    /// The time of its last packet, in milliseconds of the switch's clock.
    pub used_ms: Option<u64>,
    /// The flags of all its TCP segments.
    pub tcp_flags: u16,
}

impl Megaflow {
    /// The megaflow of a packet and its translation, before it has counted anything.
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

    /// Megaflows of Open vSwitch also match the queue if they set it. Here all packets have queue 0
    /// when they come, so that the cache need not know it.
    pub fn show_priority(mask: &mut Key, steps: &[Step]) {
        if sets_priority(steps) {
            mask.write_at(Key::PRIORITY, u128::MAX);
        }
    }
}
