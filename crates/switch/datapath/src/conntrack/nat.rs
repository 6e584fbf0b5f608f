//! The choice of a translation: Open vSwitch's rules for addresses and ports.

use std::ops::RangeInclusive;

use flow::action::{Nat, NatAddresses, NatDirection};

use super::entry::Translation;
use super::tuple::{Hasher, Kind, Ports, Tuple, is_icmp};

/// The translations that a `nat(…)` argument allows for a connection, in the order in which they
/// are tried.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) translation: Translation,
    reply: Tuple,
    first_address: u128,
    addresses: RangeInclusive<u128>,
    /// The first port of the search; `None` means the port in the reversed packet.
    named: Option<Ports>,
    ranges: Vec<PortRange>,
}

/// Ports to try: from `first` to the highest, then from the lowest to `first`.
#[derive(Debug, Clone)]
struct PortRange {
    side: Side,
    first: u16,
    ports: RangeInclusive<u16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Source,
    Destination,
    /// ICMP, whose identifier is stored in both ports.
    Both,
}

impl Choice {
    /// Builds the choice of translations for a connection. Returns `None` if `nat` has no
    /// direction, because such a `nat` applies existing translations only.
    pub(super) fn new(nat: &Nat, original: &Tuple, hasher: &Hasher, random: u64) -> Option<Self> {
        let translation = match nat.direction? {
            NatDirection::Source => Translation::Source,
            NatDirection::Destination => Translation::Destination,
        };
        let own = match translation {
            Translation::Source => original.source,
            Translation::Destination => original.destination,
        };
        let addresses = address_range(nat, original.kind, own);
        let by_source = hasher.choice(&halves(original.source));
        let by_tuple = hasher.choice(&words_of(original));
        let first_address = if nat.persistent { by_source } else { by_tuple };
        let spread = addresses.end().saturating_sub(*addresses.start()).saturating_add(1);
        let first_address = addresses.start() + u128::from(first_address) % spread.max(1);
        let offset = if nat.random { random } else { by_tuple.rotate_left(32) };
        let mut choice = Self {
            translation,
            reply: original.reversed(),
            first_address,
            addresses,
            named: None,
            ranges: Vec::new(),
        };
        if original.has_ports() {
            choice.port_ranges(nat, original, offset);
        }
        Some(choice)
    }

    /// Builds the translation of an expected connection, which follows from its parent's
    /// translation.
    pub(super) fn only(translation: Translation, address: u128, original: &Tuple) -> Self {
        Self {
            translation,
            reply: original.reversed(),
            first_address: address,
            addresses: address..=address,
            named: None,
            ranges: Vec::new(),
        }
    }

    /// Returns the reply tuples to try, one for each address, the preferred address first. All
    /// tuples with the same address are in the same shard, because zone and addresses decide it.
    pub(super) fn addresses(&self) -> impl Iterator<Item = Tuple> + '_ {
        let (start, end) = (*self.addresses.start(), *self.addresses.end());
        let spread = end.saturating_sub(start).saturating_add(1);
        let count = spread.min(MAX_ADDRESSES);
        (0..count).map(move |step| {
            let address = start + (self.first_address - start + step) % spread;
            let mut reply = self.reply;
            match self.translation {
                Translation::Source => reply.destination = address,
                Translation::Destination => reply.source = address,
            }
            reply
        })
    }

    /// Returns the first reply tuple with this address for which `is_free` is true.
    pub(super) fn free_ports(
        &self,
        address: Tuple,
        random: u64,
        mut is_free: impl FnMut(&Tuple) -> bool,
    ) -> Option<Tuple> {
        let mut reply = address;
        if let Some(ports) = self.named {
            reply.ports = ports;
        }
        if self.ranges.is_empty() {
            return is_free(&reply).then_some(reply);
        }
        let start = reply.ports;
        for range in &self.ranges {
            reply.ports = start;
            let found = range.probe(random, |port| {
                range.side.set(&mut reply.ports, port);
                is_free(&reply)
            });
            if found {
                return Some(reply);
            }
        }
        None
    }

    /// Sets the ports to try. In the reply tuple, the source is the original destination.
    fn port_ranges(&mut self, nat: &Nat, original: &Tuple, offset: u64) {
        let Ports { source, destination } = original.ports;
        let pick = |range: &RangeInclusive<u16>| {
            let width = u64::from(range.end().saturating_sub(*range.start())) + 1;
            range.start() + (offset % width) as u16
        };
        let own = PortRange { side: Side::Destination, first: source, ports: near(source) };
        let side = if is_icmp(original.protocol) { Side::Both } else { Side::Destination };
        match (self.translation, &nat.ports) {
            (Translation::Source, Some(ports)) => {
                let first = pick(ports);
                self.ranges.push(PortRange { side, first, ports: ports.clone() });
            }
            (Translation::Source, None) => self.ranges.push(PortRange { side, ..own }),
            (Translation::Destination, Some(ports)) if side == Side::Destination => {
                let first = pick(ports);
                let range = PortRange { side: Side::Source, first, ports: ports.clone() };
                self.named = Some(Ports { source: first, destination: source });
                self.ranges.extend([range, own]);
            }
            (Translation::Destination, _) => {
                self.named = Some(Ports { source: destination, destination: source });
                self.ranges.push(PortRange { side, ..own });
            }
        }
    }
}

impl Side {
    fn set(self, ports: &mut Ports, port: u16) {
        if self != Self::Destination {
            ports.source = port;
        }
        if self != Self::Source {
            ports.destination = port;
        }
    }
}

impl PortRange {
    /// Tries all ports of a small range. For a large range, tries some ports from the first on and
    /// then random ports, so that the work is bounded when nearly all ports are taken.
    fn probe(&self, random: u64, mut is_free: impl FnMut(u16) -> bool) -> bool {
        let (start, end) = (*self.ports.start(), *self.ports.end());
        if start > end {
            return false;
        }
        let width = u32::from(end - start) + 1;
        let is_inside = self.ports.contains(&self.first);
        if !is_inside && is_free(self.first) {
            return true;
        }
        let origin = if is_inside { u32::from(self.first - start) } else { 0 };
        let at = |step: u32| start + ((origin + step) % width) as u16;
        if (0..width.min(SEQUENTIAL)).any(|step| is_free(at(step))) {
            return true;
        }
        if width <= SEQUENTIAL {
            return false;
        }
        let mut state = random;
        (0..RANDOM).any(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            is_free(at((state >> 33) as u32 % width))
        })
    }
}

/// Returns the addresses that `nat` allows. For address 0 in `nat`, returns the packet's address:
/// then only ports change, and only if they are taken.
fn address_range(nat: &Nat, kind: Kind, own: u128) -> RangeInclusive<u128> {
    let range = match (&nat.addresses, kind.is_v6()) {
        (Some(NatAddresses::V4(range)), false) => {
            u128::from(u32::from(*range.start()))..=u128::from(u32::from(*range.end()))
        }
        (Some(NatAddresses::V6(range)), true) => {
            u128::from(*range.start())..=u128::from(*range.end())
        }
        // `nat` has no address, or an address of the other IP version.
        _ => own..=own,
    };
    if *range.start() == 0 || range.is_empty() { own..=own } else { range }
}

/// Returns the ports that may replace a source port. A privileged port is replaced by a privileged
/// port.
fn near(port: u16) -> RangeInclusive<u16> {
    match port {
        0..512 => 1..=511,
        512..1024 => 600..=1023,
        _ => 1024..=65535,
    }
}

fn halves(address: u128) -> [u64; 2] {
    [(address >> 64) as u64, address as u64]
}

fn words_of(tuple: &Tuple) -> [u64; 6] {
    let [high, low] = halves(tuple.source);
    let [to_high, to_low] = halves(tuple.destination);
    let ports = u64::from(tuple.ports.source) << 16 | u64::from(tuple.ports.destination);
    let rest = u64::from(tuple.zone) << 8 | u64::from(tuple.protocol);
    [high, low, to_high, to_low, ports, rest]
}

/// Maximum number of addresses of a range that are tried for a connection.
const MAX_ADDRESSES: u128 = 8;
const SEQUENTIAL: u32 = 128;
const RANDOM: u32 = 256;
