//! The patch ports of a switch.

use std::collections::HashMap;

use super::Switch;

impl Switch {
    /// Connects the patch ports that name one another.
    pub(super) fn link_patches(&self) {
        let bridges = self.bridges();
        let mut ends = HashMap::new();
        for bridge in &bridges {
            for port in bridge.ports().into_iter().filter(|port| port.is_patch()) {
                let names = (port.name.clone(), port.settings.peer.clone());
                // Two bridges may have ports of the same names: only the last one is linked.
                if let Some((_, other)) = ends.insert(names, (bridge, port)) {
                    other.set_peer(None);
                }
            }
        }
        for ((name, peer), (_, port)) in &ends {
            let wanted = peer.clone().map(|peer| (peer, Some(name.clone())));
            let other = wanted.and_then(|wanted| ends.get(&wanted));
            port.set_peer(other.map(|(bridge, port)| (*bridge, port)));
        }
    }
}
