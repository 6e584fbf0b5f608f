//! Commands for event counters.

use std::fmt::Write;
use std::sync::Arc;

use super::{Command, Outcome};
use crate::run::coverage::Event;
use crate::run::switch::Switch;

pub(super) const COMMANDS: &[Command] = &[
    Command { name: "coverage/read-counter", usage: "COUNTER", fewest: 1, most: 1, run: read },
    Command { name: "coverage/show", usage: "", fewest: 0, most: 0, run: show },
];

fn events(switch: &Switch) -> Vec<Event> {
    switch.count_events();
    let seconds = switch.seconds();
    switch.coverage_mut().events(seconds)
}

fn read(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let event = events(switch).into_iter().find(|event| event.name == arguments[0]);
    event.map(|event| format!("{}\n", event.total)).ok_or_else(|| "No such counter".to_owned())
}

fn show(switch: &Arc<Switch>, _: &[String]) -> Outcome {
    let (hit, never): (Vec<_>, Vec<_>) =
        events(switch).into_iter().partition(|event| event.total > 0);
    let mut text = format!(
        "Event coverage, avg rate over last: 5 seconds, last minute, last hour,  \
         hash={:08x}:\n",
        hash(&hit)
    );
    for Event { name, total, rates: [seconds, minute, hour] } in &hit {
        let _ = writeln!(
            text,
            "{name:<24} {seconds:5.1}/sec {minute:9.3}/sec {hour:13.4}/sec   total: {total}"
        );
    }
    let _ = writeln!(text, "{} events never hit", never.len());
    Ok(text)
}

/// Hashes the set of events that have happened. In logs, different hashes mean different sets.
fn hash(hit: &[Event]) -> u32 {
    let bytes = hit.iter().flat_map(|event| event.name.bytes().chain([0]));
    bytes.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
