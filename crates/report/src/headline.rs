//! The metrics that a report shows first.

/// Returns the main metric of a report whose lab names no main metric.
pub fn of<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
    HEADLINES
        .iter()
        .find_map(|wanted| names.clone().find(|name| name == wanted))
        .or_else(|| names.clone().next())
}

/// Returns the metrics worth a column beside the headline, most important first.
pub(crate) fn beside<'a>(
    names: impl Iterator<Item = &'a str> + Clone,
    headline: &str,
) -> Vec<&'a str> {
    let wanted = BESIDE.iter().filter(|wanted| **wanted != headline);
    wanted.filter_map(|wanted| names.clone().find(|name| name == wanted)).collect()
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

/// Metrics of a special kind of lab come first, because no other lab measures them.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_headline_is_the_first_known_name() {
        let names = ["jain", "goodput_mbit_s"];
        assert_eq!(of(names.into_iter()), Some("goodput_mbit_s"));
        assert_eq!(of(["odd"].into_iter()), Some("odd"));
        assert_eq!(of(std::iter::empty()), None);
    }
}
