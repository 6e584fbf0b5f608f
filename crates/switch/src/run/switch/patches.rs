//! The patch ports of a switch.

use std::collections::HashMap;
use std::sync::Arc;

use pipeline::Patch;

use super::{BridgeState, Switch};
use crate::run::ports::SwitchPort;

/// A patch port, with its bridge: an endpoint of a patch link.
type End = (Arc<BridgeState>, Arc<SwitchPort>);

impl Switch {
    /// Connects each pair of patch ports that name each other as peers.
    pub(super) fn link_patches(&self) {
        let _links = self.links.lock();
        let bridges = self.bridges();
        let mut ends: HashMap<_, End> = HashMap::new();
        let mut doubles = Vec::new();
        for bridge in &bridges {
            for port in bridge.ports().into_iter().filter(|port| port.is_patch()) {
                let names = (port.name.clone(), port.settings.peer.clone());
                // If two bridges have ports with the same names, only the last of these ports is
                // linked.
                doubles.extend(ends.insert(names, (bridge.clone(), port)));
            }
        }
        let peer = |port: &SwitchPort| {
            let names = (port.settings.peer.clone()?, Some(port.name.clone()));
            ends.get(&names)
        };
        set_neighbors(
            &bridges,
            ends.values().filter_map(|(bridge, port)| {
                peer(port).map(|(other, _)| (bridge.index, other.index))
            }),
        );
        for (bridge, port) in &doubles {
            link(bridge, port, None);
        }
        for (bridge, port) in ends.values() {
            link(bridge, port, peer(port));
        }
    }
}

fn link(bridge: &BridgeState, port: &SwitchPort, peer: Option<&End>) {
    port.set_linked(peer.is_some());
    let patch = peer.and_then(|(other, end)| {
        Some(Patch {
            bridge: other.place(),
            port: end.number,
            sent: port.patched()?.sent.clone(),
            received: end.patched()?.received.clone(),
        })
    });
    bridge.set_patch(port.number, patch);
}

/// Sets each bridge's neighbours: the bridges that are reachable through one or more patch links.
fn set_neighbors(bridges: &[Arc<BridgeState>], links: impl Iterator<Item = (usize, usize)>) {
    // The lowest index in a group of connected bridges represents the group.
    let mut lowest: HashMap<_, _> =
        bridges.iter().map(|bridge| (bridge.index, bridge.index)).collect();
    for (one, other) in links {
        let (Some(a), Some(b)) = (lowest.get(&one).copied(), lowest.get(&other).copied()) else {
            continue;
        };
        let (low, high) = (a.min(b), a.max(b));
        lowest.values_mut().filter(|place| **place == high).for_each(|place| *place = low);
    }
    let mut ordered: Vec<_> = bridges.iter().collect();
    ordered.sort_by_key(|bridge| bridge.index);
    for bridge in bridges {
        let is_near = |other: &&&Arc<BridgeState>| {
            other.index != bridge.index && lowest[&other.index] == lowest[&bridge.index]
        };
        let near: Vec<_> = ordered.iter().filter(is_near).map(|other| Arc::clone(other)).collect();
        bridge.set_neighbors(&near);
    }
}
