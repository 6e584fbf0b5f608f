use crate::recording::{DropPlace, Drops};
use accel::drops::DropCounter;
use probe::interface::InterfaceSnapshot;
use std::collections::BTreeMap;

/// Counts the packets that the kernel drops. All observations of a command share one watch, so that
/// the BPF program is loaded once.
#[derive(Debug)]
pub struct DropWatch {
    /// The counter of drops, or the reason why this machine cannot count drops.
    counter: Result<DropCounter, String>,
}

impl DropWatch {
    /// Starts to count in the calling thread's network namespace.
    pub fn begin() -> Self {
        Self { counter: DropCounter::begin().map_err(|error| error.to_string()) }
    }

    /// Returns the dropped packets by reason since [`Self::begin`]; `None` if drops cannot be
    /// counted.
    pub fn reasons(&self) -> Option<BTreeMap<String, u64>> {
        self.counter.as_ref().ok()?.reasons().ok()
    }

    pub(super) fn read(&self) -> Result<accel::drops::Drops, String> {
        let counter = self.counter.as_ref().map_err(Clone::clone)?;
        counter.read().map_err(|error| error.to_string())
    }

    /// Converts drops for a recording. Names the functions only if a reason is a fault, because the
    /// list of the kernel's functions is long.
    pub(super) fn recorded(&self, drops: accel::drops::Drops) -> Drops {
        let mut recorded = Drops { reasons: drops.reasons, places: Vec::new() };
        let has_fault = recorded.faults().next().is_some();
        let functions = match &self.counter {
            Ok(counter) if has_fault => {
                let addresses: Vec<u64> = drops.places.keys().map(|place| place.address).collect();
                counter.functions(&addresses)
            }
            _ => BTreeMap::new(),
        };
        let interfaces = match drops.places.is_empty() {
            true => None,
            false => InterfaceSnapshot::read().ok(),
        };
        // A function may drop packets at several addresses.
        let mut places: BTreeMap<_, u64> = BTreeMap::new();
        for (place, packets) in drops.places {
            let function = functions.get(&place.address).cloned();
            let key = (place.reason, place.interface, function, place.connection);
            *places.entry(key).or_default() += packets;
        }
        let name = |index: u32| Some(interfaces.as_ref()?.name_of(index)?.to_owned());
        let places = places.into_iter();
        let mut places: Vec<DropPlace> = places
            .map(|((reason, interface, function, connection), packets)| DropPlace {
                reason,
                packets,
                interface: name(interface),
                function,
                protocol: connection.map(|(protocol, ..)| protocol),
                from: connection.map(|(_, from, _)| from),
                to: connection.map(|(.., to)| to),
            })
            .collect();
        places.sort_by_key(|place| std::cmp::Reverse(place.packets));
        places.truncate(MOST_PLACES);
        recorded.places = places;
        recorded
    }
}

/// Maximum number of drop locations in a recording.
const MOST_PLACES: usize = 64;
