use flow::action::{Action, Learn, LearnDestination, LearnSource, LearnSpec, Subfield};
use flow::request::Refusal;

use super::super::octets::{Put, Reader};
use super::{begin_nicira, finish, part, put_header, read_header, writable};

/// Reads `learn` after its subtype. The long format also has a limit and a result field.
pub(super) fn decode_learn(body: &mut Reader<'_>, is_long: bool) -> Result<Action, Refusal> {
    let (idle_timeout, hard_timeout) = (body.u16()?, body.u16()?);
    let priority = body.u16()?;
    let cookie = body.u64()?;
    let flags = body.u16()?;
    let table = body.u8()?;
    body.skip(1)?;
    let (fin_idle_timeout, fin_hard_timeout) = (body.u16()?, body.u16()?);
    let known = SEND_FLOW_REMOVED | DELETE_LEARNED | if is_long { WRITE_RESULT } else { 0 };
    if flags & !known != 0 || table == 0xff {
        return Err(Refusal::BadActionArgument);
    }
    let mut learn = Learn {
        idle_timeout,
        hard_timeout,
        fin_idle_timeout,
        fin_hard_timeout,
        priority,
        cookie,
        send_flow_removed: flags & SEND_FLOW_REMOVED != 0,
        delete_learned: flags & DELETE_LEARNED != 0,
        table,
        limit: 0,
        result: None,
        specs: Vec::new(),
    };
    if is_long {
        learn.limit = body.u32()?;
        let start = body.u16()?;
        body.skip(2)?;
        if flags & WRITE_RESULT != 0 {
            learn.result = Some(writable(part(read_header(body)?, start, 1)?)?);
        }
    }
    while body.len() >= 2 {
        let header = body.u16()?;
        if header == 0 {
            break;
        }
        learn.specs.push(decode_spec(header, body)?);
    }
    Ok(Action::Learn(Box::new(learn)))
}

pub(super) fn encode_learn(learn: &Learn, out: &mut Vec<u8>) {
    let is_long = learn.limit != 0 || learn.result.is_some();
    let start = begin_nicira(if is_long { 45 } else { 16 }, out);
    out.put_u16(learn.idle_timeout);
    out.put_u16(learn.hard_timeout);
    out.put_u16(learn.priority);
    out.put_u64(learn.cookie);
    let mut flags = 0;
    for (is_set, flag) in [
        (learn.send_flow_removed, SEND_FLOW_REMOVED),
        (learn.delete_learned, DELETE_LEARNED),
        (learn.result.is_some(), WRITE_RESULT),
    ] {
        flags |= if is_set { flag } else { 0 };
    }
    out.put_u16(flags);
    out.put_u8(learn.table);
    out.put_u8(0);
    out.put_u16(learn.fin_idle_timeout);
    out.put_u16(learn.fin_hard_timeout);
    if is_long {
        out.put_u32(learn.limit);
        out.put_u16(learn.result.map_or(0, |part| part.start.into()));
        out.put_u16(0);
        if let Some(part) = learn.result {
            put_header(part, out);
        }
    }
    for spec in &learn.specs {
        encode_spec(spec, out);
    }
    finish(start, out);
}

fn decode_spec(header: u16, body: &mut Reader<'_>) -> Result<LearnSpec, Refusal> {
    let width = header & WIDTH;
    if width == 0 || width > 128 || header & !(WIDTH | VALUE | TO) != 0 {
        return Err(Refusal::BadActionArgument);
    }
    let source = if header & VALUE != 0 {
        let bytes = usize::from(width.div_ceil(16)) * 2;
        let value = body.number(bytes)?;
        if width < 128 && value >> width != 0 {
            return Err(Refusal::BadActionArgument);
        }
        LearnSource::Value(value)
    } else {
        LearnSource::Field(decode_part(width, body)?)
    };
    let destination = match header & TO {
        TO_MATCH => LearnDestination::Match(decode_part(width, body)?),
        TO_LOAD => LearnDestination::Load(writable(decode_part(width, body)?)?),
        TO_OUTPUT => LearnDestination::Output,
        _ => return Err(Refusal::BadActionArgument),
    };
    Ok(LearnSpec { source, destination, width: width as u8 })
}

fn decode_part(width: u16, body: &mut Reader<'_>) -> Result<Subfield, Refusal> {
    let header = read_header(body)?;
    part(header, body.u16()?, width)
}

fn encode_spec(spec: &LearnSpec, out: &mut Vec<u8>) {
    let kind = match spec.destination {
        LearnDestination::Match(_) => TO_MATCH,
        LearnDestination::Load(_) => TO_LOAD,
        LearnDestination::Output => TO_OUTPUT,
    };
    let is_value = matches!(spec.source, LearnSource::Value(_));
    out.put_u16(u16::from(spec.width) | kind | if is_value { VALUE } else { 0 });
    match spec.source {
        LearnSource::Field(part) => encode_part(part, out),
        LearnSource::Value(value) => {
            out.put_number(value, usize::from(spec.width.div_ceil(16)) * 2);
        }
    }
    match spec.destination {
        LearnDestination::Match(part) | LearnDestination::Load(part) => encode_part(part, out),
        LearnDestination::Output => {}
    }
}

fn encode_part(part: Subfield, out: &mut Vec<u8>) {
    put_header(part, out);
    out.put_u16(part.start.into());
}

const SEND_FLOW_REMOVED: u16 = 1;
const DELETE_LEARNED: u16 = 2;
const WRITE_RESULT: u16 = 4;

const WIDTH: u16 = 0x03ff;
const VALUE: u16 = 1 << 13;
const TO: u16 = 3 << 11;
const TO_MATCH: u16 = 0;
const TO_LOAD: u16 = 1 << 11;
const TO_OUTPUT: u16 = 2 << 11;
