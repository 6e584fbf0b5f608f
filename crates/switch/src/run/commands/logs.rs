//! The log's levels.

use std::sync::Arc;

use super::{Command, Outcome};
use crate::run::switch::Switch;

pub(super) const COMMANDS: &[Command] = &[
    Command { name: "vlog/close", usage: "", fewest: 0, most: 0, run: |_, _| Ok(String::new()) },
    Command {
        name: "vlog/disable-rate-limit",
        usage: "[module]...",
        fewest: 0,
        most: usize::MAX,
        run: |_, _| Ok(String::new()),
    },
    Command {
        name: "vlog/enable-rate-limit",
        usage: "[module]...",
        fewest: 0,
        most: usize::MAX,
        run: |_, _| Ok(String::new()),
    },
    Command { name: "vlog/list", usage: "", fewest: 0, most: 0, run: list },
    Command { name: "vlog/reopen", usage: "", fewest: 0, most: 0, run: |_, _| Ok(String::new()) },
    Command {
        name: "vlog/set",
        usage: "{spec | PATTERN:facility:pattern}",
        fewest: 1,
        most: usize::MAX,
        run: set,
    },
];

// There is no log file and no limit on the rate of messages, so that `vlog/close` and the commands
// of the limit have nothing to do.

/// The log goes to standard error alone, which Open vSwitch calls the console.
fn list(switch: &Arc<Switch>, _: &[String]) -> Outcome {
    let level = switch.log_level().to_uppercase();
    Ok(format!(
        "                 console    syslog    file\n                 -------    ------    ------\n\
         {:<16}  {:<8}   OFF        OFF\n",
        "switch",
        if level == "DEBUG" { "DBG".to_owned() } else { level },
    ))
}

/// Takes `LEVEL`, `MODULE:LEVEL` and `MODULE:DESTINATION:LEVEL` in any order, as Open vSwitch does.
/// There is one level for all modules.
fn set(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    for argument in arguments {
        if argument.starts_with("PATTERN:") || argument.starts_with("FACILITY:") {
            continue;
        }
        let mut level = "debug";
        let mut is_console = true;
        for word in argument.split([':', ' ', ',']).filter(|word| !word.is_empty()) {
            match word.to_ascii_lowercase().as_str() {
                "off" => level = "off",
                "emer" | "err" => level = "error",
                "warn" => level = "warn",
                "info" => level = "info",
                "dbg" => level = "debug",
                "syslog" | "file" => is_console = false,
                _ => {}
            }
        }
        if is_console {
            switch.set_log_level(level);
        }
    }
    Ok(String::new())
}
