//! Groups: `group_id=1,type=select,bucket=output:1,bucket=output:2`.

use std::fmt::Write;

use flow::Field;
use flow::port_number::PortNumber;
use flow::request::{Bucket, FlowMod, GroupCommand, GroupMod, GroupType};

use super::action::{Context, Parser};
use super::error::{TextError, refuse};
use super::number::{number_16, number_32, number_64};
use super::port::{PortNames, parse_port};
use super::token::KeyValues;
use super::value::{self, field_named, ones, parse_exact, stored};

const MAX_GROUP: u32 = 0xffff_ff00;
const MAX_METHOD: usize = 16;

/// Parses the change that `ovs-ofctl add-group` or another of its group commands makes for this
/// text.
pub fn parse_group(
    text: &str,
    command: GroupCommand,
    names: &PortNames,
) -> Result<GroupMod, TextError> {
    let takes_type =
        matches!(command, GroupCommand::Add | GroupCommand::Modify | GroupCommand::AddOrModify);
    let takes_buckets = takes_type || command == GroupCommand::InsertBucket;
    let mut header = Header::new();
    if command == GroupCommand::Delete && text.is_empty() {
        return Ok(header.group(GroupMod::ALL, command, Vec::new()));
    }
    let start = text.find("bucket=");
    if start.is_some() && !takes_buckets {
        return Err(refuse!("bucket is not needed"));
    }
    let (keys, buckets) = text.split_at(start.unwrap_or(text.len()));
    for (key, value) in KeyValues::new(keys) {
        header.key(key, value, command, takes_type, names)?;
    }
    let group = header.group.ok_or_else(|| refuse!("must specify a group_id"))?;
    header.check(command, takes_type)?;
    let mut parsed = Vec::new();
    for text in buckets.split("bucket=").skip(1) {
        let bucket = parse_bucket(text, header.kind, names)?;
        let is_weighted = bucket.weight != 0 && header.kind != GroupType::Select;
        if command != GroupCommand::InsertBucket && is_weighted {
            return Err(refuse!("Only select groups can have bucket weights."));
        }
        parsed.push(bucket);
    }
    if header.kind == GroupType::Indirect && parsed.len() > 1 {
        return Err(refuse!("Indirect groups can have at most one bucket."));
    }
    Ok(header.group(group, command, parsed))
}

#[derive(Debug)]
struct Header {
    group: Option<u32>,
    has_type: bool,
    kind: GroupType,
    bucket: Option<u32>,
    method: String,
    parameter: u64,
    fields: Vec<(Field, u128)>,
}

impl Header {
    fn new() -> Self {
        Self {
            group: None,
            has_type: false,
            kind: GroupType::All,
            bucket: None,
            method: String::new(),
            parameter: 0,
            fields: Vec::new(),
        }
    }

    fn key(
        &mut self,
        key: &str,
        value: &str,
        command: GroupCommand,
        takes_type: bool,
        names: &PortNames,
    ) -> Result<(), TextError> {
        let needed = |what: &str| {
            if takes_type { Ok(()) } else { Err(refuse!("{what} not needed")) }
        };
        match key {
            "command_bucket_id" => self.bucket = Some(bucket_number(value, command)?),
            "group_id" if value == "all" => self.group = Some(GroupMod::ALL),
            "group_id" => {
                let group = number_32(value)?;
                if group > MAX_GROUP && group != GroupMod::ALL {
                    return Err(refuse!("invalid group id {group}"));
                }
                self.group = Some(group);
            }
            "type" => {
                needed("type is")?;
                self.kind = match value {
                    "all" => GroupType::All,
                    "select" => GroupType::Select,
                    "indirect" => GroupType::Indirect,
                    "ff" | "fast_failover" => GroupType::FastFailover,
                    _ => return Err(refuse!("invalid group type {value}")),
                };
                self.has_type = true;
            }
            "selection_method" => {
                needed("selection method is")?;
                if value.len() >= MAX_METHOD {
                    return Err(refuse!(
                        "selection method is longer than {} bytes long",
                        MAX_METHOD - 1
                    ));
                }
                value.clone_into(&mut self.method);
            }
            "selection_method_param" => {
                needed("selection method param is")?;
                self.parameter = number_64(value)?;
            }
            "fields" => {
                needed("fields are")?;
                self.selection(value, names)?;
            }
            _ => return Err(refuse!("unknown keyword {key}")),
        }
        Ok(())
    }

    /// Reads `fields(ip_src=255.255.0.0,tcp_dst)`. The values are masks.
    fn selection(&mut self, text: &str, names: &PortNames) -> Result<(), TextError> {
        let mut rest = KeyValues::new(text);
        while let Some((key, mask)) = rest.next() {
            let field = match field_named(key) {
                Some(field) => field,
                None if value::is_foreign(key) => return Err(value::foreign(key)),
                None => return Err(refuse!("{}: unknown field {key}", rest.rest())),
            };
            if self.fields.iter().any(|(known, _)| *known == field) {
                return Err(refuse!("{key}: duplicate field"));
            }
            let all = ones(field);
            let bits = if mask.is_empty() { all } else { parse_exact(field, mask, names)? };
            if bits == 0 {
                return Err(refuse!(
                    "{}: values are wildcards here and must not be all-zeros",
                    rest.rest()
                ));
            }
            if field.masking() == flow::Masking::Exact && bits != all {
                return Err(refuse!("{mask}: invalid mask for field {}", field.name()));
            }
            self.fields.push((field, stored(field, bits, bits).1));
        }
        Ok(())
    }

    fn check(&self, command: GroupCommand, takes_type: bool) -> Result<(), TextError> {
        if takes_type && !self.has_type {
            return Err(refuse!("must specify a type"));
        }
        if self.method != "hash" && !self.fields.is_empty() {
            return Err(refuse!("fields may only be specified with \"selection_method=hash\""));
        }
        if self.method.is_empty() && self.parameter != 0 {
            return Err(refuse!(
                "selection_method_param is only allowed with \"selection_method\""
            ));
        }
        if command == GroupCommand::InsertBucket && self.bucket.is_none() {
            return Err(refuse!("must specify a command bucket id"));
        }
        Ok(())
    }

    fn group(self, group: u32, command: GroupCommand, buckets: Vec<Bucket>) -> GroupMod {
        let selection =
            (!self.method.is_empty()).then_some((self.method, self.parameter, self.fields));
        GroupMod {
            command,
            group,
            kind: self.kind,
            buckets,
            bucket: self.bucket.unwrap_or(GroupMod::EVERY),
            selection,
        }
    }
}

fn bucket_number(text: &str, command: GroupCommand) -> Result<u32, TextError> {
    let is_removal = command == GroupCommand::RemoveBucket;
    if !is_removal && command != GroupCommand::InsertBucket {
        return Err(refuse!("command bucket id is not needed"));
    }
    let number = match text {
        "all" => GroupMod::EVERY,
        "first" => GroupMod::FIRST,
        "last" => GroupMod::LAST,
        _ => number_32(text)?,
    };
    if number > MAX_GROUP && number < GroupMod::FIRST {
        return Err(refuse!("invalid command bucket id {number}"));
    }
    if number == GroupMod::EVERY && !is_removal {
        return Err(refuse!("command_bucket_id=all is not permitted"));
    }
    Ok(number)
}

/// Reads the text of a bucket: `weight:2,actions=output:1` or `output:1`.
pub fn parse_bucket(text: &str, kind: GroupType, names: &PortNames) -> Result<Bucket, TextError> {
    let mut bucket = Bucket {
        id: GroupMod::EVERY,
        weight: u16::from(kind == GroupType::Select),
        watch_port: PortNumber::NONE,
        watch_group: FlowMod::ANY_GROUP,
        actions: Vec::new(),
    };
    // A key that is not a key of buckets is an action.
    let mut actions = String::new();
    for (key, value) in KeyValues::new(text) {
        match key.to_ascii_lowercase().as_str() {
            "weight" => bucket.weight = number_16(value, "weight")?,
            "watch_port" => {
                let allowed = [PortNumber::NONE, PortNumber::CONTROLLER];
                bucket.watch_port = parse_port(value, names)
                    .filter(|port| !port.is_reserved() || allowed.contains(port))
                    .ok_or_else(|| refuse!("{value}: invalid watch_port"))?;
            }
            "watch_group" => {
                bucket.watch_group = number_32(value)?;
                if bucket.watch_group > MAX_GROUP {
                    return Err(refuse!("invalid watch_group id {}", bucket.watch_group));
                }
            }
            "bucket_id" => {
                bucket.id = number_32(value)?;
                if bucket.id > MAX_GROUP {
                    return Err(refuse!("invalid bucket_id id {}", bucket.id));
                }
            }
            "action" | "actions" => {
                let _ = write!(actions, "{value},");
            }
            _ => {
                let _ = write!(actions, "{key}({value}),");
            }
        }
    }
    if actions.is_empty() {
        return Err(refuse!("bucket must specify actions"));
    }
    let is_watched =
        bucket.watch_port != PortNumber::NONE || bucket.watch_group != FlowMod::ANY_GROUP;
    if kind == GroupType::FastFailover && !is_watched {
        return Err(refuse!("fast failover bucket requires watch_port or watch_group"));
    }
    bucket.actions = Parser::new(names).list(&actions, Context::Plain)?;
    Ok(bucket)
}
