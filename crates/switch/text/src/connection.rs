//! Tracked connections as `ovs-appctl dpctl/dump-conntrack` prints them.

use std::fmt::Write;

use flow::connection::Connection;

use super::datapath::write_address;

/// Prints `udp,orig=(src=10.0.0.1,dst=10.0.0.2,sport=1,dport=2),reply=(…)`.
#[must_use]
pub fn print_connection(connection: &Connection) -> String {
    let mut out = match connection.protocol {
        1 => String::from("icmp"),
        6 => String::from("tcp"),
        17 => String::from("udp"),
        58 => String::from("icmpv6"),
        132 => String::from("sctp"),
        number => number.to_string(),
    };
    let is_icmp = matches!(connection.protocol, 1 | 58);
    for (name, tuple) in [("orig", &connection.original), ("reply", &connection.reply)] {
        let _ = write!(out, ",{name}=(src=");
        write_address(&mut out, tuple.source);
        out.push_str(",dst=");
        write_address(&mut out, tuple.destination);
        if is_icmp {
            let [kind, code] = tuple.destination_port.to_be_bytes();
            let _ = write!(out, ",id={},type={kind},code={code})", tuple.source_port);
        } else {
            let (source, destination) = (tuple.source_port, tuple.destination_port);
            let _ = write!(out, ",sport={source},dport={destination})");
        }
    }
    if connection.zone != 0 {
        let _ = write!(out, ",zone={}", connection.zone);
    }
    if connection.mark != 0 {
        let _ = write!(out, ",mark={}", connection.mark);
    }
    if connection.labels != 0 {
        let _ = write!(out, ",labels={:#x}", connection.labels);
    }
    if let Some(state) = connection.state {
        let _ = write!(out, ",protoinfo=(state={state})");
    }
    if let Some(helper) = connection.helper {
        let _ = write!(out, ",helper={helper}");
    }
    out
}
