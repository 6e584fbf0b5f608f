//! Commands that trace packets.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use datapath::extract;
use flow::action::Action;
use flow::port_number::PortNumber;
use flow::request::PacketOut;
use flow::step::{PortIndex, Step, Translate};
use flow::{Field, Key, Match};
use pipeline::{Neighbor, Print, Trace};
use text::{
    PortNames, compose, parse_actions, parse_connection_state, parse_datapath_key_with,
    parse_hex_frame, parse_packet, print_actions_with, print_connection_state, print_match_with,
    print_megaflow_match, print_steps,
};

use super::{Command, Outcome};
use crate::run::bridge::BridgeState;
use crate::run::switch::Switch;

pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "ofproto/trace",
        usage: "{[dp_name] odp_flow | bridge br_flow} [OPTIONS...] [-generate|packet]",
        fewest: 1,
        most: usize::MAX,
        run: trace,
    },
    Command {
        name: "ofproto/trace-packet-out",
        usage: "[-consistent] {[dp_name] odp_flow | bridge br_flow} [OPTIONS...] \
                [-generate|packet] actions",
        fewest: 2,
        most: usize::MAX,
        run: trace_packet_out,
    },
];

/// Writes traces. As in Open vSwitch, port numbers are printed unless the user asks for names.
#[derive(Default)]
struct Text {
    /// The port names of each bridge, and the bridge whose part of the trace is being written.
    ports: HashMap<String, PortNames>,
    bridge: RefCell<Option<String>>,
    /// The bridge in which the trace begins.
    first: String,
    datapath_ports: PortNames,
}

impl Text {
    fn with_ports<R>(&self, print: impl FnOnce(&PortNames) -> R) -> R {
        let bridge = self.bridge.borrow();
        match self.ports.get(bridge.as_ref().unwrap_or(&self.first)) {
            Some(ports) => print(ports),
            None => print(&PortNames::none()),
        }
    }
}

impl Print for Text {
    fn matching(&self, matching: &Match) -> String {
        self.with_ports(|ports| print_match_with(matching, ports))
    }

    fn megaflow(&self, matching: &Match) -> String {
        self.with_ports(|ports| print_megaflow_match(matching, ports))
    }

    fn actions(&self, actions: &[Action]) -> String {
        self.with_ports(|ports| print_actions_with(actions, ports))
    }

    fn steps(&self, steps: &[Step], key: &Key) -> String {
        print_steps(steps, key, &self.datapath_ports)
    }

    fn connection_state(&self, state: u16) -> String {
        print_connection_state(state)
    }

    fn enters(&self, bridge: Option<&str>) {
        *self.bridge.borrow_mut() = bridge.map(str::to_owned);
    }
}

/// The arguments of a trace.
struct Request {
    bridge: Arc<BridgeState>,
    key: Key,
    frame: Option<Vec<u8>>,
    has_names: bool,
    states: Vec<u16>,
}

fn trace(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let request = request(switch, arguments)?;
    let now_ms = request.bridge.clock.now_ms();
    if let Some(frame) = &request.frame {
        // A packet that the user gives takes effect: NORMAL learns the packet's address, and learn
        // actions change rules.
        let key = &request.key;
        request.bridge.translate(|mut translator, _| translator.translate(key, frame, now_ms));
    }
    let frame = request.frame.as_deref().unwrap_or_default();
    Ok(request.traced(switch, |trace| trace.run(&request.key, frame, now_ms)))
}

fn trace_packet_out(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let Some((actions, rest)) = arguments.split_last() else {
        return Err("Must specify actions".to_owned());
    };
    let request = request(switch, rest)?;
    let actions = parse_actions(actions, &request.bridge.port_names())
        .map_err(|error| format!("Bad action: {error}"))?;
    let packet = PacketOut {
        frame: request.frame.clone().unwrap_or_default(),
        in_port: PortNumber(request.key.read(Field::InPort) as u32),
        metadata: Key::ZERO,
        actions,
    };
    let now_ms = request.bridge.clock.now_ms();
    Ok(request.traced(switch, |trace| trace.run_packet_out(&packet, &request.key, now_ms)))
}

impl Request {
    fn traced(&self, switch: &Switch, run: impl FnOnce(Trace<'_, Text>) -> String) -> String {
        let mut text = Text { first: self.bridge.name.clone(), ..Text::default() };
        if self.has_names {
            let neighbors = self.bridge.neighbors();
            let bridges = neighbors.iter().chain([&self.bridge]);
            text.ports = bridges.map(|bridge| (bridge.name.clone(), bridge.port_names())).collect();
            text.datapath_ports = switch.datapath_names();
        }
        self.bridge.translate(|translator, neighbors: &[Neighbor<'_>]| {
            let trace = Trace::new(translator.tables(), &self.bridge.name, text);
            let mut trace = trace.with_neighbors(neighbors);
            trace.states = self.states.clone();
            run(trace)
        })
    }
}

/// Reads `{[dp_name] odp_flow | bridge br_flow} [OPTIONS...] [-generate|packet]`.
fn request(switch: &Switch, arguments: &[String]) -> Result<Request, String> {
    let mut words: Vec<&str> = Vec::new();
    let (mut generates, mut has_names, mut states) = (false, false, Vec::new());
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "-generate" | "--generate" => generates = true,
            "-consistent" | "--consistent" => {}
            "-names" | "--names" => has_names = true,
            "-no-names" | "--no-names" => has_names = false,
            "-ct-next" | "--ct-next" => {
                let states_text = rest.next().ok_or("Missing argument for option --ct-next")?;
                states.push(parse_connection_state(states_text).map_err(|e| e.to_string())?);
            }
            word => words.push(word),
        }
    }
    let mut frame = None;
    if !generates && words.len() > 1 {
        frame = words.last().and_then(|word| parse_hex_frame(word));
        if frame.is_some() {
            words.pop();
        } else if words.len() > 2 {
            return Err("Trailing garbage in packet data".to_owned());
        }
    }
    if frame.as_ref().is_some_and(|frame| frame.len() < SHORTEST_FRAME) {
        return Err("Packet data too short for Ethernet".to_owned());
    }
    let (bridge, mut key) = packet(switch, &words)?;
    if let Some(frame) = &frame {
        let port = key.read(Field::InPort) as u32;
        let metadata = key.clone();
        key = extract(port, frame);
        for index in 0..flow::word::ETH_SRC {
            key.words[index] = metadata.words[index];
        }
        key.write_at(Key::PRIORITY, metadata.read_at(Key::PRIORITY));
    } else if generates {
        frame = Some(compose(&key));
    }
    Ok(Request { bridge, key, frame, has_names, states })
}

/// Parses the packet in the arguments. The arguments describe a flow of a bridge or of the
/// datapath.
fn packet(switch: &Switch, words: &[&str]) -> Result<(Arc<BridgeState>, Key), String> {
    let (place, flow) = match words {
        [flow] => (None, *flow),
        [place, flow] => (Some(*place), *flow),
        _ => return Err("Must specify a bridge and a flow, or a datapath's flow".to_owned()),
    };
    if flow.contains('(') {
        if place.is_some_and(|place| !super::datapath::is_datapath(place)) {
            return Err("Cannot find the datapath".to_owned());
        }
        return of_datapath(switch, flow);
    }
    let Some(name) = place else {
        return Err(format!("syntax error at {flow} (or the bridge name was omitted)"));
    };
    let bridge = switch.bridge(name).ok_or_else(|| format!("{name}: unknown bridge"))?;
    let key = parse_packet(flow, &bridge.port_names())
        .map_err(|error| format!("Bad openflow flow syntax: {error}"))?;
    Ok((bridge, key))
}

/// Parses the packet of a datapath flow, in which the port is the switch's port index.
fn of_datapath(switch: &Switch, text: &str) -> Result<(Arc<BridgeState>, Key), String> {
    let mut key = parse_datapath_key_with(text, &switch.datapath_names())
        .map_err(|error| format!("syntax error at {text} ({error})"))?;
    let index = PortIndex(key.read(Field::InPort) as u16);
    let recirculation = key.read(Field::RecircId) as u32;
    for bridge in switch.bridges() {
        let Some(port) = bridge.port_of_index(index) else { continue };
        if recirculation != 0 && !bridge.tables().has_recirculation(recirculation) {
            break;
        }
        key.write(Field::InPort, port.number.0.into());
        return Ok((bridge, key));
    }
    match recirculation {
        0 => Err(format!("no OpenFlow port for datapath port {}", index.0)),
        id => Err(format!("no recirculation data for recirc_id {id:#x}")),
    }
}

const SHORTEST_FRAME: usize = 14;
