use super::client::Running;
use crate::exit::Ending;
use crate::output::print;
use crate::signals::cancel_on_signals;
use anyhow::Context;
use clap::Args;
use serde_json::Value;
use std::fmt::Write;
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use units::foreign;

#[derive(Debug, Args)]
pub(crate) struct Top {
    /// Seconds between two views
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    interval: f64,
    /// End after this many views [default: Ctrl-C ends it]
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Print one JSON document for each view, in a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    running: Running,
}

pub(crate) fn run(arguments: &Top) -> anyhow::Result<Ending> {
    let interval = Duration::try_from_secs_f64(arguments.interval).ok();
    let interval = interval.filter(|interval| (0.05..=3600.0).contains(&interval.as_secs_f64()));
    let interval = interval.ok_or_else(|| {
        switch::run::ConfigError::Value("--interval takes 0.05 to 3600 seconds".to_owned())
    })?;
    let cancel = cancel_on_signals()?;
    let stop = cancel.flag();
    let mut before = status(&arguments.running)?;
    let mut began = Instant::now();
    let mut views = 0;
    loop {
        while began.elapsed() < interval {
            if stop.load(std::sync::atomic::Ordering::Relaxed) {
                return Ok(Ending::Fine);
            }
            std::thread::sleep(Duration::from_millis(20).min(interval));
        }
        let seconds = began.elapsed().as_secs_f64();
        began = Instant::now();
        let now = status(&arguments.running)?;
        let view = View::between(&before, &now, seconds);
        if arguments.json {
            print(format_args!("{}\n", view.json()))?;
        } else {
            let clear = if std::io::stdout().is_terminal() { "\x1b[H\x1b[2J" } else { "" };
            print(format_args!("{clear}{}", view.text()))?;
        }
        before = now;
        views += 1;
        if arguments.count == Some(views) {
            return Ok(Ending::Fine);
        }
    }
}

fn status(running: &Running) -> anyhow::Result<Value> {
    let text = running.call("switch/status", &[])?;
    serde_json::from_str(&text).context("the switch sent a malformed status; is it older?")
}

/// The rates between two readings of a switch's counters.
struct View {
    ports: Vec<PortView>,
    threads: Vec<ThreadView>,
    now: Value,
}

struct PortView {
    bridge: String,
    name: String,
    state: String,
    received: f64,
    sent: f64,
    dropped: f64,
}

struct ThreadView {
    name: String,
    packets: f64,
    busy_percent: f64,
    cycles_per_packet: f64,
    hit_percent: f64,
    upcalls: f64,
}

impl View {
    fn between(before: &Value, now: &Value, seconds: f64) -> Self {
        let mut ports = Vec::new();
        for (bridge, name, port) in all_ports(now) {
            let former = all_ports(before).into_iter().find(|(b, n, _)| (b, n) == (&bridge, &name));
            let former = former.map_or(Value::Null, |(_, _, port)| port);
            let rate = |key: &str| difference(&former, &port, key) / seconds;
            ports.push(PortView {
                state: text(&port, "state"),
                received: rate("received_packets"),
                sent: rate("sent_packets"),
                dropped: rate("sent_dropped"),
                bridge,
                name,
            });
        }
        let mut threads = Vec::new();
        for thread in list(now, "threads") {
            let name = text(&thread, "name");
            let former = list(before, "threads").into_iter().find(|old| text(old, "name") == name);
            let former = former.unwrap_or(Value::Null);
            let more = |key: &str| difference(&former, &thread, key);
            let packets = more("received");
            let (busy, idle) = (more("busy_cycles"), more("idle_cycles"));
            let (hits, upcalls) = (more("megaflow_hits"), more("upcalls"));
            let percent =
                |part: f64, whole: f64| if whole > 0.0 { 100.0 * part / whole } else { 0.0 };
            threads.push(ThreadView {
                name,
                packets: packets / seconds,
                busy_percent: percent(busy, busy + idle),
                cycles_per_packet: if packets > 0.0 { busy / packets } else { 0.0 },
                hit_percent: percent(hits, hits + upcalls),
                upcalls: upcalls / seconds,
            });
        }
        Self { ports, threads, now: now.clone() }
    }

    fn text(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(
            out,
            "{:<20} {:<5} {:>12} {:>12} {:>12}",
            "port", "state", "rx pkt/s", "tx pkt/s", "drop pkt/s"
        );
        for port in &self.ports {
            let name = format!("{}:{}", port.bridge, port.name);
            let _ = writeln!(
                out,
                "{:<20} {:<5} {:>12.0} {:>12.0} {:>12.0}",
                foreign(&name).to_string(),
                foreign(&port.state).to_string(),
                port.received,
                port.sent,
                port.dropped
            );
        }
        let _ = writeln!(
            out,
            "\n{:<20} {:>5} {:>12} {:>12} {:>7} {:>12}",
            "thread", "busy", "pkt/s", "cycles/pkt", "hits", "upcalls/s"
        );
        for thread in &self.threads {
            let _ = writeln!(
                out,
                "{:<20} {:>4.0}% {:>12.0} {:>12.1} {:>6.1}% {:>12.0}",
                foreign(&thread.name).to_string(),
                thread.busy_percent,
                thread.packets,
                thread.cycles_per_packet,
                thread.hit_percent,
                thread.upcalls
            );
        }
        let _ = writeln!(
            out,
            "\nmegaflows {}   connections {}   rules {}",
            self.now["megaflows"], self.now["connections"], self.now["rules"]
        );
        out
    }

    fn json(&self) -> Value {
        let port = |port: &PortView| {
            serde_json::json!({
                "bridge": port.bridge, "name": port.name, "state": port.state,
                "received_pps": port.received, "sent_pps": port.sent, "dropped_pps": port.dropped,
            })
        };
        let thread = |thread: &ThreadView| {
            serde_json::json!({
                "name": thread.name, "pps": thread.packets, "busy_percent": thread.busy_percent,
                "cycles_per_packet": thread.cycles_per_packet, "hit_percent": thread.hit_percent,
                "upcalls_per_second": thread.upcalls,
            })
        };
        serde_json::json!({
            "ports": self.ports.iter().map(port).collect::<Vec<_>>(),
            "threads": self.threads.iter().map(thread).collect::<Vec<_>>(),
            "megaflows": self.now["megaflows"],
            "connections": self.now["connections"],
            "rules": self.now["rules"],
        })
    }
}

fn list(value: &Value, key: &str) -> Vec<Value> {
    value[key].as_array().cloned().unwrap_or_default()
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

fn all_ports(status: &Value) -> Vec<(String, String, Value)> {
    let of_bridge = |bridge: Value| {
        let name = text(&bridge, "name");
        let ports = list(&bridge, "ports").into_iter();
        ports.map(move |port| (name.clone(), text(&port, "name"), port)).collect::<Vec<_>>()
    };
    list(status, "bridges").into_iter().flat_map(of_bridge).collect()
}

/// Returns the growth of a counter. A counter that was reset counts from zero.
fn difference(before: &Value, now: &Value, key: &str) -> f64 {
    let (before, now) = (before[key].as_f64().unwrap_or(0.0), now[key].as_f64().unwrap_or(0.0));
    if now >= before { now - before } else { now }
}

pub(super) const EXAMPLES: &str = "\
Examples:
  weir switch top
  weir switch top --json --count 10 --interval 0.5";
