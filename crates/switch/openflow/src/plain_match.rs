use flow::port_number::PortNumber;
use flow::request::Refusal;
use flow::{Field, Match};

use super::octets::{Put, Reader};

/// Reads OpenFlow 1.0's match of 40 bytes. As in Open vSwitch, fields without their prerequisites
/// are ignored.
pub(super) fn read_plain_match(reader: &mut Reader<'_>) -> Result<Match, Refusal> {
    let wildcards = reader.u32()?;
    let in_port = PortNumber::from_16_bits(reader.u16()?);
    let source = reader.number(6)?;
    let destination = reader.number(6)?;
    let vlan = reader.u16()?;
    let vlan_pcp = reader.u8()?;
    reader.skip(1)?;
    let ethertype = reader.u16()?;
    let tos = reader.u8()?;
    let protocol = reader.u8()?;
    reader.skip(2)?;
    let ip_source = reader.u32()?;
    let ip_destination = reader.u32()?;
    let tp_source = reader.u16()?;
    let tp_destination = reader.u16()?;

    let is_set = |bit: u32| wildcards & bit == 0;
    let mut matching = Match::any();
    if is_set(IN_PORT) {
        matching.set(Field::InPort, in_port.0.into());
    }
    if is_set(DL_SRC) {
        matching.set(Field::EthSrc, source);
    }
    if is_set(DL_DST) {
        matching.set(Field::EthDst, destination);
    }
    if is_set(DL_VLAN) && vlan == NO_VLAN {
        matching.set(Field::VlanTci, 0);
    } else {
        let tag = u128::from(vlan & 0xfff) | u128::from(vlan_pcp & 7) << 13 | 0x1000;
        let vid_mask = if is_set(DL_VLAN) { 0x1fff } else { 0 };
        let pcp_mask = if is_set(DL_VLAN_PCP) { 0xf000 } else { 0 };
        if vid_mask | pcp_mask != 0 {
            matching.set_masked(Field::VlanTci, tag, vid_mask | pcp_mask);
        }
    }
    if !is_set(DL_TYPE) {
        return Ok(matching);
    }
    // 0x5ff means that the frame has a length instead of an Ethernet type. Keys use the same
    // number.
    matching.set(Field::EthType, ethertype.into());
    let is_ipv4 = ethertype == 0x0800;
    let is_arp = matches!(ethertype, 0x0806 | 0x8035);
    if is_set(NW_TOS) && is_ipv4 {
        matching.set(Field::IpDscp, (tos >> 2).into());
    }
    if is_ipv4 || is_arp {
        for (field, value, shift) in
            [(Field::IpSrc, ip_source, 8), (Field::IpDst, ip_destination, 14)]
        {
            let wild = wildcards >> shift & 0x3f;
            let mask = u32::MAX.checked_shl(wild).unwrap_or(0);
            if mask != 0 {
                matching.set_masked(field, value.into(), mask.into());
            }
        }
    }
    if is_set(NW_PROTO) && is_arp {
        matching.set(Field::ArpOp, protocol.into());
    }
    if is_set(NW_PROTO) && is_ipv4 {
        matching.set(Field::NwProto, protocol.into());
        let (source, destination) = match protocol {
            1 => (Field::IcmpType, Field::IcmpCode),
            6 | 17 | 132 => (Field::TcpSrc, Field::TcpDst),
            _ => return Ok(matching),
        };
        if is_set(TP_SRC) {
            matching.set(source, tp_source.into());
        }
        if is_set(TP_DST) {
            matching.set(destination, tp_destination.into());
        }
    }
    Ok(matching)
}

/// Writes OpenFlow 1.0's match. Leaves out the fields and masks that OpenFlow 1.0 cannot express.
pub(super) fn write_plain_match(matching: &Match, out: &mut Vec<u8>) {
    let value = |field: Field| matching.value.read(field);
    let mut wildcards = 0;
    let is_arp = matches!(value(Field::EthType), 0x0806 | 0x8035);
    let is_ipv4 = value(Field::EthType) == 0x0800;
    let is_icmp = is_ipv4 && value(Field::NwProto) == 1;
    let protocol = if is_arp { Field::ArpOp } else { Field::NwProto };
    let (tp_source, tp_destination) = match is_icmp {
        true => (Field::IcmpType, Field::IcmpCode),
        false => (Field::TcpSrc, Field::TcpDst),
    };
    for (field, bit) in [
        (Field::InPort, IN_PORT),
        (Field::EthSrc, DL_SRC),
        (Field::EthDst, DL_DST),
        (Field::EthType, DL_TYPE),
        (protocol, NW_PROTO),
        (Field::IpDscp, NW_TOS),
        (tp_source, TP_SRC),
        (tp_destination, TP_DST),
    ] {
        if !matching.is_exact(field) {
            wildcards |= bit;
        }
    }
    for (field, shift) in [(Field::IpSrc, 8), (Field::IpDst, 14)] {
        let mask = matching.mask.read(field) as u32;
        wildcards |= mask.leading_ones().abs_diff(32) << shift;
    }
    let tag = value(Field::VlanTci) as u16;
    let tag_mask = matching.mask.read(Field::VlanTci) as u16;
    let is_untagged = tag_mask & 0x1000 != 0 && tag & 0x1000 == 0;
    if tag_mask & 0xfff != 0xfff && !is_untagged {
        wildcards |= DL_VLAN;
    }
    if tag_mask & 0xe000 != 0xe000 || is_untagged {
        wildcards |= DL_VLAN_PCP;
    }
    out.put_u32(wildcards);
    let in_port = PortNumber(value(Field::InPort) as u32);
    out.put_u16(in_port.to_16_bits().unwrap_or(0));
    out.put_number(value(Field::EthSrc), 6);
    out.put_number(value(Field::EthDst), 6);
    out.put_u16(if is_untagged { NO_VLAN } else { tag & 0xfff });
    out.put_u8((tag >> 13) as u8);
    out.put_zeros(1);
    out.put_u16(value(Field::EthType) as u16);
    out.put_u8((value(Field::IpDscp) as u8) << 2);
    out.put_u8(if matching.is_set(protocol) { value(protocol) as u8 } else { 0 });
    out.put_zeros(2);
    out.put_u32(value(Field::IpSrc) as u32);
    out.put_u32(value(Field::IpDst) as u32);
    out.put_u16(value(tp_source) as u16);
    out.put_u16(value(tp_destination) as u16);
}

const IN_PORT: u32 = 1;
const DL_VLAN: u32 = 1 << 1;
const DL_SRC: u32 = 1 << 2;
const DL_DST: u32 = 1 << 3;
const DL_TYPE: u32 = 1 << 4;
const NW_PROTO: u32 = 1 << 5;
const TP_SRC: u32 = 1 << 6;
const TP_DST: u32 = 1 << 7;
const DL_VLAN_PCP: u32 = 1 << 20;
const NW_TOS: u32 = 1 << 21;
const NO_VLAN: u16 = 0xffff;
