//! The description of a run in `run.toml`: facts that are needed to repeat the run.

use super::Build;
use super::inputs::{self, Inputs};
use crate::bench::{LabFile, programs};
use crate::model::{Plan, checksum::sha256};
use indexmap::IndexMap;
use probe::cpu::CpuSnapshot;
use serde_json::{Map, Value};

/// Returns the facts that identify the program and the lab file, and then the facts of `machine`.
pub(crate) fn with_identity(
    lab: &LabFile,
    build: &Build,
    machine: IndexMap<String, Value>,
) -> IndexMap<String, Value> {
    let mut facts = IndexMap::new();
    facts.insert("weir".to_owned(), Value::from(env!("CARGO_PKG_VERSION")));
    build.describe(&mut facts);
    for (name, value) in programs::own() {
        facts.insert(format!("weir_{name}"), value);
    }
    facts.insert("lab_sha256".to_owned(), sha256(&*lab.text()).into());
    facts.extend(machine);
    facts
}

/// Measures the share of the time of all CPUs that the hypervisor took away during a run.
#[derive(Debug)]
pub(crate) struct StealWatch(Option<CpuSnapshot>);

impl StealWatch {
    pub(crate) fn begin() -> Self {
        Self(CpuSnapshot::read().ok())
    }

    pub(crate) fn record(&self, facts: &mut IndexMap<String, Value>) {
        let now = CpuSnapshot::read().ok();
        let Some((now, then)) = now.as_ref().zip(self.0.as_ref()) else { return };
        let used = now.since(then);
        let all = used.elapsed.secs_f64() * used.cores.len() as f64;
        if all > 0.0 {
            let percent = used.total.steal.secs_f64() / all * 100.0;
            facts.insert("steal_percent".to_owned(), ((percent * 100.0).round() / 100.0).into());
        }
    }
}

/// Returns the number of repeats with which a run began, if the run is continued with more repeats.
/// A report states this number, because the decision to go on may depend on the figures.
pub(crate) fn fewer_at_first(began: &toml::Table, repeats: u32) -> Option<i64> {
    let before = began.get("environment").and_then(|facts| facts.get(AT_FIRST));
    let first = before.or_else(|| began.get("repeats")).and_then(toml::Value::as_integer);
    first.filter(|first| *first < i64::from(repeats))
}

/// The key of `run.toml` with the seconds that all parts of a run took.
pub(crate) const MEASURED: &str = "measured_s";

/// The key of `run.toml` with the number of repeats at the start of a run that was continued with
/// more repeats.
pub(crate) const AT_FIRST: &str = "repeats_at_first";

/// Writes the facts of a run as TOML, for `run.toml`.
pub(crate) fn as_run_toml(
    lab: &LabFile,
    plan: &Plan,
    command: &str,
    (started, measured_s): (&str, Option<f64>),
    facts: &IndexMap<String, Value>,
    inputs: &Inputs,
) -> toml::Table {
    let mut run = toml::Table::new();
    run.insert("lab".to_owned(), lab.name().into());
    run.insert("form".to_owned(), plan.form.word().into());
    run.insert("systems".to_owned(), plan.systems().into());
    run.insert("repeats".to_owned(), i64::from(plan.repeats).into());
    run.insert("command".to_owned(), command.into());
    run.insert("started".to_owned(), started.into());
    // `measured_s`: the seconds of all parts of a run, if a part was interrupted.
    if let Some(seconds) = measured_s {
        run.insert(MEASURED.to_owned(), seconds.into());
    }
    let mut environment = toml::Table::new();
    for (name, value) in facts {
        // TOML has no null, so unknown facts are omitted.
        if let Ok(value) = toml::Value::try_from(without_nulls(value.clone())) {
            environment.insert(name.clone(), value);
        }
    }
    run.insert(inputs::INPUTS.to_owned(), inputs.to_toml().into());
    run.insert("environment".to_owned(), environment.into());
    let mut sysctls = toml::Table::new();
    for (name, value) in &lab.sysctl {
        sysctls.insert(name.get_ref().clone(), value.get_ref().as_str().into());
    }
    run.insert("host_sysctl".to_owned(), sysctls.into());
    run
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name, without_nulls(value)))
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(values) => {
            values.into_iter().filter(|value| !value.is_null()).map(without_nulls).collect()
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_repeats_of_a_continued_run_are_kept() {
        let first = |text: &str, now| fewer_at_first(&toml::from_str(text).unwrap(), now);
        assert_eq!(first("", 6), None);
        assert_eq!(first("repeats = 6", 6), None);
        assert_eq!(first("repeats = 6", 7), Some(6));
        assert_eq!(first("repeats = 7\n[environment]\nrepeats_at_first = 6", 7), Some(6));
        assert_eq!(first("repeats = 7\n[environment]\nrepeats_at_first = 6", 6), None);
    }

    #[test]
    fn run_facts_list_the_identity_before_the_machine() {
        let lab = crate::workloads::builtin::open("validate").unwrap();
        let build = Build { commit: Some("abc".to_owned()), ..Build::default() };
        let machine = IndexMap::from([("kernel_release".to_owned(), Value::from("6.1"))]);
        let facts = with_identity(&lab, &build, machine);
        assert_eq!(facts["commit"], "abc");
        assert_eq!(facts["lab_sha256"].as_str().unwrap().len(), 64);
        assert_eq!(facts["weir_sha256"].as_str().unwrap().len(), 64);
        assert_eq!(facts.keys().next_back().unwrap(), "kernel_release");
    }
}
