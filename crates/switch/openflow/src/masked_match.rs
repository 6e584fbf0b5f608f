use flow::port_number::PortNumber;
use flow::request::Refusal;
use flow::{Field, Match};

use super::octets::{Put, Reader};

/// Reads OpenFlow 1.1's match of 88 bytes, starting after its type and length. In the masks of this
/// match, ones are wildcards.
pub(super) fn read_masked_match(reader: &mut Reader<'_>) -> Result<Match, Refusal> {
    let in_port = PortNumber(reader.u32()?);
    let wildcards = reader.u32()?;
    let is_set = |bit: u32| wildcards & bit == 0;
    let mut matching = Match::any();
    if is_set(IN_PORT) {
        matching.set(Field::InPort, in_port.0.into());
    }
    for field in [Field::EthSrc, Field::EthDst] {
        let (value, wild) = (reader.number(6)?, reader.number(6)?);
        set(&mut matching, field, value, !wild & 0xffff_ffff_ffff);
    }
    let (vlan, pcp) = (reader.u16()?, reader.u8()?);
    reader.skip(1)?;
    if is_set(DL_VLAN) {
        read_vlan(&mut matching, vlan, is_set(DL_VLAN_PCP).then_some(pcp))?;
    }
    let ethertype = reader.u16()?;
    let (tos, protocol) = (reader.u8()?, reader.u8()?);
    let addresses = [
        (Field::IpSrc, reader.u32()?, !reader.u32()?),
        (Field::IpDst, reader.u32()?, !reader.u32()?),
    ];
    let (source, destination) = (reader.u16()?, reader.u16()?);
    let (label, class) = (reader.u32()?, reader.u8()?);
    reader.skip(3)?;
    let (metadata, wild) = (reader.u64()?, reader.u64()?);
    set(&mut matching, Field::Metadata, metadata.into(), (!wild).into());
    if !is_set(DL_TYPE) {
        return Ok(matching);
    }
    matching.set(Field::EthType, ethertype.into());
    match ethertype {
        0x0800 | 0x0806 | 0x8035 => {
            for (field, value, mask) in addresses {
                set(&mut matching, field, value.into(), mask.into());
            }
            if ethertype != 0x0800 {
                if is_set(NW_PROTO) {
                    matching.set(Field::ArpOp, protocol.into());
                }
                return Ok(matching);
            }
            if is_set(NW_TOS) {
                if tos & 3 != 0 {
                    return Err(Refusal::BadMatchValue);
                }
                matching.set(Field::IpDscp, (tos >> 2).into());
            }
            if is_set(NW_PROTO) {
                matching.set(Field::NwProto, protocol.into());
                read_ports(&mut matching, protocol, wildcards, source, destination)?;
            }
        }
        0x8847 | 0x8848 => {
            if is_set(MPLS_LABEL) {
                matching.set(Field::MplsLabel, (label & 0xf_ffff).into());
            }
            if is_set(MPLS_TC) {
                matching.set(Field::MplsTc, (class & 7).into());
            }
        }
        _ => {}
    }
    Ok(matching)
}

/// Writes OpenFlow 1.1's match. Leaves out the fields and masks that OpenFlow 1.1 cannot express.
pub(super) fn write_masked_match(matching: &Match, out: &mut Vec<u8>) {
    let value = |field: Field| matching.value.read(field);
    let is_arp = matches!(value(Field::EthType), 0x0806 | 0x8035);
    let is_icmp = value(Field::EthType) == 0x0800 && value(Field::NwProto) == 1;
    let protocol = if is_arp { Field::ArpOp } else { Field::NwProto };
    let (source, destination) = match is_icmp {
        true => (Field::IcmpType, Field::IcmpCode),
        false => (Field::TcpSrc, Field::TcpDst),
    };
    let mut wildcards = 0;
    for (field, bit) in [
        (Field::InPort, IN_PORT),
        (Field::EthType, DL_TYPE),
        (Field::IpDscp, NW_TOS),
        (protocol, NW_PROTO),
        (source, TP_SRC),
        (destination, TP_DST),
        (Field::MplsLabel, MPLS_LABEL),
        (Field::MplsTc, MPLS_TC),
    ] {
        if !matching.is_exact(field) {
            wildcards |= bit;
        }
    }
    let (tag, tag_mask) = (value(Field::VlanTci) as u16, matching.mask.read(Field::VlanTci) as u16);
    let is_untagged = tag_mask & TAGGED != 0 && tag & TAGGED == 0;
    let vlan = if is_untagged {
        NO_VLAN
    } else if tag_mask & 0xfff == 0 {
        ANY_VLAN
    } else {
        tag & 0xfff
    };
    if tag_mask == 0 {
        wildcards |= DL_VLAN;
    }
    if tag_mask & 0xe000 == 0 || is_untagged {
        wildcards |= DL_VLAN_PCP;
    }
    out.put_u16(STANDARD);
    out.put_u16(LENGTH);
    out.put_u32(value(Field::InPort) as u32);
    out.put_u32(wildcards);
    for field in [Field::EthSrc, Field::EthDst] {
        out.put_number(value(field), 6);
        out.put_number(!matching.mask.read(field), 6);
    }
    out.put_u16(if tag_mask == 0 { 0 } else { vlan });
    out.put_u8((tag >> 13) as u8);
    out.put_zeros(1);
    out.put_u16(value(Field::EthType) as u16);
    out.put_u8((value(Field::IpDscp) as u8) << 2);
    out.put_u8(if matching.is_set(protocol) { value(protocol) as u8 } else { 0 });
    for field in [Field::IpSrc, Field::IpDst] {
        out.put_u32(value(field) as u32);
        out.put_u32(!(matching.mask.read(field) as u32));
    }
    out.put_u16(value(source) as u16);
    out.put_u16(value(destination) as u16);
    out.put_u32(value(Field::MplsLabel) as u32);
    out.put_u8(value(Field::MplsTc) as u8);
    out.put_zeros(3);
    out.put_u64(value(Field::Metadata) as u64);
    out.put_u64(!(matching.mask.read(Field::Metadata) as u64));
}

fn set(matching: &mut Match, field: Field, value: u128, mask: u128) {
    if mask != 0 {
        matching.set_masked(field, value & mask, mask);
    }
}

fn read_vlan(matching: &mut Match, vlan: u16, pcp: Option<u8>) -> Result<(), Refusal> {
    let tagged = u128::from(TAGGED);
    let (value, mask) = match vlan {
        NO_VLAN => (0, 0xffff),
        ANY_VLAN => (tagged, tagged),
        0..=0xfff => (u128::from(vlan) | tagged, 0xfff | tagged),
        _ => return Err(Refusal::BadMatchValue),
    };
    let (value, mask) = match pcp.filter(|_| vlan != NO_VLAN) {
        Some(pcp) => (value | u128::from(pcp & 7) << 13, mask | 0xe000),
        None => (value, mask),
    };
    matching.set_masked(Field::VlanTci, value, mask);
    Ok(())
}

fn read_ports(
    matching: &mut Match,
    protocol: u8,
    wildcards: u32,
    source: u16,
    destination: u16,
) -> Result<(), Refusal> {
    let is_set = |bit: u32| wildcards & bit == 0;
    let (source_field, destination_field) = match protocol {
        1 => (Field::IcmpType, Field::IcmpCode),
        6 | 17 | 132 => (Field::TcpSrc, Field::TcpDst),
        // As in Open vSwitch, packets of all other protocols have no ports.
        _ if !is_set(TP_SRC) && !is_set(TP_DST) => return Ok(()),
        _ => return Err(Refusal::BadMatchField),
    };
    for (field, bit, value) in
        [(source_field, TP_SRC, source), (destination_field, TP_DST, destination)]
    {
        if is_set(bit) {
            if protocol == 1 && value > 0xff {
                return Err(Refusal::BadMatchField);
            }
            matching.set(field, value.into());
        }
    }
    Ok(())
}

/// The type and the length of OpenFlow 1.1's match.
pub(super) const STANDARD: u16 = 0;
pub(super) const LENGTH: u16 = 88;

const IN_PORT: u32 = 1;
const DL_VLAN: u32 = 1 << 1;
const DL_VLAN_PCP: u32 = 1 << 2;
const DL_TYPE: u32 = 1 << 3;
const NW_TOS: u32 = 1 << 4;
const NW_PROTO: u32 = 1 << 5;
const TP_SRC: u32 = 1 << 6;
const TP_DST: u32 = 1 << 7;
const MPLS_LABEL: u32 = 1 << 8;
const MPLS_TC: u32 = 1 << 9;

/// The bit that marks a VLAN tag as present, in the key's word of the tag.
const TAGGED: u16 = 0x1000;
const ANY_VLAN: u16 = 0xfffe;
const NO_VLAN: u16 = 0xffff;

#[cfg(test)]
mod tests {
    use super::*;
    use text::{PortNames, parse_match, print_match};

    #[test]
    fn an_encoded_match_decodes_to_the_same_match() {
        for text in [
            "",
            "in_port=3,dl_src=02:00:00:00:00:01,dl_dst=01:00:00:00:00:00/01:00:00:00:00:00",
            "dl_vlan=5",
            "dl_vlan=5,dl_vlan_pcp=3",
            "dl_vlan_pcp=3",
            "vlan_tci=0x0000",
            "tcp,nw_src=10.0.0.0/8,nw_dst=10.1.2.3,nw_tos=32,tp_src=7,tp_dst=80",
            "ip,nw_dst=10.0.0.1/255.0.0.255",
            "icmp,icmp_type=8,icmp_code=0",
            "arp,arp_spa=10.0.0.1,arp_tpa=10.0.0.0/24,arp_op=2",
            "mpls,mpls_label=7,mpls_tc=2",
            "metadata=0x5/0xff",
        ] {
            let matching = parse_match(text, &PortNames::none()).expect("a match");
            let mut out = Vec::new();
            write_masked_match(&matching, &mut out);
            assert_eq!(out.len(), usize::from(LENGTH));
            let mut reader = Reader::new(&out[4..], Refusal::BadLength);
            let read = read_masked_match(&mut reader).expect("a match");
            assert_eq!(print_match(&read), print_match(&matching));
        }
    }
}
