use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use flow::port_number::PortNumber;
use flow::step::PortIndex;

use super::ports::SwitchPort;

/// The ports of all bridges by their index. Packet threads keep a copy, and take another one when
/// the generation says so.
#[derive(Debug, Default)]
pub(super) struct PortTable {
    ports: RwLock<PortList>,
    generation: AtomicU64,
}

pub(super) type PortList = Arc<Vec<Option<Arc<SwitchPort>>>>;

impl PortTable {
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(super) fn ports(&self) -> PortList {
        self.ports.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The index of a new port: its OpenFlow number if no port has that index, because then texts
    /// about megaflows show the numbers that people know.
    pub(super) fn free_index(&self, number: PortNumber) -> Option<PortIndex> {
        let ports = self.ports();
        let is_free = |index: &u16| ports.get(usize::from(*index)).is_none_or(Option::is_none);
        let wanted = match number {
            PortNumber::LOCAL => FIRST_LOCAL,
            number => u16::try_from(number.0).unwrap_or(1),
        };
        let mut candidates = std::iter::once(wanted).chain(wanted..=LAST).chain(1..wanted);
        candidates.find(is_free).map(PortIndex)
    }

    pub(super) fn insert(&self, port: Arc<SwitchPort>) {
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

    fn change(&self, change: impl FnOnce(&mut Vec<Option<Arc<SwitchPort>>>)) {
        let mut ports = self.ports.write().unwrap_or_else(PoisonError::into_inner);
        let mut changed = Vec::clone(&ports);
        change(&mut changed);
        *ports = Arc::new(changed);
        self.generation.fetch_add(1, Ordering::AcqRel);
    }
}

/// Open vSwitch's dummy datapath gives the bridge's own port this number.
const FIRST_LOCAL: u16 = 100;
const LAST: u16 = 0xfeff;
