//! Finds the time from which the lab's workload `bulk` measures.

use super::World;
use units::{Bytes, Span, Time};

impl World {
    /// Runs until all flows have delivered their first data, as the lab's workload `bulk` detects
    /// it on a machine. `None` if a flow delivers no data within 20 s.
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

/// The acknowledged data of each connection that counts as its first data.
const FIRST_DATA: Bytes = Bytes::new(4096);
const LOOKS_EVERY: Span = Span::from_millis(2);
/// The time within which first data must arrive. A caller's world must last longer.
pub const FIRST_DATA_WITHIN: Span = Span::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Demand, FlowSpec, Topology, WorldConfig};
    use link::{LinkConfig, Loss};
    use std::sync::Arc;
    use units::Share;

    /// The second flow connects a second later.
    fn world(loss: f64) -> World {
        let mut topology = Topology::new();
        let (from, to) = (topology.node(), topology.node());
        let back = LinkConfig { delay: Span::from_millis(50), ..LinkConfig::default() };
        let loss = Share::new(loss).map_or(Loss::NONE, Loss::Bernoulli);
        topology.link("there", from, to, &LinkConfig { loss, ..back.clone() });
        topology.link("back", to, from, &back);
        let flow =
            FlowSpec::tcp(from, to, cc::Algorithm::Cubic, Demand::BulkTogether, Arc::default());
        let late = flow.clone().starting(Time::ZERO + Span::from_secs(1));
        let until = Time::ZERO + FIRST_DATA_WITHIN + Span::from_secs(1);
        let config = WorldConfig { until, ..WorldConfig::default() };
        World::new(&topology, vec![flow, late], config).unwrap()
    }

    #[test]
    fn data_begins_with_the_last_connection() {
        let mut world = world(0.0);
        assert!(world.run_until(Time::ZERO + Span::from_millis(1099)).is_none());
        assert_eq!(world.acknowledged(), [Bytes::ZERO; 2]);
        // The last handshake takes a round trip, and the data of both flows takes another round
        // trip.
        let first = world.run_to_first_data();
        assert_eq!(first, Some(Time::ZERO + Span::from_millis(1202)));
    }

    #[test]
    fn a_path_without_data_has_no_first_data() {
        assert_eq!(world(1.0).run_to_first_data(), None);
    }
}
