//! Rules as `ovs-ofctl dump-flows` prints them.

use std::fmt::Write;
use std::time::Duration;

use flow::request::{FlowEntry, FlowFlags, FlowMod};

use super::action::write_actions;
use super::matching::write_match;
use super::port::PortNames;

/// Prints a line for each rule, without the header that ovs-ofctl prints for OpenFlow's reply.
#[must_use]
pub fn print_dump(entries: &[FlowEntry], names: &PortNames) -> String {
    let mut out = String::new();
    for entry in entries {
        write_entry(&mut out, entry, names);
        out.push('\n');
    }
    out
}

/// Prints ` cookie=0x0, duration=1.234s, table=0, n_packets=0, …, ip actions=NORMAL`.
fn write_entry(out: &mut String, entry: &FlowEntry, names: &PortNames) {
    let _ = write!(out, " cookie=0x{:x}, duration=", entry.cookie);
    write_duration(out, entry.duration);
    let (table, packets, bytes) = (entry.table, entry.packets, entry.bytes);
    let _ = write!(out, ", table={table}, n_packets={packets}, n_bytes={bytes}, ");
    for (name, value) in
        [("idle_timeout", entry.idle_timeout), ("hard_timeout", entry.hard_timeout)]
    {
        if value != 0 {
            let _ = write!(out, "{name}={value}, ");
        }
    }
    write_flags(out, entry.flags);
    if entry.importance != 0 {
        let _ = write!(out, "importance={}, ", entry.importance);
    }
    let _ = write!(out, "idle_age={}, ", entry.idle_age.as_secs());
    if entry.hard_age.as_secs() != entry.duration.as_secs() {
        let _ = write!(out, "hard_age={}, ", entry.hard_age.as_secs());
    }
    write_rule(out, entry.priority, &entry.matching, names);
    out.push_str("actions=");
    write_actions(out, &entry.actions, names);
}

/// Prints the priority, unless it is the default, and the match, each followed by a separator.
fn write_rule(out: &mut String, priority: u16, matching: &flow::Match, names: &PortNames) {
    let start = out.len();
    if priority != FlowMod::DEFAULT_PRIORITY {
        let _ = write!(out, "priority={priority},");
    }
    write_match(out, matching, names);
    if out.len() > start {
        if out.ends_with(',') {
            out.pop();
        }
        out.push(' ');
    }
}

fn write_flags(out: &mut String, flags: FlowFlags) {
    for (is_set, name) in [
        (flags.send_flow_removed, "send_flow_rem "),
        (flags.check_overlap, "check_overlap "),
        (flags.reset_counts, "reset_counts "),
        (flags.no_packet_counts, "no_packet_counts "),
        (flags.no_byte_counts, "no_byte_counts "),
    ] {
        if is_set {
            out.push_str(name);
        }
    }
}

/// Prints `1s`, `1.200s` or, if whole milliseconds are not exact, `1.200000001s`.
fn write_duration(out: &mut String, duration: Duration) {
    let nanoseconds = duration.subsec_nanos();
    let _ = match nanoseconds {
        0 => write!(out, "{}s", duration.as_secs()),
        _ if nanoseconds.is_multiple_of(1_000_000) => {
            write!(out, "{}.{:03}s", duration.as_secs(), duration.subsec_millis())
        }
        _ => write!(out, "{}.{nanoseconds:09}s", duration.as_secs()),
    };
}
