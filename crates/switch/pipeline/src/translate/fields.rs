//! Reads and writes of fields, and the bits on which the translation depends.

use flow::action::Subfield;
use flow::{Field, Key, Place, Prerequisite, word};

use super::Way;
use super::vlan::VLAN;

impl Way<'_> {
    /// Records that the steps depend on these bits of the packet. Leaves out bits that actions
    /// wrote before.
    pub(super) fn depend(&mut self, index: usize, bits: u64) {
        self.mask.words[index] |= bits & !self.written.words[index];
        self.lengths.depend(index, bits);
    }

    pub(super) fn depend_on(&mut self, mask: &Key) {
        for (index, bits) in mask.words.iter().enumerate() {
            self.depend(index, *bits);
        }
    }

    /// Reads a metadata word that is stored with the state of a waiting packet. The result has no
    /// `dp_hash`.
    pub(super) fn read_metadata(&mut self, index: usize) -> u64 {
        let bits = if index == word::PKT_MARK { PKT_MARK } else { u64::MAX };
        self.depend(index, bits);
        self.flow.words[index] & bits
    }

    pub(super) fn read_field(&mut self, field: Field) -> u128 {
        self.read(Subfield::whole(field))
    }

    pub(super) fn read(&mut self, source: Subfield) -> u128 {
        let mut bits = Key::ZERO;
        let place = place(source);
        write_part(&mut bits, source, u128::MAX);
        let first = usize::from(place.word);
        for index in [first, first + usize::from(place.width > 64)] {
            self.depend(index, bits.words[index]);
        }
        read_part(&self.flow, source)
    }

    /// Handles `load`, `move` and other writes to a part of a field. Does nothing if the packet
    /// lacks the field.
    pub(super) fn write(&mut self, to: Subfield, value: u128) {
        let mask = ones(to.width) << to.start;
        self.write_masked(to.field, value << to.start, mask);
    }

    pub(super) fn write_masked(&mut self, field: Field, value: u128, mask: u128) {
        if !self.has(field.prerequisite()) {
            return;
        }
        match field {
            Field::VlanTci | Field::VlanVid => self.write_tci(value as u16, mask as u16),
            Field::DlVlan => {
                self.write_tci(value as u16 & VLAN | PRESENT, mask as u16 & VLAN | PRESENT);
                if self.is_alike {
                    // Open vSwitch replaces the tag, so its megaflows also depend on the priority.
                    self.read_field(Field::DlVlanPcp);
                }
            }
            Field::DlVlanPcp | Field::VlanPcp => {
                self.write_tci((value as u16) << 13 | PRESENT, (mask as u16) << 13 | PRESENT);
            }
            _ => self.store(field, value, mask),
        }
    }

    /// Sets bits of a field that the packet has.
    pub(super) fn store(&mut self, field: Field, value: u128, mask: u128) {
        let mask = mask & field.place().all_ones();
        let former = self.flow.read(field);
        self.flow.write(field, former & !mask | value & mask);
        let mut bits = Key::ZERO;
        bits.write(field, mask);
        let is_header = usize::from(field.place().word) >= word::ETH_SRC;
        if is_header && self.is_alike {
            // Open vSwitch compares a set field with the packet's former value, so its megaflows
            // depend on the former value.
            self.depend_on(&bits);
        }
        self.written.unite(&bits);
        self.lengths.close(&bits);
        if is_header {
            self.pending.unite(&bits);
        }
    }

    /// As in Open vSwitch, an action that sets a field of the network header depends on the
    /// protocol.
    pub(super) fn depend_on_protocol(&mut self, field: Field) {
        let is_network = word::is_network(field.place().word.into()) || field == Field::Ipv6Label;
        if self.is_alike && is_network && self.has(field.prerequisite()) {
            self.read_field(Field::NwProto);
        }
    }

    /// Records a field's value that the datapath already has, so that no Rewrite step is needed.
    pub(super) fn assume(&mut self, field: Field, value: u128) {
        self.flow.write(field, value);
        self.written.write(field, u128::MAX);
        self.pending.write(field, 0);
    }

    pub(super) fn eth_type(&mut self) -> u16 {
        self.read_field(Field::EthType) as u16
    }

    pub(super) fn has(&mut self, prerequisite: Prerequisite) -> bool {
        match prerequisite {
            Prerequisite::Any => true,
            Prerequisite::Vlan => self.is_tagged(),
            Prerequisite::Mpls => matches!(self.eth_type(), 0x8847 | 0x8848),
            Prerequisite::Arp => matches!(self.eth_type(), 0x0806 | 0x8035),
            Prerequisite::Ipv4 => self.eth_type() == IPV4,
            Prerequisite::Ipv6 => self.eth_type() == IPV6,
            Prerequisite::Ip => matches!(self.eth_type(), IPV4 | IPV6),
            Prerequisite::Tcp => self.has_transport(&[6]),
            Prerequisite::Udp => self.has_transport(&[17]),
            Prerequisite::Sctp => self.has_transport(&[132]),
            Prerequisite::Icmpv4 => self.eth_type() == IPV4 && self.has_transport(&[1]),
            Prerequisite::Icmpv6 => self.eth_type() == IPV6 && self.has_transport(&[58]),
            Prerequisite::NeighborDiscovery => self.is_discovery(&[135, 136]),
            Prerequisite::NeighborSolicitation => self.is_discovery(&[135]),
            Prerequisite::NeighborAdvertisement => self.is_discovery(&[136]),
        }
    }

    /// Whether the packet has a transport header of one of these protocols. A later fragment has no
    /// transport header.
    pub(super) fn has_transport(&mut self, protocols: &[u8]) -> bool {
        const LATER: u128 = 2;
        self.has(Prerequisite::Ip)
            && protocols.contains(&(self.read_field(Field::NwProto) as u8))
            && self.read_field(Field::IpFrag) & LATER == 0
    }

    fn is_discovery(&mut self, types: &[u8]) -> bool {
        self.has(Prerequisite::Icmpv6)
            && types.contains(&(self.read_field(Field::Icmpv6Type) as u8))
            && self.read_field(Field::Icmpv6Code) == 0
    }
}

/// Returns the position of a part's field.
fn place(part: Subfield) -> Place {
    part.field.place()
}

pub(super) fn ones(width: u8) -> u128 {
    if width >= 128 { u128::MAX } else { (1 << width) - 1 }
}

pub(super) fn read_part(key: &Key, part: Subfield) -> u128 {
    key.read(part.field) >> part.start & ones(part.width)
}

pub(super) fn write_part(key: &mut Key, part: Subfield, value: u128) {
    let mask = ones(part.width) << part.start;
    let former = key.read(part.field);
    key.write(part.field, former & !mask | value << part.start & mask);
}

pub(super) const IPV4: u16 = 0x0800;
pub(super) const IPV6: u16 = 0x86dd;
/// The bit that marks a tag as present, in the word of the tag.
pub(super) const PRESENT: u16 = 0x1000;
/// The bits of `pkt_mark` in the word that also holds `dp_hash`.
const PKT_MARK: u64 = 0xffff_ffff_0000_0000;
