//! The meaning of the metric names of `results.json`.

/// Whether more or less of a metric is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Higher,
    Lower,
    Neither,
}

/// A metric's name in words, its unit and its direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meaning {
    pub label: String,
    pub unit: &'static str,
    pub direction: Direction,
}

/// Every name has a meaning. An unknown name is shown as written.
pub fn meaning(name: &str) -> Meaning {
    let (family, part) = name.split_once('.').unwrap_or((name, ""));
    if family == "simulated" && !part.is_empty() {
        let Meaning { label, unit, .. } = meaning(part);
        let label = format!("Simulated: {}", label.to_lowercase());
        return Meaning { label, unit, direction: Direction::Neither };
    }
    let known = KNOWN.iter().find(|(known, ..)| *known == family);
    let (label, unit, direction) = match known {
        Some(&(_, label, unit, direction)) => (label.to_owned(), unit, direction),
        None => (family.replace('_', " "), "", Direction::Neither),
    };
    Meaning {
        label: if part.is_empty() { label } else { format!("{label} {part}") },
        unit,
        direction,
    }
}

/// The main metric of a report whose lab does not name one.
pub(crate) fn headline<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
    HEADLINES
        .iter()
        .find_map(|wanted| names.clone().find(|name| name == wanted))
        .or_else(|| names.clone().next())
}

/// Metrics worth a column beside the headline, most important first.
pub(crate) fn beside_headline<'a>(
    names: impl Iterator<Item = &'a str> + Clone,
    headline: &str,
) -> Vec<&'a str> {
    let wanted = BESIDE.iter().filter(|wanted| **wanted != headline);
    wanted.filter_map(|wanted| names.clone().find(|name| name == wanted)).collect()
}

/// Whether the metric is a cost of the measurement.
pub(crate) fn is_cpu(name: &str) -> bool {
    name.starts_with("cpu_")
}

const HEADLINES: &[&str] = &[
    "goodput_mbit_s",
    "kbyte_s",
    "requests_s",
    "pps",
    "fct_ms.p50",
    "share_of_ideal",
    "port_use",
    "measured",
    "rate_error_percent",
    "latency_us.p50",
    "message_ms.p50",
];

/// Metrics of one kind of lab come first, because that lab measures them on purpose.
const BESIDE: &[&str] = &[
    "delay_error_us.p50",
    "delay_error_us.p99",
    "loss_percent",
    "loss_in_interval",
    "transfer_kbyte_s",
    "ideal_kbyte_s",
    "share_of_ideal",
    "availability_percent",
    "fct_ms.p99",
    "first_byte_ms.p50",
    "message_ms.p50",
    "message_ms.p99",
    "setups_s",
    "memory_mib.client",
    "memory_mib.server",
    "latency_us.p99",
    "expected",
    "within",
    "cpu_percent.client",
    "cpu_percent.ksoftirqd",
    "cpu_percent.system",
    "cpu_percent.server",
    "retransmit_percent",
    "slowdown.p50",
    "queue_ms.p95",
    "queue_bdp.p95",
    "queue_kbyte.p95",
    "rtt_us.p50",
    "jain",
    "harm",
    "drops",
];

const KNOWN: &[(&str, &str, &str, Direction)] = &[
    ("goodput_mbit_s", "Goodput", "Mbit/s", Direction::Higher),
    ("sender_mbit_s", "Sent", "Mbit/s", Direction::Higher),
    ("idle_percent", "CPU idle", "%", Direction::Higher),
    ("cpu_percent", "CPU", "%", Direction::Lower),
    ("threads_at_work", "Threads at work", "", Direction::Neither),
    ("cpu_softirq_percent", "CPU softirq", "%", Direction::Lower),
    ("cpu_seconds_per_gbit", "CPU per Gbit", "s/Gbit", Direction::Lower),
    ("retransmit_percent", "Retransmitted", "%", Direction::Lower),
    ("rtt_us", "RTT", "µs", Direction::Lower),
    ("queue_kbyte", "Queue", "kB", Direction::Lower),
    ("jain", "Jain fairness", "", Direction::Higher),
    ("fct_ms", "Flow completion", "ms", Direction::Lower),
    ("kbyte_s", "Download rate", "kB/s", Direction::Higher),
    ("transfer_kbyte_s", "Without connect time", "kB/s", Direction::Higher),
    ("ideal_kbyte_s", "Ideal rate", "kB/s", Direction::Neither),
    ("connect_ms", "Connect time", "ms", Direction::Neither),
    ("first_byte_ms", "First byte", "ms", Direction::Lower),
    ("first_message_ms", "First message", "ms", Direction::Lower),
    ("message_ms", "Message", "ms", Direction::Lower),
    ("connections", "Connections", "", Direction::Neither),
    ("messages", "Messages", "", Direction::Neither),
    ("setups_s", "New connections", "1/s", Direction::Higher),
    ("memory_mib", "Memory", "MiB", Direction::Lower),
    ("memory_peak_mib", "Most memory", "MiB", Direction::Lower),
    ("memory_kib_each", "Memory each", "KiB", Direction::Lower),
    ("downloads", "Downloads", "", Direction::Neither),
    ("limited_percent", "Limited by the", "% of the time", Direction::Neither),
    ("availability_percent", "Availability", "%", Direction::Higher),
    ("pps", "Packet rate", "packets/s", Direction::Higher),
    ("loss_percent", "Lost", "%", Direction::Lower),
    ("requests_s", "Requests", "requests/s", Direction::Higher),
    ("latency_us", "Latency", "µs", Direction::Lower),
    ("rate_error_percent", "Rate error", "%", Direction::Lower),
    ("delay_error_us", "Delay error", "µs", Direction::Lower),
    ("loss_in_interval", "Loss in interval", "", Direction::Higher),
    ("rate_mbit_s", "Rate", "Mbit/s", Direction::Neither),
    ("lateness_us", "Emulator late", "µs", Direction::Lower),
    ("emulator_busy_percent", "Emulator busy", "% of a core", Direction::Lower),
    ("expected", "Expected", "", Direction::Neither),
    ("measured", "Measured", "", Direction::Neither),
    ("within", "Within", "", Direction::Higher),
    ("share_of_ideal", "Share of ideal", "", Direction::Higher),
    ("queue_bdp", "Queue", "BDP", Direction::Lower),
    ("queue_ms", "Queue delay", "ms", Direction::Lower),
    ("startup_queue_ms", "Queue at start-up", "ms", Direction::Lower),
    ("memory_queue_rtts", "Queue by a memory", "RTT", Direction::Lower),
    ("convergence_rtts", "Convergence", "RTT", Direction::Lower),
    ("fairness_rtts", "Time to fairness", "RTT", Direction::Lower),
    ("flow_mbit_s", "Rate of a flow", "Mbit/s", Direction::Neither),
    ("step_rtts", "After a rate step", "RTT", Direction::Lower),
    ("fct_small_ms", "Completion ≤100 KB", "ms", Direction::Lower),
    ("fct_medium_ms", "Completion ≤1 MB", "ms", Direction::Lower),
    ("fct_large_ms", "Completion >1 MB", "ms", Direction::Lower),
    ("slowdown", "Slowdown", "", Direction::Lower),
    ("fair_share", "Part of fair share", "", Direction::Neither),
    ("tolerance_percent", "Tolerance", "%", Direction::Neither),
    ("harm", "Harm", "", Direction::Lower),
    ("port_use", "Port use", "", Direction::Higher),
    ("drops", "Drops", "packets", Direction::Lower),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_names_keep_their_part() {
        let ksoftirqd = meaning("cpu_percent.ksoftirqd");
        assert_eq!((ksoftirqd.label.as_str(), ksoftirqd.unit), ("CPU ksoftirqd", "%"));
        assert_eq!(meaning("new_thing").label, "new thing");
        assert_eq!(meaning("simulated.queue_bdp.p95").label, "Simulated: queue p95");
    }

    #[test]
    fn the_headline_is_the_first_known_name() {
        let names = ["jain", "goodput_mbit_s"];
        assert_eq!(headline(names.into_iter()), Some("goodput_mbit_s"));
        assert_eq!(headline(["odd"].into_iter()), Some("odd"));
        assert_eq!(headline(std::iter::empty()), None);
    }
}
