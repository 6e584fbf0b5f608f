//! Commands for bridges: learned addresses, rules, and OpenFlow's ports.

use std::fmt::Write;
use std::sync::Arc;

use flow::port_number::PortNumber;
use flow::request::{FlowFilter, FlowMod};
use text::{print_actions_with, print_match_with};
use units::Time;

use super::{Command, Outcome, bridge};
use crate::run::switch::Switch;

pub(super) const COMMANDS: &[Command] = &[
    Command { name: "bridge/dump-flows", usage: "bridge", fewest: 1, most: 2, run: dump_flows },
    Command { name: "bridge/reconnect", usage: "[bridge]", fewest: 0, most: 1, run: reconnect },
    Command { name: "fdb/add", usage: "bridge port vlan mac", fewest: 4, most: 4, run: add },
    Command { name: "fdb/del", usage: "bridge vlan mac", fewest: 3, most: 3, run: remove },
    Command { name: "fdb/flush", usage: "[bridge]", fewest: 0, most: 1, run: flush },
    Command { name: "fdb/show", usage: "bridge", fewest: 1, most: 1, run: show },
    Command { name: "fdb/stats-clear", usage: "[bridge]", fewest: 0, most: 1, run: clear },
    Command { name: "fdb/stats-show", usage: "bridge", fewest: 1, most: 1, run: statistics },
    Command { name: "ofproto/list", usage: "", fewest: 0, most: 0, run: list },
];

fn show(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let bridge = bridge(switch, &arguments[0])?;
    switch.credit(&bridge);
    let mut text = " port  VLAN  MAC                Age\n".to_owned();
    for entry in bridge.tables().mac_entries(bridge.clock.now_ms()) {
        let port = match entry.port {
            PortNumber::LOCAL => "LOCAL".to_owned(),
            PortNumber(number) => number.to_string(),
        };
        let address = entry.address.map(|byte| format!("{byte:02x}")).join(":");
        let age = entry.age_seconds.map_or("static".to_owned(), |age| format!("{age:>3}"));
        let _ = writeln!(text, "{port:>5}  {:>4}  {address}  {age}", entry.vlan);
    }
    Ok(text)
}

fn add(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let [name, port, vlan, address] = arguments else { return Err("four arguments".to_owned()) };
    let bridge = bridge(switch, name)?;
    let port = bridge.port_named(port).ok_or_else(|| format!("port {port} does not exist"))?;
    let vlan = parse_vlan(vlan)?;
    let address = parse_address(address)?;
    let former = bridge.tables_mut().add_mac(vlan, address, port.number);
    let former = former.map_err(|_| "could not add static mac entry".to_owned())?;
    let Some(former) = former else { return Ok(String::new()) };
    let kind = if former.is_fixed { "static" } else { "dynamic" };
    Ok(format!("Overriding already existing {kind} entry on {}\n", former.port.0))
}

fn remove(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let [name, vlan, address] = arguments else { return Err("three arguments".to_owned()) };
    let bridge = bridge(switch, name)?;
    let (vlan, address) = (parse_vlan(vlan)?, parse_address(address)?);
    match bridge.tables_mut().remove_mac(vlan, address) {
        true => Ok(String::new()),
        false => Err("could not find static mac entry".to_owned()),
    }
}

fn parse_vlan(text: &str) -> Result<u16, String> {
    let vlan = text.parse().ok().filter(|vlan| *vlan < 4096);
    vlan.ok_or_else(|| format!("{text}: a VLAN is a number from 0 to 4095"))
}

pub(super) fn parse_address(text: &str) -> Result<[u8; 6], String> {
    let mut address = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut address {
        let part = parts.next().and_then(|part| u8::from_str_radix(part, 16).ok());
        *byte = part.ok_or("bad MAC address")?;
    }
    parts.next().is_none().then_some(address).ok_or_else(|| "bad MAC address".to_owned())
}

fn flush(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let bridges = match arguments.first() {
        Some(name) => vec![bridge(switch, name)?],
        None => switch.bridges(),
    };
    bridges.iter().for_each(|bridge| bridge.tables_mut().clear_macs());
    Ok("table successfully flushed".to_owned())
}

fn statistics(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let bridge = bridge(switch, &arguments[0])?;
    let counts = bridge.tables().mac_counts();
    Ok(format!(
        "Statistics for bridge \"{}\":\n  \
         Current/maximum MAC entries in the table: {}/{}\n  \
         Current static MAC entries in the table : {}\n  \
         Total number of learned MAC entries     : {}\n  \
         Total number of expired MAC entries     : {}\n  \
         Total number of evicted MAC entries     : {}\n  \
         Total number of port moved MAC entries  : {}\n",
        bridge.name,
        counts.entries,
        counts.capacity,
        counts.fixed,
        counts.learned,
        counts.expired,
        counts.evicted,
        counts.moved,
    ))
}

fn clear(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let bridges = match arguments.first() {
        Some(name) => vec![bridge(switch, name)?],
        None => switch.bridges(),
    };
    switch.count_events();
    bridges.iter().for_each(|bridge| bridge.tables().clear_mac_counts());
    Ok("statistics successfully cleared".to_owned())
}

/// Lists rules. In Open vSwitch this command also lists hidden rules; this switch has no hidden
/// rules.
fn dump_flows(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let name = arguments.last().map_or("", String::as_str);
    let bridge = switch.bridge(name).ok_or(UNKNOWN)?;
    switch.credit(&bridge);
    let filter = FlowFilter {
        table: None,
        matching: flow::Match::any(),
        cookie: flow::request::CookieFilter::default(),
        out_port: PortNumber::NONE,
        out_group: FlowMod::ANY_GROUP,
    };
    let flows = bridge.tables().flows(&filter, bridge.clock.now_ms());
    let names = bridge.port_names();
    let mut text = String::new();
    for flow in flows.map_err(|refusal| refusal.to_string())? {
        if flow.table != 0 {
            let _ = write!(text, "table_id={}, ", flow.table);
        }
        let seconds = flow.duration.as_secs();
        let _ = write!(
            text,
            "duration={seconds}s, n_packets={}, n_bytes={}, ",
            flow.packets, flow.bytes
        );
        let matching = print_match_with(&flow.matching, &names);
        if flow.priority != FlowMod::DEFAULT_PRIORITY {
            let _ = write!(text, "priority={}", flow.priority);
            text.push_str(if matching.is_empty() { "" } else { "," });
        }
        let _ = writeln!(text, "{matching},actions={}", print_actions_with(&flow.actions, &names));
    }
    Ok(text)
}

/// Closes the connections to the controllers of a bridge, or of all bridges. The switch connects
/// again at once.
fn reconnect(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let bridges = match arguments.first() {
        Some(name) => vec![switch.bridge(name).ok_or(UNKNOWN)?],
        None => switch.bridges(),
    };
    bridges.iter().for_each(|bridge| bridge.reconnect());
    Ok(String::new())
}

/// Open vSwitch's error of the commands `bridge/…`.
const UNKNOWN: &str = "Unknown bridge";

fn list(switch: &Arc<Switch>, _: &[String]) -> Outcome {
    Ok(switch.bridges().iter().map(|bridge| format!("{}\n", bridge.name)).collect())
}

/// Lists the bridges with their ports, for `weir switch show`.
pub(super) fn describe(switch: &Switch) -> String {
    let mut text = String::new();
    for bridge in switch.bridges() {
        let _ = writeln!(text, "Bridge {}", bridge.name);
        for controller in bridge.controllers() {
            let state = if controller.is_connected { "connected" } else { "not connected" };
            let _ = writeln!(text, "    Controller {}", controller.remote);
            let _ = writeln!(text, "        state: {state}");
            if let Some(error) = controller.last_error {
                let _ = writeln!(text, "        last error: {error}");
            }
        }
        for port in bridge.ports() {
            let _ = writeln!(text, "    Port {}", port.name);
            let _ = writeln!(text, "        number: {}", number(port.number));
            let _ = writeln!(text, "        type: {}", port.settings.kind);
            let state = if port.is_up() { "up" } else { "down" };
            let _ = writeln!(text, "        state: {state}");
            if port.number != PortNumber::LOCAL {
                let _ = writeln!(text, "        device: {}", port.describe());
            }
            let counts = port.counts.totals();
            let _ = writeln!(
                text,
                "        packets: {} received, {} sent, {} dropped",
                counts.received_packets, counts.sent_packets, counts.sent_dropped,
            );
            if let Some(dropped) = port.policed() {
                let _ = writeln!(text, "        policing: {dropped} received packets dropped");
            }
            for queue in port.queue_statistics(Time::ZERO) {
                let _ = writeln!(
                    text,
                    "        queue {}: {} packets sent, {} dropped",
                    queue.queue, queue.sent_packets, queue.dropped
                );
            }
        }
    }
    text
}

fn number(number: PortNumber) -> String {
    if number == PortNumber::LOCAL { "LOCAL".to_owned() } else { number.0.to_string() }
}
