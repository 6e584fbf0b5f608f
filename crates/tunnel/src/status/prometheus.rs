//! Writes the status in Prometheus's text format:
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>.

use super::{AccountStatus, ConnectionStatus, Status};
use crate::counters::Counted;
use std::fmt::Write;
use units::foreign;

pub(super) fn exposition(status: &Status) -> String {
    let mut text = String::new();
    let role = &status.role;
    let mut one = |name: &str, kind: &str, help: &str, value: f64| {
        head(&mut text, name, kind, help);
        let _ = writeln!(text, "weir_tunnel_{name}{{role=\"{role}\"}} {value}");
    };
    one("up_seconds", "gauge", "This end has run for this many seconds.", status.up_seconds);
    let ready = f64::from(u8::from(status.is_ready()));
    one("ready", "gauge", "The value is 1 if this end can carry tunnels now.", ready);
    let expires = status.certificate_expires as f64;
    let help = "The certificate expires at this time, in seconds since 1970.";
    one("certificate_expires_seconds", "gauge", help, expires);
    let granted = status.memory_granted as f64;
    let help = "Busy connections may hold this much of the memory.";
    one("memory_granted_bytes", "gauge", help, granted);
    let held = status.memory_held as f64;
    one("memory_held_bytes", "gauge", "Peers make this end hold this much memory.", held);
    let limit = status.memory_limit as f64;
    one("memory_limit_bytes", "gauge", "All buffers together may hold this much memory.", limit);
    let reloads = status.reloads as f64;
    one("reloads_total", "counter", "A reload was requested this many times.", reloads);
    let refused = f64::from(u8::from(!status.reload_refused.is_empty()));
    one("reload_refused", "gauge", "The value is 1 if the last reload failed.", refused);
    for (name, count) in &status.counters {
        let (exposed, kind) = match NOW.contains(&name.as_str()) {
            true => (name.clone(), "gauge"),
            false => (format!("{name}_total"), "counter"),
        };
        one(&exposed, kind, described(name), *count as f64);
    }
    let rules = "The rules have refused this many requests for this reason.";
    head(&mut text, "refused_total", "counter", rules);
    for (reason, count) in &status.refused {
        let reason = label(reason);
        let _ =
            writeln!(text, "weir_tunnel_refused_total{{role=\"{role}\",reason={reason}}} {count}");
    }
    for (name, kind, help, read) in FIGURES {
        head(&mut text, name, kind, help);
        for one in status.connections.iter().filter(|one| !one.remote.is_empty()) {
            // Do not use addresses and ports of peers as labels, because each reconnect would begin
            // a new series.
            let (peer, number, value) = (label(&one.peer), one.number, read(one));
            let _ = writeln!(
                text,
                "weir_tunnel_{name}{{role=\"{role}\",peer={peer},connection=\"{number}\"}} {value}"
            );
        }
    }
    for (name, kind, help, read) in ACCOUNT_FIGURES {
        head(&mut text, name, kind, help);
        for (one, value) in status.accounts.iter().filter_map(|one| Some((one, read(one)?))) {
            let peer = label(&one.peer);
            let _ = writeln!(text, "weir_tunnel_{name}{{role=\"{role}\",peer={peer}}} {value}");
        }
    }
    text
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP weir_tunnel_{name} {help}\n# TYPE weir_tunnel_{name} {kind}");
}

fn described(counter: &str) -> &'static str {
    let known = Counted::HELP.iter().find(|(name, _)| *name == counter);
    known.map_or("An end of another version counts this.", |(_, help)| help.trim())
}

fn label(text: &str) -> String {
    let text = foreign(text).to_string().replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{text}\"")
}

type Figure = (&'static str, &'static str, &'static str, fn(&ConnectionStatus) -> f64);

/// A metric of an account. The function returns `None` for a limit that the account does not have.
type AccountFigure = (&'static str, &'static str, &'static str, fn(&AccountStatus) -> Option<u64>);

const ACCOUNT_FIGURES: [AccountFigure; 7] = [
    ("peer_bytes_in_total", "counter", "Tunnels of this identity took out this much.", |one| {
        Some(one.bytes_in)
    }),
    ("peer_bytes_out_total", "counter", "Tunnels of this identity took in this much.", |one| {
        Some(one.bytes_out)
    }),
    ("peer_sessions", "gauge", "This identity has this many connections.", |one| {
        Some(one.sessions)
    }),
    ("peer_sessions_limit", "gauge", "This identity may have this many connections.", |one| {
        limit(one.sessions_limit)
    }),
    ("peer_rate_limit_bits_per_second", "gauge", "Each direction may have this rate.", |one| {
        limit(one.rate_limit)
    }),
    (
        "peer_quota_used_bytes",
        "gauge",
        "This identity has carried this much in the period.",
        |one| limit(one.quota).map(|_| one.quota_used),
    ),
    ("peer_quota_bytes", "gauge", "This identity may carry this much in the period.", |one| {
        limit(one.quota)
    }),
];

fn limit(limit: u64) -> Option<u64> {
    (limit > 0).then_some(limit)
}

/// Counters that can also decrease. Prometheus gets these counters as gauges.
const NOW: [&str; 2] = ["tunnels", "listeners"];
const FIGURES: [Figure; 15] = [
    ("connection_tunnels", "gauge", "The connection carries this many tunnels now.", |one| {
        one.tunnels as f64
    }),
    ("connection_rtt_seconds", "gauge", "A round trip takes this long now.", |one| one.rtt_seconds),
    (
        "connection_min_rtt_seconds",
        "gauge",
        "The shortest recent round trip took this long.",
        |one| one.min_rtt_seconds,
    ),
    ("connection_cwnd_bytes", "gauge", "The congestion window has this size.", |one| {
        one.cwnd as f64
    }),
    ("connection_inflight_bytes", "gauge", "This many bytes are in flight.", |one| {
        one.inflight as f64
    }),
    ("connection_pacing_bits_per_second", "gauge", "Congestion control allows this rate.", |one| {
        one.pacing_rate as f64
    }),
    (
        "connection_delivery_bits_per_second",
        "gauge",
        "The path delivered this rate when the application was not the limit.",
        |one| one.delivery_rate as f64,
    ),
    ("connection_mtu_bytes", "gauge", "The largest packet has this size.", |one| one.mtu as f64),
    ("connection_sent_bytes_total", "counter", "This end has sent this much UDP payload.", |one| {
        one.sent as f64
    }),
    (
        "connection_received_bytes_total",
        "counter",
        "This end has received this much UDP payload.",
        |one| one.received as f64,
    ),
    ("connection_packets_sent_total", "counter", "This end has sent this many packets.", |one| {
        one.packets_sent as f64
    }),
    (
        "connection_packets_lost_total",
        "counter",
        "The path has lost this many packets of this end.",
        |one| one.packets_lost as f64,
    ),
    (
        "connection_packets_late_total",
        "counter",
        "This many packets arrived after packets with a higher number.",
        |one| one.packets_late as f64,
    ),
    (
        "connection_lost_ratio",
        "gauge",
        "The path has lost this share of the packets sent.",
        |one| one.loss_percent() / 100.0,
    ),
    (
        "connection_path_loss_ratio",
        "gauge",
        "The path loses this share of packets at random, by the estimate of congestion control.",
        |one| one.path_loss,
    ),
];

#[cfg(test)]
mod tests {
    use super::super::tests::status;
    use super::*;

    #[test]
    fn the_dashboard_and_the_alerts_use_metrics_that_exist() {
        let text = exposition(&status());
        for file in [
            include_str!("../../../../packaging/grafana/weir-tunnel.json"),
            include_str!("../../../../packaging/grafana/alerts.yml"),
        ] {
            let names = file.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let used: Vec<_> = names.filter(|name| name.starts_with("weir_tunnel_")).collect();
            assert!(used.len() > 2);
            for name in used {
                assert!(text.contains(&format!("# TYPE {name} ")), "{name}");
            }
        }
    }

    #[test]
    fn every_line_follows_the_prometheus_text_format() {
        let mut status = status();
        status.connections[0].peer = "a\"b\\c\nd\x1b[2J".to_owned();
        let text = exposition(&status);
        assert!(text.contains(r#"peer="a\"b\\c\\nd\\x1b[2J""#), "{text}");
        assert!(text.contains("weir_tunnel_bytes_in_total{role=\"server\"} 7\n"), "{text}");
        assert!(text.contains("reason=\"not-listed\"} 2\n"), "{text}");
        let quota = "weir_tunnel_peer_quota_bytes{role=\"server\",peer=\"laptop\"} 100000000000\n";
        assert!(text.contains(quota) && !text.contains("peer_sessions_limit{"), "{text}");
        let mut named = std::collections::HashSet::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                assert!(named.insert(rest.split(' ').next().unwrap().to_owned()), "{line}");
            } else if let Some(rest) = line.strip_prefix("# HELP ") {
                assert!(is_sentence(rest.split_once(' ').unwrap().1), "{line}");
            } else {
                let (name, rest) = line.split_once('{').unwrap();
                assert!(named.contains(name), "{line}");
                rest.rsplit_once("} ").unwrap().1.parse::<f64>().unwrap();
            }
        }
    }
    /// Whether the text begins with a capital, has a verb and ends with a full stop.
    fn is_sentence(text: &str) -> bool {
        let words: Vec<_> = text.trim_end_matches('.').split([' ', ',']).collect();
        text.starts_with(char::is_uppercase)
            && text.ends_with('.')
            && VERBS.split(' ').any(|verb| words.contains(&verb))
    }

    #[test]
    fn every_counter_is_described_and_reconnects_begin_no_new_series() {
        let counters = serde_json::to_value(Counted::default()).unwrap();
        let names: Vec<_> = counters.as_object().unwrap().keys().cloned().collect();
        let series = |remote: &str| {
            let mut status = status();
            status.counters = names.iter().map(|name| (name.clone(), 1)).collect();
            status.connections[0].remote = remote.to_owned();
            let text = exposition(&status);
            assert!(!text.contains("An end of another version"), "{text}");
            let names = text.lines().filter(|line| !line.starts_with('#'));
            names.map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(series("192.0.2.1:5555"), series("198.51.100.7:1024"));
        for help in Counted::HELP.iter().map(|(_, help)| help.trim()) {
            assert!(is_sentence(help), "{help}");
        }
    }

    const VERBS: &str = "is are was were has have had may expires make arrived takes took carries \
                         came went ended allows delivered loses";
}
