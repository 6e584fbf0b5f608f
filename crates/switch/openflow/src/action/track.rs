use flow::Field;
use flow::action::{Action, Ct, CtZone};
use flow::request::Refusal;

use super::super::Version;
use super::super::match_entry::Header;
use super::super::octets::{Put, Reader};
use super::decode::{Nesting, decode_nested};
use super::encode::Encoder;
use super::nat::encode_nat;
use super::{begin_nicira, finish, part_of_span, put_header, span};

pub(super) use super::nat::decode_nat;

/// Reads `ct` from its flags on.
pub(super) fn decode_track(
    body: &mut Reader<'_>,
    version: Version,
    nesting: Nesting,
) -> Result<Action, Refusal> {
    let flags = body.u16()?;
    let source = body.u32()?;
    let zone = body.u16()?;
    let table = body.u8()?;
    body.skip(3)?;
    let alg = body.u16()?;
    let (commit, force) = (flags & COMMIT != 0, flags & FORCE != 0);
    if force && !commit {
        return Err(Refusal::BadActionArgument);
    }
    let mut track = Ct {
        commit,
        force,
        zone: if source == 0 {
            CtZone::Number(zone)
        } else {
            CtZone::From(part_of_span(Header(source), zone)?)
        },
        table: (table != NO_TABLE).then_some(table),
        alg,
        ..Ct::default()
    };
    for action in decode_nested(body.rest(), version, nesting.inner(true))? {
        match action {
            Action::Ct(nested) if nested.nat.is_some() && track.nat.is_none() => {
                track.nat = nested.nat;
            }
            Action::SetField { field: Field::CtMark | Field::CtLabel, .. } => {
                track.exec.push(action);
            }
            Action::Load { destination, .. } | Action::Move { destination, .. }
                if matches!(destination.field, Field::CtMark | Field::CtLabel) =>
            {
                track.exec.push(action);
            }
            _ => return Err(Refusal::BadActionArgument),
        }
    }
    if !track.exec.is_empty() && !commit {
        return Err(Refusal::BadActionArgument);
    }
    Ok(Action::Ct(Box::new(track)))
}

pub(super) fn encode_track(track: &Ct, encoder: &mut Encoder, out: &mut Vec<u8>) {
    let start = begin_nicira(35, out);
    let commit = if track.commit { COMMIT } else { 0 };
    out.put_u16(commit | if track.force { FORCE } else { 0 });
    match track.zone {
        CtZone::Number(zone) => {
            out.put_u32(0);
            out.put_u16(zone);
        }
        CtZone::From(part) => {
            put_header(part, out);
            out.put_u16(span(part));
        }
    }
    out.put_u8(track.table.unwrap_or(NO_TABLE));
    out.put_zeros(3);
    out.put_u16(track.alg);
    if let Some(nat) = &track.nat {
        encode_nat(nat, out);
    }
    encoder.encode_all(&track.exec, out);
    finish(start, out);
}

const COMMIT: u16 = 1;
const FORCE: u16 = 2;
const NO_TABLE: u8 = 0xff;
