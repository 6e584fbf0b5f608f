use flow::Match;
use flow::action::{Action, Instruction};
use flow::request::Refusal;

use super::super::Version;
use super::super::octets::{Put, Reader};
use super::decode::decode_actions;
use super::encode::Encoder;

/// Reads OpenFlow 1.1's instructions as one list of actions, in the order of execution.
pub(crate) fn decode_instructions(bytes: &[u8], version: Version) -> Result<Vec<Action>, Refusal> {
    let mut reader = Reader::new(bytes, Refusal::BadInstruction);
    let mut found: [Option<&[u8]>; 7] = [None; 7];
    while !reader.is_empty() {
        let mut header = reader;
        let kind = header.u16()?;
        let length = usize::from(header.u16()?);
        if length < 8 || length % 8 != 0 {
            return Err(Refusal::BadInstruction);
        }
        let body = &reader.take(length)?[4..];
        let is_known = match kind {
            GOTO_TABLE => length == 8,
            WRITE_METADATA => length == 24,
            CLEAR_ACTIONS => length == 8,
            METER => length == 8 && version < Version::V15,
            WRITE_ACTIONS | APPLY_ACTIONS => true,
            _ => false,
        };
        let place = found.get_mut(usize::from(kind)).ok_or(Refusal::BadInstruction)?;
        if !is_known || place.replace(body).is_some() {
            return Err(Refusal::BadInstruction);
        }
    }
    let body =
        |kind: u16| found[usize::from(kind)].map(|body| Reader::new(body, Refusal::BadInstruction));
    let mut actions = Vec::new();
    if let Some(mut body) = body(METER) {
        actions.push(Action::Meter(body.u32()?));
    }
    if let Some(mut body) = body(APPLY_ACTIONS) {
        body.skip(4)?;
        let applied = decode_actions(body.rest(), version)?;
        if actions.is_empty() {
            actions = applied;
        } else {
            actions.extend(applied);
        }
    }
    if body(CLEAR_ACTIONS).is_some() {
        actions.push(Action::ClearActions);
    }
    if let Some(mut body) = body(WRITE_ACTIONS) {
        body.skip(4)?;
        actions.push(Action::WriteActions(decode_actions(body.rest(), version)?));
    }
    if let Some(mut body) = body(WRITE_METADATA) {
        body.skip(4)?;
        actions.push(Action::WriteMetadata { value: body.u64()?, mask: body.u64()? });
    }
    if let Some(mut body) = body(GOTO_TABLE) {
        actions.push(Action::GotoTable(body.u8()?));
    }
    Ok(actions)
}

/// Writes a list of actions as instructions of OpenFlow 1.1.
pub(crate) fn encode_instructions(
    actions: &[Action],
    version: Version,
    matching: &Match,
    out: &mut Vec<u8>,
) {
    let mut encoder = Encoder::new(version, matching);
    let mut applied: Option<usize> = None;
    for action in actions {
        let is_instruction = match action.row().instruction {
            Instruction::ApplyActions => false,
            Instruction::Meter => version < Version::V15,
            _ => true,
        };
        if !is_instruction {
            if applied.is_none() {
                applied = Some(begin(APPLY_ACTIONS, out));
                out.put_zeros(4);
            }
            encoder.encode(action, out);
            continue;
        }
        if let Some(start) = applied.take() {
            end(start, out);
        }
        encode_instruction(action, version, matching, out);
    }
    if let Some(start) = applied {
        end(start, out);
    }
}

fn encode_instruction(action: &Action, version: Version, matching: &Match, out: &mut Vec<u8>) {
    let start;
    match action {
        Action::Meter(meter) => {
            start = begin(METER, out);
            out.put_u32(*meter);
        }
        Action::ClearActions => {
            start = begin(CLEAR_ACTIONS, out);
            out.put_zeros(4);
        }
        Action::WriteActions(actions) => {
            start = begin(WRITE_ACTIONS, out);
            out.put_zeros(4);
            Encoder::new(version, matching).encode_all(actions, out);
        }
        Action::WriteMetadata { value, mask } => {
            start = begin(WRITE_METADATA, out);
            out.put_zeros(4);
            out.put_u64(*value);
            out.put_u64(*mask);
        }
        Action::GotoTable(table) => {
            start = begin(GOTO_TABLE, out);
            out.put_u8(*table);
            out.put_zeros(3);
        }
        _ => return,
    }
    end(start, out);
}

fn begin(kind: u16, out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.put_u16(kind);
    out.put_u16(0);
    start
}

fn end(start: usize, out: &mut Vec<u8>) {
    out.set_u16(start + 2, (out.len() - start) as u16);
}

const GOTO_TABLE: u16 = 1;
const WRITE_METADATA: u16 = 2;
const WRITE_ACTIONS: u16 = 3;
const APPLY_ACTIONS: u16 = 4;
const CLEAR_ACTIONS: u16 = 5;
const METER: u16 = 6;
