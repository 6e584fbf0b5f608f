use flow::action::{
    Action, Bundle, Controller, Ct, HashFields, Multipath, MultipathAlgorithm, Row, Sample,
    SampleDirection,
};
use flow::port_number::PortNumber;
use flow::request::Refusal;

use super::super::Version;
use super::super::match_entry::{Header, read_entry};
use super::super::octets::Reader;
use super::decode::{
    Nesting, as_set_refusal, check_port, check_zeros, decode_nested, decode_plain, moved,
};
use super::learn::decode_learn;
use super::track::{decode_nat, decode_track};
use super::{part, part_of_span, read_header, writable};

/// Reads a Nicira action, from its first byte on.
pub(super) fn decode_nicira(
    action: &[u8],
    version: Version,
    nesting: Nesting,
) -> Result<Action, Refusal> {
    let mut body = Reader::new(action, Refusal::BadActionLength);
    body.skip(8)?;
    let subtype = body.u16()?;
    if let Some(row) = Row::of_nicira(subtype) {
        return decode_plain(row, action.len(), 10, &mut body);
    }
    let expected = match subtype {
        1 | 2 | 14 | 18 | 20 | 34 | 39 | 44 => 16,
        6 | 7 | 9 | 15 | 27..=29 | 32 | 49 => 24,
        10 | 22 | 38 | 41 => 32,
        _ => action.len(),
    };
    // In these actions, fields of experimenters may have longer headers.
    let is_longer = matches!(subtype, 6 | 27 | 28 | 32) && action.len() > expected;
    if action.len() != expected && !is_longer {
        return Err(Refusal::BadActionLength);
    }
    Ok(match subtype {
        1 => Action::Resubmit {
            port: Some(PortNumber::from_16_bits(body.u16()?)),
            table: None,
            with_ct: false,
        },
        2 => {
            body.skip(2)?;
            Action::SetTunnel(body.u32()?.into())
        }
        6 => {
            let width = body.u16()?;
            let (source, destination) = (body.u16()?, body.u16()?);
            let source = part(read_header(&mut body)?, source, width)?;
            moved(source, part(read_header(&mut body)?, destination, width)?)?
        }
        7 => {
            let span = body.u16()?;
            let destination = writable(part_of_span(read_header(&mut body)?, span)?)?;
            let value = body.u64()?;
            if destination.width < 64 && value >> destination.width != 0 {
                return Err(Refusal::BadActionArgument);
            }
            Action::Load { destination, value: value.into() }
        }
        8 => Action::Note(body.rest().to_vec()),
        9 => {
            body.skip(6)?;
            Action::SetTunnel(body.u64()?)
        }
        10 => multipath(&mut body)?,
        12 => bundle(&mut body, false)?,
        13 => bundle(&mut body, true)?,
        14 | 44 => resubmit(&mut body, subtype == 44)?,
        15 => {
            let span = body.u16()?;
            let source = part_of_span(read_header(&mut body)?, span)?;
            Action::OutputRegister { source, max_len: body.u16()? }
        }
        16 => decode_learn(&mut body, false)?,
        18 => Action::DecTtl(vec![0]),
        20 => Action::Controller(Box::new(Controller {
            max_len: body.u16()?,
            id: body.u16()?,
            reason: body.u8()?,
            userdata: Vec::new(),
            pause: false,
            meter: None,
        })),
        21 => dec_ttl(&mut body)?,
        22 => {
            body.skip(6)?;
            Action::WriteMetadata { value: body.u64()?, mask: body.u64()? }
        }
        27 => Action::StackPush(stack(&mut body)?),
        28 => Action::StackPop(writable(stack(&mut body)?)?),
        29 => sample(&mut body, false)?,
        32 => {
            let span = body.u16()?;
            let max_len = body.u16()?;
            let source = part_of_span(read_header(&mut body)?, span)?;
            Action::OutputRegister { source, max_len }
        }
        33 => {
            let entry = read_entry(&mut body).map_err(as_set_refusal)?;
            check_zeros(&body)?;
            if !entry.field.is_writable() {
                return Err(Refusal::BadActionArgument);
            }
            Action::SetField { field: entry.field, value: entry.value, mask: entry.mask }
        }
        34 => conjunction(&mut body)?,
        35 if !nesting.is_in_track => decode_track(&mut body, version, nesting)?,
        36 if nesting.is_in_track => {
            Action::Ct(Box::new(Ct { nat: Some(decode_nat(&mut body)?), ..Ct::default() }))
        }
        37 => controller2(&mut body)?,
        38 => sample(&mut body, true)?,
        41 => sample(&mut body, true)?,
        39 => {
            let port = PortNumber::from_16_bits(body.u16()?);
            check_port(port)?;
            let max_len = body.u32()?;
            if max_len < 14 {
                return Err(Refusal::BadActionArgument);
            }
            Action::OutputTruncated { port, max_len }
        }
        42 => {
            body.skip(6)?;
            Action::Clone(decode_nested(body.rest(), version, nesting.inner(false))?)
        }
        45 => decode_learn(&mut body, true)?,
        49 => {
            let length = body.u16()?;
            let start = body.u16()?;
            let destination = writable(part(read_header(&mut body)?, start, 1)?)?;
            Action::CheckPacketLarger { destination, length }
        }
        _ => return Err(Refusal::BadActionType),
    })
}

pub(super) fn hash_fields(number: u16) -> Result<HashFields, Refusal> {
    Ok(match number {
        0 => HashFields::EthSrc,
        1 => HashFields::SymmetricL4,
        2 => HashFields::SymmetricL3L4,
        3 => HashFields::SymmetricL3L4Udp,
        4 => HashFields::NwSrc,
        5 => HashFields::NwDst,
        6 => HashFields::SymmetricL3,
        _ => return Err(Refusal::BadActionArgument),
    })
}

fn resubmit(body: &mut Reader<'_>, with_ct: bool) -> Result<Action, Refusal> {
    let port = PortNumber::from_16_bits(body.u16()?);
    let table = body.u8()?;
    if body.array::<3>()? != [0; 3] {
        return Err(Refusal::BadActionArgument);
    }
    Ok(Action::Resubmit {
        port: (port != PortNumber::IN_PORT || table == 0xff).then_some(port),
        table: (table != 0xff).then_some(table),
        with_ct,
    })
}

fn multipath(body: &mut Reader<'_>) -> Result<Action, Refusal> {
    let fields = hash_fields(body.u16()?)?;
    let basis = body.u16()?;
    body.skip(2)?;
    let algorithm = match body.u16()? {
        0 => MultipathAlgorithm::ModuloN,
        1 => MultipathAlgorithm::HashThreshold,
        2 => MultipathAlgorithm::HighestRandomWeight,
        3 => MultipathAlgorithm::IterativeHash,
        _ => return Err(Refusal::BadActionArgument),
    };
    let max_link = body.u16()?;
    let argument = body.u32()?;
    body.skip(2)?;
    let span = body.u16()?;
    let destination = writable(part_of_span(read_header(body)?, span)?)?;
    if destination.width < 16 && max_link >> destination.width != 0 {
        return Err(Refusal::BadActionArgument);
    }
    Ok(Action::Multipath(Box::new(Multipath {
        fields,
        basis,
        algorithm,
        max_link,
        argument,
        destination,
    })))
}

fn bundle(body: &mut Reader<'_>, loads: bool) -> Result<Action, Refusal> {
    let algorithm = body.u16()?;
    let fields = hash_fields(body.u16()?)?;
    let basis = body.u16()?;
    let member_kind = body.u32()?;
    let count = usize::from(body.u16()?);
    let span = body.u16()?;
    let header = body.u32()?;
    body.skip(4)?;
    if algorithm > 1 || member_kind != IN_PORT_MEMBERS || count > MAX_MEMBERS {
        return Err(Refusal::BadActionArgument);
    }
    let destination = match loads {
        true => Some(writable(part_of_span(Header(header), span)?)?),
        false if span != 0 || header != 0 => return Err(Refusal::BadActionArgument),
        false => None,
    };
    let mut members = Vec::with_capacity(count.min(body.len() / 2));
    for _ in 0..count {
        members.push(PortNumber::from_16_bits(body.u16()?));
    }
    Ok(Action::Bundle(Box::new(Bundle {
        highest_random_weight: algorithm == 1,
        fields,
        basis,
        destination,
        members,
    })))
}

fn dec_ttl(body: &mut Reader<'_>) -> Result<Action, Refusal> {
    let count = usize::from(body.u16()?);
    body.skip(4)?;
    if body.len() < count * 2 {
        return Err(Refusal::BadActionLength);
    }
    let ids = (0..count).map(|_| body.u16()).collect::<Result<Vec<_>, _>>()?;
    Ok(Action::DecTtl(ids))
}

fn stack(body: &mut Reader<'_>) -> Result<flow::action::Subfield, Refusal> {
    let start = body.u16()?;
    let header = read_header(body)?;
    let width = body.u16()?;
    part(header, start, width)
}

fn sample(body: &mut Reader<'_>, has_port: bool) -> Result<Action, Refusal> {
    let mut sample = Sample {
        probability: body.u16()?,
        collector_set: body.u32()?,
        observation_domain: body.u32()?,
        observation_point: body.u32()?,
        sampling_port: None,
        direction: SampleDirection::Default,
    };
    if has_port {
        let port = PortNumber::from_16_bits(body.u16()?);
        sample.sampling_port = (port != PortNumber::NONE).then_some(port);
        sample.direction = match body.u8()? {
            0 => SampleDirection::Default,
            1 => SampleDirection::Ingress,
            2 => SampleDirection::Egress,
            _ => return Err(Refusal::BadActionArgument),
        };
    }
    if sample.probability == 0 {
        return Err(Refusal::BadActionArgument);
    }
    Ok(Action::Sample(Box::new(sample)))
}

fn conjunction(body: &mut Reader<'_>) -> Result<Action, Refusal> {
    let (clause, clauses, id) = (body.u8()?, body.u8()?, body.u32()?);
    if !(2..=64).contains(&clauses) || clause >= clauses {
        return Err(Refusal::BadActionArgument);
    }
    Ok(Action::Conjunction { id, clause, clauses })
}

fn controller2(body: &mut Reader<'_>) -> Result<Action, Refusal> {
    body.skip(6)?;
    let mut controller = Controller {
        max_len: u16::MAX,
        id: 0,
        reason: 1,
        userdata: Vec::new(),
        pause: false,
        meter: None,
    };
    while !body.is_empty() {
        let mut header = *body;
        let kind = header.u16()?;
        let length = usize::from(header.u16()?);
        let mut property = Reader::new(body.take(length)?, Refusal::BadActionLength);
        property.skip(4)?;
        match kind {
            0 => controller.max_len = property.u16()?,
            1 => controller.id = property.u16()?,
            2 => controller.reason = property.u8()?,
            3 => controller.userdata = property.rest().to_vec(),
            4 => controller.pause = true,
            5 => controller.meter = Some(property.u32()?),
            _ => return Err(Refusal::BadActionArgument),
        }
        let padding = length.next_multiple_of(8) - length;
        body.skip(padding.min(body.len()))?;
    }
    Ok(Action::Controller(Box::new(controller)))
}

/// `NXM_OF_IN_PORT`, the only type of bundle member.
pub(super) const IN_PORT_MEMBERS: u32 = 0x0000_0002;
const MAX_MEMBERS: usize = 2048;
