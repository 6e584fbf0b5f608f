//! Commands for log levels.

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

// `vlog/close` and the commands for rate limits do nothing, because the switch has no log file and
// no rate limit for messages.

/// Lists the levels. The log goes only to standard error, which Open vSwitch calls the console.
fn list(switch: &Arc<Switch>, _: &[String]) -> Outcome {
    Ok(format!(
        "                 console    syslog    file\n                 -------    ------    ------\n\
         {}",
        line(&switch.log_level())
    ))
}

/// Prints a level in Open vSwitch's words and columns.
fn line(level: &str) -> String {
    let level = match level {
        "error" => "ERR",
        "warn" => "WARN",
        "info" => "INFO",
        "debug" => "DBG",
        _ => "OFF",
    };
    format!("{:<16}  {level:>4}       {:>4}       {:>4}\n", "switch", "OFF", "OFF")
}

/// Parses `LEVEL`, `MODULE:LEVEL` and `MODULE:DESTINATION:LEVEL` in any order, as Open vSwitch
/// does. All modules get the same level: the most verbose level in the arguments.
fn set(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    if let Some(level) = chosen_level(arguments) {
        switch.set_log_level(level);
    }
    Ok(String::new())
}

/// The levels, the most verbose last.
const LEVELS: [&str; 5] = ["off", "error", "warn", "info", "debug"];

fn chosen_level(arguments: &[String]) -> Option<&'static str> {
    let mut chosen = None;
    for argument in arguments {
        if argument.starts_with("PATTERN:") || argument.starts_with("FACILITY:") {
            continue;
        }
        let mut level = LEVELS.len() - 1;
        let mut is_console = true;
        for word in argument.split([':', ' ', ',']).filter(|word| !word.is_empty()) {
            match word.to_ascii_lowercase().as_str() {
                "off" => level = 0,
                "emer" | "err" => level = 1,
                "warn" => level = 2,
                "info" => level = 3,
                "dbg" => level = 4,
                "syslog" | "file" => is_console = false,
                _ => {}
            }
        }
        if is_console {
            chosen = chosen.max(Some(level));
        }
    }
    chosen.map(|level| LEVELS[level])
}

#[cfg(test)]
mod tests {
    use super::{chosen_level, line};

    #[test]
    fn vlog_list_prints_levels_in_the_words_and_columns_of_open_vswitch() {
        assert_eq!(line("error"), "switch             ERR        OFF        OFF\n");
        assert_eq!(line("warn"), "switch            WARN        OFF        OFF\n");
        assert_eq!(line("debug"), "switch             DBG        OFF        OFF\n");
    }

    #[test]
    fn vlog_set_chooses_the_most_verbose_level_of_its_arguments() {
        for (text, expected) in [
            ("dbg", Some("debug")),
            ("dpif_netdev", Some("debug")),
            ("dpif_netdev:dbg vconn:info ofproto_dpif:info", Some("debug")),
            ("ANY:console:off", Some("off")),
            ("vconn:warn ofproto:err", Some("warn")),
            ("file:dbg", None),
            ("PATTERN:console:%m", None),
        ] {
            let arguments: Vec<_> = text.split(' ').map(str::to_owned).collect();
            assert_eq!(chosen_level(&arguments), expected, "{text}");
        }
    }
}
