//! Bridges: what NORMAL learned, rules, OpenFlow's ports.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Command, Outcome, bridge};
use crate::port_number::PortNumber;
use crate::request::{FlowFilter, FlowMod};
use crate::run::switch::Switch;
use crate::text::{print_actions_with, print_match_with};

pub(super) const COMMANDS: &[Command] = &[
    Command { name: "bridge/dump-flows", usage: "bridge", fewest: 1, most: 2, run: dump_flows },
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
        let _ = writeln!(text, "{port:>5}  {:>4}  {address}  {:>3}", entry.vlan, entry.age_seconds);
    }
    Ok(text)
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
         Current static MAC entries in the table : 0\n  \
         Total number of learned MAC entries     : {}\n  \
         Total number of expired MAC entries     : {}\n  \
         Total number of evicted MAC entries     : {}\n  \
         Total number of port moved MAC entries  : {}\n",
        bridge.name,
        counts.entries,
        counts.capacity,
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
    bridges.iter().for_each(|bridge| bridge.tables().clear_mac_counts());
    Ok("statistics successfully cleared".to_owned())
}

/// Unlike ovs-ofctl, this command also lists rules that OpenFlow hides; there are none here.
fn dump_flows(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let name = arguments.last().map_or("", String::as_str);
    let bridge = bridge(switch, name)?;
    switch.credit(&bridge);
    let filter = FlowFilter {
        table: None,
        matching: crate::flow::Match::any(),
        cookie: crate::request::CookieFilter::default(),
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

fn list(switch: &Arc<Switch>, _: &[String]) -> Outcome {
    Ok(switch.bridges().iter().map(|bridge| format!("{}\n", bridge.name)).collect())
}

/// The bridges with their ports, for `weir switch show`.
pub(super) fn describe(switch: &Switch) -> String {
    let mut text = String::new();
    for bridge in switch.bridges() {
        let _ = writeln!(text, "Bridge {}", bridge.name);
        for port in bridge.ports() {
            let _ = writeln!(text, "    Port {}", port.name);
            let _ = writeln!(text, "        number: {}", number(port.number));
            let _ = writeln!(text, "        type: {}", port.settings.kind);
            let state = if port.is_up() { "up" } else { "down" };
            let _ = writeln!(text, "        state: {state}");
            if port.number != PortNumber::LOCAL {
                let _ = writeln!(text, "        device: {}", port.describe());
            }
            let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
            let _ = writeln!(
                text,
                "        packets: {} received, {} sent, {} dropped",
                read(&port.counts.received_packets),
                read(&port.counts.sent_packets),
                read(&port.counts.sent_dropped),
            );
        }
    }
    text
}

fn number(number: PortNumber) -> String {
    if number == PortNumber::LOCAL { "LOCAL".to_owned() } else { number.0.to_string() }
}
