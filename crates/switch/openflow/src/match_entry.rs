use flow::port_number::PortNumber;
use flow::request::Refusal;
use flow::{Field, Match, NXM_NX, NXM_OF, OXM_BASIC, OXM_REGISTERS, Prerequisite, WireField};

use super::Version;
use super::message::ONF;
use super::octets::{Put, Reader};

/// A field with its value and mask, as an entry of a match or the argument of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) field: Field,
    pub(super) value: u128,
    pub(super) mask: u128,
    pub(super) has_mask: bool,
}

/// The 32 bits that identify a field in messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header(pub(super) u32);

impl Header {
    fn new(wire: WireField, has_mask: bool) -> Self {
        let bytes = if has_mask { wire.bytes * 2 } else { wire.bytes };
        Self(
            u32::from(wire.class) << 16
                | u32::from(wire.number) << 9
                | u32::from(has_mask) << 8
                | u32::from(bytes),
        )
    }

    /// Returns the header of a field with a mask, in the messages of a version.
    pub(super) fn masked(field: Field, version: Version) -> Self {
        Self::new(wire(field, version), true)
    }

    /// Returns the header of a field without a mask, in the messages of a version.
    pub(super) fn of(field: Field, version: Version) -> Self {
        Self::new(wire(field, version), false)
    }

    pub(super) fn has_mask(self) -> bool {
        self.0 & 0x100 != 0
    }

    /// Returns the number of bytes after the header.
    pub(super) fn length(self) -> usize {
        (self.0 & 0xff) as usize
    }

    fn class(self) -> u16 {
        (self.0 >> 16) as u16
    }

    fn number(self) -> usize {
        (self.0 >> 9 & 0x7f) as usize
    }

    /// Returns the field, if its class, number and length are known.
    pub(super) fn field(self) -> Option<Field> {
        let class = CLASSES.iter().position(|class| *class == self.class())?;
        let field = *Field::ALL.get(usize::from(FIELDS[class][self.number()]))?;
        let wire = [field.nxm(), field.oxm()].into_iter().flatten();
        let mut bytes = wire.filter(|(wire, _)| wire.class == self.class());
        let length = if self.has_mask() { self.length() / 2 } else { self.length() };
        let is_odd = self.has_mask() && !self.length().is_multiple_of(2);
        bytes.any(|(wire, _)| usize::from(wire.bytes) == length && !is_odd).then_some(field)
    }
}

/// Reads the header of a field without a value. The header may be ONF's longer header.
pub(super) fn read_header(reader: &mut Reader<'_>) -> Result<Header, Refusal> {
    let header = Header(reader.u32()?);
    if header.class() != EXPERIMENTER {
        return Ok(header);
    }
    let field = experimenter_field(header, reader.u32()?).ok_or(Refusal::BadSetField)?;
    Ok(Header::of(field, Version::V15))
}

/// Reads an entry: the header, the value, and the mask of a masked field.
pub(super) fn read_entry(reader: &mut Reader<'_>) -> Result<Entry, Refusal> {
    let header = Header(reader.u32()?);
    let mut body = Reader::new(reader.take(header.length())?, Refusal::BadMatchLength);
    let field = match header.class() {
        EXPERIMENTER => experimenter_field(header, body.u32()?),
        _ => header.field(),
    };
    let field = field.ok_or(Refusal::BadMatchField)?;
    let bytes = body.len() >> u8::from(header.has_mask());
    let ones = field.place().all_ones();
    let value = from_wire(field, bytes, body.number(bytes)?)?;
    let mut mask = ones;
    if header.has_mask() {
        mask = body.number(bytes)?;
        if field == Field::NwTos {
            mask >>= 2;
        }
        mask &= ones;
        if value & !mask != 0 {
            return Err(Refusal::BadMatchMask);
        }
    }
    Ok(Entry { field, value, mask, has_mask: header.has_mask() })
}

/// Writes an entry. The entry has a mask unless the mask covers the whole field.
pub(super) fn write_entry(
    field: Field,
    value: u128,
    mask: u128,
    version: Version,
    out: &mut Vec<u8>,
) {
    let wire = wire(field, version);
    let ones = field.place().all_ones();
    let has_mask = mask & ones != ones;
    let bytes = usize::from(wire.bytes);
    let header = Header::new(wire, has_mask).0;
    if is_experimenters(field, version) {
        // ONF's header, then the number that the field has in OpenFlow 1.5.
        out.put_u32(header | u32::from(EXPERIMENTER) << 16);
        out.put_u32(ONF);
        let length = out.len() - 5;
        out[length] += 4;
    } else {
        out.put_u32(header);
    }
    let shift = if field == Field::NwTos { 2 } else { 0 };
    out.put_number((value & ones) << shift, bytes);
    if has_mask {
        // The field may be narrower than its bytes in the message; the mask's bits beyond the field
        // stay zero.
        out.put_number((mask & ones) << shift, bytes);
    }
}

/// Whether a version writes the field with ONF's extension.
fn is_experimenters(field: Field, version: Version) -> bool {
    matches!(field, Field::TcpFlags | Field::ActsetOutput)
        && matches!(version, Version::V13 | Version::V14)
}

fn experimenter_field(header: Header, experimenter: u32) -> Option<Field> {
    let (field, bytes) = match (experimenter, header.number()) {
        (ONF, 42) => (Field::TcpFlags, 2),
        (ONF, 43) => (Field::ActsetOutput, 4),
        _ => return None,
    };
    let expected = if header.has_mask() { bytes * 2 } else { bytes };
    (header.length() == expected + 4).then_some(field)
}

/// Whether all packets of the match have the headers that `field` requires.
pub(super) fn has_prerequisite(matching: &Match, field: Field) -> bool {
    let ethertype = || matching.value.read(Field::EthType) as u16;
    let is_ip = || matches!(ethertype(), 0x0800 | 0x86dd);
    let protocol = || matching.value.read(Field::NwProto) as u8;
    let icmpv6 = || ethertype() == 0x86dd && protocol() == 58;
    let kind = || matching.value.read(Field::Icmpv6Type) as u8;
    match field.prerequisite() {
        Prerequisite::Any => true,
        Prerequisite::Vlan => matching.value.read(Field::VlanTci) & 0x1000 != 0,
        Prerequisite::Mpls => matches!(ethertype(), 0x8847 | 0x8848),
        Prerequisite::Arp => matches!(ethertype(), 0x0806 | 0x8035),
        Prerequisite::Ipv4 => ethertype() == 0x0800,
        Prerequisite::Ipv6 => ethertype() == 0x86dd,
        Prerequisite::Ip => is_ip(),
        Prerequisite::Tcp => is_ip() && protocol() == 6,
        Prerequisite::Udp => is_ip() && protocol() == 17,
        Prerequisite::Sctp => is_ip() && protocol() == 132,
        Prerequisite::Icmpv4 => ethertype() == 0x0800 && protocol() == 1,
        Prerequisite::Icmpv6 => icmpv6(),
        Prerequisite::NeighborDiscovery => icmpv6() && matches!(kind(), 135 | 136),
        Prerequisite::NeighborSolicitation => icmpv6() && kind() == 135,
        Prerequisite::NeighborAdvertisement => icmpv6() && kind() == 136,
    }
}

/// Returns the class, number and length of a field in the messages of a version. OpenFlow 1.0
/// prefers Nicira's classes.
fn wire(field: Field, version: Version) -> WireField {
    let field = match field {
        Field::DlVlan => Field::VlanVid,
        Field::DlVlanPcp => Field::VlanPcp,
        field => field,
    };
    let (nxm, oxm) = (field.nxm(), field.oxm());
    // OpenFlow 1.2 has no OXM header for some fields of later versions.
    let is_later = version == Version::V12 && matches!(field, Field::TcpFlags | Field::TunId)
        || version == Version::V11;
    let prefers_nicira = version == Version::V10 || is_later;
    let chosen = if prefers_nicira { nxm.or(oxm) } else { oxm.or(nxm) };
    chosen.map_or(WireField { class: 0xffff, number: 0, bytes: 0 }, |(wire, _)| wire)
}

fn from_wire(field: Field, bytes: usize, value: u128) -> Result<u128, Refusal> {
    let value = match field {
        Field::InPort if bytes == 2 => PortNumber::from_16_bits(value as u16).0.into(),
        Field::NwTos if value & 3 != 0 => return Err(Refusal::BadMatchValue),
        Field::NwTos => value >> 2,
        _ => value,
    };
    if value & !field.place().all_ones() != 0 {
        return Err(Refusal::BadMatchValue);
    }
    Ok(value)
}

const EXPERIMENTER: u16 = 0xffff;
const CLASSES: [u16; 4] = [NXM_OF, NXM_NX, OXM_BASIC, OXM_REGISTERS];
const NO_FIELD: u8 = 0xff;

/// For each class and number, the position of the field in [`Field::ALL`].
static FIELDS: [[u8; 128]; 4] = {
    let mut fields = [[NO_FIELD; 128]; 4];
    let mut index = 0;
    while index < Field::ALL.len() {
        let wires = [Field::ALL[index].nxm(), Field::ALL[index].oxm()];
        let mut which = 0;
        while which < 2 {
            if let Some((wire, _)) = wires[which] {
                let class = match wire.class {
                    NXM_OF => 0,
                    NXM_NX => 1,
                    OXM_BASIC => 2,
                    _ => 3,
                };
                fields[class][wire.number as usize] = index as u8;
            }
            which += 1;
        }
        index += 1;
    }
    fields
};
