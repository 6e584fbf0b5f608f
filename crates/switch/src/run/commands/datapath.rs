//! Megaflows and the datapath's ports.

use std::fmt::Write;
use std::sync::Arc;

use super::{Command, Outcome, bridge};
use crate::datapath::Megaflow;
use crate::flow::Field;
use crate::port_number::PortNumber;
use crate::run::bridge::BridgeState;
use crate::run::ports::SwitchPort;
use crate::run::switch::Switch;
use crate::text::print_datapath_flow;

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
    Command { name: "dpif/dump-dps", usage: "", fewest: 0, most: 0, run: datapaths },
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
        name: "upcall/set-flow-limit",
        usage: "flow-limit-number",
        fewest: 1,
        most: 1,
        run: set_limit,
    },
    Command { name: "upcall/show", usage: "", fewest: 0, most: 0, run: upcalls },
];

/// The name of the only datapath, where Open vSwitch has one of it too.
const DATAPATH: &str = "netdev@ovs-netdev";

fn datapaths(_: &Arc<Switch>, _: &[String]) -> Outcome {
    Ok(format!("{DATAPATH}\n"))
}

fn delete(switch: &Arc<Switch>, _: &[String]) -> Outcome {
    switch.clear_megaflows();
    Ok(String::new())
}

fn show(switch: &Arc<Switch>, _: &[String]) -> Outcome {
    let total = switch.total_statistics();
    let mut text = format!(
        "{DATAPATH}:\n  lookups: hit:{} missed:{} lost:0\n  flows: {}\n",
        total.datapath.megaflow_hits,
        total.datapath.upcalls,
        switch.megaflow_count()
    );
    let mut ports: Vec<_> = switch.bridges().iter().flat_map(|bridge| bridge.ports()).collect();
    ports.sort_by_key(|port| port.index);
    for port in ports {
        let _ = writeln!(text, "  port {}: {}{}", port.index.0, port.name, kind(&port));
    }
    Ok(text)
}

fn kind(port: &SwitchPort) -> String {
    match port.settings.kind.as_str() {
        "" => String::new(),
        kind => format!(" ({kind})"),
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
            let (name, index) = (&port.name, port.index.0);
            let _ = writeln!(text, "    {name} {number}/{index}:{}", kind(&port));
        }
    }
    Ok(text)
}

fn dump_flows(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let pmd = arguments.iter().find_map(|argument| argument.strip_prefix("pmd="));
    let filter = arguments.iter().find_map(|argument| argument.strip_prefix("filter="));
    let mut text = String::new();
    let bridges = switch.bridges();
    if pmd.is_none_or(|pmd| pmd == "-1") {
        let flows: Vec<_> =
            bridges.iter().map(|bridge| switch.main().megaflows(bridge.index)).collect();
        write_thread(&mut text, "flow-dump from the main thread:", &bridges, &flows, filter);
    }
    for thread in switch.pmds() {
        if pmd.is_some_and(|pmd| pmd.parse() != Ok(thread.core)) {
            continue;
        }
        let indices: Vec<_> = bridges.iter().map(|bridge| bridge.index).collect();
        let flows = thread.ask(move |thread| {
            indices.iter().map(|index| thread.worker.megaflows(*index)).collect::<Vec<_>>()
        });
        let title = format!("flow-dump from pmd on cpu core: {}", thread.core);
        write_thread(&mut text, &title, &bridges, &flows.unwrap_or_default(), filter);
    }
    Ok(text)
}

/// The megaflows of a thread, under a title if there are any.
fn write_thread(
    text: &mut String,
    title: &str,
    bridges: &[Arc<BridgeState>],
    flows: &[Vec<Megaflow>],
    filter: Option<&str>,
) {
    let mut lines = Vec::new();
    for (bridge, flows) in bridges.iter().zip(flows) {
        lines.extend(flows.iter().map(|flow| line(bridge, flow)));
    }
    if let Some(filter) = filter {
        let parts: Vec<&str> = filter.split(',').collect();
        lines.retain(|line| parts.iter().all(|part| line.contains(part)));
    }
    if !lines.is_empty() {
        let _ = writeln!(text, "{title}");
        lines.iter().for_each(|line| text.push_str(line));
    }
}

fn dump_bridge(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let name = arguments.last().map_or("", String::as_str);
    let bridge = bridge(switch, name)?;
    let mut flows = switch.main().megaflows(bridge.index);
    for thread in switch.pmds() {
        let index = bridge.index;
        let more = thread.ask(move |thread| thread.worker.megaflows(index));
        flows.extend(more.unwrap_or_default());
    }
    Ok(flows.iter().map(|flow| line(&bridge, flow)).collect())
}

/// A megaflow, with the datapath's number of its port.
fn line(bridge: &BridgeState, flow: &Megaflow) -> String {
    let mut key = flow.key.clone();
    let number = PortNumber(key.read(Field::InPort) as u32);
    if let Some(port) = bridge.port(number) {
        key.write(Field::InPort, port.index.0.into());
    }
    let now_ms = bridge.clock.now_ms();
    let used = flow.used_ms.map(|used| now_ms.saturating_sub(used));
    let mut line = print_datapath_flow(
        &key,
        &flow.mask,
        flow.packets,
        flow.bytes,
        used,
        flow.tcp_flags,
        &flow.steps,
    );
    line.push('\n');
    line
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

/// Open vSwitch's list, in its words. The datapath has what its pipeline uses.
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
    ("Check pkt length action", "No"),
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
