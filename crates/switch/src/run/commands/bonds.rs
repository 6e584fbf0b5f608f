//! Commands for bonds.

use std::sync::Arc;

use super::bridge::parse_address;
use super::{Command, Outcome};
use crate::run::bonds::{Bond, MemberPort};
use crate::run::bridge::BridgeState;
use crate::run::lacp::Lacp;
use crate::run::switch::Switch;

pub(super) const COMMANDS: &[Command] = &[
    Command { name: "bond/hash", usage: "mac [vlan] [basis]", fewest: 1, most: 3, run: hash },
    Command { name: "bond/list", usage: "", fewest: 0, most: 0, run: list },
    Command { name: "bond/show", usage: "[port]", fewest: 0, most: 1, run: show },
    Command {
        name: "lacp/show",
        usage: "[port]",
        fewest: 0,
        most: 1,
        run: |switch, arguments| show_lacp(switch, arguments, Lacp::show),
    },
    Command {
        name: "lacp/show-stats",
        usage: "[port]",
        fewest: 0,
        most: 1,
        run: |switch, arguments| show_lacp(switch, arguments, Lacp::show_statistics),
    },
    Command {
        name: "bond/set-active-member",
        usage: "port member",
        fewest: 2,
        most: 2,
        run: set_active,
    },
    Command {
        name: "bond/enable-member",
        usage: "port member",
        fewest: 2,
        most: 2,
        run: |switch, arguments| set_enabled(switch, arguments, true),
    },
    Command {
        name: "bond/disable-member",
        usage: "port member",
        fewest: 2,
        most: 2,
        run: |switch, arguments| set_enabled(switch, arguments, false),
    },
];

/// Returns the hash by which balance-slb chooses a member for an address.
fn hash(_: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let vlan = arguments.get(1).map_or(Ok(0), |text| text.parse().map_err(|_| "invalid vlan"))?;
    let basis = arguments.get(2).map_or(Ok(0), |text| text.parse().map_err(|_| "invalid basis"))?;
    let address = parse_address(&arguments[0]).map_err(|_| "invalid mac")?;
    let address = address.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    Ok(pipeline::slb_hash(address, vlan, basis).to_string())
}

fn list(switch: &Arc<Switch>, _: &[String]) -> Outcome {
    let mut text = "bond\ttype\trecircID\tmembers\n".to_owned();
    for bridge in switch.bridges() {
        bridge.bonds().iter().for_each(|(name, bond)| text.push_str(&bond.line(name)));
    }
    Ok(text)
}

fn show(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    switch.run_bonds();
    let mut texts = Vec::new();
    for bridge in switch.bridges() {
        for (name, bond) in bridge.bonds().iter() {
            if arguments.first().is_none_or(|wanted| wanted == name) {
                let ports = bridge.members(&bond.settings);
                texts.push(bond.show(name, &ports, bridge.clock.now_ms()));
            }
        }
    }
    match (texts.is_empty(), arguments.first()) {
        (true, Some(_)) => Err("no such bond".to_owned()),
        _ => Ok(texts.concat()),
    }
}

fn show_lacp(
    switch: &Arc<Switch>,
    arguments: &[String],
    print: fn(&Lacp, &str) -> String,
) -> Outcome {
    switch.run_bonds();
    let mut texts = Vec::new();
    for bridge in switch.bridges() {
        for (name, bond) in bridge.bonds().iter() {
            let is_wanted = arguments.first().is_none_or(|wanted| wanted == name);
            texts.extend(bond.lacp().filter(|_| is_wanted).map(|lacp| print(lacp, name)));
        }
    }
    match (texts.is_empty(), arguments.first()) {
        (true, Some(_)) => Err("no such lacp object".to_owned()),
        _ => Ok(texts.concat()),
    }
}

fn set_active(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let is_new =
        with_bond(switch, &arguments[0], |bond, ports| bond.set_active(&arguments[1], ports))?;
    Ok(if is_new { "done" } else { "no change" }.to_owned())
}

fn set_enabled(switch: &Arc<Switch>, arguments: &[String], is_enabled: bool) -> Outcome {
    with_bond(switch, &arguments[0], |bond, _| bond.set_enabled(&arguments[1], is_enabled))?;
    Ok(if is_enabled { "enabled" } else { "disabled" }.to_owned())
}

/// Changes a bond, and updates the tables.
fn with_bond<R>(
    switch: &Switch,
    name: &str,
    change: impl Fn(&mut Bond, &[MemberPort]) -> Result<R, &'static str>,
) -> Result<R, String> {
    let has = |bridge: &Arc<BridgeState>| bridge.bonds().contains_key(name);
    let bridge = switch.bridges().into_iter().find(has).ok_or("no such bond")?;
    switch.run_bonds();
    let outcome = {
        let mut bonds = bridge.bonds();
        let bond = bonds.get_mut(name).ok_or("no such bond")?;
        let ports = bridge.members(&bond.settings);
        change(bond, &ports)?
    };
    bridge.run_bonds();
    Ok(outcome)
}
