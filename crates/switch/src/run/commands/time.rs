//! Commands by which tests control time and packets.

use std::sync::Arc;
use std::time::Duration;

use port::Frame;
use text::{compose, parse_datapath_key, parse_hex_frame};
use units::Time;

use super::{Command, Outcome};
use crate::run::bridge::BridgeState;
use crate::run::ports::SwitchPort;
use crate::run::switch::Switch;

pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "netdev-dummy/receive",
        usage: "name [--qid queue_id] packet|flow [--len packet_len]",
        fewest: 2,
        most: usize::MAX,
        run: receive,
    },
    Command {
        name: "netdev-dummy/set-admin-state",
        usage: "[netdev] up|down",
        fewest: 1,
        most: 2,
        run: set_admin_state,
    },
    // `revalidator/pause` and `revalidator/resume` do nothing: the datapath checks the megaflow of
    // each packet, so the switch has no revalidator thread.
    Command {
        name: "revalidator/pause",
        usage: "",
        fewest: 0,
        most: 0,
        run: |_, _| Ok(String::new()),
    },
    Command { name: "revalidator/purge", usage: "", fewest: 0, most: 0, run: purge },
    Command {
        name: "revalidator/resume",
        usage: "",
        fewest: 0,
        most: 0,
        run: |_, _| Ok(String::new()),
    },
    Command { name: "revalidator/wait", usage: "", fewest: 0, most: 0, run: wait },
    Command { name: "time/stop", usage: "", fewest: 0, most: 0, run: stop },
    Command { name: "time/warp", usage: "[large_msecs] msecs", fewest: 1, most: 2, run: warp },
];

fn stop(switch: &Arc<Switch>, _: &[String]) -> Outcome {
    switch.clock.stop();
    Ok(String::new())
}

fn warp(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let number = |text: &String| text.parse::<u64>().ok().filter(|number| *number > 0);
    let all: Option<Vec<_>> = arguments.iter().map(number).collect();
    let (total, step) = match all.as_deref() {
        Some([total]) => (*total, *total),
        Some([total, step]) => (*total, *step),
        _ => return Err("invalid MSECS".to_owned()),
    };
    let mut left = total;
    for _ in 0..MOST_STEPS {
        let step = step.min(left);
        left -= step;
        switch.clock.warp(Duration::from_millis(step));
        advance(switch);
        if left == 0 {
            break;
        }
    }
    switch.clock.warp(Duration::from_millis(left));
    advance(switch);
    Ok("warped".to_owned())
}

/// Runs all work of the switch that is due.
fn advance(switch: &Switch) {
    switch.maintain();
    for bridge in switch.bridges() {
        switch.expire_and_report(&bridge);
    }
}

fn purge(switch: &Arc<Switch>, _: &[String]) -> Outcome {
    switch.clear_megaflows();
    Ok(String::new())
}

fn wait(switch: &Arc<Switch>, _: &[String]) -> Outcome {
    switch.bridges().iter().for_each(|bridge| switch.credit(bridge));
    Ok(String::new())
}

/// Returns the port with this name from the first bridge that has such a port.
fn port(switch: &Switch, name: &str) -> Option<(Arc<BridgeState>, Arc<SwitchPort>)> {
    let found = |bridge: Arc<BridgeState>| bridge.port_named(name).map(|port| (bridge, port));
    switch.bridges().into_iter().find_map(found)
}

fn receive(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let unknown = || "no such dummy netdev".to_owned();
    let (bridge, port) = port(switch, &arguments[0]).ok_or_else(unknown)?;
    if !port.is_up() {
        return Ok(String::new());
    }
    let mut frames = Vec::new();
    let mut rest = arguments[1..].iter().peekable();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--qid" => {
                rest.next();
            }
            text => {
                let mut length = None;
                if rest.peek().is_some_and(|next| *next == "--len") {
                    rest.next();
                    let given = rest.next().and_then(|text| text.parse::<usize>().ok());
                    length = Some(given.ok_or("invalid packet length")?);
                }
                frames.push(frame(text, length)?);
            }
        }
    }
    port.inject(&frames);
    switch.main().process(&bridge, &port, &mut frames);
    // Flush the captures, so that they are complete when the command returns.
    let neighbors = bridge.neighbors();
    for bridge in neighbors.iter().chain([&bridge]) {
        bridge.ports().iter().for_each(|port| port.flush());
    }
    Ok(String::new())
}

fn frame(text: &str, length: Option<usize>) -> Result<Frame, String> {
    let mut bytes = match parse_hex_frame(text) {
        Some(bytes) => bytes,
        None => {
            let key = parse_datapath_key(text);
            compose(&key.map_err(|error| format!("bad packet or flow syntax: {error}"))?)
        }
    };
    if let Some(length) = length {
        bytes.resize(length.min(LONGEST_FRAME), 0);
    }
    if bytes.len() < SHORTEST_FRAME || bytes.len() > LONGEST_FRAME {
        return Err(format!("{text}: a frame has 14 to {LONGEST_FRAME} bytes"));
    }
    Ok(Frame::from_bytes(&bytes, Time::ZERO))
}

fn set_admin_state(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let is_down = match arguments.last().map(String::as_str) {
        Some("up") => false,
        Some("down") => true,
        _ => return Err("Invalid Admin State".to_owned()),
    };
    let chosen: Vec<_> = match arguments {
        [name, _] => vec![port(switch, name).ok_or("Unknown Dummy Interface")?],
        _ => {
            let all = switch.bridges().into_iter().flat_map(|bridge| {
                let ports = bridge.ports();
                ports.into_iter().map(move |port| (bridge.clone(), port))
            });
            all.collect()
        }
    };
    for (bridge, port) in chosen {
        port.set_disabled(is_down);
        bridge.port_changed(&port);
    }
    switch.run_bonds();
    Ok("OK".to_owned())
}

/// Maximum number of steps of a time warp. In a longer warp, the last step covers the remaining
/// time.
const MOST_STEPS: usize = 100_000;
const SHORTEST_FRAME: usize = 14;
const LONGEST_FRAME: usize = crate::run::pcap::LONGEST_FRAME;
