//! Commands for the rates and egress queues of ports, as Open vSwitch names them.

use std::fmt::Write as _;
use std::sync::Arc;

use link::Capacity;
use units::Time;

use super::{Command, Outcome};
use crate::run::egress_queues::EgressQueues;
use crate::run::ports::SwitchPort;
use crate::run::switch::Switch;

pub(super) const COMMANDS: &[Command] = &[
    Command { name: "qos/show", usage: "interface", fewest: 1, most: 1, run: show },
    Command { name: "qos/show-types", usage: "interface", fewest: 1, most: 1, run: show_types },
];

/// Returns a port, and the name of its bridge.
fn port(switch: &Switch, name: &str) -> Result<(String, Arc<SwitchPort>), String> {
    let mut bridges = switch.bridges().into_iter();
    let found = bridges.find_map(|bridge| Some((bridge.name.clone(), bridge.port_named(name)?)));
    found.ok_or_else(|| "no such interface".to_owned())
}

fn show(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let (bridge, port) = port(switch, &arguments[0])?;
    let of_database = {
        let settings = switch.settings();
        let bridge = settings.bridge.get(&bridge);
        bridge.and_then(|bridge| bridge.port.get(&port.name)).and_then(|port| port.qos)
    };
    let now = Time::from_nanos(switch.clock.now_ns());
    Ok(text_of(&port, of_database, now))
}

/// Returns the settings of a port as text. `of_database`: the type of the port's QoS in a database.
fn text_of(port: &SwitchPort, of_database: Option<&str>, now: Time) -> String {
    let name = &port.name;
    let settings = &port.settings;
    let queues = port.egress_queues();
    if settings.rate.is_none() && !queues.has_any() {
        return format!("QoS not configured on {name}\n");
    }
    // Types that have their own queueing discipline have no queues.
    let discipline = settings.queue.as_ref().map(|queue| queue.to_string());
    let kind = of_database.unwrap_or_else(|| {
        match discipline.as_deref().and_then(|text| text.split(':').next()) {
            Some("codel") => "linux-codel",
            Some("fq_codel") => "linux-fq_codel",
            _ => "linux-htb",
        }
    });
    let mut text = format!("QoS: {name} {kind}\n");
    write_rate(&mut text, "", settings.rate.as_deref());
    write_queues(&mut text, port, &queues, now);
    text
}

fn write_queues(text: &mut String, port: &SwitchPort, queues: &EgressQueues, now: Time) {
    for counted in port.queue_statistics(now) {
        let _ = match counted.queue {
            0 => write!(text, "\nDefault:\n"),
            number => write!(text, "\nQueue {number}:\n"),
        };
        let rate = queues.get(counted.queue).and_then(|queue| queue.rate.as_deref());
        write_rate(text, "  ", rate);
        let _ = write!(
            text,
            "  tx_packets: {}\n  tx_bytes: {}\n  tx_errors: {}\n",
            counted.sent_packets, counted.sent_bytes, counted.dropped
        );
    }
}

fn write_rate(text: &mut String, indent: &str, rate: Option<&Capacity>) {
    if let Some(rate) = rate.and_then(Capacity::mean_rate) {
        let _ = writeln!(text, "{indent}max-rate: {}", rate.bits_per_second());
    }
}

fn show_types(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let (_, port) = port(switch, &arguments[0])?;
    if matches!(port.settings.kind.as_str(), "internal" | "patch") {
        return Ok(format!("No QoS types supported for interface: {}\n", port.name));
    }
    Ok(TYPES.iter().map(|kind| format!("QoS type: {kind}\n")).collect())
}

/// The types of QoS rows that the switch supports.
const TYPES: [&str; 4] = ["linux-codel", "linux-fq_codel", "linux-hfsc", "linux-htb"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::config::PortConfig;
    use flow::port_number::PortNumber;
    use flow::step::PortIndex;
    use settings::Leaf;

    #[test]
    fn qos_show_prints_the_rate_of_the_port_and_of_each_queue() {
        let mut settings = PortConfig::of_kind("null");
        let text_with = |settings: &PortConfig, of_database: Option<&str>| {
            let (number, index) = (PortNumber(1), PortIndex(1));
            let opened = SwitchPort::open("p1", 0, number, index, settings, Time::ZERO);
            text_of(&opened.unwrap().0, of_database, Time::ZERO)
        };
        let text = |settings: &PortConfig| text_with(settings, None);
        assert_eq!(text(&settings), "QoS not configured on p1\n");
        settings.rate = Some(Leaf("1mbit".parse().unwrap()));
        settings.egress_queue = settings::parse("0 = {}\n7 = { rate = \"500kbit\" }").unwrap();
        assert_eq!(
            text(&settings),
            "QoS: p1 linux-htb\nmax-rate: 1000000\n\nDefault:\n  tx_packets: 0\n  tx_bytes: 0\n  \
             tx_errors: 0\n\nQueue 7:\n  max-rate: 500000\n  tx_packets: 0\n  tx_bytes: 0\n  \
             tx_errors: 0\n"
        );
        settings.queue = Some(Leaf("fq_codel".parse().unwrap()));
        settings.egress_queue = EgressQueues::default();
        assert_eq!(text(&settings), "QoS: p1 linux-fq_codel\nmax-rate: 1000000\n");
        settings.queue = None;
        let of_database = text_with(&settings, Some("linux-hfsc"));
        assert_eq!(of_database, "QoS: p1 linux-hfsc\nmax-rate: 1000000\n");
    }
}
