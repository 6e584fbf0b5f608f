//! Commands that change bridges, ports and packet threads, for `weir switch`.

use std::sync::Arc;

use serde_json::{Value, json};

use super::flows::port_json;
use super::pmd::ThreadStatistics;
use super::{Command, Outcome};
use crate::run::bridge::{BridgeState, ControllerState};
use crate::run::config::{BridgeConfig, Config, PortConfig, RxqAffinity};
use crate::run::switch::Switch;

pub(super) const COMMANDS: &[Command] = &[
    Command { name: "switch/add-bridge", usage: "bridge", fewest: 1, most: 1, run: add_bridge },
    Command {
        name: "switch/add-port",
        usage: "bridge port kind",
        fewest: 3,
        most: 3,
        run: add_port,
    },
    Command {
        name: "switch/delete-bridge",
        usage: "bridge",
        fewest: 1,
        most: 1,
        run: delete_bridge,
    },
    Command {
        name: "switch/delete-port",
        usage: "bridge port",
        fewest: 2,
        most: 2,
        run: delete_port,
    },
    Command { name: "switch/pmd-cpus", usage: "cpus", fewest: 1, most: 1, run: set_cpus },
    Command { name: "switch/reload", usage: "", fewest: 0, most: 0, run: reload },
    Command {
        name: "switch/rxq-affinity",
        usage: "bridge port pairs",
        fewest: 3,
        most: 3,
        run: set_affinity,
    },
    Command {
        name: "switch/show",
        usage: "",
        fewest: 0,
        most: 0,
        run: |switch, _| Ok(super::bridge::describe(switch)),
    },
    Command { name: "switch/status", usage: "", fewest: 0, most: 0, run: status },
];

fn reload(switch: &Arc<Switch>, _: &[String]) -> Outcome {
    refuse_with_database(&switch.settings())?;
    let notes = switch.reload().map_err(|error| error.to_string())?;
    Ok(notes.into_iter().map(|note| format!("{note}\n")).collect())
}

/// Returns the state of the switch as JSON, for `weir switch show --json` and `weir switch top`.
fn status(switch: &Arc<Switch>, _: &[String]) -> Outcome {
    let bridge = |bridge: &Arc<BridgeState>| {
        switch.credit_patches(bridge);
        let ports: Vec<_> = bridge.ports().iter().map(|port| port_json(port)).collect();
        let controllers: Vec<_> = bridge.controllers().iter().map(controller_json).collect();
        let rules: u32 = bridge.tables().tables().iter().map(|table| table.active).sum();
        json!({
            "name": bridge.name,
            "datapath_id": format!("{:016x}", bridge.datapath_id()),
            "rules": rules,
            "controllers": controllers,
            "lost_packet_ins": bridge.lost_packet_ins(),
            "ports": ports,
        })
    };
    let thread = |thread: ThreadStatistics| {
        let counts = &thread.worker.datapath;
        let stages = &counts.stages;
        json!({
            "name": thread.core.map_or("main".to_owned(), |core| format!("pmd {core}")),
            "cpu": thread.core,
            "received": counts.received,
            "recirculated": counts.recirculated,
            "megaflow_hits": counts.megaflow_hits,
            "upcalls": counts.upcalls,
            "dropped": counts.dropped,
            "sent": counts.sent,
            "idle_cycles": thread.idle,
            "busy_cycles": thread.busy,
            "stages": {
                "packets": stages.packets,
                "parse": stages.parse,
                "cache": stages.cache,
                "classifier": stages.classifier,
                "conntrack": stages.conntrack,
                "actions": stages.actions,
                "transmit": stages.transmit,
            },
            "queues": thread.queues.iter().map(|queue| json!({
                "port": queue.port, "queue": queue.queue, "cycles": queue.cycles,
            })).collect::<Vec<_>>(),
        })
    };
    let bridges: Vec<_> = switch.bridges().iter().map(bridge).collect();
    let threads = super::pmd::all(switch);
    let rules: u64 = bridges.iter().filter_map(|bridge| bridge["rules"].as_u64()).sum();
    let document = json!({
        "bridges": bridges,
        "threads": threads.into_iter().map(thread).collect::<Vec<_>>(),
        "megaflows": switch.megaflow_count(),
        "connections": switch.conntrack().connections(),
        "rules": rules,
    });
    Ok(format!("{document:#}\n"))
}

fn controller_json(controller: &ControllerState) -> Value {
    json!({
        "address": controller.remote.to_string(),
        "connected": controller.is_connected,
        "last_error": controller.last_error,
    })
}

/// Applies a change to the settings in force.
fn change(switch: &Arc<Switch>, change: impl FnOnce(&mut Config) -> Result<(), String>) -> Outcome {
    let mut config = switch.settings().clone();
    refuse_with_database(&config)?;
    change(&mut config)?;
    let mut text = String::new();
    let applied = switch.apply(&config, &mut |note| {
        text.push_str(&note);
        text.push('\n');
    });
    applied.map_err(|error| error.to_string())?;
    Ok(text)
}

fn refuse_with_database(config: &Config) -> Result<(), String> {
    match config.ovsdb {
        Some(_) => Err("the database has the settings: change them by ovs-vsctl".to_owned()),
        None => Ok(()),
    }
}

fn add_bridge(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    change(switch, |config| {
        if config.bridge.contains_key(&arguments[0]) {
            return Err(format!("there is a bridge {} already", arguments[0]));
        }
        config.bridge.insert(arguments[0].clone(), BridgeConfig::default());
        Ok(())
    })
}

fn delete_bridge(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    change(switch, |config| {
        let removed = config.bridge.shift_remove(&arguments[0]);
        removed.map(drop).ok_or_else(|| no_bridge(config, &arguments[0]))
    })
}

fn add_port(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let [bridge, port, kind] = arguments else { return Err("three arguments".to_owned()) };
    change(switch, |config| {
        config.add_port(&format!("{bridge}:{port}={kind}")).map_err(|error| {
            let text = error.to_string();
            text.strip_prefix("--port ").unwrap_or(&text).to_owned()
        })
    })
}

fn delete_port(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    change(switch, |config| {
        let Some(bridge) = config.bridge.get_mut(&arguments[0]) else {
            return Err(no_bridge(config, &arguments[0]));
        };
        match bridge.port.shift_remove(&arguments[1]) {
            Some(_) => Ok(()),
            None => Err(no_port(bridge, &arguments[0], &arguments[1])),
        }
    })
}

fn set_cpus(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let cpus = units::parse_cpus(&arguments[0])?;
    change(switch, |config| {
        config.pmd_cpus = Some(cpus);
        Ok(())
    })
}

fn set_affinity(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let affinity: RxqAffinity = arguments[2].parse()?;
    change(switch, |config| {
        let Some(bridge) = config.bridge.get_mut(&arguments[0]) else {
            return Err(no_bridge(config, &arguments[0]));
        };
        let Some(port) = bridge.port.get_mut(&arguments[1]) else {
            return Err(no_port(bridge, &arguments[0], &arguments[1]));
        };
        let is_empty = affinity.0.is_empty();
        let set = |port: &mut PortConfig| port.rxq_affinity = (!is_empty).then_some(affinity);
        set(port);
        Ok(())
    })
}

fn no_bridge(config: &Config, name: &str) -> String {
    let known = config.bridge.keys().cloned().collect::<Vec<_>>().join(", ");
    format!("there is no bridge {name}; the bridges are: {known}")
}

fn no_port(bridge: &BridgeConfig, name: &str, port: &str) -> String {
    let known = bridge.port.keys().cloned().collect::<Vec<_>>().join(", ");
    format!("bridge {name} has no port {port}; its ports are: {known}")
}
