use super::counted;
use crate::recording::{Interface, InterfaceCounters};
use std::collections::BTreeMap;
use units::{Bytes, Rate, Span};

/// An interface with the increments of its counters.
#[derive(Debug, Clone)]
pub struct InterfaceUse<'a> {
    pub name: &'a str,
    pub facts: &'a Interface,
    elapsed: Span,
    pub received: Bytes,
    pub sent: Bytes,
    pub received_packets: u64,
    pub sent_packets: u64,
    pub received_errors: u64,
    pub received_drops: u64,
    pub sent_errors: u64,
    pub sent_drops: u64,
    pub carrier_changes: Option<u64>,
    /// The driver's counters that changed.
    pub driver: BTreeMap<&'a str, u64>,
}

impl<'a> InterfaceUse<'a> {
    pub(super) fn between(
        (name, facts): (&'a String, &'a Interface),
        earlier: Option<&'a InterfaceCounters>,
        later: Option<&'a InterfaceCounters>,
        elapsed: Span,
    ) -> Option<Self> {
        let (earlier, later) = (earlier?, later?);
        let bytes =
            |later: Bytes, earlier: Bytes| counted(later.count(), earlier.count()).map(Bytes::new);
        let driver = later.driver.iter().filter_map(|(name, later)| {
            let increment = counted(*later, *earlier.driver.get(name)?)?;
            (increment > 0).then_some((name.as_str(), increment))
        });
        // The counters of an interface that was created anew are reset: the increments are unknown.
        Some(Self {
            name,
            facts,
            elapsed,
            received: bytes(later.received, earlier.received)?,
            sent: bytes(later.sent, earlier.sent)?,
            received_packets: counted(later.received_packets, earlier.received_packets)?,
            sent_packets: counted(later.sent_packets, earlier.sent_packets)?,
            received_errors: counted(later.received_errors, earlier.received_errors)?,
            received_drops: counted(later.received_drops, earlier.received_drops)?,
            sent_errors: counted(later.sent_errors, earlier.sent_errors)?,
            sent_drops: counted(later.sent_drops, earlier.sent_drops)?,
            carrier_changes: later
                .carrier_changes
                .zip(earlier.carrier_changes)
                .and_then(|(later, earlier)| counted(later, earlier)),
            driver: driver.collect(),
        })
    }

    /// Returns the receive and send rates, counted from the MAC header on.
    pub fn rates(&self) -> (Rate, Rate) {
        let rate = |bytes: Bytes| {
            let bits = bytes.count() as f64 * 8.0 / self.elapsed.secs_f64().max(1e-9);
            Rate::from_bits_per_second(bits as u64)
        };
        (rate(self.received), rate(self.sent))
    }

    /// Returns the received and the sent bytes as shares of the link's speed, with preamble, FCS
    /// and the gap between frames (24 bytes for each frame).
    pub fn load(&self) -> Option<(f64, f64)> {
        let speed = self.facts.speed?.bits_per_second() as f64;
        let load = |bytes: Bytes, packets: u64| {
            // A super-packet counts as one packet here: its bytes stand for full frames.
            let frames = packets.max(bytes.count() / 1514);
            (bytes.count() as f64 + 24.0 * frames as f64) * 8.0
                / self.elapsed.secs_f64().max(1e-9)
                / speed
        };
        (speed > 0.0).then(|| {
            (load(self.received, self.received_packets), load(self.sent, self.sent_packets))
        })
    }

    /// Returns the sum of the driver's counters whose name contains one of these strings.
    pub fn driver_sum(&self, words: &[&str]) -> u64 {
        self.driver_named(words).map(|(_, count)| count).fold(0, u64::saturating_add)
    }

    pub fn driver_named<'b>(
        &'b self,
        words: &'b [&str],
    ) -> impl Iterator<Item = (&'a str, u64)> + 'b {
        self.driver
            .iter()
            .filter(|(name, _)| {
                let name = name.to_ascii_lowercase();
                words.iter().any(|word| name.contains(word))
            })
            .map(|(name, count)| (*name, *count))
    }

    /// Whether the interface is hardware or a device of the hypervisor: not `lo`, `veth` or a
    /// bridge.
    pub fn is_device(&self) -> bool {
        self.facts.device
    }
}
