use flow::port_number::PortNumber;
use flow::request::{PacketIn, PacketInReason, PacketOut, Refusal, Resumption};
use flow::{Field, Key, Match};

use super::Version;
use super::action::decode_actions;
use super::message::{Header, begin_message, begin_nicira_message, end_message};
use super::octets::{Put, Reader};
use super::oxm_match::{read_entries, read_match, write_entries, write_match};

/// The format of packet-ins that a controller asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PacketInFormat {
    Standard,
    Nicira,
    Nicira2,
}

/// Reads a packet_out.
pub(super) fn decode_packet_out(
    mut body: Reader<'_>,
    version: Version,
) -> Result<PacketOut, Refusal> {
    if body.u32()? != u32::MAX {
        return Err(Refusal::UnknownBuffer);
    }
    let mut metadata = Key::ZERO;
    let (in_port, length) = match version {
        Version::V10 => (PortNumber::from_16_bits(body.u16()?), body.u16()?),
        Version::V11 | Version::V12 | Version::V13 | Version::V14 => {
            let head = (PortNumber(body.u32()?), body.u16()?);
            body.skip(6)?;
            head
        }
        Version::V15 => {
            let length = body.u16()?;
            body.skip(2)?;
            let matching = read_match(&mut body, version)?;
            if !matching.is_exact(Field::InPort) {
                return Err(Refusal::BadPort);
            }
            metadata = matching.value;
            (PortNumber(metadata.read(Field::InPort) as u32), length)
        }
    };
    let is_port = in_port.0 < 0xff00
        || matches!(
            in_port,
            PortNumber::LOCAL | PortNumber::CONTROLLER | PortNumber::NONE | PortNumber::IN_PORT
        );
    if !is_port {
        return Err(Refusal::BadPort);
    }
    metadata.write(Field::InPort, in_port.0.into());
    let actions = decode_actions(body.take(length.into())?, version)?;
    Ok(PacketOut { frame: body.rest().to_vec(), in_port, metadata, actions })
}

/// Reads Nicira's resume: the packet-in, perhaps changed, with its continuation.
pub(super) fn decode_resume(mut body: Reader<'_>, version: Version) -> Result<Resumption, Refusal> {
    let mut resumption = Resumption { frame: Vec::new(), metadata: Key::ZERO, state: 0 };
    while !body.is_empty() {
        let (kind, length) = (body.u16()?, usize::from(body.u16()?));
        let value = body.take(length.checked_sub(4).ok_or(Refusal::BadLength)?)?;
        let padding = length.next_multiple_of(8) - length;
        body.skip(padding.min(body.len()))?;
        match kind {
            0 => resumption.frame = value.to_vec(),
            6 => resumption.metadata = read_entries(value, version)?.0.value,
            8 => {
                let mut value = Reader::new(value, Refusal::BadLength);
                value.skip(8)?;
                resumption.state = value.u32()?;
            }
            _ => {}
        }
    }
    if resumption.frame.len() < 14 {
        return Err(Refusal::BadLength);
    }
    Ok(resumption)
}

/// Writes a packet-in of at most `max_len` bytes of the frame.
pub(super) fn encode_packet_in(
    packet: &PacketIn,
    version: Version,
    format: PacketInFormat,
    out: &mut Vec<u8>,
) {
    // A message holds at most 64 KiB with its headers.
    let frame = &packet.frame[..packet.frame.len().min(MAX_FRAME)];
    match format {
        PacketInFormat::Nicira2 => encode_nicira2(packet, frame, version, out),
        PacketInFormat::Nicira => {
            let start = begin_nicira_message(version, 0, 17, out);
            put_head(packet, out);
            let length = out.len();
            out.put_u16(0);
            out.put_zeros(6);
            let entries = out.len();
            write_entries(&metadata(packet), Version::V10, out);
            out.set_u16(length, (out.len() - entries) as u16);
            out.pad_to_8(entries);
            out.put_zeros(2);
            out.extend_from_slice(frame);
            end_message(start, out);
        }
        PacketInFormat::Standard if version == Version::V10 => {
            let start = begin_message(Header { version, kind: PACKET_IN, xid: 0 }, out);
            out.put_u32(u32::MAX);
            out.put_u16(packet.total_len);
            let port = PortNumber(packet.metadata.read(Field::InPort) as u32);
            out.put_u16(port.to_16_bits().unwrap_or(0xffff));
            out.put_u8(reason_number(packet.reason, version));
            out.put_u8(0);
            out.extend_from_slice(frame);
            end_message(start, out);
        }
        PacketInFormat::Standard if version == Version::V11 => {
            let start = begin_message(Header { version, kind: PACKET_IN, xid: 0 }, out);
            out.put_u32(u32::MAX);
            let port = packet.metadata.read(Field::InPort) as u32;
            // The first field is the port, the second the physical port.
            out.put_u32(port);
            out.put_u32(port);
            out.put_u16(packet.total_len);
            out.put_u8(reason_number(packet.reason, version));
            out.put_u8(packet.table);
            out.extend_from_slice(frame);
            end_message(start, out);
        }
        PacketInFormat::Standard => {
            let start = begin_message(Header { version, kind: PACKET_IN, xid: 0 }, out);
            put_head_of(packet, version, out);
            write_match(&metadata(packet), version, out);
            out.put_zeros(2);
            out.extend_from_slice(frame);
            end_message(start, out);
        }
    }
}

/// Returns the number of a reason in a version's messages.
pub(super) fn reason_number(reason: PacketInReason, version: Version) -> u8 {
    match reason {
        PacketInReason::NoMatch => 0,
        PacketInReason::Action => 1,
        PacketInReason::InvalidTtl => 2,
        // Table-miss rules exist since OpenFlow 1.3.
        PacketInReason::ExplicitMiss if version < Version::V13 => 1,
        PacketInReason::ExplicitMiss => 0,
        _ if version < Version::V14 => 1,
        PacketInReason::ActionSet => 3,
        PacketInReason::Group => 4,
        PacketInReason::PacketOut => 5,
    }
}

fn put_head(packet: &PacketIn, out: &mut Vec<u8>) {
    put_head_of(packet, Version::V10, out);
}

fn put_head_of(packet: &PacketIn, version: Version, out: &mut Vec<u8>) {
    out.put_u32(u32::MAX);
    out.put_u16(packet.total_len);
    out.put_u8(reason_number(packet.reason, version));
    out.put_u8(packet.table);
    if version != Version::V12 {
        out.put_u64(packet.cookie);
    }
}

fn encode_nicira2(packet: &PacketIn, frame: &[u8], version: Version, out: &mut Vec<u8>) {
    let start = begin_nicira_message(version, 0, 30, out);
    property(0, out, |out| out.extend_from_slice(frame));
    if usize::from(packet.total_len) > frame.len() {
        property(1, out, |out| out.put_u32(packet.total_len.into()));
    }
    property(3, out, |out| out.put_u8(packet.table));
    if packet.cookie != u64::MAX {
        property(4, out, |out| {
            out.put_zeros(4);
            out.put_u64(packet.cookie);
        });
    }
    property(5, out, |out| out.put_u8(reason_number(packet.reason, version)));
    property(6, out, |out| write_entries(&metadata(packet), version, out));
    if !packet.userdata.is_empty() {
        property(7, out, |out| out.extend_from_slice(&packet.userdata));
    }
    if let Some(state) = packet.continuation {
        // The continuation is an opaque value that the controller sends back.
        property(8, out, |out| {
            out.put_zeros(4);
            out.put_u16(STATE);
            out.put_u16(8);
            out.put_u32(state);
        });
    }
    end_message(start, out);
}

fn property(kind: u16, out: &mut Vec<u8>, value: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.put_u16(kind);
    out.put_u16(0);
    value(out);
    out.set_u16(start + 2, (out.len() - start) as u16);
    out.pad_to_8(start);
}

/// Returns the non-zero metadata of a packet, as a match.
fn metadata(packet: &PacketIn) -> Match {
    let mut matching = Match::any();
    for field in METADATA {
        let value = packet.metadata.read(*field);
        if value != 0 {
            matching.set(*field, value);
        }
    }
    // The original tuple exists only for packets with a connection, not for invalid packets.
    let has_connection = packet.metadata.read(Field::CtState) & CONNECTION_STATES != 0;
    if has_connection && packet.metadata.read(Field::CtNwProto) != 0 {
        let fields: &[Field] = match packet.metadata.read(Field::EthType) {
            0x0800 => &[Field::CtNwSrc, Field::CtNwDst],
            0x86dd => &[Field::CtIpv6Src, Field::CtIpv6Dst],
            _ => return matching,
        };
        for field in [Field::CtNwProto, Field::CtTpSrc, Field::CtTpDst].iter().chain(fields) {
            matching.set(*field, packet.metadata.read(*field));
        }
    }
    matching
}

/// The ct_state flags new, est, rel and rpl.
const CONNECTION_STATES: u128 = 0xf;
/// The type of the property that carries the number of the packet's state in a continuation.
const STATE: u16 = 0x7000;
const PACKET_IN: u8 = 10;
const MAX_FRAME: usize = 0xf000;

const METADATA: &[Field] = &[
    Field::InPort,
    Field::TunId,
    Field::Metadata,
    Field::PktMark,
    Field::EthType,
    Field::CtState,
    Field::CtZone,
    Field::CtMark,
    Field::CtLabel,
    Field::Reg0,
    Field::Reg1,
    Field::Reg2,
    Field::Reg3,
    Field::Reg4,
    Field::Reg5,
    Field::Reg6,
    Field::Reg7,
    Field::Reg8,
    Field::Reg9,
    Field::Reg10,
    Field::Reg11,
    Field::Reg12,
    Field::Reg13,
    Field::Reg14,
    Field::Reg15,
];
