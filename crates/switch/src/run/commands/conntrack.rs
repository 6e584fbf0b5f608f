//! Commands for tracked connections.

use std::fmt::Write;
use std::net::IpAddr;
use std::sync::Arc;

use datapath::conntrack::{Conntrack, Counts};
use flow::connection::TupleMatch;
use text::print_connection;
use units::Time;

use super::datapath::is_datapath;
use super::{Command, Outcome};
use crate::run::switch::Switch;

pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "dpctl/ct-del-limits",
        usage: "[dp] zone=N1[,N2]...",
        fewest: 1,
        most: 2,
        run: delete_limits,
    },
    Command {
        name: "dpctl/ct-disable-tcp-seq-chk",
        usage: "[dp]",
        fewest: 0,
        most: 1,
        run: |switch, _| {
            switch.conntrack().set_checks_tcp_sequence(false);
            Ok("disabling TCP sequence checking successful\n".to_owned())
        },
    },
    Command {
        name: "dpctl/ct-enable-tcp-seq-chk",
        usage: "[dp]",
        fewest: 0,
        most: 1,
        run: |switch, _| {
            switch.conntrack().set_checks_tcp_sequence(true);
            Ok("enabling TCP sequence checking successful\n".to_owned())
        },
    },
    Command {
        name: "dpctl/ct-get-limits",
        usage: "[dp] [zone=N1[,N2]...]",
        fewest: 0,
        most: 2,
        run: limits,
    },
    Command {
        name: "dpctl/ct-get-maxconns",
        usage: "[dp]",
        fewest: 0,
        most: 1,
        run: |switch, arguments| {
            of_datapath(arguments, 1)?;
            Ok(format!("{}\n", switch.conntrack().max_connections()))
        },
    },
    Command {
        name: "dpctl/ct-get-nconns",
        usage: "[dp]",
        fewest: 0,
        most: 1,
        run: |switch, arguments| {
            of_datapath(arguments, 1)?;
            Ok(format!("{}\n", switch.conntrack().connections()))
        },
    },
    Command {
        name: "dpctl/ct-get-tcp-seq-chk",
        usage: "[dp]",
        fewest: 0,
        most: 1,
        run: |switch, _| {
            let checks = switch.conntrack().checks_tcp_sequence();
            let state = if checks { "enabled" } else { "disabled" };
            Ok(format!("TCP sequence checking: {state}\n"))
        },
    },
    Command {
        name: "dpctl/ct-set-limits",
        usage: "[dp] [default=L] [zone=N,limit=L]...",
        fewest: 1,
        most: usize::MAX,
        run: set_limits,
    },
    Command {
        name: "dpctl/ct-set-maxconns",
        usage: "[dp] maxconns",
        fewest: 1,
        most: 2,
        run: set_most,
    },
    Command {
        name: "dpctl/ct-stats-show",
        usage: "[dp] [zone=N] [verbose]",
        fewest: 0,
        most: 3,
        run: statistics,
    },
    Command {
        name: "dpctl/dump-conntrack",
        usage: "[-m] [-s] [dp] [zone=N]",
        fewest: 0,
        most: 4,
        run: dump,
    },
    Command {
        name: "dpctl/flush-conntrack",
        usage: "[dp] [zone=N] [ct-origin-tuple] [ct-reply-tuple]",
        fewest: 0,
        most: 4,
        run: flush,
    },
];

/// Returns the arguments after the optional datapath name. If there are `most` arguments, the first
/// must be the name.
fn of_datapath(arguments: &[String], most: usize) -> Result<&[String], String> {
    match arguments.first() {
        Some(first) if is_datapath(first) => Ok(&arguments[1..]),
        _ if arguments.len() == most => Err("datapath not found (Invalid argument)".to_owned()),
        _ => Ok(arguments),
    }
}

/// Returns the arguments after the datapath name, if there is a name.
fn behind_name(arguments: &[String]) -> &[String] {
    match arguments.first() {
        Some(first) if first.contains('@') || is_datapath(first) => &arguments[1..],
        _ => arguments,
    }
}

fn zone(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| format!("{text}: invalid zone"))
}

/// Parses the zone in an argument `zone=N`.
fn chosen_zone(arguments: &[String]) -> Result<Option<u16>, String> {
    let text = arguments.iter().find_map(|argument| argument.strip_prefix("zone="));
    text.map(zone).transpose()
}

fn now(switch: &Switch) -> Time {
    Time::from_nanos(switch.clock.now_ns())
}

fn dump(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let zone = chosen_zone(arguments)?;
    let with_timeout = arguments.iter().any(|argument| argument == "-s");
    let mut text = String::new();
    switch.conntrack().dump(zone, now(switch), |connection, left| {
        text.push_str(&print_connection(connection));
        if with_timeout {
            let _ = write!(text, ",timeout={}", left.nanos() / 1_000_000_000);
        }
        text.push('\n');
    });
    Ok(text)
}

fn flush(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let arguments = behind_name(arguments);
    let zone = chosen_zone(arguments)?;
    let tuples: Vec<_> =
        arguments.iter().filter(|argument| !argument.starts_with("zone=")).collect();
    let (original, reply) = match tuples.as_slice() {
        [] => (TupleMatch::default(), TupleMatch::default()),
        [original] => (tuple(original)?, TupleMatch::default()),
        [original, reply, ..] => (tuple(original)?, tuple(reply)?),
    };
    if original == TupleMatch::default() && reply == TupleMatch::default() {
        switch.conntrack().flush(zone);
    } else {
        let removed = switch.conntrack().flush_tuples(zone, &original, &reply);
        if removed == 0 && original.names_connection() && reply == TupleMatch::default() {
            return Err("failed to flush conntrack (No such file or directory)".to_owned());
        }
    }
    Ok(String::new())
}

/// Parses `ct_nw_src=10.0.0.1,ct_nw_proto=6,ct_tp_dst=80`.
fn tuple(text: &str) -> Result<TupleMatch, String> {
    let mut tuple = TupleMatch::default();
    for part in text.trim_matches(['\'', '"']).split(',').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').ok_or_else(|| format!("{part}: no value"))?;
        let wrong = || format!("{part}: failed to parse field {name}");
        let address = || value.parse::<IpAddr>().map(Some).map_err(|_| wrong());
        let byte = || value.parse::<u8>().map(Some).map_err(|_| wrong());
        let port = || value.parse::<u16>().map(Some).map_err(|_| wrong());
        match name {
            "ct_nw_src" | "ct_ipv6_src" => tuple.source = address()?,
            "ct_nw_dst" | "ct_ipv6_dst" => tuple.destination = address()?,
            "ct_nw_proto" => tuple.protocol = byte()?,
            "ct_tp_src" => tuple.source_port = port()?,
            "ct_tp_dst" => tuple.destination_port = port()?,
            "icmp_id" => tuple.icmp_id = port()?,
            "icmp_type" => tuple.icmp_type = byte()?,
            "icmp_code" => tuple.icmp_code = byte()?,
            _ => return Err(format!("invalid conntrack tuple field: {name}")),
        }
    }
    Ok(tuple)
}

fn statistics(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let is_verbose = arguments.iter().any(|argument| argument == "verbose");
    let counts = switch.conntrack().counts(chosen_zone(arguments)?, now(switch));
    Ok(print_counts(&counts, is_verbose))
}

fn print_counts(counts: &Counts, is_verbose: bool) -> String {
    let mut text = format!("Connections Stats:\n    Total: {}\n", counts.total);
    if counts.tcp > 0 {
        let _ = writeln!(text, "  TCP: {}", counts.tcp);
        if is_verbose {
            text.push_str("    Conn per TCP states:\n");
            for (state, count) in &counts.tcp_states {
                let _ = writeln!(text, "\t  [{state}]={count}");
            }
        }
    }
    for (name, count) in [
        ("UDP", counts.udp),
        ("SCTP", counts.sctp),
        ("ICMP", counts.icmp),
        ("ICMPV6", counts.icmpv6),
        ("Other", counts.other),
    ] {
        if count > 0 {
            let _ = writeln!(text, "  {name}: {count}");
        }
    }
    text
}

fn set_most(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let number = of_datapath(arguments, 2)?.first().and_then(|text| text.parse().ok());
    let number = number.ok_or("maxconns missing or malformed (Invalid argument)")?;
    switch.conntrack().set_max_connections(number);
    Ok("setting maxconns successful\n".to_owned())
}

fn set_limits(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let conntrack: &Conntrack = switch.conntrack();
    for argument in behind_name(arguments) {
        if let Some(limit) = argument.strip_prefix("default=") {
            let limit = limit.parse().map_err(|_| "invalid default limit".to_owned())?;
            conntrack.set_default_zone_limit(limit);
            continue;
        }
        let pair = argument.strip_prefix("zone=").and_then(|rest| rest.split_once(",limit="));
        let (number, limit) = pair.ok_or_else(|| format!("{argument}: invalid zone limit"))?;
        let limit = limit.parse().map_err(|_| format!("{argument}: invalid limit"))?;
        conntrack.set_zone_limit(zone(number)?, limit);
    }
    Ok(String::new())
}

/// Parses the zones in an argument `zone=1,2`.
fn zones(arguments: &[String]) -> Result<Option<Vec<u16>>, String> {
    let text = arguments.iter().find_map(|argument| argument.strip_prefix("zone="));
    text.map(|text| text.split(',').map(zone).collect()).transpose()
}

fn delete_limits(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let zones = zones(arguments)?.ok_or("no zones: write zone=1,2")?;
    zones.iter().for_each(|zone| switch.conntrack().remove_zone_limit(*zone));
    Ok(String::new())
}

fn limits(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let conntrack: &Conntrack = switch.conntrack();
    let mut text = format!("default limit={}\n", conntrack.default_zone_limit());
    let shown = match zones(arguments)? {
        Some(zones) => zones.iter().map(|zone| conntrack.zone_limit(*zone)).collect(),
        None => conntrack.zone_limits(),
    };
    for limit in shown {
        let _ = writeln!(text, "zone={},limit={},count={}", limit.zone, limit.limit, limit.count);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_takes_the_name_of_the_datapath_with_or_without_its_type() {
        for name in ["netdev@ovs-netdev", "ovs-netdev", "system@ovs-system", "ovs-system"] {
            let arguments = [name.to_owned(), "zone=1".to_owned()];
            assert_eq!(behind_name(&arguments), &arguments[1..], "{name}");
        }
        let arguments = ["zone=1".to_owned()];
        assert_eq!(behind_name(&arguments), arguments);
    }

    #[test]
    fn connection_counts_have_the_indentation_of_open_vswitch() {
        let tcp_states = vec![("ESTABLISHED", 1)];
        let counts = Counts { total: 3, tcp: 1, icmp: 2, tcp_states, ..Counts::default() };
        let expected = "Connections Stats:\n    Total: 3\n  TCP: 1\n    Conn per TCP states:\n\t  \
                        [ESTABLISHED]=1\n  ICMP: 2\n";
        assert_eq!(print_counts(&counts, true), expected);
    }
}
