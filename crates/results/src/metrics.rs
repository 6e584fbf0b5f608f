//! The registry of metrics: the names of `results.json`, their units and their meaning.

use stats::Direction;

/// A metric's label, its unit and its direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meaning {
    /// Label for a table or a chart, `Simulated: goodput` for example.
    pub label: String,
    /// Unit of the values, such as `Mbit/s`; empty for a ratio, a count or an unknown metric.
    pub unit: &'static str,
    /// Whether more or less of the metric is better; `None` for a metric without a better
    /// direction.
    pub direction: Option<Direction>,
}

/// Returns the meaning of any name. The label of an unknown name is the name itself.
pub fn meaning(name: &str) -> Meaning {
    let (family, part) = name.split_once('.').unwrap_or((name, ""));
    if family == SIMULATED && !part.is_empty() {
        let Meaning { label, unit, .. } = meaning(part);
        let label = format!("Simulated: {}", label.to_lowercase());
        return Meaning { label, unit, direction: None };
    }
    if OWN.contains(&family) && !part.is_empty() {
        let direction = line(family).and_then(|line| line.3);
        return Meaning { label: part.replace('_', " "), unit: "", direction };
    }
    let (label, unit, direction) = match line(family) {
        Some(&(_, _, unit, direction, label)) => (label.to_owned(), unit, direction),
        None => (family.replace('_', " "), "", None),
    };
    Meaning {
        label: if part.is_empty() { label } else { format!("{label} {part}") },
        unit,
        direction,
    }
}

/// Returns the direction in which a metric is better; `None` for a metric without a better
/// direction.
pub fn direction(name: &str) -> Option<Direction> {
    meaning(name).direction
}

/// Whether the registry has the metric, or the family that it is a part of.
pub fn is_registered(name: &str) -> bool {
    let name = name.strip_prefix(SIMULATED).and_then(|rest| rest.strip_prefix('.')).unwrap_or(name);
    line(name.split('.').next().unwrap_or(name)).is_some()
}

/// Returns the names that a lab file may use, in the registry's order.
pub fn names() -> Vec<String> {
    let parts = REGISTRY.iter().flat_map(|(family, parts, ..)| {
        parts.iter().map(move |part| match *part {
            "" => (*family).to_owned(),
            part => format!("{family}.{part}"),
        })
    });
    parts.chain(SIMULATIONS.iter().map(|name| format!("{SIMULATED}.{name}"))).collect()
}

/// Whether a repeat's value is 1 if a condition held and 0 if not.
pub fn is_proportion(name: &str) -> bool {
    let family = name.split('.').next().unwrap_or(name);
    PROPORTIONS.contains(&family)
}

/// Whether the metric is a cost of the measurement.
pub fn is_cpu(name: &str) -> bool {
    name.starts_with("cpu_")
}

fn line(family: &str) -> Option<&'static Line> {
    REGISTRY.iter().find(|(known, ..)| *known == family)
}

/// A metric or a family of metrics: its name, the names that a lab file may use (`""` for the
/// metric itself, `p50` for `NAME.p50`), its unit, its direction and its label.
type Line = (&'static str, &'static [&'static str], &'static str, Option<Direction>, &'static str);

const MORE: Option<Direction> = Some(Direction::HigherIsBetter);
const LESS: Option<Direction> = Some(Direction::LowerIsBetter);
const NEITHER: Option<Direction> = None;
const WHOLE: &[&str] = &[""];
const CORES: &[&str] = &["cpu0", "cpu1", "cpu2", "cpu3", "cpu4", "cpu5", "cpu6", "cpu7"];
/// For a metric that a lab file cannot name.
const NONE: &[&str] = &[];

/// All metrics, each on a line of its own.
#[rustfmt::skip]
const REGISTRY: &[Line] = &[
    ("goodput_mbit_s", WHOLE, "Mbit/s", MORE, "Goodput"),
    ("sender_mbit_s", WHOLE, "Mbit/s", MORE, "Sent"),
    ("kbyte_s", WHOLE, "KB/s", MORE, "Download rate"),
    ("transfer_kbyte_s", WHOLE, "KB/s", MORE, "Without connect time"),
    ("ideal_kbyte_s", &["", "path", "doubling", "transfer"], "KB/s", NEITHER, "Ideal rate"),
    ("availability_percent", WHOLE, "%", MORE, "Availability"),
    ("connect_ms", &["p50", "max"], "ms", NEITHER, "Connect time"),
    ("first_byte_ms", &["p50", "p90", "p99"], "ms", LESS, "First byte"),
    ("first_message_ms", &["p50", "p99"], "ms", LESS, "First message"),
    ("message_ms", &["mean", "p50", "p90", "p99"], "ms", LESS, "Message"),
    ("requests_s", WHOLE, "requests/s", MORE, "Requests"),
    ("latency_us", &["mean", "p50", "p90", "p99", "p999", "max"], "µs", LESS, "Latency"),
    ("connect_us", &["p50"], "µs", LESS, "Connection"),
    ("client_cpu_us", WHOLE, "µs/request", LESS, "CPU of the client"),
    ("mbyte_s", WHOLE, "MB/s", MORE, "Bandwidth"),
    ("errors", &["", "refused", "unconnected", "no_port", "reset", "stalled", "status", "cut", "length", "malformed", "tls"], "", LESS, "Errors"),
    ("setups_s", WHOLE, "connections/s", MORE, "New connections"),
    ("memory_mib", &["client", "server"], "MiB", LESS, "Memory"),
    ("memory_peak_mib", &["client", "server"], "MiB", LESS, "Most memory"),
    ("memory_kib_each", &["client", "server"], "KiB", LESS, "Memory each"),
    ("downloads", WHOLE, "", NEITHER, "Downloads"),
    ("limited_percent", &["client", "buffer"], "%", NEITHER, "Limited by the"),
    ("jain", WHOLE, "", MORE, "Jain fairness"),
    ("retransmit_percent", WHOLE, "%", LESS, "Retransmitted"),
    ("rtt_us", &["p50", "p99"], "µs", LESS, "RTT"),
    ("idle_percent", WHOLE, "% of the workload's CPUs", MORE, "CPU idle"),
    ("steal_percent", WHOLE, "% of the workload's CPUs", NEITHER, "CPU stolen"),
    ("cpu_percent", &["client", "server", "system", "ksoftirqd", "ksoftirqd_client", "ksoftirqd_server"], "% of a core", LESS, "CPU"),
    ("threads_at_work", &["client", "server"], "threads", NEITHER, "Threads at work"),
    ("softirq_percent", CORES, "% of a core", NEITHER, "Softirq"),
    ("net_rx_s", CORES, "softirqs/s", NEITHER, "Receive softirqs"),
    ("core_packets_s", CORES, "packets/s", NEITHER, "Packets"),
    ("rps_s", WHOLE, "wakeups/s", NEITHER, "Cores woken by RPS"),
    ("packet_byte", &["sent", "arrived", "merged"], "B", NEITHER, "Packet size"),
    ("cpu_softirq_percent", WHOLE, "% of a core", LESS, "CPU softirq"),
    ("cpu_seconds_per_gbit", &["client", "server", "system"], "core-seconds per Gbit", LESS, "CPU per Gbit"),
    ("queue_kbyte", &["mean", "p50", "p95", "p99", "max"], "kB", LESS, "Queue"),
    ("rate_mbit_s", WHOLE, "Mbit/s", NEITHER, "Rate"),
    ("rate_error_percent", WHOLE, "%", LESS, "Rate error"),
    ("delay_error_us", &["p50", "p99"], "µs", LESS, "Delay error"),
    ("loaded_delay_error_us", &["p50", "p99"], "µs", LESS, "Delay error under load"),
    ("loss_percent", WHOLE, "%", LESS, "Lost"),
    ("loss_in_interval", WHOLE, "", MORE, "Loss in interval"),
    ("pps", WHOLE, "frames/s", MORE, "Packet rate"),
    ("lateness_us", &["mean", "p50", "p99", "max"], "µs", LESS, "Emulator late"),
    ("lateness_rtt_percent", &["mean", "p99", "max"], "% of the round trip", LESS, "Emulator late"),
    ("emulator_busy_percent", WHOLE, "% of a core", LESS, "Emulator busy"),
    ("share_of_ideal", WHOLE, "", MORE, "Share of ideal"),
    ("queue_bdp", &["p95"], "BDP", LESS, "Queue"),
    ("queue_ms", &["p50", "p95", "p99"], "ms", LESS, "Queue delay"),
    ("startup_queue_ms", WHOLE, "ms", LESS, "Queue at start-up"),
    ("memory_queue_rtts", WHOLE, "RTT", LESS, "Queue by a memory"),
    ("convergence_rtts", WHOLE, "RTT", LESS, "Convergence"),
    ("step_rtts", WHOLE, "RTT", LESS, "After a rate step"),
    ("fair_share", WHOLE, "", NEITHER, "Part of fair share"),
    ("harm", WHOLE, "", LESS, "Harm"),
    ("fct_ms", &["p50", "p99", "max"], "ms", LESS, "Flow completion"),
    ("fct_small_ms", &["p50", "p99"], "ms", LESS, "Completion ≤100 KB"),
    ("fct_medium_ms", &["p50", "p99"], "ms", LESS, "Completion ≤1 MB"),
    ("fct_large_ms", &["p50", "p99"], "ms", LESS, "Completion >1 MB"),
    ("slowdown", &["p50", "p99"], "", LESS, "Slowdown"),
    ("port_use", WHOLE, "", MORE, "Port use"),
    ("ingress_use", WHOLE, "", NEITHER, "Ingress use"),
    ("fairness_rtts", WHOLE, "RTT", LESS, "Time to fairness"),
    ("flow_mbit_s", &["min", "max"], "Mbit/s", NEITHER, "Rate of a flow"),
    ("drops", &["", "pushed"], "packets", LESS, "Drops"),
    ("frames_refused", WHOLE, "frames", NEITHER, "Frames not sent"),
    ("frames_s", WHOLE, "frames/s", NEITHER, "Frame rate"),
    ("frames", &["", "cut", "length", "tpid", "vlan", "flags", "options", "fragment", "checksum", "address", "type", "datagram", "flipped", "noise"], "frames", NEITHER, "Frames"),
    ("core_percent", &["user", "system", "softirq", "idle"], "% of a core", NEITHER, "Core"),
    ("first_verdict_right", WHOLE, "", MORE, "First verdict right"),
    ("among_first_two", WHOLE, "", MORE, "Among first two"),
    ("seconds", WHOLE, "s", LESS, "Time"),
    ("expected", &["", "low", "high"], "", NEITHER, "Expected"),
    ("measured", WHOLE, "", NEITHER, "Measured"),
    ("of_defaults", WHOLE, "", NEITHER, "Grid's own"),
    ("off_percent", WHOLE, "%", NEITHER, "Off by"),
    ("interval_percent", WHOLE, "%", NEITHER, "Interval ±"),
    ("tolerance_percent", WHOLE, "%", NEITHER, "Tolerance ±"),
    ("within", &["", "use", "fairness", "jain", "queue"], "", MORE, "Within"),
    ("capacity_pps", WHOLE, "packets/s", MORE, "Capacity"),
    ("ndr_pps", WHOLE, "packets/s", MORE, "Highest without loss"),
    ("offered_pps", WHOLE, "packets/s", NEITHER, "Offered"),
    ("planned_s", WHOLE, "s", NEITHER, "Planned time"),
    ("actual_s", WHOLE, "s", LESS, "Actual time"),
    ("load_s", WHOLE, "s", LESS, "Rules loaded in"),
    ("cycles", &["", "receive", "parse", "cache", "classifier", "conntrack", "actions", "transmit"], "cycles/packet", LESS, "Cycles"),
    ("cpu_seconds", &["client", "server"], "s", LESS, "CPU time"),
    ("exit_status", NONE, "", NEITHER, "Exit status"),
    // Figures that a lab file reads from the output of its own command. The lab file states the
    // units.
    ("own", NONE, "", MORE, "Own"),
    ("own_cost", NONE, "", LESS, "Own"),
    // Counts, and the metrics of a single measurement.
    ("connections", NONE, "", NEITHER, "Connections"),
    ("messages", NONE, "", NEITHER, "Messages"),
    ("caqm_negotiated", NONE, "", NEITHER, "caqm negotiated"),
    ("caqm_gave_up", NONE, "", NEITHER, "caqm gave up"),
    ("caqm_tagged_segments", NONE, "", NEITHER, "caqm tagged segments"),
    ("caqm_tagged_packets", NONE, "", NEITHER, "caqm tagged packets"),
    ("caqm_tagged_super", NONE, "", NEITHER, "caqm tagged super"),
    ("caqm_untagged_segments", NONE, "", NEITHER, "caqm untagged segments"),
    ("caqm_untagged_packets", NONE, "", NEITHER, "caqm untagged packets"),
    ("caqm_untagged_super", NONE, "", NEITHER, "caqm untagged super"),
    ("caqm_wire_segments", WHOLE, "", NEITHER, "caqm tagged segments on the wire"),
    ("caqm_answers", NONE, "", NEITHER, "caqm answers"),
    ("caqm_cpus", NONE, "", NEITHER, "caqm cpus"),
];

/// Metrics whose repeats are 0 or 1.
const PROPORTIONS: &[&str] =
    &["first_verdict_right", "among_first_two", "loss_in_interval", "within"];

/// The families of a lab file's own figures. In `own.NAME` more is better, in `own_cost.NAME` less
/// is better.
pub const OWN: [&str; 2] = ["own", "own_cost"];

/// The family of the simulator's figures for metrics that a machine measured.
const SIMULATED: &str = "simulated";
/// The metrics that the simulator repeats for a measured turn.
const SIMULATIONS: &[&str] = &[
    "share_of_ideal",
    "fair_share",
    "fair_share.p10",
    "fair_share.p90",
    "jain",
    "jain.p10",
    "jain.p90",
    "queue_bdp.p95",
    "retransmit_percent",
    "goodput_mbit_s",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_metric_names_keep_their_part() {
        let ksoftirqd = meaning("cpu_percent.ksoftirqd");
        assert_eq!((ksoftirqd.label.as_str(), ksoftirqd.unit), ("CPU ksoftirqd", "% of a core"));
        assert_eq!(meaning("new_thing").label, "new thing");
        let own = meaning("own_cost.page_load");
        assert_eq!((own.label.as_str(), own.direction), ("page load", LESS));
        assert_eq!(meaning("simulated.queue_bdp.p95").label, "Simulated: queue p95");
    }

    #[test]
    fn each_metric_family_is_registered_once() {
        for (number, (family, ..)) in REGISTRY.iter().enumerate() {
            let first = REGISTRY.iter().position(|(name, ..)| name == family);
            assert_eq!(first, Some(number), "{family}");
        }
    }

    #[test]
    fn every_metric_that_a_lab_file_may_name_is_registered() {
        let names = names();
        for name in ["goodput_mbit_s", "fct_ms.p99", "within", "within.use", "simulated.jain.p10"] {
            assert!(names.iter().any(|known| known == name), "{name}");
        }
        assert!(names.iter().all(|name| is_registered(name)));
        assert!(!is_registered("new_thing") && !names.iter().any(|name| name == "connections"));
    }
}
