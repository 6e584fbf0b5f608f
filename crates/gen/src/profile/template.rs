use super::fields::{Fields, address, list, micros, number, scalar, whole};
use super::generator::{self, Pools};
use super::mistakes::Mistakes;
use super::tree::Node;
use super::{EditContent, PayloadEdit, Plugin, Template};
use crate::Frequency;

/// A template as read, before the profile's defaults are applied.
pub(super) struct ReadTemplate {
    pub(super) template: Template,
    pub(super) own_capture_times: Option<bool>,
    pub(super) capture_times: bool,
}

impl ReadTemplate {
    pub(super) fn finished(self) -> Template {
        Template { capture_times: self.capture_times, ..self.template }
    }
}

/// Reads one entry of `cap_info` to its end, even after a mistake, so that all mistakes are
/// reported.
pub(super) fn read(
    node: &Node,
    pools: &Pools,
    mistakes: &mut Mistakes,
    notes: &mut Vec<String>,
) -> Option<ReadTemplate> {
    let mut fields = Fields::of(node, "a template", mistakes)?;
    let name = fields
        .require("name", mistakes)
        .and_then(|node| scalar(node, "name", mistakes))
        .map(str::to_owned);
    let line = fields.line;
    let pool_name = |fields: &mut Fields<'_>, key, mistakes: &mut Mistakes| {
        let node = fields.find(key)?;
        Some((scalar(node, key, mistakes)?.to_owned(), node.line))
    };
    let client = pool_name(&mut fields, "client_pool", mistakes);
    let server = pool_name(&mut fields, "server_pool", mistakes);
    let client_pool = generator::find(
        &pools.clients,
        "client_pool",
        client.as_ref().map(|(name, line)| (name.as_str(), *line)),
        mistakes,
    );
    let server_pool = generator::find(
        &pools.servers,
        "server_pool",
        server.as_ref().map(|(name, line)| (name.as_str(), *line)),
        mistakes,
    );
    let flows = fields
        .require("cps", mistakes)
        .and_then(|node| number(node, "cps", mistakes))
        .map(Frequency::per_second);
    let gap = fields.require("ipg", mistakes).and_then(|node| micros(node, "ipg", mistakes));
    let turn_gap = fields.require("rtt", mistakes).and_then(|node| micros(node, "rtt", mistakes));
    let window = fields
        .require("w", mistakes)
        .and_then(|node| whole(node, "w", u64::from(u32::MAX), mistakes));
    super::read::former_window(&mut fields, mistakes, notes);
    let own_capture_times = fields.truth("cap_ipg", mistakes);
    let limit = limit(&mut fields, mistakes);
    let plugin = plugin(&mut fields, mistakes);
    let several = fields.truth("multi_flow_enabled", mistakes).unwrap_or(false);
    let keep_source_port = fields.truth("keep_src_port", mistakes).unwrap_or(false);
    tunnels(&mut fields, mistakes);
    let directions = directions(&mut fields, mistakes);
    let server_address = fields.find("server_addr");
    let only = fields.truth("one_app_server", mistakes).unwrap_or(false);
    let server_address = server_address.and_then(|node| address(node, "server_addr", mistakes));
    let edits = edits(&mut fields, mistakes, notes);

    if let Some(plugin) = plugin {
        let conflicts = [
            (several, "multi_flow_enabled"),
            (keep_source_port, "keep_src_port"),
            (!directions.is_empty(), "flows_dirs"),
            (limit.is_some_and(|limit| limit > 0), "limit"),
            (!edits.is_empty(), "dyn_pyload"),
        ];
        for (_, key) in conflicts.iter().filter(|(given, _)| *given) {
            mistakes.add(line, format!("`plugin_id` and `{key}` exclude each other"));
        }
        notes.push(format!("line {line}: {}", not_done(plugin)));
    }
    if several && directions.is_empty() {
        mistakes.add(line, "`multi_flow_enabled` needs `flows_dirs`, a direction for each flow");
    }
    fields.finish(mistakes, notes);
    let template = Template {
        line,
        name: name?,
        flows: flows?,
        gap: gap?,
        turn_gap: turn_gap?,
        window: window?.max(1) as u32,
        limit: limit.filter(|limit| *limit > 0),
        capture_times: false,
        keep_source_port,
        only_server: server_address.filter(|_| only),
        client_pool,
        server_pool,
        edits,
        plugin,
        directions,
    };
    Some(ReadTemplate { template, own_capture_times, capture_times: false })
}

fn limit(fields: &mut Fields<'_>, mistakes: &mut Mistakes) -> Option<u32> {
    fields.whole("limit", u64::from(u32::MAX), mistakes).map(|limit| limit as u32)
}

/// Checks the keys of encapsulated captures.
fn tunnels(fields: &mut Fields<'_>, mistakes: &mut Mistakes) {
    if let Some(node) = fields.find("max_ip_tunnels")
        && whole(node, "max_ip_tunnels", u64::from(u16::MAX), mistakes) == Some(0)
    {
        mistakes.add(node.line, "`max_ip_tunnels` is at least 1");
    }
    fields.whole("ip_header_offset", u64::from(u16::MAX), mistakes);
}

fn plugin(fields: &mut Fields<'_>, mistakes: &mut Mistakes) -> Option<Plugin> {
    let node = fields.find("plugin_id")?;
    Some(match whole(node, "plugin_id", u64::from(u8::MAX), mistakes)? {
        0 => return None,
        1 => Plugin::Rtsp,
        2 => Plugin::Sip,
        4 => Plugin::Http,
        5 => Plugin::Dhcp,
        number => {
            mistakes.add(
                node.line,
                format!("`plugin_id` is 1 (RTSP), 2 (SIP), 4 (HTTP) or 5 (DHCP), not {number}"),
            );
            return None;
        }
    })
}

fn not_done(plugin: Plugin) -> &'static str {
    match plugin {
        Plugin::Rtsp => {
            "plugin 1 (RTSP): the media connections get ports of their own; addresses and ports in \
             the text stay as captured"
        }
        Plugin::Sip => {
            "plugin 2 (SIP): the media connections get ports of their own; addresses and ports in \
             the text stay as captured"
        }
        Plugin::Http => "plugin 4 (HTTP): the host's name in the request stays as captured",
        Plugin::Dhcp => {
            "plugin 5 (DHCP): the payload's addresses stay as captured, and requests have a unicast \
             MAC address"
        }
    }
}

/// Reads the directions of a capture's connections. True means that the server begins the
/// connection.
fn directions(fields: &mut Fields<'_>, mistakes: &mut Mistakes) -> Vec<bool> {
    let Some(node) = fields.find("flows_dirs") else { return Vec::new() };
    let Some(nodes) = list(node, "flows_dirs", mistakes) else { return Vec::new() };
    if nodes.is_empty() {
        mistakes.add(node.line, "`flows_dirs` has a 0 or a 1 for each flow of the capture");
    }
    nodes.iter().map(|node| whole(node, "flows_dirs", 1, mistakes) == Some(1)).collect()
}

fn edits(
    fields: &mut Fields<'_>,
    mistakes: &mut Mistakes,
    notes: &mut Vec<String>,
) -> Vec<PayloadEdit> {
    let mut edits = Vec::new();
    let Some(node) = fields.find("dyn_pyload") else { return edits };
    let Some(nodes) = list(node, "dyn_pyload", mistakes) else { return edits };
    for node in nodes {
        let Some(mut own) = Fields::of(node, "a program of `dyn_pyload`", mistakes) else {
            continue;
        };
        let byte = u64::from(u8::MAX);
        let mut need = |key, most| {
            let node = own.require(key, mistakes)?;
            whole(node, key, most, mistakes)
        };
        let packet = need("pkt_id", byte);
        let offset = need("pyld_offset", byte);
        let kind = need("type", 1);
        let words = need("len", byte);
        let mask = need("mask", u64::from(u32::MAX));
        own.finish(mistakes, notes);
        let read = || {
            Some(PayloadEdit {
                packet: packet? as usize,
                offset: offset? as usize,
                content: match kind? {
                    0 => EditContent::Random,
                    _ => EditContent::ClientAddress,
                },
                words: words? as usize,
                mask: mask? as u32,
            })
        };
        edits.extend(read());
    }
    edits
}
