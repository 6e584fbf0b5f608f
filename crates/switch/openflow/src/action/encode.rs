use flow::action::Action;
use flow::port_number::PortNumber;
use flow::{Field, Match};

use super::super::Version;
use super::super::match_entry::{Header, write_entry};
use super::super::octets::Put;
use super::nicira_encode::{encode_nicira, encode_register_load};
use super::{begin_nicira, finish};

/// Writes actions, for packets that match the rule.
#[derive(Debug, Clone)]
pub(crate) struct Encoder {
    pub(super) version: Version,
    /// Whether the packet has a VLAN tag at this action.
    has_vlan: bool,
    protocol: u8,
}

impl Encoder {
    pub(crate) fn new(version: Version, matching: &Match) -> Self {
        Self {
            version,
            has_vlan: matching.value.read(Field::VlanTci) & 0x1000 != 0,
            protocol: matching.value.read(Field::NwProto) as u8,
        }
    }

    pub(crate) fn encode_all(&mut self, actions: &[Action], out: &mut Vec<u8>) {
        for action in actions {
            self.encode(action, out);
        }
    }

    /// Writes an action. Writes nothing for an action that OpenFlow 1.0 cannot express.
    pub(crate) fn encode(&mut self, action: &Action, out: &mut Vec<u8>) {
        match action {
            Action::Output { port, max_len } => self.output(*port, *max_len, out),
            Action::Enqueue { port, queue } => self.enqueue(*port, *queue, out),
            Action::Group(group) => self.number_action(22, 40, *group, out),
            Action::SetQueue(queue) => self.number_action(21, 4, *queue, out),
            Action::SetMplsLabel(label) => {
                self.mpls_field(Field::MplsLabel, (*label).into(), out);
            }
            Action::SetMplsTc(class) => self.mpls_field(Field::MplsTc, (*class).into(), out),
            Action::SetMplsTtl(ttl) => self.byte_action(15, 25, *ttl, out),
            Action::SetIpTtl(ttl) if self.is_v10() => {
                encode_register_load(Field::NwTtl, (*ttl).into(), 0xff, out);
            }
            Action::SetIpTtl(ttl) => standard(23, out, |out| out.put_u8(*ttl)),
            Action::DecMplsTtl => self.void_action(16, 26, out),
            Action::DecTtl(ids) if *ids == [0] => self.void_action(24, 18, out),
            Action::PushMpls(ethertype) => self.ethertype_action(19, 23, *ethertype, out),
            Action::PopMpls(ethertype) => self.ethertype_action(20, 24, *ethertype, out),
            // In OpenFlow 1.0, the set_vlan actions add the tag.
            Action::PushVlan(_) if self.is_v10() => {}
            Action::PushVlan(ethertype) => self.push_vlan(*ethertype, out),
            Action::StripVlan => {
                self.has_vlan = false;
                standard(if self.is_v10() { 3 } else { 18 }, out, |_| {});
            }
            Action::SetVlanVid(vid) => self.set_vlan_vid(*vid, out),
            Action::SetVlanPcp(pcp) => self.set_vlan_pcp(*pcp, out),
            Action::SetEthSrc(address) => {
                self.legacy(4, Field::EthSrc, from_bytes(address), out);
            }
            Action::SetEthDst(address) => {
                self.legacy(5, Field::EthDst, from_bytes(address), out);
            }
            Action::SetIpv4Src(address) => {
                self.legacy(6, Field::IpSrc, address.to_bits().into(), out);
            }
            Action::SetIpv4Dst(address) => {
                self.legacy(7, Field::IpDst, address.to_bits().into(), out);
            }
            Action::SetIpTos(tos) => self.legacy(8, Field::IpDscp, (*tos >> 2).into(), out),
            Action::SetIpEcn(ecn) if self.is_v10() => {
                encode_register_load(Field::NwEcn, (*ecn).into(), 3, out);
            }
            Action::SetIpEcn(ecn) if !self.has_set_field() => {
                standard(8, out, |out| out.put_u8(*ecn));
            }
            Action::SetIpEcn(ecn) => self.set_whole(Field::NwEcn, (*ecn).into(), out),
            Action::SetTpSrc(port) => self.legacy(9, self.source_port(), (*port).into(), out),
            Action::SetTpDst(port) => {
                self.legacy(10, self.destination_port(), (*port).into(), out);
            }
            Action::SetTunnel(id) if self.has_set_field() => {
                self.set_whole(Field::TunId, (*id).into(), out);
            }
            Action::SetField { field, value, mask } => {
                self.set_field(*field, *value, *mask, out);
            }
            Action::Load { destination, value } if self.version == Version::V15 => {
                let ones = u128::MAX >> (128 - u32::from(destination.width.clamp(1, 128)));
                let (value, mask) = (value << destination.start, ones << destination.start);
                self.set_field(destination.field, value, mask, out);
            }
            Action::Move { source, destination } if self.version == Version::V15 => {
                let start = begin_standard(28, out);
                out.put_u16(source.width.into());
                out.put_u16(source.start.into());
                out.put_u16(destination.start.into());
                out.put_zeros(2);
                out.put_u32(Header::of(source.field, self.version).0);
                out.put_u32(Header::of(destination.field, self.version).0);
                finish(start, out);
            }
            Action::Meter(meter) => {
                if self.version == Version::V15 {
                    standard(29, out, |out| out.put_u32(*meter));
                }
            }
            Action::GotoTable(_)
            | Action::ClearActions
            | Action::WriteActions(_)
            | Action::WriteMetadata { .. }
                if !self.is_v10() => {}
            _ => encode_nicira(action, self, out),
        }
    }

    /// Whether the version has set_field.
    fn has_set_field(&self) -> bool {
        self.version >= Version::V12
    }

    fn is_v10(&self) -> bool {
        self.version == Version::V10
    }

    fn output(&self, port: PortNumber, max_len: u16, out: &mut Vec<u8>) {
        standard(0, out, |out| {
            if self.is_v10() {
                out.put_u16(port.to_16_bits().unwrap_or(0xffff));
                out.put_u16(max_len);
            } else {
                out.put_u32(port.0);
                out.put_u16(max_len);
                out.put_zeros(6);
            }
        });
    }

    fn enqueue(&self, port: PortNumber, queue: u32, out: &mut Vec<u8>) {
        if self.is_v10() {
            standard(11, out, |out| {
                out.put_u16(port.to_16_bits().unwrap_or(0xffff));
                out.put_zeros(6);
                out.put_u32(queue);
            });
            return;
        }
        self.number_action(21, 4, queue, out);
        self.output(port, u16::MAX, out);
        encode_nicira(&Action::PopQueue, &mut self.clone(), out);
    }

    fn push_vlan(&mut self, ethertype: u16, out: &mut Vec<u8>) {
        self.has_vlan = true;
        standard(17, out, |out| out.put_u16(ethertype));
    }

    fn set_vlan_vid(&mut self, vid: u16, out: &mut Vec<u8>) {
        if self.is_v10() {
            return standard(1, out, |out| out.put_u16(vid));
        }
        if !self.has_vlan {
            self.push_vlan(0x8100, out);
        }
        if !self.has_set_field() {
            return standard(1, out, |out| out.put_u16(vid));
        }
        self.set_whole(Field::VlanVid, u128::from(vid) | 0x1000, out);
    }

    fn set_vlan_pcp(&mut self, pcp: u8, out: &mut Vec<u8>) {
        if self.is_v10() {
            return standard(2, out, |out| out.put_u8(pcp));
        }
        if !self.has_vlan {
            self.push_vlan(0x8100, out);
        }
        if !self.has_set_field() {
            return standard(2, out, |out| out.put_u8(pcp));
        }
        self.set_whole(Field::VlanPcp, pcp.into(), out);
    }

    fn mpls_field(&self, field: Field, value: u128, out: &mut Vec<u8>) {
        if self.has_set_field() {
            return self.set_whole(field, value, out);
        }
        if !self.is_v10() {
            let is_class = field == Field::MplsTc;
            return standard(if is_class { 14 } else { 13 }, out, |out| match is_class {
                true => out.put_u8(value as u8),
                false => out.put_u32(value as u32),
            });
        }
        if field == Field::MplsTc {
            return self.byte_action(14, 31, value as u8, out);
        }
        let start = begin_nicira(30, out);
        out.put_zeros(2);
        out.put_u32(value as u32);
        finish(start, out);
    }

    /// Writes an action that sets a whole field: in OpenFlow 1.0 and 1.1 the action of that field,
    /// in later versions set_field. `kind` is the action's number in OpenFlow 1.0; most have a
    /// number one lower in OpenFlow 1.1.
    fn legacy(&self, kind: u16, field: Field, value: u128, out: &mut Vec<u8>) {
        if self.has_set_field() {
            return self.set_whole(field, value, out);
        }
        let number = if self.is_v10() || kind > 8 { kind } else { kind - 1 };
        standard(number, out, |out| match kind {
            4 | 5 => out.put_number(value, 6),
            6 | 7 => out.put_number(value, 4),
            8 => out.put_u8((value as u8) << 2),
            _ => out.put_u16(value as u16),
        });
    }

    fn set_whole(&self, field: Field, value: u128, out: &mut Vec<u8>) {
        let start = begin_standard(25, out);
        write_entry(field, value, u128::MAX, self.version, out);
        finish(start, out);
    }

    fn set_field(&mut self, field: Field, value: u128, mask: u128, out: &mut Vec<u8>) {
        if self.has_set_field() {
            let ones = field.place().all_ones();
            let tag = field == Field::DlVlan;
            let value = if tag { value | 0x1000 } else { value };
            if mask & ones == ones || self.version == Version::V15 {
                let start = begin_standard(25, out);
                let mask = if tag { u128::MAX } else { mask };
                write_entry(field, value, mask, self.version, out);
                finish(start, out);
            } else {
                encode_register_load(field, value, mask, out);
            }
            return;
        }
        match field {
            Field::VlanTci if value & 0x1000 == 0 => self.encode(&Action::StripVlan, out),
            Field::VlanTci => {
                self.set_vlan_vid(value as u16 & 0xfff, out);
                self.set_vlan_pcp((value >> 13) as u8 & 7, out);
            }
            Field::VlanVid | Field::DlVlan => self.set_vlan_vid(value as u16 & 0xfff, out),
            Field::VlanPcp | Field::DlVlanPcp => self.set_vlan_pcp(value as u8 & 7, out),
            Field::NwEcn if mask & 3 == 3 => self.encode(&Action::SetIpEcn(value as u8), out),
            _ => match legacy_kind(field) {
                Some(kind) if mask & field.place().all_ones() == field.place().all_ones() => {
                    self.legacy(kind, field, value, out);
                }
                _ => encode_register_load(field, value, mask, out),
            },
        }
    }

    fn source_port(&self) -> Field {
        match self.protocol {
            17 => Field::UdpSrc,
            132 => Field::SctpSrc,
            _ => Field::TcpSrc,
        }
    }

    fn destination_port(&self) -> Field {
        match self.protocol {
            17 => Field::UdpDst,
            132 => Field::SctpDst,
            _ => Field::TcpDst,
        }
    }

    /// Writes an action whose only argument is a number. In OpenFlow 1.0 it is a Nicira action.
    fn number_action(&self, kind: u16, nicira: u16, number: u32, out: &mut Vec<u8>) {
        if self.is_v10() {
            let start = begin_nicira(nicira, out);
            out.put_zeros(2);
            out.put_u32(number);
            finish(start, out);
        } else {
            standard(kind, out, |out| out.put_u32(number));
        }
    }

    fn byte_action(&self, kind: u16, nicira: u16, number: u8, out: &mut Vec<u8>) {
        if self.is_v10() {
            let start = begin_nicira(nicira, out);
            out.put_u8(number);
            finish(start, out);
        } else {
            standard(kind, out, |out| out.put_u8(number));
        }
    }

    fn ethertype_action(&self, kind: u16, nicira: u16, ethertype: u16, out: &mut Vec<u8>) {
        if self.is_v10() {
            let start = begin_nicira(nicira, out);
            out.put_u16(ethertype);
            finish(start, out);
        } else {
            standard(kind, out, |out| out.put_u16(ethertype));
        }
    }

    fn void_action(&self, kind: u16, nicira: u16, out: &mut Vec<u8>) {
        if self.is_v10() {
            let start = begin_nicira(nicira, out);
            finish(start, out);
        } else {
            standard(kind, out, |_| {});
        }
    }
}

/// Writes a list of actions. [`super::encode_instructions`] writes the instructions of OpenFlow
/// 1.1.
pub(crate) fn encode_actions(
    actions: &[Action],
    version: Version,
    matching: &Match,
    out: &mut Vec<u8>,
) {
    Encoder::new(version, matching).encode_all(actions, out);
}

fn begin_standard(kind: u16, out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.put_u16(kind);
    out.put_u16(0);
    start
}

fn standard(kind: u16, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = begin_standard(kind, out);
    body(out);
    finish(start, out);
}

fn from_bytes(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |value, byte| value << 8 | u128::from(*byte))
}

/// Returns the number of the action that sets a field in OpenFlow 1.0.
fn legacy_kind(field: Field) -> Option<u16> {
    Some(match field {
        Field::EthSrc => 4,
        Field::EthDst => 5,
        Field::IpSrc => 6,
        Field::IpDst => 7,
        Field::NwTos | Field::IpDscp => 8,
        Field::TcpSrc | Field::UdpSrc => 9,
        Field::TcpDst | Field::UdpDst => 10,
        _ => return None,
    })
}
