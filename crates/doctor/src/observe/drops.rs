use crate::recording::{DropPlace, Drops};
use accel::drops::DropCounter;
use probe::interface::InterfaceSnapshot;
use std::collections::BTreeMap;

/// Counts the packets that the kernel drops. All observations of a command share one watch, so that
/// the BPF program is loaded once.
#[derive(Debug)]
pub struct DropWatch {
    /// The counter, or the reason why this machine cannot count drops.
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
}

pub(super) fn recorded(drops: accel::drops::Drops) -> Drops {
    let interfaces = match drops.places.is_empty() {
        true => None,
        false => InterfaceSnapshot::read().ok(),
    };
    let name = |index: u32| Some(interfaces.as_ref()?.name_of(index)?.to_owned());
    let mut places: Vec<DropPlace> = drops
        .places
        .into_iter()
        .map(|(place, packets)| DropPlace {
            reason: place.reason,
            packets,
            interface: name(place.interface),
            function: place.function,
            protocol: place.connection.map(|(protocol, ..)| protocol),
            from: place.connection.map(|(_, from, _)| from),
            to: place.connection.map(|(.., to)| to),
        })
        .collect();
    places.sort_by_key(|place| std::cmp::Reverse(place.packets));
    places.truncate(MOST_PLACES);
    Drops { reasons: drops.reasons, places }
}

/// Maximum number of drop locations in a recording.
const MOST_PLACES: usize = 64;
