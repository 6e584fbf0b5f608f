//! What the simulator comes to beside what the kernel did.

use crate::outcome::Measurement;

/// Puts the simulator's figures beside the measured ones, and whether they agree.
pub(crate) fn beside(simulated: &Measurement, measured: &mut Measurement) {
    let mut all = true;
    for rule in RULES {
        let of = |from: &Measurement| from.metrics.get(rule.metric).map(|value| value.value);
        let (Some(expected), Some(found)) = (of(simulated), of(measured)) else { continue };
        let unit = simulated.metrics[rule.metric].unit.clone();
        measured.record(&format!("simulated.{}", rule.metric), &unit, Some(expected));
        if let Some(part) = rule.part {
            let off = (found - expected).abs();
            let within = off <= (expected.abs() * TOLERANCE).max(rule.least);
            all &= within;
            measured.record(&format!("within.{part}"), "", Some(f64::from(u8::from(within))));
        }
    }
    measured.record("within", "", Some(f64::from(u8::from(all))));
}

struct Rule {
    metric: &'static str,
    /// What its agreement is called; `None` where it is only shown.
    part: Option<&'static str>,
    /// A difference that small is none, however large it is as a share.
    least: f64,
}

const RULES: [Rule; 6] = [
    Rule { metric: "share_of_ideal", part: Some("use"), least: 0.0 },
    Rule { metric: "fair_share", part: Some("fairness"), least: 0.0 },
    Rule { metric: "jain", part: Some("jain"), least: 0.0 },
    // A packet of a small queue is a large share of it.
    Rule { metric: "queue_bdp.p95", part: Some("queue"), least: 0.05 },
    Rule { metric: "retransmit_percent", part: None, least: 0.0 },
    Rule { metric: "goodput_mbit_s", part: None, least: 0.0 },
];
/// As the goal for the simulator has it.
const TOLERANCE: f64 = 0.15;

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(pairs: &[(&str, f64)]) -> Measurement {
        let mut measurement = Measurement::default();
        pairs.iter().for_each(|(name, value)| measurement.record(name, "", Some(*value)));
        measurement
    }

    #[test]
    fn what_agrees_and_what_does_not_is_told() {
        let mut kernel = figures(&[("share_of_ideal", 0.9), ("queue_bdp.p95", 0.04)]);
        beside(&figures(&[("share_of_ideal", 1.0), ("queue_bdp.p95", 0.01)]), &mut kernel);
        let value = |name: &str| kernel.metrics.get(name).map(|value| value.value);
        assert_eq!(value("simulated.share_of_ideal"), Some(1.0));
        assert_eq!((value("within.use"), value("within.queue")), (Some(1.0), Some(1.0)));
        assert_eq!((value("within"), value("within.jain")), (Some(1.0), None));
        let mut kernel = figures(&[("share_of_ideal", 0.8)]);
        beside(&figures(&[("share_of_ideal", 1.0)]), &mut kernel);
        assert_eq!(kernel.metrics["within"].value, 0.0);
    }
}
