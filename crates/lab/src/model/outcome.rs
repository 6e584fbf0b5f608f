use super::clock::TurnClock;
use super::plan::name_of;
use indexmap::IndexMap;
use results::{Axes, CpuLimit, Missing, NOT_RUN, Series, metrics};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use units::{Share, Time};

/// The result of one step, as the run's journal stores it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    pub system: String,
    pub axes: Axes,
    pub block: u32,
    #[serde(flatten)]
    pub verdict: Verdict,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Measured(Box<Measurement>),
    Failed(String),
}

impl Outcome {
    pub(crate) fn measured(system: &str, axes: Axes, block: u32, measurement: Measurement) -> Self {
        let verdict = Verdict::Measured(Box::new(measurement));
        Self { system: system.to_owned(), axes, block, verdict }
    }

    /// Returns a text that identifies the step.
    pub(crate) fn step_name(&self) -> String {
        name_of(&self.system, &self.axes, self.block)
    }

    /// Whether the step is valid, and neither the step nor a part of its figures failed.
    pub(crate) fn stands(&self) -> bool {
        let Verdict::Measured(measured) = &self.verdict else { return false };
        measured.invalid.is_empty() && !measured.missing.iter().any(|missing| missing.failed)
    }

    /// Whether this machine cannot measure the step.
    pub(crate) fn is_left_out(&self) -> bool {
        matches!(&self.verdict, Verdict::Failed(reason) if reason.starts_with(NOT_RUN))
    }
}

/// The figures of one step.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Measurement {
    pub metrics: IndexMap<String, Value>,
    /// The period in which this step measured.
    #[serde(skip)]
    pub window: Option<Range<Time>>,
    /// Metrics that this step should have measured and did not measure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Missing>,
    #[serde(default)]
    pub series: Vec<Series>,
    /// The congestion control of the measured connections, as the kernel reported the name during
    /// the measurement.
    #[serde(default)]
    pub congestion_control: Option<String>,
    /// In virtual time: a hash of all events, equal whenever the same events happen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// Reasons why the figures are invalid. Empty for valid figures.
    #[serde(default)]
    pub invalid: Vec<Flaw>,
    /// Whether the workload's CPUs had no idle time. The figures may then show the machine rather
    /// than the system.
    #[serde(default)]
    pub cpu_limited: bool,
    /// The largest user of the workload's CPUs, if these CPUs had no idle time left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_limit: Option<CpuLimit>,
    /// The program beside the lab that used most of the workload's CPUs, if the program used a
    /// large share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<CpuLimit>,
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Flaws of earlier attempts at this step, or at a part of the step. Each flawed step or part
    /// was measured again.
    #[serde(default)]
    pub retried: Vec<Flaw>,
    /// Texts about the step that are not figures, such as a verdict.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub labels: IndexMap<String, String>,
    /// The clock of each real host at the start and at the end of the step.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub clocks: IndexMap<String, TurnClock>,
    /// The figures of each place where several places of an axis were measured at once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<Member>,
}

/// The figures of one place, in a step that measured several places at once.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Member {
    /// The place's value on the axis along which the step measured.
    pub name: String,
    pub measurement: Measurement,
}

/// A reason why a measurement is invalid.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Flaw {
    /// The kind of flaw, always with the same text.
    pub what: String,
    /// The extent of the flaw in this step, as text.
    pub detail: String,
}

impl std::fmt::Display for Flaw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.what, self.detail)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Value {
    pub value: f64,
    pub unit: String,
}

impl Measurement {
    /// Records a metric of the registry. Omits a figure that is unavailable.
    pub fn record(&mut self, metric: &str, value: Option<f64>) {
        debug_assert!(metrics::is_registered(metric), "{metric} is not in results::metrics");
        if let Some(value) = value.filter(|value| value.is_finite()) {
            let unit = metrics::meaning(metric).unit.to_owned();
            self.metrics.insert(metric.to_owned(), Value { value, unit });
        }
    }

    /// Reports the metrics of `metrics` without a figure as missing, with the reason. `failed`:
    /// whether the measurement of these metrics failed.
    pub fn miss(&mut self, metrics: &[&str], reason: String, failed: bool) {
        let is_open = |name: &&&str| {
            let named = |missing: &Missing| missing.metrics.iter().any(|one| one == **name);
            !self.metrics.contains_key(**name) && !self.missing.iter().any(named)
        };
        let metrics: Vec<String> =
            metrics.iter().filter(is_open).map(|name| (*name).to_owned()).collect();
        debug_assert!(metrics.iter().all(|name| metrics::is_registered(name)), "{metrics:?}");
        if !metrics.is_empty() {
            self.missing.push(Missing { metrics, reason, failed });
        }
    }

    /// Records the quantiles `parts` of the samples, such as `FAMILY.p50`. Records nothing if there
    /// are no samples.
    pub fn record_quantiles(&mut self, family: &str, samples: &[f64], parts: &[&str]) {
        for part in parts {
            let percent = match *part {
                "max" => Some(100.0),
                part => part.strip_prefix('p').and_then(|percent| percent.parse().ok()),
            };
            let value = percent
                .and_then(Share::from_percent)
                .and_then(|share| stats::quantile(samples, share).ok());
            self.record(&format!("{family}.{part}"), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_with_a_failed_metric_does_not_stand() {
        let outcome = |failed| {
            let mut measured = Measurement::default();
            measured.record("offered_pps", Some(5.0));
            measured.miss(&["ndr_pps", "offered_pps"], "it ended early".to_owned(), failed);
            measured.miss(&["ndr_pps", "actual_s"], "no search".to_owned(), false);
            let metrics: Vec<_> = measured.missing.iter().map(|one| &one.metrics).collect();
            assert_eq!(metrics, [&["ndr_pps"], &["actual_s"]]);
            Outcome::measured("a", Axes::new(), 0, measured)
        };
        assert!(!outcome(true).stands() && outcome(false).stands());
    }
}
