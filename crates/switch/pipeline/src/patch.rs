//! Patch ports: a translation continues in the connected bridge.

use std::sync::Arc;

use flow::port_number::PortNumber;
use flow::step::Counters;

use super::tables::Tables;

/// The peer of a patch port.
#[derive(Debug, Clone)]
pub struct Patch {
    /// The index in the switch of the peer's bridge, and the number of the peer port in that
    /// bridge.
    pub bridge: u16,
    pub port: PortNumber,
    /// The counters of packets that the port sends, then of packets that the peer receives.
    pub sent: Arc<Counters>,
    pub received: Arc<Counters>,
}

impl PartialEq for Patch {
    fn eq(&self, other: &Self) -> bool {
        (self.bridge, self.port) == (other.bridge, other.port)
            && Arc::ptr_eq(&self.sent, &other.sent)
            && Arc::ptr_eq(&self.received, &other.received)
    }
}

/// A bridge that a translation can reach through patch ports.
#[derive(Debug, Clone, Copy)]
pub struct Neighbor<'a> {
    pub name: &'a str,
    pub tables: &'a Tables,
}
