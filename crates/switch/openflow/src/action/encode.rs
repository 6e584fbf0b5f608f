use flow::action::{Action, Numbers, Row, Tags};
use flow::port_number::PortNumber;
use flow::{Field, Match};

use super::super::Version;
use super::super::match_entry::{Header, write_entry};
use super::super::octets::Put;
use super::nicira_encode::{encode_nicira, encode_register_load, nicira};
use super::{begin_nicira, finish};

/// Writes the actions of a rule. Some encodings depend on the packets that the rule matches.
#[derive(Debug, Clone)]
pub(crate) struct Encoder {
    pub(super) version: Version,
    /// Whether the packet has a VLAN tag when this action runs.
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
            Action::DecTtl(ids) if *ids == [0] && self.is_v10() => nicira(18, out, |_| {}),
            Action::DecTtl(ids) if *ids == [0] => standard(24, out, |_| {}),
            Action::SetVlanVid(vid) => self.set_vlan_vid(*vid, out),
            Action::SetVlanPcp(pcp) => self.set_vlan_pcp(*pcp, out),
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
            _ if action.row().is_plain() => self.plain(action.row(), action.numbers(), out),
            _ => encode_nicira(action, self, out),
        }
    }

    /// Writes an action as its row describes. Writes nothing if the version cannot express the
    /// action. For example, OpenFlow 1.0 has no push_vlan, because its set_vlan actions add the
    /// tag.
    fn plain(&mut self, row: &Row, numbers: Numbers, out: &mut Vec<u8>) {
        match row.tags {
            Tags::VlanAdded => self.has_vlan = true,
            Tags::VlanRemoved => self.has_vlan = false,
            Tags::Kept | Tags::EthTypeChanged => {}
        }
        let written = row.writes.filter(|_| !row.forms.is_empty());
        if let Some(field) = written.filter(|field| field.oxm().is_some())
            && self.has_set_field()
        {
            let field = self.of_protocol(field);
            return self.set_whole(field, row.written_value(numbers[0]), out);
        }
        let kind = if self.is_v10() { row.openflow10 } else { row.openflow11 };
        match (kind, row.nicira, written) {
            (Some(kind), ..) => standard_body(kind, row, numbers, out),
            (None, Some(subtype), _) => {
                let start = begin_nicira(subtype.into(), out);
                put_numbers(row, numbers, start, out);
            }
            (None, None, Some(field)) => {
                let value = row.written_value(numbers[0]);
                encode_register_load(field, value, field.place().all_ones(), out);
            }
            (None, None, None) => {}
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
        standard(21, out, |out| out.put_u32(queue));
        self.output(port, u16::MAX, out);
        nicira(5, out, |_| {});
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
            _ => match legacy(field, value as u64) {
                Some(action) if mask & field.place().all_ones() == field.place().all_ones() => {
                    self.encode(&action, out);
                }
                _ => encode_register_load(field, value, mask, out),
            },
        }
    }

    /// Returns the port field of the packet's protocol, given TCP's port field.
    fn of_protocol(&self, field: Field) -> Field {
        match (field, self.protocol) {
            (Field::TcpSrc, 17) => Field::UdpSrc,
            (Field::TcpSrc, 132) => Field::SctpSrc,
            (Field::TcpDst, 17) => Field::UdpDst,
            (Field::TcpDst, 132) => Field::SctpDst,
            _ => field,
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

fn standard_body(kind: u8, row: &Row, numbers: Numbers, out: &mut Vec<u8>) {
    let start = begin_standard(kind.into(), out);
    put_numbers(row, numbers, start, out);
}

/// Writes the arguments of the action that begins at `start`.
fn put_numbers(row: &Row, numbers: Numbers, start: usize, out: &mut Vec<u8>) {
    for (form, number) in row.forms.iter().zip(numbers) {
        let at = out.len() - start;
        out.put_zeros(at.next_multiple_of(form.alignment()) - at);
        out.put_number(number.into(), form.bytes());
    }
    finish(start, out);
}

/// Returns the action of OpenFlow 1.0 that sets the whole field.
fn legacy(field: Field, value: u64) -> Option<Action> {
    let kind = match field {
        Field::EthSrc => 4,
        Field::EthDst => 5,
        Field::IpSrc => 6,
        Field::IpDst => 7,
        Field::NwTos | Field::IpDscp => return Some(Action::SetIpTos((value as u8) << 2)),
        Field::TcpSrc | Field::UdpSrc => 9,
        Field::TcpDst | Field::UdpDst => 10,
        _ => return None,
    };
    Row::of_openflow10(kind)?.action([value, 0, 0, 0])
}
