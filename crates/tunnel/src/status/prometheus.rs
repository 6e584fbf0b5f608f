//! The text format of <https://prometheus.io/docs/instrumenting/exposition_formats/>.

use super::{ConnectionStatus, Status};
use std::fmt::Write;
use units::foreign;

pub(super) fn exposition(status: &Status) -> String {
    let mut text = String::new();
    let role = &status.role;
    let mut one = |name: &str, kind: &str, help: &str, value: f64| {
        head(&mut text, name, kind, help);
        let _ = writeln!(text, "weir_tunnel_{name}{{role=\"{role}\"}} {value}");
    };
    one("up_seconds", "gauge", "How long this end has run.", status.up_seconds);
    let ready = f64::from(u8::from(status.is_ready()));
    one("ready", "gauge", "1 if it can carry tunnels now.", ready);
    let expires = status.certificate_expires as f64;
    one("certificate_expires_seconds", "gauge", "Expiry in seconds since 1970.", expires);
    let granted = status.memory_granted as f64;
    one("memory_granted_bytes", "gauge", "Granted to busy connections, of the memory.", granted);
    let held = status.memory_held as f64;
    one("memory_held_bytes", "gauge", "Memory that peers make this end hold.", held);
    let limit = status.memory_limit as f64;
    one("memory_limit_bytes", "gauge", "The memory for what is buffered.", limit);
    let reloads = status.reloads as f64;
    one("reloads_total", "counter", "How often a reload was requested.", reloads);
    let refused = f64::from(u8::from(!status.reload_refused.is_empty()));
    one("reload_refused", "gauge", "1 if the last reload failed.", refused);
    for (name, count) in &status.counters {
        let (name, kind) = match NOW.contains(&name.as_str()) {
            true => (name.clone(), "gauge"),
            false => (format!("{name}_total"), "counter"),
        };
        let help = format!("{} of all connections.", name.replace('_', " "));
        one(&name, kind, &help, *count as f64);
    }
    head(&mut text, "refused_total", "counter", "Requests refused by the rules, by reason.");
    for (reason, count) in &status.refused {
        let reason = label(reason);
        let _ =
            writeln!(text, "weir_tunnel_refused_total{{role=\"{role}\",reason={reason}}} {count}");
    }
    for (name, kind, help, read) in FIGURES {
        head(&mut text, name, kind, help);
        for one in status.connections.iter().filter(|one| !one.remote.is_empty()) {
            let (peer, remote) = (label(&one.peer), label(&one.remote));
            let value = read(one);
            let _ = writeln!(
                text,
                "weir_tunnel_{name}{{role=\"{role}\",peer={peer},remote={remote}}} {value}"
            );
        }
    }
    text
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP weir_tunnel_{name} {help}\n# TYPE weir_tunnel_{name} {kind}");
}

fn label(text: &str) -> String {
    let text = foreign(text).to_string().replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{text}\"")
}

type Figure = (&'static str, &'static str, &'static str, fn(&ConnectionStatus) -> f64);

/// Counters that can decrease too, exposed as gauges.
const NOW: [&str; 2] = ["tunnels", "listeners"];
const FIGURES: [Figure; 15] = [
    ("connection_tunnels", "gauge", "Tunnels on it now.", |one| one.tunnels as f64),
    ("connection_rtt_seconds", "gauge", "Its round-trip time.", |one| one.rtt_seconds),
    ("connection_min_rtt_seconds", "gauge", "Its recent minimum RTT.", |one| one.min_rtt_seconds),
    ("connection_cwnd_bytes", "gauge", "Its congestion window.", |one| one.cwnd as f64),
    ("connection_inflight_bytes", "gauge", "Bytes in flight.", |one| one.inflight as f64),
    ("connection_pacing_bits_per_second", "gauge", "What congestion control allows.", |one| {
        one.pacing_rate as f64
    }),
    (
        "connection_delivery_bits_per_second",
        "gauge",
        "Delivery rate when not app-limited.",
        |one| one.delivery_rate as f64,
    ),
    ("connection_mtu_bytes", "gauge", "Its largest packet.", |one| one.mtu as f64),
    ("connection_sent_bytes_total", "counter", "In UDP payload.", |one| one.sent as f64),
    ("connection_received_bytes_total", "counter", "In UDP payload.", |one| one.received as f64),
    ("connection_packets_sent_total", "counter", "Packets sent.", |one| one.packets_sent as f64),
    ("connection_packets_lost_total", "counter", "Packets lost.", |one| one.packets_lost as f64),
    ("connection_packets_late_total", "counter", "Packets that arrived late.", |one| {
        one.packets_late as f64
    }),
    ("connection_lost_ratio", "gauge", "Lost packets by sent.", |one| one.loss_percent() / 100.0),
    ("connection_path_loss_ratio", "gauge", "The path's estimated random loss.", |one| {
        one.path_loss
    }),
];

#[cfg(test)]
mod tests {
    use super::super::tests::status;
    use super::*;

    #[test]
    fn every_line_follows_the_format() {
        let mut status = status();
        status.connections[0].peer = "a\"b\\c\nd\x1b[2J".to_owned();
        let text = exposition(&status);
        assert!(text.contains(r#"peer="a\"b\\c\\nd\\x1b[2J""#), "{text}");
        assert!(text.contains("weir_tunnel_bytes_in_total{role=\"server\"} 7\n"), "{text}");
        assert!(text.contains("reason=\"not-listed\"} 2\n"), "{text}");
        let mut named = std::collections::HashSet::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                assert!(named.insert(rest.split(' ').next().unwrap().to_owned()), "{line}");
            } else if !line.starts_with("# HELP ") {
                let (name, rest) = line.split_once('{').unwrap();
                assert!(named.contains(name), "{line}");
                rest.rsplit_once("} ").unwrap().1.parse::<f64>().unwrap();
            }
        }
    }
}
