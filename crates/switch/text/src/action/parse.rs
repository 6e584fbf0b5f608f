use flow::action::{Action, Controller, Row, Subfield};
use flow::port_number::PortNumber;

use super::order::{self, Context};
use super::{connection, learn, plain, select};
use crate::error::{TextError, refuse};
use crate::number::{integer, leading, number_8, number_16, number_32, number_64, scan};
use crate::port::{PortNames, parse_port};
use crate::subfield::{parse_subfield, scan_subfield};
use crate::token::{KeyValues, Words};
use crate::value::{self, field_named, foreign, is_foreign, is_valid, parse_masked, print_value};

/// Maximum nesting depth of actions, as in ovs-ofctl.
const MAX_DEPTH: u8 = 100;
/// Maximum number of bytes of actions that a message can carry.
const MAX_BYTES: usize = 0xffff;

/// Parses actions and instructions: `ct(commit),goto_table:1`. An empty list is `drop`.
pub fn parse_actions(text: &str, names: &PortNames) -> Result<Vec<Action>, TextError> {
    Parser::new(names).list(text, Context::Rule)
}

/// Parses lists of actions, and records which OpenFlow versions can carry them.
#[derive(Debug)]
pub(crate) struct Parser<'a> {
    pub names: &'a PortNames,
    depth: u8,
    /// Whether an action of the rule does not exist in OpenFlow 1.0.
    pub needs_openflow_11: bool,
}

impl<'a> Parser<'a> {
    pub(crate) fn new(names: &'a PortNames) -> Self {
        Self { names, depth: 0, needs_openflow_11: false }
    }

    pub(crate) fn list(&mut self, text: &str, context: Context) -> Result<Vec<Action>, TextError> {
        if self.depth >= MAX_DEPTH {
            return Err(refuse!("Action nested too deeply"));
        }
        self.depth += 1;
        let parsed = self.list_at_depth(text, context);
        self.depth -= 1;
        parsed
    }

    fn list_at_depth(&mut self, text: &str, context: Context) -> Result<Vec<Action>, TextError> {
        let mut actions = Vec::new();
        let mut drop = false;
        for (key, value) in KeyValues::new(text) {
            if key.eq_ignore_ascii_case("drop") {
                drop = true;
                continue;
            }
            actions.push(self.action(key, value)?);
        }
        if drop && !actions.is_empty() {
            return Err(refuse!(
                "\"drop\" must not be accompanied by any other action or instruction"
            ));
        }
        order::verify(&actions, context)?;
        Ok(actions)
    }

    fn action(&mut self, key: &str, value: &str) -> Result<Action, TextError> {
        let name = key.to_ascii_lowercase();
        if let Some(row) = Row::named(&name) {
            self.needs_openflow_11 |= row.needs_openflow_11;
            return plain::parse(row, value);
        }
        Ok(match name.as_str() {
            "output" | "output_reg" => self.output(value)?,
            "controller" => controller(value)?,
            "enqueue" => self.enqueue(value)?,
            "bundle" => select::bundle(value, false, self.names)?,
            "bundle_load" => select::bundle(value, true, self.names)?,
            "set_field" => self.set_field(value)?,
            "load" => load(value)?,
            "move" => move_field(value)?,
            "push" => Action::StackPush(stack(value)?),
            "pop" => Action::StackPop(stack(value)?),
            "dec_ttl" => Action::DecTtl(controllers(value)?),
            "set_tunnel" | "set_tunnel64" => Action::SetTunnel(number_64(value)?),
            "resubmit" => self.resubmit(value)?,
            "learn" => learn::parse(value, self.names)?,
            "conjunction" => conjunction(value)?,
            "multipath" => select::multipath(value)?,
            "note" => {
                Action::Note(hex(value).ok_or_else(|| refuse!("bad hex digit in `note' argument"))?)
            }
            "sample" => select::sample(value, self.names)?,
            "ct" => connection::ct(value, self)?,
            "nat" => {
                connection::nat(value)?;
                return Err(refuse!("Cannot have NAT action outside of \"ct\" action"));
            }
            "clone" => Action::Clone(self.list(value, Context::Clone)?),
            "check_pkt_larger" => check_packet_larger(value)?,
            "write_actions" => Action::WriteActions(self.list(value, Context::WriteActions)?),
            "write_metadata" => write_metadata(value)?,
            "goto_table" => match table(value) {
                Some(table) => Action::GotoTable(table),
                None => return Err(refuse!("unknown table \"{value}\"")),
            },
            "apply_actions" => {
                return Err(refuse!("apply_actions is the default instruction"));
            }
            "output_trunc" => return Err(refuse!("unknown action {value}")),
            "unroll_xlate" => {
                return Err(refuse!(
                    "UNROLL is an internal action that shouldn't be used via OpenFlow"
                ));
            }
            "encap" | "decap" | "dec_nsh_ttl" | "delete_field" => {
                return Err(refuse!("{name}: Weir does not support this action"));
            }
            _ => match parse_port(key, self.names) {
                Some(port) => Action::Output { port, max_len: 0 },
                None => return Err(refuse!("unknown action {key}")),
            },
        })
    }

    fn output(&self, text: &str) -> Result<Action, TextError> {
        if text.contains("port") && text.contains("max_len") {
            return self.output_truncated(text);
        }
        if let Some(port) = parse_port(text, self.names) {
            let max_len = if port == PortNumber::CONTROLLER { u16::MAX } else { 0 };
            return Ok(Action::Output { port, max_len });
        }
        match parse_subfield(text) {
            Ok(source) => Ok(Action::OutputRegister { source, max_len: u16::MAX }),
            Err(_) => Err(refuse!("{text}: output to unknown port")),
        }
    }

    fn output_truncated(&self, text: &str) -> Result<Action, TextError> {
        let (mut port, mut max_len) = (PortNumber(0), 0);
        for (key, value) in KeyValues::new(text) {
            match key {
                "port" => {
                    port = parse_port(value, self.names)
                        .ok_or_else(|| refuse!("output to unknown truncate port: {value}"))?;
                    let allowed = [PortNumber::LOCAL, PortNumber::IN_PORT];
                    if port.is_reserved() && !allowed.contains(&port) {
                        return Err(refuse!("output to unsupported truncate port: {value}"));
                    }
                }
                "max_len" => {
                    max_len = number_32(value)?;
                    if max_len < 14 {
                        return Err(refuse!("max_len {max_len} is less than the minimum value 14"));
                    }
                }
                _ => return Err(refuse!("invalid key '{key}' in output_trunc argument")),
            }
        }
        Ok(Action::OutputTruncated { port, max_len })
    }

    fn enqueue(&self, text: &str) -> Result<Action, TextError> {
        let mut words = Words::new(text);
        let (Some(port), Some(queue)) = (words.next(b":q,"), words.next(b"")) else {
            return Err(refuse!(
                "\"enqueue\" syntax is \"enqueue:PORT:QUEUE\" or \"enqueue(PORT,QUEUE)\""
            ));
        };
        let port = parse_port(port, self.names)
            .ok_or_else(|| refuse!("{port}: enqueue to unknown port"))?;
        Ok(Action::Enqueue { port, queue: number_32(queue)? })
    }

    fn set_field(&mut self, text: &str) -> Result<Action, TextError> {
        let (value, name) = split_arrow(text)?;
        let field = match field_named(name) {
            Some(field) => field,
            None if is_foreign(name) => return Err(foreign(name)),
            None => return Err(refuse!("{name} is not a valid OXM field name")),
        };
        if !field.is_writable() {
            return Err(refuse!("{name} is read-only"));
        }
        let (number, mask) = parse_masked(field, value, self.names)?;
        if !is_valid(field, number) {
            return Err(refuse!("{value} is not a valid value for field {name}"));
        }
        let (value, mask) = value::stored(field, number, mask);
        Ok(Action::SetField { field, value, mask })
    }

    fn resubmit(&self, text: &str) -> Result<Action, TextError> {
        let mut parts = text.split(',');
        let mut part = || parts.next().filter(|part| !part.is_empty());
        let port = match part() {
            None => None,
            Some(text) => Some(
                parse_port(text, self.names)
                    .ok_or_else(|| refuse!("{text}: resubmit to unknown port"))?,
            ),
        };
        let number = match part() {
            None => None,
            Some(text) => {
                Some(table(text).ok_or_else(|| refuse!("{text}: resubmit to unknown table"))?)
            }
        };
        let with_ct = match part() {
            None => false,
            Some("ct") => true,
            Some(text) => return Err(refuse!("{text}: unknown parameter")),
        };
        let port = port.filter(|port| *port != PortNumber::IN_PORT);
        let number = number.filter(|number| *number != 255);
        if port.is_none() && number.is_none() {
            return Err(refuse!(
                "at least one \"in_port\" or \"table\" must be specified on resubmit"
            ));
        }
        Ok(Action::Resubmit { port, table: number, with_ct })
    }
}

/// Parses a table's number; 255 means all tables.
pub(crate) fn table(text: &str) -> Option<u8> {
    number_8(text, "table").ok()
}

/// Splits a text at `->`.
fn split_arrow(text: &str) -> Result<(&str, &str), TextError> {
    match text.split_once("->") {
        None => Err(refuse!("{text}: missing `->'")),
        Some((_, "")) => Err(refuse!("{text}: missing field name following `->'")),
        Some(parts) => Ok(parts),
    }
}

fn controller(text: &str) -> Result<Action, TextError> {
    let mut controller = Controller {
        max_len: u16::MAX,
        id: 0,
        reason: 1,
        userdata: Vec::new(),
        pause: false,
        meter: None,
    };
    let mut has_userdata = false;
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        controller.max_len = number_16(text, "max_len")?;
    } else {
        for (key, value) in KeyValues::new(text) {
            match key {
                "reason" => {
                    let reason = REASONS.iter().position(|reason| *reason == value);
                    let reason = reason.ok_or_else(|| refuse!("unknown reason \"{value}\""))?;
                    controller.reason = reason as u8;
                }
                "max_len" => controller.max_len = number_16(value, "max_len")?,
                "id" => controller.id = number_16(value, "id")?,
                "userdata" => {
                    has_userdata = true;
                    controller.userdata = hex(value).ok_or_else(|| {
                        refuse!("bad hex digit in `controller' action `userdata'")
                    })?;
                }
                "pause" => controller.pause = true,
                "meter_id" => {
                    controller.meter = Some(number_32(value)?).filter(|id| *id != u32::MAX);
                }
                _ => {
                    return Err(refuse!("unknown key \"{key}\" parsing controller action"));
                }
            }
        }
    }
    let is_plain = controller.reason == 1
        && controller.id == 0
        && !has_userdata
        && !controller.pause
        && controller.meter.is_none();
    Ok(if is_plain {
        Action::Output { port: PortNumber::CONTROLLER, max_len: controller.max_len }
    } else {
        Action::Controller(Box::new(controller))
    })
}

/// The reasons of a packet-in, indexed by number.
pub(crate) const REASONS: [&str; 6] =
    ["no_match", "action", "invalid_ttl", "action_set", "group", "packet_out"];

/// Reads hexadecimal bytes, with optional points and spaces between them.
pub(crate) fn hex(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r', '\n', '.']);
        if rest.is_empty() {
            return (bytes.len() <= MAX_BYTES).then_some(bytes);
        }
        bytes.push(u8::from_str_radix(rest.get(..2)?, 16).ok()?);
        if !rest.as_bytes()[0].is_ascii_hexdigit() {
            return None;
        }
        rest = &rest[2..];
    }
}

fn load(text: &str) -> Result<Action, TextError> {
    let (number, name) = split_arrow(text)?;
    let destination = parse_subfield(name)?;
    let Ok((value, _)) = integer(number, value::bytes(destination.field)) else {
        return Err(refuse!("{text}: cannot parse integer value"));
    };
    if !fits(value, destination.width) {
        let mut shown = String::new();
        print_value(&mut shown, destination.field, value, u128::MAX, &PortNames::none());
        return Err(refuse!("{text}: value {shown} does not fit into {} bits", destination.width));
    }
    Ok(Action::Load { destination, value })
}

pub(crate) fn fits(value: u128, width: u8) -> bool {
    width >= 128 || value >> width == 0
}

fn move_field(text: &str) -> Result<Action, TextError> {
    let (source, destination) = parse_move(text)?;
    Ok(Action::Move { source, destination })
}

pub(crate) fn parse_move(text: &str) -> Result<(Subfield, Subfield), TextError> {
    let (source, rest) = scan_subfield(text)?;
    let name =
        rest.strip_prefix("->").ok_or_else(|| refuse!("{text}: missing `->' following source"))?;
    let destination = parse_subfield(name)?;
    if source.width != destination.width {
        return Err(refuse!(
            "{text}: source field is {} bits wide but destination is {} bits wide",
            source.width,
            destination.width
        ));
    }
    Ok((source, destination))
}

fn stack(text: &str) -> Result<Subfield, TextError> {
    match scan_subfield(text)? {
        (part, "") => Ok(part),
        (_, rest) => Err(refuse!("{rest}: trailing garbage following push or pop")),
    }
}

fn controllers(text: &str) -> Result<Vec<u16>, TextError> {
    if text.is_empty() {
        return Ok(vec![0]);
    }
    let mut words = Words::new(text);
    let mut ids = Vec::new();
    while let Some(word) = words.next(b", ") {
        ids.push(leading(word) as u16);
    }
    if ids.is_empty() {
        return Err(refuse!("dec_ttl_cnt_ids: expected at least one controller id."));
    }
    Ok(ids)
}

fn conjunction(text: &str) -> Result<Action, TextError> {
    let parse = || {
        let (id, rest) = scan(text, 0)?;
        let (clause, rest) = scan(rest.trim_start().strip_prefix(',')?, 10)?;
        let (clauses, rest) = scan(rest.trim_start().strip_prefix('/')?, 10)?;
        rest.trim_start().is_empty().then_some((id as u32, clause as u8, clauses as u8))
    };
    let (id, clause, clauses) =
        parse().ok_or_else(|| refuse!("\"conjunction\" syntax is \"conjunction(id,i/n)\""))?;
    if clauses < 2 {
        return Err(refuse!("conjunction must have at least 2 clauses"));
    }
    if clauses > 64 {
        return Err(refuse!("conjunction must have at most 64 clauses"));
    }
    if clause < 1 {
        return Err(refuse!("clause index must be positive"));
    }
    if clause > clauses {
        return Err(refuse!("clause index must be less than or equal to number of clauses"));
    }
    Ok(Action::Conjunction { id, clause: clause - 1, clauses })
}

fn check_packet_larger(text: &str) -> Result<Action, TextError> {
    let (length, name) = split_arrow(text)?;
    let length = length.strip_suffix(')').unwrap_or(length);
    let destination = parse_subfield(name)?;
    if destination.width != 1 {
        return Err(refuse!("Only 1-bit destination field is allowed"));
    }
    let length = number_16(length, "(null)")?;
    Ok(Action::CheckPacketLarger { destination, length })
}

fn write_metadata(text: &str) -> Result<Action, TextError> {
    let (value, mask) = match text.split_once('/') {
        Some((value, mask)) => (value, number_64(mask)?),
        None => (text, u64::MAX),
    };
    Ok(Action::WriteMetadata { value: number_64(value)?, mask })
}
