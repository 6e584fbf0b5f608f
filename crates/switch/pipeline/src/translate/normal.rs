//! NORMAL: forwards like a switch that learns addresses.

use flow::Field;
use flow::port_number::PortNumber;

use super::Way;
use super::fields::PRESENT;
use crate::ports::config;
use crate::tables::lock;
use crate::vlans::PacketVlan;

impl Way<'_> {
    /// Whether the destination is an address to which bridges do not forward (802.1Q and others).
    pub(super) fn is_destination_reserved(&mut self) -> bool {
        is_reserved(address(self.read_field(Field::EthDst)))
    }

    pub(super) fn normal(&mut self) {
        let source = address(self.read_field(Field::EthSrc));
        let destination = address(self.read_field(Field::EthDst));
        let in_port = self.in_port();
        // A packet-out may have no input port. NORMAL learns nothing from such a packet-out.
        let has_port = !matches!(in_port, PortNumber::NONE | PortNumber::CONTROLLER);
        if has_port && self.tables.port_set().port(in_port).is_none() {
            self.note(">> received packet on unknown port");
            return;
        }
        if self.tables.port_set().is_mirror_output(in_port) {
            self.note(">> dropping packet received on port that is reserved for mirroring");
            return;
        }
        let Some(vlan) = self.vlan_from(in_port) else {
            self.note(">> dropping packet of a VLAN that the input port does not carry");
            return;
        };
        debug_assert!(vlan.id < PRESENT);
        if is_reserved(destination) && !self.tables.forwards_reserved {
            self.note("-> packet has reserved destination MAC, dropping");
            return;
        }
        let id = vlan.id;
        if !self.is_admissible(in_port, id) {
            return;
        }
        // All members of a bond count as one port.
        let tables = self.tables;
        let bundle_of = |port| tables.port_set().bundle(port);
        let bundle = bundle_of(in_port);
        let mut macs = lock(&self.tables.macs);
        // In a bridge that the packet entered through a patch port, a packet-out is treated like
        // any other packet.
        let is_received = !self.is_packet_out || self.floor > 0;
        let is_learning = self.observer.is_none() && is_received && has_port;
        let is_taught = is_learning && !self.lengths.is_elsewhere();
        let is_new = is_taught && macs.learn(id, source, bundle, self.now_ms);
        // A branch for the other result of a length check does not learn this packet's address.
        // Packets with such lengths are translated separately, and their addresses are learned
        // then.
        self.is_cacheable &=
            !is_learning || is_taught || macs.port(id, source, self.now_ms) == Some(bundle);
        let seen = if is_learning { macs.seen(id, source) } else { None };
        let is_multicast = destination[0] & 1 != 0;
        let port = if is_multicast { None } else { macs.port(id, destination, self.now_ms) };
        drop(macs);
        // An address that a command added stays at the bond member that the command named.
        let port = port.map(bundle_of);
        self.counters.extend(seen);
        if is_new {
            self.tables.invalidate();
        }
        match port {
            Some(port) if port == bundle => {
                self.note(">> learned port is input port, dropping");
            }
            Some(port) => {
                self.note("-> forwarding to learned port");
                if self.is_carried(vlan, port) {
                    self.emit_in(vlan, &[port], None);
                }
            }
            None => {
                self.note("-> no learned MAC for destination, flooding");
                self.flood_in(vlan);
            }
        }
    }

    fn flood_in(&mut self, vlan: PacketVlan) {
        let in_port = self.in_port();
        let tables = self.tables;
        let bundle = tables.port_set().bundle(in_port);
        let ports = self.ports_of(vlan, |port| {
            tables.port_set().bundle(port.description.number) != bundle
                && !port.has(config::NO_FLOOD)
        });
        self.emit_in(vlan, &ports, None);
    }
}

pub(super) fn address(number: u128) -> [u8; 6] {
    let bytes = number.to_be_bytes();
    [bytes[10], bytes[11], bytes[12], bytes[13], bytes[14], bytes[15]]
}

/// Whether bridges must not forward to an address: the addresses of IEEE 802.1D table 7-10 (among
/// them those of LLDP and STP), and the addresses of Extreme's and Cisco's protocols.
fn is_reserved(address: [u8; 6]) -> bool {
    match address {
        [0x01, 0x80, 0xc2, 0, 0, last] => last < 0x10,
        [0x00, 0xe0, 0x2b, 0, 0, last] => matches!(last, 0 | 4 | 6),
        [0x01, 0x00, 0x0c, 0, 0, 0] => true,
        [0x01, 0x00, 0x0c, 0xcc, 0xcc, last] => matches!(last, 0xcc..=0xcd),
        [0x01, 0x00, 0x0c, 0xcd, 0xcd, 0xcd] => true,
        _ => false,
    }
}
