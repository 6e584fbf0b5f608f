use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flow::port_number::PortNumber;
use flow::step::PortIndex;

use super::ordered::{RwLock, rank};
use super::ports::SwitchPort;

/// The ports of all bridges by index. Packet threads hold the published list, and fetch a new list
/// when the generation changes. Only [`PortTable::publish`] makes changes visible, so that a change
/// of many ports makes one new list.
#[derive(Debug, Default)]
pub(super) struct PortTable {
    lists: RwLock<Lists, { rank::PORT_LISTS }>,
    generation: AtomicU64,
}

pub(super) type PortList = Arc<Vec<Option<Arc<SwitchPort>>>>;

#[derive(Debug, Default)]
struct Lists {
    current: Vec<Option<Arc<SwitchPort>>>,
    published: PortList,
}

impl PortTable {
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(super) fn ports(&self) -> PortList {
        self.lists.read().published.clone()
    }

    /// Returns the index of a new port: its OpenFlow number if that index is free, so that printed
    /// megaflows show the port's OpenFlow number.
    pub(super) fn free_index(&self, number: PortNumber) -> Option<PortIndex> {
        let lists = self.lists.read();
        let ports = &lists.current;
        let is_free = |index: &u16| ports.get(usize::from(*index)).is_none_or(Option::is_none);
        let wanted = match number {
            PortNumber::LOCAL => FIRST_LOCAL,
            number => u16::try_from(number.0).unwrap_or(1),
        };
        let mut candidates = std::iter::once(wanted).chain(wanted..=LAST).chain(1..wanted);
        candidates.find(is_free).map(PortIndex)
    }

    pub(super) fn insert(&self, port: Arc<SwitchPort>) {
        if port.index == PortIndex::NONE {
            return;
        }
        let index = usize::from(port.index.0);
        self.change(|ports| {
            if ports.len() <= index {
                ports.resize(index + 1, None);
            }
            ports[index] = Some(port);
        });
    }

    pub(super) fn remove(&self, index: PortIndex) {
        self.change(|ports| {
            if let Some(port) = ports.get_mut(usize::from(index.0)) {
                *port = None;
            }
        });
    }

    /// Publishes the changes so far to the packet threads.
    pub(super) fn publish(&self) {
        let mut lists = self.lists.write();
        lists.published = Arc::new(lists.current.clone());
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Option<Arc<SwitchPort>>>)) {
        change(&mut self.lists.write().current);
    }
}

/// The number of the bridge's own port in Open vSwitch's dummy datapath.
const FIRST_LOCAL: u16 = 100;
const LAST: u16 = 0xfeff;

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::run::config::PortConfig;
    use crate::run::switch::Switch;
    use crate::run::{Config, Confinement, Process};

    fn config(ports: usize) -> Config {
        let mut config = Config::default();
        let bridge = config.bridge.entry("br0".to_owned()).or_default();
        bridge.own_interface = false;
        for number in 0..ports {
            bridge.port.insert(format!("p{number}"), PortConfig::of_kind("null"));
        }
        config
    }

    #[test]
    fn a_change_of_a_thousand_ports_publishes_as_few_lists_as_a_change_of_one_port() {
        let lists = |ports: usize| {
            let folder = tempfile::TempDir::new().unwrap();
            let process = Process {
                file: None,
                confinement: Confinement::Nothing,
                settings: Box::new(|| Ok(Config::default())),
                set_log_level: Box::new(|_| {}),
            };
            let place = host::PrivateDirectory::make_named(folder.path()).unwrap();
            let switch = Arc::new(Switch::new(place, Arc::new(AtomicBool::new(false)), process));
            let apply = |ports: usize| {
                let before = switch.ports.generation();
                switch.apply(&config(ports), &mut |_| {}).unwrap();
                let held = switch.ports.ports().iter().flatten().count();
                assert_eq!(held, ports + 1, "with the bridge's own port");
                switch.ports.generation() - before
            };
            let lists = [ports, ports, 2 * ports, 0].map(apply);
            switch.close();
            lists
        };
        assert_eq!(lists(1000), lists(1));
    }
}
