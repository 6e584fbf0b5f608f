//! Commands for megaflows and the datapath's ports.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use flow::mix::mix;
use flow::port_number::PortNumber;
use flow::{Field, Megaflow};
use text::{PortNames, parse_match, print_datapath_flow};

use super::flows::count;
use super::{Command, Outcome, bridge};
use crate::run::bridge::BridgeState;
use crate::run::ports::SwitchPort;
use crate::run::switch::Switch;

pub(super) const COMMANDS: &[Command] = &[
    Command { name: "dpctl/del-flows", usage: "[dp]", fewest: 0, most: 1, run: delete },
    Command { name: "dpctl/dump-dps", usage: "", fewest: 0, most: 0, run: datapaths },
    Command {
        name: "dpctl/dump-flows",
        usage: "[-m] [--names] [dp] [filter=..] [type=..] [pmd=..]",
        fewest: 0,
        most: 6,
        run: dump_flows,
    },
    Command { name: "dpctl/show", usage: "[-s] [dp...]", fewest: 0, most: usize::MAX, run: show },
    Command { name: "dpctl/get-flow", usage: "[dp] ufid", fewest: 1, most: 4, run: get_flow },
    Command { name: "dpif/dump-dps", usage: "", fewest: 0, most: 0, run: bridges },
    Command {
        name: "dpif/dump-flows",
        usage: "[-m] [--names | --no-names] bridge",
        fewest: 1,
        most: 4,
        run: dump_bridge,
    },
    Command { name: "dpif/show", usage: "", fewest: 0, most: 0, run: show_bridges },
    Command { name: "memory/show", usage: "", fewest: 0, most: 0, run: memory },
    Command { name: "dpif/show-dp-features", usage: "bridge", fewest: 1, most: 1, run: features },
    Command {
        name: "upcall/disable-megaflows",
        usage: "",
        fewest: 0,
        most: 0,
        run: |switch, _| set_megaflows(switch, true),
    },
    Command {
        name: "upcall/disable-ufid",
        usage: "",
        fewest: 0,
        most: 0,
        run: |_, _| set_numbers(false),
    },
    Command {
        name: "upcall/enable-megaflows",
        usage: "",
        fewest: 0,
        most: 0,
        run: |switch, _| set_megaflows(switch, false),
    },
    Command {
        name: "upcall/enable-ufid",
        usage: "",
        fewest: 0,
        most: 0,
        run: |_, _| set_numbers(true),
    },
    Command {
        name: "upcall/set-flow-limit",
        usage: "flow-limit-number",
        fewest: 1,
        most: 1,
        run: set_limit,
    },
    Command { name: "upcall/show", usage: "", fewest: 0, most: 0, run: upcalls },
];

/// The datapath's name in Open vSwitch, which also has only one datapath.
const DATAPATH: &str = "netdev@ovs-netdev";

/// Whether `name` is the datapath's name, with or without its type. Open vSwitch's datapath of
/// dummy ports is named `ovs-dummy`, and that of the kernel `ovs-system`.
pub(super) fn is_datapath(name: &str) -> bool {
    let name = name.split_once('@').map_or(name, |(_, name)| name);
    matches!(name, "ovs-netdev" | "ovs-dummy" | "ovs-system")
}

fn datapaths(_: &Arc<Switch>, _: &[String]) -> Outcome {
    Ok(format!("{DATAPATH}\n"))
}

/// Lists the bridges: the commands of `dpif/` treat each as a datapath.
fn bridges(switch: &Arc<Switch>, _: &[String]) -> Outcome {
    let mut names: Vec<_> = switch.bridges().iter().map(|bridge| bridge.name.clone()).collect();
    names.sort();
    Ok(names.iter().map(|name| format!("netdev@{name}\n")).collect())
}

fn delete(switch: &Arc<Switch>, _: &[String]) -> Outcome {
    switch.clear_megaflows();
    Ok(String::new())
}

fn show(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let has_statistics = arguments.iter().any(|word| word == "-s" || word == "--statistics");
    let total = switch.total_statistics();
    let mut text = format!(
        "{DATAPATH}:\n  lookups: hit:{} missed:{} lost:0\n  flows: {}\n",
        total.datapath.megaflow_hits,
        total.datapath.upcalls,
        switch.megaflow_count()
    );
    let mut ports: Vec<_> = switch.bridges().iter().flat_map(|bridge| bridge.ports()).collect();
    ports.retain(|port| !port.is_patch());
    ports.sort_by_key(|port| port.index);
    for port in ports {
        let _ = writeln!(text, "  port {}: {}{}", port.index.0, port.name, kind(&port));
        if has_statistics {
            text.push_str(&statistics(&port));
        }
    }
    Ok(text)
}

fn statistics(port: &SwitchPort) -> String {
    let found = port.statistics();
    format!(
        "    RX packets:{} errors:{} dropped:{} overruns:{} frame:{}\n    \
         TX packets:{} errors:{} dropped:{} aborted:? carrier:?\n    collisions:{}\n    \
         RX bytes:{}{}  TX bytes:{}{}\n",
        found.received_packets,
        count(found.received_errors),
        count(found.received_dropped),
        count(found.overruns),
        count(found.frame_errors),
        found.sent_packets,
        count(found.sent_errors),
        count(found.sent_dropped),
        count(found.collisions),
        found.received_bytes,
        rounded(found.received_bytes),
        found.sent_bytes,
        rounded(found.sent_bytes),
    )
}

/// Rounds a number of bytes as Open vSwitch does: ` (1.5 KiB)`, or nothing below 1 KiB.
fn rounded(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = units.into_iter().find(|(_, bits)| bytes >> *bits > 0);
    unit.map(|(name, bits)| format!(" ({:.1} {name})", bytes as f64 / (1_u64 << bits) as f64))
        .unwrap_or_default()
}

fn kind(port: &SwitchPort) -> String {
    match (port.settings.kind.as_str(), &port.settings.peer) {
        ("", _) => String::new(),
        (kind, None) => format!(" ({kind})"),
        (kind, Some(peer)) => format!(" ({kind}: peer={peer})"),
    }
}

fn show_bridges(switch: &Arc<Switch>, _: &[String]) -> Outcome {
    let total = switch.total_statistics();
    let mut text = format!(
        "{DATAPATH}: hit:{} missed:{}\n",
        total.datapath.megaflow_hits, total.datapath.upcalls
    );
    let mut bridges = switch.bridges();
    bridges.sort_by(|a, b| a.name.cmp(&b.name));
    for bridge in bridges {
        let _ = writeln!(text, "  {}:", bridge.name);
        let mut ports = bridge.ports();
        ports.sort_by(|a, b| a.name.cmp(&b.name));
        for port in ports {
            let number = port.number.to_16_bits().unwrap_or_default();
            // As in Open vSwitch, patch ports are not in the datapath.
            let index = match port.is_patch() {
                true => "none".to_owned(),
                false => port.index.0.to_string(),
            };
            let _ = writeln!(text, "    {} {number}/{index}:{}", port.name, kind(&port));
        }
    }
    Ok(text)
}

/// The options of a dump.
struct Options<'a> {
    /// `-m`: print each megaflow's UUID.
    is_verbose: bool,
    names: PortNames,
    /// The arguments that are not options.
    rest: Vec<&'a str>,
}

impl<'a> Options<'a> {
    fn parse(switch: &Switch, arguments: &'a [String]) -> Self {
        let (mut is_verbose, mut has_names, mut rest) = (false, None, Vec::new());
        for argument in arguments {
            match argument.as_str() {
                "-m" | "--more" => is_verbose = true,
                "-names" | "--names" => has_names = Some(true),
                "-no-names" | "--no-names" => has_names = Some(false),
                other => rest.push(other),
            }
        }
        let names = match has_names.unwrap_or(is_verbose) {
            true => switch.datapath_names(),
            false => PortNames::none(),
        };
        Self { is_verbose, names, rest }
    }
}

fn dump_flows(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let options = Options::parse(switch, arguments);
    let pmd = options.rest.iter().find_map(|argument| argument.strip_prefix("pmd="));
    let filter = options.rest.iter().find_map(|argument| argument.strip_prefix("filter="));
    let filter = filter.map(|text| {
        // In a filter, a port name means the datapath's port number.
        let parsed = parse_match(text, &switch.datapath_names());
        parsed.map_err(|error| format!("Failed to parse filter ({error})"))
    });
    let filter = filter.transpose()?;
    let types = options.rest.iter().find_map(|argument| argument.strip_prefix("type="));
    if !types.map_or(Ok(true), selects_megaflows)? {
        return Ok(String::new());
    }
    let mut text = String::new();
    for (core, bridges) in megaflows(switch) {
        let is_chosen = match (pmd, core) {
            (None, _) => true,
            (Some(pmd), None) => pmd == "-1",
            (Some(pmd), Some(core)) => pmd.parse() == Ok(core),
        };
        if !is_chosen {
            continue;
        }
        let mut lines = Vec::new();
        for (bridge, flows) in &bridges {
            let chosen = flows.iter().filter(|flow| {
                let key = shown(bridge, flow).key;
                filter.as_ref().is_none_or(|filter| filter.matches(&key))
            });
            lines.extend(chosen.map(|flow| line(bridge, flow, &options)));
        }
        if lines.is_empty() {
            continue;
        }
        let _ = match core {
            None => writeln!(text, "flow-dump from the main thread:"),
            Some(core) => writeln!(text, "flow-dump from pmd on cpu core: {core}"),
        };
        lines.iter().for_each(|line| text.push_str(line));
    }
    Ok(text)
}

/// Whether the types of a dump, such as `tc,ovs`, select the switch's megaflows. The switch
/// offloads no megaflow to hardware.
fn selects_megaflows(types: &str) -> Result<bool, String> {
    let mut is_selected = false;
    for kind in types.split(',') {
        match kind {
            "ovs" | "non-offloaded" | "all" => is_selected = true,
            "tc" | "dpdk" | "offloaded" | "partially-offloaded" => {}
            _ => return Err(format!("Failed to parse type ({types})")),
        }
    }
    Ok(is_selected)
}

/// A bridge's megaflows on one thread.
type BridgeFlows = (Arc<BridgeState>, Vec<Megaflow>);

/// Returns all megaflows by thread, as the core of a packet thread or `None` for the main thread.
fn megaflows(switch: &Switch) -> Vec<(Option<usize>, Vec<BridgeFlows>)> {
    let bridges = switch.bridges();
    let of_main = bridges.iter().map(|bridge| switch.main().megaflows(bridge.index)).collect();
    let mut all: Vec<(_, Vec<_>)> = vec![(None, of_main)];
    for thread in switch.pmds() {
        let indices: Vec<_> = bridges.iter().map(|bridge| bridge.index).collect();
        let flows = thread.ask(move |thread| {
            indices.iter().map(|index| thread.worker.megaflows(*index)).collect::<Vec<_>>()
        });
        all.push((Some(thread.core), flows.unwrap_or_default()));
    }
    let with_bridges = |flows: Vec<Vec<Megaflow>>| bridges.iter().cloned().zip(flows).collect();
    all.into_iter().map(|(core, flows)| (core, with_bridges(flows))).collect()
}

fn dump_bridge(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let options = Options::parse(switch, arguments);
    let name = options.rest.last().copied().unwrap_or_default();
    let bridge = bridge(switch, name)?;
    let all = megaflows(switch).into_iter().flat_map(|(_, bridges)| bridges);
    let flows = all.filter(|(of, _)| Arc::ptr_eq(of, &bridge)).flat_map(|(_, flows)| flows);
    Ok(flows.map(|flow| line(&bridge, &flow, &options)).collect())
}

/// Prints the megaflow with this UUID. A dump with `-m` prints the UUIDs.
fn get_flow(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let options = Options::parse(switch, arguments);
    let wanted = options.rest.last().and_then(|word| word.strip_prefix("ufid:"));
    let wanted = wanted.ok_or("name the megaflow by ufid:NUMBER")?;
    let all = megaflows(switch).into_iter().flat_map(|(_, bridges)| bridges);
    for (bridge, flows) in all {
        if let Some(flow) = flows.iter().find(|flow| number_of(&bridge, flow) == wanted) {
            return Ok(line(&bridge, flow, &options));
        }
    }
    Err(format!("no megaflow has the number {wanted}"))
}

/// Returns the megaflow as commands print it: with the datapath's port number.
fn shown(bridge: &BridgeState, flow: &Megaflow) -> Megaflow {
    let mut shown = flow.clone();
    let number = PortNumber(shown.key.read(Field::InPort) as u32);
    if let Some(port) = bridge.port(number) {
        shown.key.write(Field::InPort, port.index.0.into());
    }
    shown
}

fn line(bridge: &BridgeState, flow: &Megaflow, options: &Options<'_>) -> String {
    let shown = shown(bridge, flow);
    let now_ms = bridge.clock.now_ms();
    let used = flow.used_ms.map(|used| now_ms.saturating_sub(used));
    let text = print_datapath_flow(&shown, used, &options.names);
    match options.is_verbose {
        true => format!("ufid:{}, {text}\n", number_of(bridge, flow)),
        false => format!("{text}\n"),
    }
}

/// Returns a megaflow's UUID, a hash of its key and mask.
fn number_of(bridge: &BridgeState, flow: &Megaflow) -> String {
    let half = |seed: u64| {
        let words = flow.key.words.iter().chain(&flow.mask.words);
        words.fold(seed, |hash, word| mix(hash, *word))
    };
    let (high, low) = (half(bridge.index as u64), half(!(bridge.index as u64)));
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

fn set_megaflows(switch: &Switch, is_exact: bool) -> Outcome {
    for bridge in switch.bridges() {
        bridge.is_exact.store(is_exact, Ordering::Relaxed);
    }
    switch.clear_megaflows();
    Ok(format!("megaflows {}\n", if is_exact { "disabled" } else { "enabled" }))
}

fn set_numbers(is_used: bool) -> Outcome {
    let state = if is_used { "enabled" } else { "disabled" };
    Ok(format!("Datapath dumping tersely using UFID {state}\n"))
}

fn memory(switch: &Arc<Switch>, _: &[String]) -> Outcome {
    let bridges = switch.bridges();
    let ports: usize = bridges.iter().map(|bridge| bridge.ports().len()).sum();
    let rules: u32 =
        bridges.iter().flat_map(|bridge| bridge.tables().tables()).map(|table| table.active).sum();
    let megaflows = switch.megaflow_count();
    let threads = switch.pmds().len();
    Ok(format!("megaflows:{megaflows} pmds:{threads} ports:{ports} rules:{rules}\n"))
}

/// Prints Open vSwitch's list of datapath features. The datapath supports all features that its
/// pipeline uses.
fn features(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    bridge(switch, &arguments[0])?;
    Ok(FEATURES.iter().map(|(name, value)| format!("{name}: {value}\n")).collect())
}

const FEATURES: &[(&str, &str)] = &[
    ("Masked set action", "Yes"),
    ("Tunnel push pop", "No"),
    ("Ufid", "No"),
    ("Truncate action", "Yes"),
    ("Clone action", "Yes"),
    ("Sample nesting", "0"),
    ("Conntrack eventmask", "No"),
    ("Conntrack clear", "Yes"),
    ("Max dp_hash algorithm", "0"),
    ("Check pkt length action", "Yes"),
    ("Conntrack timeout policy", "No"),
    ("Explicit Drop action", "No"),
    ("Optimized Balance TCP mode", "No"),
    ("Conntrack all-zero IP SNAT", "No"),
    ("MPLS Label add", "No"),
    ("Max VLAN headers", "1"),
    ("Max MPLS depth", "1"),
    ("Recirc", "Yes"),
    ("CT state", "Yes"),
    ("CT zone", "Yes"),
    ("CT mark", "Yes"),
    ("CT label", "Yes"),
    ("CT state NAT", "Yes"),
    ("CT orig tuple", "Yes"),
    ("CT orig tuple for IPv6", "Yes"),
    ("IPv6 ND Extension", "No"),
];

fn set_limit(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let limit = arguments[0].parse::<usize>();
    let limit = limit.map_err(|_| format!("{}: a limit is a number", arguments[0]))?;
    switch.limit_megaflows(limit);
    Ok(format!("set flow_limit to {limit}\n"))
}

fn upcalls(switch: &Arc<Switch>, _: &[String]) -> Outcome {
    let total = switch.total_statistics();
    Ok(format!(
        "{DATAPATH}:\n  flows         : (current {}) (limit {})\n  upcalls       : {}\n  \
         revalidated   : {}\n  expired       : {}\n",
        switch.megaflow_count(),
        switch.megaflow_limit(),
        total.datapath.upcalls,
        total.datapath.revalidated,
        total.datapath.expired
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_counts_are_rounded_in_open_vswitchs_units() {
        for (bytes, expected) in [
            (1023, ""),
            (1536, " (1.5 KiB)"),
            (5 << 20, " (5.0 MiB)"),
            (1 << 30, " (1.0 GiB)"),
            (3 << 39, " (1.5 TiB)"),
        ] {
            assert_eq!(rounded(bytes), expected);
        }
    }

    #[test]
    fn a_dump_of_offloaded_megaflows_lists_none() {
        for (types, expected) in
            [("ovs", true), ("tc,ovs", true), ("all", true), ("offloaded", false), ("tc", false)]
        {
            assert_eq!(selects_megaflows(types), Ok(expected), "{types}");
        }
        let refused = selects_megaflows("ovs,hw");
        assert_eq!(refused, Err("Failed to parse type (ovs,hw)".to_owned()));
    }
}
