//! Commands for parts of Open vSwitch that the switch does not have. The replies equal the replies
//! of an Open vSwitch in which these parts are not configured.

use super::Command;

const fn empty(name: &'static str, usage: &'static str) -> Command {
    Command { name, usage, fewest: 0, most: 1, run: |_, _| Ok(String::new()) }
}

pub(super) const COMMANDS: &[Command] = &[
    empty("bfd/show", "[interface]"),
    empty("cfm/show", "[interface]"),
    empty("ofproto/list-tunnels", ""),
    empty("rstp/show", "[bridge]"),
    empty("stp/show", "[bridge]"),
    Command {
        name: "mdb/flush",
        usage: "[bridge]",
        fewest: 0,
        most: 1,
        run: |_, arguments| match arguments {
            [] => Ok("table successfully flushed".to_owned()),
            _ => Err("multicast snooping is disabled".to_owned()),
        },
    },
    Command {
        name: "mdb/show",
        usage: "bridge",
        fewest: 1,
        most: 1,
        run: |_, _| Err("multicast snooping is disabled".to_owned()),
    },
];
