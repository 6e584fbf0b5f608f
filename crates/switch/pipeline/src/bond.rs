//! Bonds: several ports that NORMAL and mirrors use as one port.

use flow::mix::mix;
use flow::port_number::PortNumber;

use crate::mac::MacEntry;
use crate::vlans::PortVlans;

/// The present state of a bond. The switch decides which members may send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bond {
    /// The members. The first member represents the bond.
    pub members: Vec<PortNumber>,
    /// The enabled members, which may send, sorted by name.
    pub enabled: Vec<PortNumber>,
    /// The member that sends all packets of an active-backup bond, and that receives multicast.
    pub active: Option<PortNumber>,
    pub balance: Balance,
    /// A value that enters the hash by which the bond chooses a member for a packet.
    pub basis: u32,
    /// Whether all members receive multicast.
    pub all_active: bool,
    pub lacp: LacpState,
}

/// The state of LACP on a bond.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LacpState {
    /// The bond has no LACP.
    #[default]
    Off,
    /// No member has a partner, and the bond carries no traffic.
    Waiting,
    /// No member has a partner, and the bond works as active-backup.
    FallenBack,
    Negotiated,
}

/// The method by which a bond chooses a member for a packet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Balance {
    #[default]
    ActiveBackup,
    /// By source MAC address and VLAN.
    Slb,
    /// By the addresses and ports of the packet.
    Tcp,
}

impl Bond {
    /// Chooses the enabled member that sends packets with this hash. A packet keeps its member when
    /// members other than its own are enabled or disabled.
    pub(crate) fn member_of_hash(&self, hash: u64) -> Option<PortNumber> {
        self.enabled.iter().copied().max_by_key(|member| mix(hash, member.0.into()))
    }

    /// Returns the bond's present method for choosing a member; `None` if no member may send.
    pub(crate) fn present_balance(&self) -> Option<Balance> {
        match self.lacp {
            LacpState::Off | LacpState::Negotiated => Some(self.balance),
            LacpState::Waiting => None,
            LacpState::FallenBack => Some(Balance::ActiveBackup),
        }
    }

    /// Whether the switch itself takes the LACP frames that a member receives.
    pub(crate) fn has_lacp(&self) -> bool {
        self.lacp != LacpState::Off
    }

    /// Returns the hash of balance-slb: of a source address and a VLAN.
    pub(crate) fn slb_hash(&self, address: u64, vlan: u16) -> u64 {
        slb_hash(address, vlan, self.basis).into()
    }

    /// Returns a learning packet for each address that is behind another port, with the member that
    /// sends the packet. These packets tell the connected switch that the addresses have moved to
    /// other members of the bond. `vlans`: the VLAN settings of the bond, `None` for a port that
    /// sends all frames unchanged.
    #[must_use]
    pub fn learning_packets(
        &self,
        macs: &[MacEntry],
        vlans: Option<&PortVlans>,
    ) -> Vec<(PortNumber, Vec<u8>)> {
        let packet = |entry: &MacEntry| {
            let address =
                entry.address.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
            let member = match self.present_balance()? {
                Balance::Slb => self.member_of_hash(self.slb_hash(address, entry.vlan)),
                Balance::ActiveBackup | Balance::Tcp => self.active,
            };
            let tag = match vlans {
                Some(vlans) => vlans.tag_of_sent(entry.vlan),
                None => (entry.vlan != 0).then_some(entry.vlan),
            };
            Some((member?, reverse_arp(entry.address, tag)))
        };
        let is_sent = |vlan: u16| vlans.is_none_or(|vlans| vlans.carries(vlan));
        let elsewhere =
            macs.iter().filter(|entry| !self.members.contains(&entry.port) && is_sent(entry.vlan));
        elsewhere.filter_map(packet).collect()
    }
}

/// Returns the hash of a source address, as a number of six bytes, in a VLAN. The hash is Open
/// vSwitch's: the last byte of MurmurHash3.
#[must_use]
pub fn slb_hash(address: u64, vlan: u16, basis: u32) -> u8 {
    let words = u64::from(vlan) << 48 | address;
    let mut hash = [words as u32, (words >> 32) as u32].into_iter().fold(basis, |hash, word| {
        let word = word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
        (hash ^ word).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
    });
    hash ^= BYTES_HASHED;
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    (hash ^ hash >> 16) as u8
}

const BYTES_HASHED: u32 = 8;

/// Builds a reverse ARP request of a host (RFC 903) for its own address, as Open vSwitch does.
fn reverse_arp(address: [u8; 6], tag: Option<u16>) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend(address);
    if let Some(vlan) = tag {
        frame.extend([0x81, 0]);
        frame.extend(vlan.to_be_bytes());
    }
    // The Ethernet type; then hardware type Ethernet, protocol type IPv4, the address lengths and
    // the operation.
    frame.extend([0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3]);
    for _ in 0..2 {
        frame.extend(address);
        frame.extend([0; 4]);
    }
    frame
}
