//! The commands of the control socket, with the names that Open vSwitch uses.

mod absent;
mod bonds;
mod bridge;
mod conntrack;
mod coverage;
mod datapath;
mod flows;
mod fragments;
mod logs;
mod pmd;
mod qos;
mod settings;
mod time;
mod trace;

use std::sync::Arc;

pub(super) use self::pmd::{ThreadStatistics, all as threads};
use super::bridge::BridgeState;
use super::switch::Switch;

/// A command's output, or its error.
pub(super) type Outcome = Result<String, String>;

#[derive(Clone, Copy)]
struct Command {
    name: &'static str,
    usage: &'static str,
    fewest: usize,
    most: usize,
    run: fn(&Arc<Switch>, &[String]) -> Outcome,
}

/// Former names of commands, each with the present name. As in Open vSwitch, they still work, and
/// `list-commands` does not print them.
const FORMER_NAMES: [(&str, &str); 3] = [
    ("bond/set-active-slave", "bond/set-active-member"),
    ("bond/enable-slave", "bond/enable-member"),
    ("bond/disable-slave", "bond/disable-member"),
];

/// Runs a command. Errors have Open vSwitch's wording.
pub(super) fn run(switch: &Arc<Switch>, name: &str, arguments: &[String]) -> Outcome {
    let present = FORMER_NAMES.iter().find(|(former, _)| *former == name);
    let name = present.map_or(name, |(_, present)| *present);
    let Some(command) = all().into_iter().find(|command| command.name == name) else {
        return Err(format!(
            "\"{name}\" is not a valid command (use \"list-commands\" to see a list of valid \
             commands)\n"
        ));
    };
    if arguments.len() < command.fewest {
        return Err(format!("\"{name}\" command requires at least {} arguments\n", command.fewest));
    }
    if arguments.len() > command.most {
        return Err(format!("\"{name}\" command takes at most {} arguments\n", command.most));
    }
    (command.run)(switch, arguments)
}

fn all() -> Vec<Command> {
    let own = [
        Command {
            name: "list-commands",
            usage: "",
            fewest: 0,
            most: 0,
            run: |_, _| Ok(list_commands()),
        },
        Command {
            name: "version",
            usage: "",
            fewest: 0,
            most: 0,
            run: |_, _| Ok(format!("weir-switch {}\n", env!("CARGO_PKG_VERSION"))),
        },
        Command {
            name: "exit",
            usage: "[--cleanup]",
            fewest: 0,
            most: 1,
            run: |switch, _| {
                switch.stop();
                Ok(String::new())
            },
        },
    ];
    let parts = [
        absent::COMMANDS,
        bonds::COMMANDS,
        bridge::COMMANDS,
        conntrack::COMMANDS,
        coverage::COMMANDS,
        datapath::COMMANDS,
        flows::COMMANDS,
        fragments::COMMANDS,
        logs::COMMANDS,
        pmd::COMMANDS,
        qos::COMMANDS,
        settings::COMMANDS,
        time::COMMANDS,
        trace::COMMANDS,
    ];
    let mut commands: Vec<_> = own.into_iter().chain(parts.concat()).collect();
    commands.sort_by_key(|command| command.name);
    commands
}

fn list_commands() -> String {
    let mut text = "The available commands are:\n".to_owned();
    for command in all() {
        let line = format!("  {:<23} {}", command.name, command.usage);
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn bridge(switch: &Switch, name: &str) -> Result<Arc<BridgeState>, String> {
    switch.bridge(name).ok_or_else(|| "no such bridge".to_owned())
}
