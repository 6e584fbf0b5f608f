//! Compares the simulator's figures with the kernel's.
//!
//! The packet losses of each flow decide how flows share a full link. Shifting one flow's start by
//! a fraction of a round trip may double that flow's rate. So several worlds are simulated, and the
//! median of each figure counts as the simulator's.

use crate::model::Measurement;

/// Records the simulator's figures beside the measured figures, and whether the figures agree.
pub(crate) fn beside(worlds: &[Measurement], measured: &mut Measurement) {
    let mut all = true;
    for rule in RULES {
        let of = |from: &Measurement| from.metrics.get(rule.metric).cloned();
        let values: Vec<f64> = worlds.iter().filter_map(of).map(|value| value.value).collect();
        let (Some(found), Ok(expected)) = (of(measured), stats::median(&values)) else { continue };
        let name = format!("simulated.{}", rule.metric);
        measured.record(&name, Some(expected));
        if rule.spread {
            measured.record_quantiles(&name, &values, &["p10", "p90"]);
        }
        if let Some(part) = rule.part {
            let off = (found.value - expected).abs();
            let within = off <= (expected.abs() * TOLERANCE).max(rule.least);
            all &= within;
            measured.record(&format!("within.{part}"), Some(f64::from(u8::from(within))));
        }
    }
    measured.record("within", Some(f64::from(u8::from(all))));
}

struct Rule {
    metric: &'static str,
    /// Name of the agreement metric. `None` if the figure is only shown.
    part: Option<&'static str>,
    /// Absolute tolerance in the metric's unit: figures that differ by at most `least` agree,
    /// whatever the relative difference.
    least: f64,
    /// Whether to record the spread over the worlds too.
    spread: bool,
}

const RULES: [Rule; 6] = [
    Rule { metric: "share_of_ideal", part: Some("use"), least: 0.0, spread: false },
    Rule { metric: "fair_share", part: Some("fairness"), least: 0.0, spread: true },
    Rule { metric: "jain", part: Some("jain"), least: 0.0, spread: true },
    // The queues may differ by one packet, which is a large share of a small queue.
    Rule { metric: "queue_bdp.p95", part: Some("queue"), least: 0.05, spread: false },
    Rule { metric: "retransmit_percent", part: None, least: 0.0, spread: false },
    Rule { metric: "goodput_mbit_s", part: None, least: 0.0, spread: false },
];
/// Relative tolerance, as a share of the simulated value. The goal for the simulator sets this
/// share.
const TOLERANCE: f64 = 0.15;

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(pairs: &[(&str, f64)]) -> Measurement {
        let mut measurement = Measurement::default();
        pairs.iter().for_each(|(name, value)| measurement.record(name, Some(*value)));
        measurement
    }

    #[test]
    fn agreement_within_the_tolerance_is_recorded() {
        let mut kernel = figures(&[("share_of_ideal", 0.9), ("queue_bdp.p95", 0.04)]);
        let world = figures(&[("share_of_ideal", 1.0), ("queue_bdp.p95", 0.01)]);
        beside(&[world], &mut kernel);
        let value = |name: &str| kernel.metrics.get(name).map(|value| value.value);
        assert_eq!(value("simulated.share_of_ideal"), Some(1.0));
        assert_eq!((value("within.use"), value("within.queue")), (Some(1.0), Some(1.0)));
        assert_eq!((value("within"), value("within.jain")), (Some(1.0), None));
        let mut kernel = figures(&[("share_of_ideal", 0.8)]);
        beside(&[figures(&[("share_of_ideal", 1.0)])], &mut kernel);
        assert_eq!(kernel.metrics["within"].value, 0.0);
    }

    #[test]
    fn several_simulated_worlds_give_the_median_and_the_spread() {
        let worlds = [0.2, 0.7, 0.6, 0.2, 0.9].map(|share| figures(&[("fair_share", share)]));
        let mut kernel = figures(&[("fair_share", 0.65)]);
        beside(&worlds, &mut kernel);
        assert_eq!(kernel.metrics["simulated.fair_share"].value, 0.6);
        assert_eq!(kernel.metrics["simulated.fair_share.p10"].value, 0.2);
        assert!(kernel.metrics["simulated.fair_share.p90"].value > 0.7);
        assert_eq!(kernel.metrics["within.fairness"].value, 1.0);
    }
}
