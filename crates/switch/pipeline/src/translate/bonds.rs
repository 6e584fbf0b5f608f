//! The members of bonds: the choice of the sender, and the packets that members accept.

use flow::Field;
use flow::port_number::PortNumber;

use super::Way;
use crate::bond::{Balance, LacpState};

impl Way<'_> {
    /// Chooses the port that sends a packet for `port`, which may represent a bond.
    pub(super) fn sender(&mut self, port: PortNumber, vlan: u16) -> Option<PortNumber> {
        let tables = self.tables;
        let Some(bond) = tables.port_set().bond(port) else { return Some(port) };
        let hash = match bond.present_balance()? {
            Balance::ActiveBackup => return bond.active,
            Balance::Slb => {
                let address = self.read_field(Field::EthSrc) as u64;
                bond.slb_hash(address, vlan)
            }
            Balance::Tcp => self.hash_connection(bond.basis.into()),
        };
        bond.member_of_hash(hash)
    }

    /// Whether a bond accepts a packet at a member port. As in Open vSwitch, a bond drops further
    /// copies of a packet that arrive at other members, and packets that the bond itself has sent.
    pub(super) fn is_admissible(&mut self, in_port: PortNumber, vlan: u16) -> bool {
        let tables = self.tables;
        let Some(bond) = tables.port_set().bond(in_port) else { return true };
        let is_active = bond.active == Some(in_port);
        let is_multicast = self.read_field(Field::EthDst) >> 40 & 1 != 0;
        let is_backup = is_multicast && !is_active && !bond.all_active;
        let is_refused = match (bond.lacp, bond.balance) {
            (LacpState::Waiting, _) => true,
            // The connected switch also treats these ports as one bond.
            (LacpState::Negotiated, _) | (LacpState::Off, Balance::Tcp) => {
                !bond.enabled.contains(&in_port)
            }
            (LacpState::Off | LacpState::FallenBack, Balance::Slb) => is_backup,
            (LacpState::Off | LacpState::FallenBack, _) => !is_active,
        };
        if is_refused {
            self.note("-> bonding refused admissibility, dropping");
            return false;
        }
        if bond.balance == Balance::Slb && bond.lacp != LacpState::Negotiated {
            let source = super::normal::address(self.read_field(Field::EthSrc));
            let known = crate::tables::lock(&tables.macs).port(vlan, source, self.now_ms);
            let bundle = tables.port_set().bundle(in_port);
            let is_elsewhere = known.is_some_and(|port| tables.port_set().bundle(port) != bundle);
            if is_elsewhere && !self.is_gratuitous_arp() {
                self.note("-> SLB bond thinks this packet looped back, dropping");
                return false;
            }
        }
        true
    }

    /// Whether the packet is an ARP packet by which a host announces its location.
    fn is_gratuitous_arp(&mut self) -> bool {
        const ARP: u16 = 0x0806;
        const REPLY: u128 = 2;
        let is_broadcast = self.read_field(Field::EthDst) == 0xffff_ffff_ffff;
        self.eth_type() == ARP
            && (self.read_field(Field::ArpOp) == REPLY && is_broadcast
                || self.read_field(Field::ArpSpa) == self.read_field(Field::ArpTpa))
    }
}
