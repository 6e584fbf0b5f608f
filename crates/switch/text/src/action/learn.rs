//! `learn(…)`

use flow::action::{Action, Learn, LearnDestination, LearnSource, LearnSpec, Subfield};

use super::parse::{fits, parse_move, table};
use crate::error::{TextError, refuse};
use crate::number::{integer, leading, scan};
use crate::port::PortNames;
use crate::subfield::{has_header, parse_subfield};
use crate::token::KeyValues;
use crate::value::{bits, bytes, parse_exact, print_value};

pub(crate) fn parse(text: &str, names: &PortNames) -> Result<Action, TextError> {
    let mut learn = Learn {
        idle_timeout: 0,
        hard_timeout: 0,
        fin_idle_timeout: 0,
        fin_hard_timeout: 0,
        priority: 0x8000,
        cookie: 0,
        send_flow_removed: false,
        delete_learned: false,
        table: 1,
        limit: 0,
        result: None,
        specs: Vec::new(),
    };
    for (key, value) in KeyValues::new(text) {
        match key {
            "table" => {
                learn.table = match table(value) {
                    Some(255) => {
                        return Err(refuse!("{text}: table id 255 not valid for `learn' action"));
                    }
                    Some(number) => number,
                    None => return Err(refuse!("unknown table \"{value}\"")),
                };
            }
            "priority" => learn.priority = leading(value) as u16,
            "idle_timeout" => learn.idle_timeout = leading(value) as u16,
            "hard_timeout" => learn.hard_timeout = leading(value) as u16,
            "fin_idle_timeout" => learn.fin_idle_timeout = leading(value) as u16,
            "fin_hard_timeout" => learn.fin_hard_timeout = leading(value) as u16,
            "cookie" => learn.cookie = scan(value, 0).map_or(0, |(cookie, _)| cookie),
            "send_flow_rem" => learn.send_flow_removed = true,
            "delete_learned" => learn.delete_learned = true,
            "limit" => learn.limit = leading(value) as u32,
            "result_dst" => {
                let part = parse_subfield(value)?;
                if !part.field.is_writable() {
                    return Err(refuse!("{value} is read-only"));
                }
                if part.width != 1 {
                    return Err(refuse!("result_dst in 'learn' action must be a single bit"));
                }
                learn.result = Some(part);
            }
            _ => learn.specs.push(spec(text, key, value, names)?),
        }
    }
    Ok(Action::Learn(Box::new(learn)))
}

fn spec(text: &str, key: &str, value: &str, names: &PortNames) -> Result<LearnSpec, TextError> {
    if let Ok(destination) = parse_subfield(key) {
        return matching(text, key, value, destination, names);
    }
    match key {
        "load" => load(key, value),
        "output" => {
            let source = parse_subfield(value)?;
            let width = source.width;
            let source = LearnSource::Field(source);
            Ok(LearnSpec { source, destination: LearnDestination::Output, width })
        }
        _ => Err(refuse!("{text}: unknown keyword {key}")),
    }
}

/// Parses a match of the learned rule: `NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[]`, `eth_type=0x800`,
/// `vlan_tci[0..11]`.
fn matching(
    text: &str,
    key: &str,
    value: &str,
    part: Subfield,
    names: &PortNames,
) -> Result<LearnSpec, TextError> {
    if !has_header(part.field) {
        return Err(refuse!("{text}: experimenter OXM field '{key}' not supported"));
    }
    let source = if value.is_empty() {
        LearnSource::Field(part)
    } else {
        match parse_subfield(value) {
            Ok(source) if source.width == part.width => LearnSource::Field(source),
            Ok(source) => {
                return Err(refuse!(
                    "{text}: bit widths of {key} ({}) and {value} ({}) differ",
                    source.width,
                    part.width
                ));
            }
            Err(as_part) => match immediate(text, value, part, names) {
                Ok(value) => LearnSource::Value(value),
                Err(as_value) => {
                    return Err(refuse!(
                        "{text}: {key} value {value} cannot be parsed as a subfield ({as_part}) \
                         or an immediate value ({as_value})"
                    ));
                }
            },
        }
    };
    let destination = LearnDestination::Match(part);
    Ok(LearnSpec { source, destination, width: part.width })
}

fn immediate(
    text: &str,
    value: &str,
    part: Subfield,
    names: &PortNames,
) -> Result<u128, TextError> {
    if part.start == 0 && part.width == bits(part.field) {
        let value = parse_exact(part.field, value, names)?;
        return Ok(value & u128::MAX >> (128 - u32::from(part.width)));
    }
    let Ok((number, "")) = integer(value, bytes(part.field)) else {
        return Err(refuse!("{text}: cannot parse integer value"));
    };
    if !fits(number, part.width) {
        let mut shown = String::new();
        print_value(&mut shown, part.field, number, u128::MAX, &PortNames::none());
        return Err(refuse!("{text}: value {shown} does not fit into {} bits", part.width));
    }
    Ok(number)
}

/// Parses a load of the learned rule: `load:NXM_OF_IN_PORT[]->NXM_NX_REG0[0..15]`,
/// `load:5->reg1[]`.
fn load(key: &str, value: &str) -> Result<LearnSpec, TextError> {
    let Some(arrow) = value.find("->") else {
        return Err(refuse!("{key}: missing `->' in `{value}'"));
    };
    if arrow == 0 {
        return Err(refuse!("{key}: missing source before `->' in `{value}'"));
    }
    let Ok((number, rest)) = integer(value, 16) else {
        let (source, destination) = parse_move(value)?;
        let width = source.width;
        let source = LearnSource::Field(source);
        return Ok(LearnSpec { source, destination: LearnDestination::Load(destination), width });
    };
    if rest.len() != value.len() - arrow {
        return Err(refuse!("{key}: garbage before `->' in `{value}'"));
    }
    let name = &value[arrow + 2..];
    let part = parse_subfield(name)?;
    if !has_header(part.field) {
        return Err(refuse!("{value}: experimenter OXM field '{name}' not supported"));
    }
    if !fits(number, part.width) {
        return Err(refuse!("{value}: value does not fit into {} bits", part.width));
    }
    let source = LearnSource::Value(number);
    Ok(LearnSpec { source, destination: LearnDestination::Load(part), width: part.width })
}
