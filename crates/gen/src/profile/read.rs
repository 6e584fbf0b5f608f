use units::Span;

use super::fields::{Fields, list, number, truth, whole};
use super::generator::{self, Pools};
use super::mistakes::Mistakes;
use super::template;
use super::tree::{Node, Value};
use super::{AddressesInMac, Ipv6Prefixes, Profile};

pub(super) fn profile(file: &str, text: &str) -> Result<Profile, Mistakes> {
    let mut mistakes = Mistakes::of(file);
    let profile = document(text, &mut mistakes);
    match profile {
        Some(profile) if mistakes.is_empty() => Ok(profile),
        _ => {
            if mistakes.is_empty() {
                mistakes.add(1, "the file is not a profile");
            }
            Err(mistakes.sorted())
        }
    }
}

/// Reads a profile: a list with one block, as TRex writes it, or the block alone.
fn document(text: &str, mistakes: &mut Mistakes) -> Option<Profile> {
    let root = Node::read(text, mistakes)?;
    let block = match &root.value {
        Value::List(list) => match list.as_slice() {
            [block] => block,
            [] => {
                mistakes.add(root.line, "the list is empty: a profile is expected");
                return None;
            }
            [_, second, ..] => {
                mistakes.add(second.line, "a second profile in one file: move it to another");
                return None;
            }
        },
        _ => &root,
    };
    let mut fields = Fields::of(block, "a profile", mistakes)?;
    if let Some(what) = another_file(&fields) {
        mistakes.add(block.line, what);
        return None;
    }
    profile_block(&mut fields, mistakes).map(|(mut profile, mut notes)| {
        fields.finish(mistakes, &mut notes);
        profile.notes = notes;
        profile
    })
}

/// Names the kind of a TRex file that is not a profile.
fn another_file(fields: &Fields<'_>) -> Option<&'static str> {
    if fields.has("cap_info") || fields.has("generator") {
        return None;
    }
    if fields.has("clients_start") {
        return Some("this is a `generator` alone, not a profile: `cap_info` is missing");
    }
    if fields.has("groups") {
        return Some("this is a client configuration (TRex's --client_cfg), not a profile");
    }
    if fields.has("items") {
        return Some("this is a list of MAC addresses (TRex's --mac), not a profile");
    }
    if fields.has("port_info") || fields.has("interfaces") {
        return Some("this is a platform file (trex_cfg.yaml), not a profile: give it to --cfg");
    }
    None
}

fn profile_block(
    fields: &mut Fields<'_>,
    mistakes: &mut Mistakes,
) -> Option<(Profile, Vec<String>)> {
    let mut notes = Vec::new();
    let duration = fields
        .require("duration", mistakes)
        .and_then(|node| number(node, "duration", mistakes))
        .map_or(Span::ZERO, Span::from_secs_f64);
    let pools = generator::pools(fields, mistakes, &mut notes);
    let capture_times = fields.truth("cap_ipg", mistakes);
    let shortest = fields.micros("cap_ipg_min", mistakes);
    let replacement = fields.micros("cap_override_ipg", mistakes);
    let ipv6 = ipv6(fields, mistakes);
    let vlans = vlans(fields, mistakes, &mut notes);
    let addresses_in_mac = addresses_in_mac(fields, mistakes);
    if fields.truth("one_app_server", mistakes).is_some() {
        notes.push("`one_app_server` belongs to a template; here TRex ignores it".to_owned());
    }
    timer_wheel(fields, mistakes, &mut notes);
    destination_mac(fields, mistakes, &mut notes);
    former_window(fields, mistakes, &mut notes);

    let mut templates = Vec::new();
    if let Some(node) = fields.require("cap_info", mistakes)
        && let Some(list) = list(node, "cap_info", mistakes)
    {
        if list.is_empty() {
            mistakes.add(node.line, "`cap_info` has no template: nothing would be sent");
        }
        for node in list {
            templates.extend(template::read(node, &pools, mistakes, &mut notes));
        }
    }
    for template in &mut templates {
        template.capture_times = template.own_capture_times.or(capture_times).unwrap_or_default();
        if let Some(gap) = replacement {
            (template.template.gap, template.template.turn_gap) = (gap, gap);
        }
    }
    let Pools { clients, servers } = pools;
    let templates = templates.into_iter().map(|read| read.finished()).collect();
    let profile = Profile {
        duration,
        client_pools: clients,
        server_pools: servers,
        templates,
        vlans,
        addresses_in_mac,
        ipv6,
        shortest_gap: shortest.zip(replacement),
        notes: Vec::new(),
    };
    Some((profile, notes))
}

fn ipv6(fields: &mut Fields<'_>, mistakes: &mut Mistakes) -> Option<Ipv6Prefixes> {
    let clients = prefix(fields, "src_ipv6", mistakes);
    let servers = prefix(fields, "dst_ipv6", mistakes);
    Some(Ipv6Prefixes { clients: clients?, servers: servers? })
}

fn prefix(fields: &mut Fields<'_>, key: &'static str, mistakes: &mut Mistakes) -> Option<[u16; 6]> {
    let node = fields.find(key)?;
    let nodes = list(node, key, mistakes)?;
    if nodes.len() != 6 {
        mistakes.add(
            node.line,
            format!("`{key}` has six 16-bit words such as [0x2001, 0, 0, 0, 0, 0]"),
        );
        return None;
    }
    let mut words = [0; 6];
    for (word, node) in words.iter_mut().zip(nodes) {
        *word = whole(node, key, u64::from(u16::MAX), mistakes)? as u16;
    }
    Some(words)
}

fn vlans(
    fields: &mut Fields<'_>,
    mistakes: &mut Mistakes,
    notes: &mut Vec<String>,
) -> Option<[u16; 2]> {
    let node = fields.find("vlan")?;
    let mut vlan = Fields::of(node, "`vlan`", mistakes)?;
    let enabled = vlan.truth("enable", mistakes);
    let mut tag = |key| match enabled {
        Some(_) => {
            let node = vlan.require(key, mistakes)?;
            whole(node, key, 4095, mistakes)
        }
        None => vlan.whole(key, 4095, mistakes),
    };
    let tags = (tag("vlan0"), tag("vlan1"));
    vlan.finish(mistakes, notes);
    match (enabled, tags) {
        (Some(true), (Some(first), Some(second))) => Some([first as u16, second as u16]),
        _ => None,
    }
}

fn addresses_in_mac(fields: &mut Fields<'_>, mistakes: &mut Mistakes) -> AddressesInMac {
    let Some(node) = fields.find("mac_override_by_ip") else { return AddressesInMac::None };
    match &node.value {
        Value::Scalar(text) if text == "2" => AddressesInMac::All,
        Value::Scalar(text) => match truth(text) {
            Some(true) => AddressesInMac::Clients,
            Some(false) => AddressesInMac::None,
            None => {
                mistakes.add(node.line, "`mac_override_by_ip` is true, false, 0, 1 or 2");
                AddressesInMac::None
            }
        },
        _ => {
            mistakes.add(node.line, "`mac_override_by_ip` is a single value: true, false, 0, 1, 2");
            AddressesInMac::None
        }
    }
}

/// Checks the key for the destination's MAC address in old profiles. TRex no longer reads this key.
fn destination_mac(fields: &mut Fields<'_>, mistakes: &mut Mistakes, notes: &mut Vec<String>) {
    let Some(node) = fields.find("mac") else { return };
    let Some(bytes) = list(node, "mac", mistakes) else { return };
    if bytes.len() != 6 {
        mistakes.add(node.line, "`mac` has six bytes such as [0x02, 0, 0, 0, 0, 1]");
    }
    for byte in bytes {
        whole(byte, "mac", u64::from(u8::MAX), mistakes);
    }
    notes.push(format!(
        "line {}: `mac` is ignored, as in TRex; the port's `dest-mac` is the destination",
        node.line
    ));
}

/// Checks an old key for the number of flows with one pair of addresses. TRex no longer reads this
/// key, only `w`.
pub(super) fn former_window(
    fields: &mut Fields<'_>,
    mistakes: &mut Mistakes,
    notes: &mut Vec<String>,
) {
    let Some(node) = fields.find("wlength") else { return };
    if whole(node, "wlength", u64::from(u32::MAX), mistakes).is_some() {
        let line = node.line;
        notes.push(format!(
            "line {line}: `wlength` is ignored, as in TRex; a template's `w` counts"
        ));
    }
}

/// Checks the keys of TRex's timer wheel, which have no effect: the scheduler needs no settings.
fn timer_wheel(fields: &mut Fields<'_>, mistakes: &mut Mistakes, notes: &mut Vec<String>) {
    let Some(node) = fields.find("tw") else { return };
    let Some(mut wheel) = Fields::of(node, "`tw`", mistakes) else { return };
    wheel.whole("buckets", u64::from(u16::MAX), mistakes);
    wheel.whole("levels", u64::from(u16::MAX), mistakes);
    wheel.number("bucket_time_usec", mistakes);
    wheel.finish(mistakes, notes);
}
