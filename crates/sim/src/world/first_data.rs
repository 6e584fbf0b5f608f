//! The moment from which the lab's workload `bulk` counts.

use super::World;
use units::{Bytes, Span, Time};

impl World {
    /// Runs to the first data of all flows, as the lab's workload `bulk` sees it on a machine.
    /// `None` if a flow has none within 20 s.
    pub fn run_to_first_data(&mut self) -> Option<Time> {
        let mut at = Time::ZERO;
        while self.acknowledged().iter().any(|bytes| *bytes <= FIRST_DATA) {
            at += LOOKS_EVERY;
            if at > Time::ZERO + FIRST_DATA_WITHIN || self.run_until(at).is_some() {
                return None;
            }
        }
        Some(at)
    }
}

/// On each connection, so much must have been acknowledged.
const FIRST_DATA: Bytes = Bytes::new(4096);
const LOOKS_EVERY: Span = Span::from_millis(2);
/// A caller's world lasts longer.
pub const FIRST_DATA_WITHIN: Span = Span::from_secs(20);
