//! Commands for the rules and ports of a bridge, for `weir switch`. A request carries a whole rule
//! file.

use std::fmt::Write;
use std::sync::Arc;

use flow::port_number::PortNumber;
use flow::request::{FlowCommand, FlowEntry};
use serde_json::{Value, json};
use text::{PortNames, parse_filter, parse_flow, print_actions, print_dump, print_match};

use super::{Command, Outcome, bridge};
use crate::run::flow_file;
use crate::run::ports::SwitchPort;
use crate::run::switch::Switch;

pub(super) const COMMANDS: &[Command] = &[
    Command { name: "switch/add-flows", usage: "bridge rules", fewest: 2, most: 2, run: add },
    Command {
        name: "switch/change-flow",
        usage: "command bridge rule",
        fewest: 3,
        most: 3,
        run: change,
    },
    Command { name: "switch/dump-flows", usage: "bridge [filter]", fewest: 1, most: 2, run: dump },
    Command {
        name: "switch/dump-flows-json",
        usage: "bridge [filter]",
        fewest: 1,
        most: 2,
        run: dump_json,
    },
    Command { name: "switch/dump-ports", usage: "bridge [port]", fewest: 1, most: 2, run: ports },
    Command {
        name: "switch/dump-ports-json",
        usage: "bridge [port]",
        fewest: 1,
        most: 2,
        run: ports_json,
    },
    Command {
        name: "switch/replace-flows",
        usage: "bridge rules",
        fewest: 2,
        most: 2,
        run: replace,
    },
];

/// Adds all rules of a text, or no rule.
fn add(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let bridge = bridge(switch, &arguments[0])?;
    let count = flow_file::change(&arguments[1], &bridge);
    count.map(|count| format!("{count}\n")).map_err(located)
}

/// Replaces all rules by the rules of a text, in one step.
fn replace(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let bridge = bridge(switch, &arguments[0])?;
    let count = flow_file::replace(&arguments[1], &bridge);
    count.map(|count| format!("{count}\n")).map_err(located)
}

fn located((line, problem): (usize, String)) -> String {
    format!("line {line}: {problem}")
}

fn change(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let command = match arguments[0].as_str() {
        "add" => FlowCommand::Add,
        "modify" => FlowCommand::Modify,
        "modify_strict" => FlowCommand::ModifyStrict,
        "delete" => FlowCommand::Delete,
        "delete_strict" => FlowCommand::DeleteStrict,
        other => return Err(format!("{other}: unknown command")),
    };
    let bridge = bridge(switch, &arguments[1])?;
    let change = parse_flow(&arguments[2], command, &bridge.port_names());
    let change = change.map_err(|error| error.to_string())?;
    let now_ms = bridge.clock.now_ms();
    bridge.tables_mut().flow_mod(change, now_ms).map_err(|refusal| refusal.to_string())?;
    bridge.waker.wake();
    Ok(String::new())
}

fn dump(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let mut flows = flows(switch, arguments)?;
    flows.iter_mut().for_each(|flow| flow.flags = flow.flags.lasting());
    Ok(print_dump(&flows, &PortNames::none()))
}

fn dump_json(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let flow = |flow: &FlowEntry| {
        json!({
            "table": flow.table,
            "priority": flow.priority,
            "cookie": flow.cookie,
            "duration_seconds": flow.duration.as_secs_f64(),
            "idle_timeout": flow.idle_timeout,
            "hard_timeout": flow.hard_timeout,
            "packets": flow.packets,
            "bytes": flow.bytes,
            "match": print_match(&flow.matching),
            "actions": print_actions(&flow.actions),
        })
    };
    let flows: Vec<_> = flows(switch, arguments)?.iter().map(flow).collect();
    Ok(format!("{:#}\n", json!({ "flows": flows })))
}

/// Returns the rules of a bridge that match a filter.
fn flows(switch: &Arc<Switch>, arguments: &[String]) -> Result<Vec<FlowEntry>, String> {
    let bridge = bridge(switch, &arguments[0])?;
    let filter = arguments.get(1).map_or("", String::as_str);
    let filter = parse_filter(filter, &bridge.port_names()).map_err(|error| error.to_string())?;
    switch.credit(&bridge);
    let flows = bridge.tables().flows(&filter, bridge.clock.now_ms());
    flows.map_err(|refusal| refusal.to_string())
}

fn ports(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let mut text = String::new();
    for port in chosen_ports(switch, arguments)? {
        let number = match port.number {
            PortNumber::LOCAL => "LOCAL".to_owned(),
            PortNumber(number) => number.to_string(),
        };
        let counts = port.statistics();
        let _ = write!(
            text,
            "  port {number:>2}: rx pkts={}, bytes={}, drop={}, errs={}, frame={}, over={}, \
             crc={}\n           tx pkts={}, bytes={}, drop={}, errs={}, coll={}\n",
            counts.received_packets,
            counts.received_bytes,
            count(counts.received_dropped),
            count(counts.received_errors),
            count(counts.frame_errors),
            count(counts.overruns),
            count(counts.crc_errors),
            counts.sent_packets,
            counts.sent_bytes,
            count(counts.sent_dropped),
            count(counts.sent_errors),
            count(counts.collisions),
        );
    }
    Ok(text)
}

/// Formats a counter as ovs-ofctl does: `?` for a counter that the port does not have.
pub(super) fn count(count: Option<u64>) -> String {
    count.map_or_else(|| "?".to_owned(), |count| count.to_string())
}

fn ports_json(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let ports = chosen_ports(switch, arguments)?;
    let ports: Vec<_> = ports.iter().map(|port| port_json(port)).collect();
    Ok(format!("{:#}\n", json!({ "ports": ports })))
}

pub(super) fn port_json(port: &SwitchPort) -> Value {
    let counts = port.statistics();
    let number = match port.number {
        PortNumber::LOCAL => json!("LOCAL"),
        PortNumber(number) => json!(number),
    };
    json!({
        "name": port.name,
        "number": number,
        "type": port.settings.kind,
        "state": if port.is_up() { "up" } else { "down" },
        "device": port.describe(),
        "received_packets": counts.received_packets,
        "received_bytes": counts.received_bytes,
        // A counter that the port does not have is written as null.
        "received_dropped": counts.received_dropped,
        "received_errors": counts.received_errors,
        "sent_packets": counts.sent_packets,
        "sent_bytes": counts.sent_bytes,
        "sent_dropped": counts.sent_dropped,
        "sent_errors": counts.sent_errors,
        "frame_errors": counts.frame_errors,
        "overruns": counts.overruns,
        "crc_errors": counts.crc_errors,
        "collisions": counts.collisions,
    })
}

/// Returns the port that an argument names, or all ports.
fn chosen_ports(
    switch: &Arc<Switch>,
    arguments: &[String],
) -> Result<Vec<Arc<SwitchPort>>, String> {
    let bridge = bridge(switch, &arguments[0])?;
    switch.credit_patches(&bridge);
    let mut ports = bridge.ports();
    let Some(wanted) = arguments.get(1) else { return Ok(ports) };
    ports.retain(|port| *wanted == port.name || *wanted == port.number.0.to_string());
    if ports.is_empty() {
        return Err(format!("bridge {} has no port {wanted}", bridge.name));
    }
    Ok(ports)
}
