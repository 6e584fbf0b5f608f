//! Rules: `table=1,priority=10,ip,nw_dst=10.0.0.0/8 actions=normal`.

use flow::request::{CookieFilter, FlowCommand, FlowFilter, FlowMod};

use super::action::{Context, Parser, check};
use super::error::{TextError, refuse};
use super::matching::parse_key;
use super::normal::normalize;
use super::number::{number_8, number_16, number_32, number_64};
use super::port::{PortNames, parse_port};
use super::token::KeyValues;

/// Parses the change that `ovs-ofctl add-flow`, `mod-flows` or `del-flows` makes for this text.
pub fn parse_flow(
    text: &str,
    command: FlowCommand,
    names: &PortNames,
) -> Result<FlowMod, TextError> {
    let takes = match command {
        FlowCommand::Add => Takes { importance: true, ..Takes::CHANGE },
        FlowCommand::Modify | FlowCommand::ModifyStrict => Takes::CHANGE,
        FlowCommand::Delete => Takes::SELECTION,
        FlowCommand::DeleteStrict => Takes { priority: true, ..Takes::SELECTION },
    };
    parse(text, Some(command), takes, names)
}

/// Parses a line of a file for `ovs-ofctl add-flows` or for a bundle. A command may precede the
/// rule, as in `delete table=1`.
pub fn parse_flow_line(text: &str, names: &PortNames) -> Result<FlowMod, TextError> {
    let text = text.trim_start_matches([' ', '\t', '\r', '\n']);
    let end = super::token::until(text, b", \t\r\n");
    let word = &text[..end];
    let commands = [
        ("add", FlowCommand::Add),
        ("delete", FlowCommand::Delete),
        ("delete_strict", FlowCommand::DeleteStrict),
        ("modify", FlowCommand::Modify),
        ("modify_strict", FlowCommand::ModifyStrict),
    ];
    // As in ovs-ofctl, the beginning of a command's name is enough.
    match commands.iter().find(|(name, _)| name.starts_with(word)) {
        Some((_, command)) => parse_flow(&text[end..], *command, names),
        None => parse_flow(text, FlowCommand::Add, names),
    }
}

/// Parses the filter of `ovs-ofctl dump-flows`.
pub fn parse_filter(text: &str, names: &PortNames) -> Result<FlowFilter, TextError> {
    let change = parse(text, None, Takes::SELECTION, names)?;
    Ok(FlowFilter {
        table: change.table,
        matching: change.matching,
        cookie: change.cookie_filter,
        out_port: change.out_port,
        out_group: change.out_group,
    })
}

/// The keys that a command accepts.
#[derive(Debug, Clone, Copy)]
struct Takes {
    actions: bool,
    output: bool,
    importance: bool,
    priority: bool,
}

impl Takes {
    const CHANGE: Self = Self { actions: true, output: false, importance: false, priority: true };
    const SELECTION: Self =
        Self { actions: false, output: true, importance: false, priority: false };
}

fn parse(
    text: &str,
    command: Option<FlowCommand>,
    takes: Takes,
    names: &PortNames,
) -> Result<FlowMod, TextError> {
    let (keys, actions) = if takes.actions { split_actions(text)? } else { (text, "") };
    let mut change = FlowMod::new(command.unwrap_or(FlowCommand::Delete));
    for (key, value) in KeyValues::new(keys) {
        if is_flag(&mut change, key, takes) || parse_key(&mut change.matching, key, value, names)? {
            continue;
        }
        if value.is_empty() {
            return Err(refuse!("field {key} missing value"));
        }
        parse_other(&mut change, key, value, command, takes, names)?;
    }
    if takes.actions {
        let mut parser = Parser::new(names);
        change.actions = parser.list(actions, Context::Rule)?;
        let table = change.table.unwrap_or(255);
        let needs = parser.needs_openflow_11 || change.flags.reset_counts;
        check(&change.actions, &change.matching, table, needs)
            .map_err(|name| refuse!("actions are invalid with specified match ({name})"))?;
    }
    normalize(&mut change.matching);
    if command == Some(FlowCommand::Add) && change.cookie.is_none() {
        change.cookie = Some(0);
    }
    let modifies = matches!(command, Some(FlowCommand::Modify | FlowCommand::ModifyStrict));
    if modifies && change.cookie.is_none() && change.cookie_filter.mask == 0 {
        // An added rule gets the cookie 0. Modified rules keep their cookies.
        change.cookie = Some(0);
        change.keeps_cookie = true;
    }
    Ok(change)
}

/// Splits a rule at `actions=`.
fn split_actions(text: &str) -> Result<(&str, &str), TextError> {
    let parts = text
        .split_once("action")
        .and_then(|(keys, rest)| rest.split_once('=').map(|(_, actions)| (keys, actions)));
    parts.ok_or_else(|| refuse!("must specify an action"))
}

fn is_flag(change: &mut FlowMod, key: &str, takes: Takes) -> bool {
    let flags = &mut change.flags;
    let flag = match key {
        "no_readonly_table" | "allow_hidden_fields" => return true,
        _ if !takes.actions => return false,
        "send_flow_rem" => &mut flags.send_flow_removed,
        "check_overlap" => &mut flags.check_overlap,
        "reset_counts" => &mut flags.reset_counts,
        "no_packet_counts" => &mut flags.no_packet_counts,
        "no_byte_counts" => &mut flags.no_byte_counts,
        _ => return false,
    };
    *flag = true;
    true
}

fn parse_other(
    change: &mut FlowMod,
    key: &str,
    value: &str,
    command: Option<FlowCommand>,
    takes: Takes,
    names: &PortNames,
) -> Result<(), TextError> {
    match key {
        "table" => {
            let table = number_8(value, key).map_err(|_| refuse!("unknown table \"{value}\""))?;
            change.table = Some(table).filter(|table| *table != 255);
        }
        "out_port" if takes.output => {
            change.out_port = parse_port(value, names)
                .ok_or_else(|| refuse!("{value} is not a valid OpenFlow port"))?;
        }
        "out_group" if takes.output => {
            change.out_group = group_number(value)
                .ok_or_else(|| refuse!("{value} is not a valid OpenFlow group"))?;
        }
        "priority" if takes.priority => change.priority = number_16(value, key)?,
        "idle_timeout" if takes.actions => change.idle_timeout = number_16(value, key)?,
        "hard_timeout" if takes.actions => change.hard_timeout = number_16(value, key)?,
        "importance" if takes.importance => change.importance = number_16(value, key)?,
        "cookie" => parse_cookie(change, value, command)?,
        // Ignore these keys, so that the output of dump-flows is valid input.
        "duration" | "n_packets" | "n_bytes" | "idle_age" | "hard_age" => {}
        _ => return Err(refuse!("unknown keyword {key}")),
    }
    Ok(())
}

fn parse_cookie(
    change: &mut FlowMod,
    text: &str,
    command: Option<FlowCommand>,
) -> Result<(), TextError> {
    if let Some((value, mask)) = text.split_once('/') {
        if command == Some(FlowCommand::Add) {
            return Err(refuse!("flow additions cannot use a cookie mask"));
        }
        let (value, mask) = (number_64(value)?, number_64(mask)?);
        change.cookie_filter = CookieFilter { value, mask };
        return Ok(());
    }
    let sets =
        matches!(command, Some(FlowCommand::Add | FlowCommand::Modify | FlowCommand::ModifyStrict));
    if !sets {
        return Err(refuse!(
            "cannot set cookie (to match on a cookie, specify a mask, e.g. cookie={text}/-1)"
        ));
    }
    change.cookie = Some(number_64(text)?);
    Ok(())
}

/// Reads a group's number, `any` or `all`.
fn group_number(text: &str) -> Option<u32> {
    if text.eq_ignore_ascii_case("any") {
        return Some(FlowMod::ANY_GROUP);
    }
    if text.eq_ignore_ascii_case("all") {
        return Some(0xffff_fffc);
    }
    number_32(text).ok().filter(|number| *number <= 0xffff_ff00)
}
