use std::net::Ipv4Addr;

use units::Span;

use super::fields::{Fields, list, whole};
use super::mistakes::Mistakes;
use super::{Distribution, Pool};

/// The pools of a profile. Templates refer to the pools by name.
pub(super) struct Pools {
    pub(super) clients: Vec<Pool>,
    pub(super) servers: Vec<Pool>,
}

/// The keys that a block of addresses and a pool have in common.
#[derive(Clone, Copy, Default)]
struct Shared {
    dual_port_mask: u32,
    tcp_aging: Span,
    udp_aging: Span,
}

pub(super) fn pools(
    fields: &mut Fields<'_>,
    mistakes: &mut Mistakes,
    notes: &mut Vec<String>,
) -> Pools {
    let mut pools = Pools { clients: Vec::new(), servers: Vec::new() };
    legacy(fields, &mut pools, mistakes, notes);
    let Some(node) = fields.find("generator") else {
        if pools.clients.is_empty() || pools.servers.is_empty() {
            mistakes.add(fields.line, "`generator` is missing in a profile");
        }
        return pools;
    };
    let Some(mut block) = Fields::of(node, "`generator`", mistakes) else { return pools };
    let is_default = block.has("distribution");
    let distribution = distribution(&mut block, mistakes);
    let starts = block.address("clients_start", mistakes);
    let clients = range(&block, starts, "clients_end", mistakes);
    let starts = block.address("servers_start", mistakes);
    let servers = range(&block, starts, "servers_end", mistakes);
    // Mark these keys as read, because `range` reads them without a mutable borrow.
    block.find("clients_end");
    block.find("servers_end");
    let shared = shared(&mut block, mistakes).unwrap_or_default();
    split(&mut block, mistakes);
    if is_default {
        pools.clients.clear();
        pools.servers.clear();
        let missing = [("clients_start", clients.is_none()), ("servers_start", servers.is_none())];
        for (key, missing) in missing {
            if missing && !block.has(key) {
                mistakes.add(node.line, format!("`{key}` is missing in `generator`"));
            }
        }
        pools.clients.extend(clients.map(|range| pool("default", range, distribution, shared)));
        pools.servers.extend(servers.map(|range| pool("default", range, distribution, shared)));
    } else if clients.is_some() || servers.is_some() {
        mistakes.add(node.line, "`distribution` is missing in `generator`: seq, random or normal");
    }
    for (key, into) in
        [("generator_clients", &mut pools.clients), ("generator_servers", &mut pools.servers)]
    {
        let Some(node) = block.find(key) else { continue };
        let Some(nodes) = list(node, key, mistakes) else { continue };
        for node in nodes {
            let Some(mut own) = Fields::of(node, "a pool of addresses", mistakes) else {
                into.push(unread(String::new()));
                continue;
            };
            let read = named(&mut own, shared, mistakes);
            own.finish(mistakes, notes);
            if !read.name.is_empty() && into.iter().any(|other| other.name == read.name) {
                let name = units::foreign(&read.name);
                mistakes.add(node.line, format!("there are two pools `{name}` in `{key}`"));
            }
            into.push(read);
        }
    }
    if pools.clients.is_empty() && mistakes.is_empty() {
        mistakes
            .add(node.line, "there is no pool of clients: `clients_start` or `generator_clients`");
    }
    if pools.servers.is_empty() && mistakes.is_empty() {
        mistakes
            .add(node.line, "there is no pool of servers: `servers_start` or `generator_servers`");
    }
    block.finish(mistakes, notes);
    pools
}

/// Returns a placeholder for a pool with mistakes, so that templates may still name the pool.
fn unread(name: String) -> Pool {
    let range = (Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED);
    pool(&name, range, Distribution::Sequential, Shared::default())
}

/// Returns the index of the pool `name`. Without a name, returns the first pool, as TRex does.
pub(super) fn find(
    pools: &[Pool],
    key: &str,
    name: Option<(&str, usize)>,
    mistakes: &mut Mistakes,
) -> usize {
    let Some((name, line)) = name.filter(|(name, _)| *name != "default") else { return 0 };
    // A pool whose name has a mistake may be the pool that a template names.
    let is_it = |pool: &Pool| pool.name == name || pool.name.is_empty();
    pools.iter().position(is_it).unwrap_or_else(|| {
        let hint = units::did_you_mean(name, pools.iter().map(|pool| pool.name.as_str()));
        let name = units::foreign(name);
        mistakes.add(line, format!("`{key}` names no pool: `{name}`{hint}"));
        0
    })
}

/// Reads the keys of the format before TRex 1.5. Some published profiles still use these keys.
fn legacy(
    fields: &mut Fields<'_>,
    pools: &mut Pools,
    mistakes: &mut Mistakes,
    notes: &mut Vec<String>,
) {
    let mut bound = |key| {
        let node = fields.find(key)?;
        let value = whole(node, key, u64::from(u32::MAX), mistakes)?;
        Some((node.line, Ipv4Addr::from(value as u32)))
    };
    let clients = bound("min_src_ip").zip(bound("max_src_ip"));
    let servers = bound("min_dst_ip").zip(bound("max_dst_ip"));
    for (range, into) in [(clients, &mut pools.clients), (servers, &mut pools.servers)] {
        let Some(((line, first), (_, last))) = range else { continue };
        if first > last {
            mistakes.add(line, format!("the range {first} to {last} is empty: swap its ends"));
            continue;
        }
        into.push(pool("default", (first, last), Distribution::Sequential, Shared::default()));
        notes.push(format!(
            "line {line}: the keys `min_src_ip` to `max_dst_ip` are TRex's old format; newer \
             profiles have a `generator`"
        ));
    }
}

/// Reads a pool to its end, even after a mistake, so that all mistakes are reported.
fn named(own: &mut Fields<'_>, shared: Shared, mistakes: &mut Mistakes) -> Pool {
    let name = own
        .require("name", mistakes)
        .and_then(|node| super::fields::scalar(node, "name", mistakes))
        .map(str::to_owned);
    let distribution = distribution(own, mistakes);
    let first = own.require("ip_start", mistakes).is_some().then_some(());
    let first = first.and_then(|()| own.address("ip_start", mistakes));
    let range = range(own, first, "ip_end", mistakes);
    own.find("ip_end");
    let mut keys = self::shared(own, mistakes).unwrap_or_default();
    split(own, mistakes);
    own.truth("track_ports", mistakes);
    if keys.dual_port_mask == 0 {
        keys.dual_port_mask = shared.dual_port_mask;
    }
    if keys.tcp_aging == Span::ZERO {
        keys.tcp_aging = shared.tcp_aging;
    }
    if keys.udp_aging == Span::ZERO {
        keys.udp_aging = shared.udp_aging;
    }
    match (name, range) {
        (Some(name), Some(range)) => pool(&name, range, distribution, keys),
        (name, _) => unread(name.unwrap_or_default()),
    }
}

fn pool(
    name: &str,
    (first, last): (Ipv4Addr, Ipv4Addr),
    distribution: Distribution,
    shared: Shared,
) -> Pool {
    let Shared { dual_port_mask, tcp_aging, udp_aging } = shared;
    Pool { name: name.to_owned(), first, last, distribution, dual_port_mask, tcp_aging, udp_aging }
}

/// Reads the range from `first` to the address in the key `end`, which must not be lower.
fn range(
    fields: &Fields<'_>,
    first: Option<Ipv4Addr>,
    end: &'static str,
    mistakes: &mut Mistakes,
) -> Option<(Ipv4Addr, Ipv4Addr)> {
    let node = fields.peek(end);
    match (first, node) {
        (Some(first), Some(node)) => {
            let last = super::fields::address(node, end, mistakes)?;
            if first > last {
                mistakes.add(
                    node.line,
                    format!("`{end}` is {last}, before the start {first}: the range is empty"),
                );
                return None;
            }
            Some((first, last))
        }
        (Some(_), None) => {
            mistakes.add(fields.line, format!("`{end}` is missing"));
            None
        }
        _ => None,
    }
}

fn distribution(fields: &mut Fields<'_>, mistakes: &mut Mistakes) -> Distribution {
    let Some(node) = fields.find("distribution") else { return Distribution::Sequential };
    let Some(text) = super::fields::scalar(node, "distribution", mistakes) else {
        return Distribution::Sequential;
    };
    match text {
        "seq" => Distribution::Sequential,
        "random" => Distribution::Random,
        "normal" => Distribution::Normal,
        _ => {
            let hint = units::did_you_mean(text, ["seq", "random", "normal"]);
            let text = units::foreign(text);
            mistakes.add(
                node.line,
                format!("`distribution` is seq, random or normal, not `{text}`{hint}"),
            );
            Distribution::Sequential
        }
    }
}

fn shared(fields: &mut Fields<'_>, mistakes: &mut Mistakes) -> Option<Shared> {
    // These two keys limit the clients by a rate that TRex no longer uses.
    fields.whole("clients_per_gb", u64::from(u32::MAX), mistakes);
    fields.whole("min_clients", u64::from(u32::MAX), mistakes);
    let mask = fields.address("dual_port_mask", mistakes);
    let most = u64::from(u16::MAX);
    let tcp_aging = fields.whole("tcp_aging", most, mistakes);
    let udp_aging = fields.whole("udp_aging", most, mistakes);
    Some(Shared {
        dual_port_mask: mask.map_or(0, u32::from),
        tcp_aging: Span::from_secs(tcp_aging.unwrap_or(0)),
        udp_aging: Span::from_secs(udp_aging.unwrap_or(0)),
    })
}

fn split(fields: &mut Fields<'_>, mistakes: &mut Mistakes) {
    fields.truth("split_to_ports", mistakes);
}
