//! Traces of packets.

use std::sync::Arc;

use super::{Command, Outcome};
use crate::action::Action;
use crate::datapath::extract;
use crate::datapath::step::PortIndex;
use crate::flow::{Field, Key, Match};
use crate::pipeline::{Print, Trace};
use crate::run::bridge::BridgeState;
use crate::run::switch::Switch;
use crate::text::{parse_datapath_key, parse_hex_frame, parse_packet, print_actions, print_match};

pub(super) const COMMANDS: &[Command] = &[Command {
    name: "ofproto/trace",
    usage: "{[dp_name] odp_flow | bridge br_flow} [OPTIONS...] [-generate|packet]",
    fewest: 1,
    most: usize::MAX,
    run: trace,
}];

/// Traces print numbers of ports, as Open vSwitch's do.
struct Text;

impl Print for Text {
    fn matching(&self, matching: &Match) -> String {
        print_match(matching)
    }

    fn actions(&self, actions: &[Action]) -> String {
        print_actions(actions)
    }
}

fn trace(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let mut words = Vec::new();
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "-generate" | "--generate" | "-consistent" | "--consistent" => {}
            "-ct-next" | "--ct-next" => drop(rest.next()),
            word => words.push(word),
        }
    }
    let mut frame = None;
    if words.len() > 1
        && let Some(bytes) = words.last().and_then(|word| parse_hex_frame(word))
    {
        frame = Some(bytes);
        words.pop();
    }
    let (bridge, mut key) = match words.as_slice() {
        [name, flow] if switch.bridge(name).is_some() => {
            let bridge = super::bridge(switch, name)?;
            let names = bridge.port_names();
            let key = parse_packet(flow, &names)
                .map_err(|error| format!("Bad openflow flow syntax: {error}"))?;
            (bridge, key)
        }
        [_, flow] if !flow.contains('(') => {
            return Err(format!("Unknown bridge name {}", words[0]));
        }
        [flow] | [_, flow] => of_datapath(switch, flow)?,
        _ => return Err("Must specify a bridge and a flow, or a datapath's flow".to_owned()),
    };
    if let Some(frame) = &frame {
        let port = key.read(Field::InPort) as u32;
        let metadata = key.clone();
        key = extract(port, frame);
        for index in 0..crate::flow::word::ETH_SRC {
            key.words[index] = metadata.words[index];
        }
    }
    let tables = bridge.tables();
    let trace = Trace::new(&tables, &bridge.name, Text);
    Ok(trace.run(&key, &frame.unwrap_or_default(), bridge.clock.now_ms()))
}

/// The packet of a datapath's flow, whose port is an index in the switch.
fn of_datapath(switch: &Switch, text: &str) -> Result<(Arc<BridgeState>, Key), String> {
    let mut key =
        parse_datapath_key(text).map_err(|error| format!("Bad datapath flow syntax: {error}"))?;
    let index = PortIndex(key.read(Field::InPort) as u16);
    for bridge in switch.bridges() {
        if let Some(port) = bridge.port_of_index(index) {
            key.write(Field::InPort, port.number.0.into());
            return Ok((bridge, key));
        }
    }
    Err(format!("Invalid datapath port: no port has the number {}", index.0))
}
