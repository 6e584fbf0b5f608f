use std::collections::BTreeMap;

use flow::port_number::PortNumber;
use flow::request::{PortDescription, PortMod, Refusal};
use flow::step::PortIndex;

use super::bond::Bond;
use super::mirror::{Mirror, MirrorOutput};
use super::patch::Patch;
use super::vlans::PortVlans;

/// OpenFlow's bits of a port's configuration.
pub mod config {
    pub const PORT_DOWN: u32 = 1;
    pub const NO_RECEIVE: u32 = 1 << 2;
    pub const NO_FLOOD: u32 = 1 << 4;
    pub const NO_FORWARD: u32 = 1 << 5;
    /// A bit of the port's state, not of its configuration.
    pub const LINK_DOWN: u32 = 1;
}

/// A port of a bridge.
#[derive(Debug, Clone)]
pub struct BridgePort {
    pub index: PortIndex,
    pub description: PortDescription,
}

/// The ports of a bridge, by their OpenFlow numbers.
#[derive(Debug, Default)]
pub struct Ports {
    by_number: BTreeMap<PortNumber, BridgePort>,
    /// The VLAN settings of ports. Ports that carry all frames unchanged have no settings here.
    vlans: BTreeMap<PortNumber, PortVlans>,
    pub(crate) mirrors: Vec<Mirror>,
    /// The peers of patch ports.
    patches: BTreeMap<PortNumber, Patch>,
    bonds: Vec<Bond>,
    /// For each member of a bond, the index of the bond in `bonds`.
    bond_of: BTreeMap<PortNumber, usize>,
}

impl Ports {
    /// Adds a port. Returns the replaced port, which had the same number.
    pub fn insert(&mut self, port: BridgePort) -> Option<BridgePort> {
        self.by_number.insert(port.description.number, port)
    }

    pub fn remove(&mut self, number: PortNumber) -> Option<BridgePort> {
        self.vlans.remove(&number);
        self.patches.remove(&number);
        // Remove the port from the bonds now: another port may get this number before the bonds are
        // set again.
        for bond in &mut self.bonds {
            bond.members.retain(|member| *member != number);
            bond.enabled.retain(|member| *member != number);
            bond.active = bond.active.filter(|active| *active != number);
        }
        self.bond_of.remove(&number);
        self.by_number.remove(&number)
    }

    /// Returns the VLAN settings of a port; `None` if the port receives and sends all frames
    /// unchanged.
    #[must_use]
    pub fn vlans(&self, number: PortNumber) -> Option<&PortVlans> {
        self.vlans.get(&number)
    }

    pub(crate) fn set_vlans(&mut self, number: PortNumber, vlans: PortVlans) {
        match vlans.is_plain() {
            true => self.vlans.remove(&number),
            false => self.vlans.insert(number, vlans),
        };
    }

    /// Returns the peer of a patch port.
    #[must_use]
    pub fn patch(&self, number: PortNumber) -> Option<&Patch> {
        self.patches.get(&number)
    }

    /// Sets the peer of a patch port. Returns whether the peer changed.
    pub(crate) fn set_patch(&mut self, number: PortNumber, patch: Option<Patch>) -> bool {
        if self.patches.get(&number) == patch.as_ref() {
            return false;
        }
        match patch {
            Some(patch) => self.patches.insert(number, patch),
            None => self.patches.remove(&number),
        };
        true
    }

    #[must_use]
    pub fn bonds(&self) -> &[Bond] {
        &self.bonds
    }

    /// Returns the bond of a member port.
    #[must_use]
    pub fn bond(&self, number: PortNumber) -> Option<&Bond> {
        self.bond_of.get(&number).and_then(|place| self.bonds.get(*place))
    }

    /// Whether the switch itself takes a packet: an LACP frame at a member of a bond that speaks
    /// LACP.
    #[must_use]
    pub fn is_for_lacp(&self, number: PortNumber, ether_type: u16) -> bool {
        ether_type == LACP && self.bond(number).is_some_and(Bond::has_lacp)
    }

    pub(crate) fn set_bonds(&mut self, bonds: Vec<Bond>) {
        self.bond_of.clear();
        for (place, bond) in bonds.iter().enumerate() {
            for member in &bond.members {
                self.bond_of.entry(*member).or_insert(place);
            }
        }
        self.bonds = bonds;
    }

    /// Returns the port that represents the bond of a port, or the port itself if it is in no bond.
    #[must_use]
    pub fn bundle(&self, number: PortNumber) -> PortNumber {
        self.bond(number).and_then(|bond| bond.members.first().copied()).unwrap_or(number)
    }

    /// Whether a mirror outputs to the port. Such a port sends only copies.
    #[must_use]
    pub fn is_mirror_output(&self, number: PortNumber) -> bool {
        self.mirrors.iter().any(|mirror| self.is_output_of(mirror, number))
    }

    /// Whether a mirror outputs to the port or to its bond.
    pub(crate) fn is_output_of(&self, mirror: &Mirror, number: PortNumber) -> bool {
        match mirror.output {
            MirrorOutput::Port(output) => self.bundle(output) == self.bundle(number),
            MirrorOutput::Vlan(_) => false,
        }
    }

    #[must_use]
    pub fn port(&self, number: PortNumber) -> Option<&BridgePort> {
        self.by_number.get(&number)
    }

    pub fn iter(&self) -> impl Iterator<Item = &BridgePort> {
        self.by_number.values()
    }

    /// Refuses a change of a port that does not exist or has another address.
    pub fn check(&self, change: &PortMod) -> Result<(), Refusal> {
        let port = self.by_number.get(&change.number).ok_or(Refusal::BadPort)?;
        match change.hardware_address == port.description.hardware_address {
            true => Ok(()),
            false => Err(Refusal::BadHardwareAddress),
        }
    }
}

impl BridgePort {
    #[must_use]
    pub fn has(&self, bits: u32) -> bool {
        self.description.config & bits != 0
    }

    /// Whether a fast-failover group may choose the port.
    #[must_use]
    pub fn is_live(&self) -> bool {
        !self.has(config::PORT_DOWN) && self.description.state & config::LINK_DOWN == 0
    }
}

/// The Ethernet type of LACP and of other slow protocols.
const LACP: u16 = 0x8809;
