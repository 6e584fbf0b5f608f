//! Facts about the machine that are needed to repeat a run.

use super::Build;
use super::inputs::{self, Inputs};
use super::plan::Plan;
use crate::LabFile;
use crate::executor::machine::CpuPlan;
use host::{HostError, Namespace, Privilege, Sysctl};
use indexmap::IndexMap;
use probe::cpu::CpuSnapshot;
use serde_json::{Map, Value};

/// Describes the machine as far as it affects the figures. Omits facts that cannot be read.
pub(crate) fn describe(
    lab: &LabFile,
    cpus: &CpuPlan,
    privilege: Privilege,
) -> IndexMap<String, Value> {
    let mut facts = machine();
    facts.insert("emulator_cpu".to_owned(), Value::from(cpus.emulator));
    facts.insert("workload_cpus".to_owned(), Value::from(cpus.workload.as_slice()));
    if cpus.is_apart() {
        facts.insert("from_cpus".to_owned(), Value::from(cpus.from.as_slice()));
        facts.insert("to_cpus".to_owned(), Value::from(cpus.to.as_slice()));
    }
    let rights = match privilege {
        Privilege::Root => "root",
        Privilege::UserNamespace => "user namespace",
    };
    facts.insert("privilege".to_owned(), Value::from(rights));
    let settings = settings_of_hosts(lab);
    let of_machine = facts.get("sysctls").cloned().unwrap_or_default();
    let own = settings.into_iter().filter(|(name, value)| of_machine.get(name) != Some(value));
    let own: Map<String, Value> = own.collect();
    if !own.is_empty() {
        facts.insert("host_sysctls".to_owned(), own.into());
    }
    for (name, found) in [
        ("programs", super::programs::started_by(lab)),
        (SYSTEMS, super::programs::configurations(lab)),
    ] {
        if !found.is_empty() {
            facts.insert(name.to_owned(), found.into());
        }
    }
    facts.insert("seed".to_owned(), Value::from(lab.seed));
    facts
}

/// Describes the controller of a lab between real machines.
pub(crate) fn describe_hosts(lab: &LabFile) -> IndexMap<String, Value> {
    let mut facts = machine();
    facts.insert("world".to_owned(), Value::from("real machines"));
    facts.insert("seed".to_owned(), Value::from(lab.seed));
    facts
}

/// Adds the identity of the program and of the lab file in front of the machine's facts.
pub(crate) fn with_identity(
    lab: &LabFile,
    build: &Build,
    machine: IndexMap<String, Value>,
) -> IndexMap<String, Value> {
    let mut facts = IndexMap::new();
    facts.insert("weir".to_owned(), Value::from(env!("CARGO_PKG_VERSION")));
    build.describe(&mut facts);
    for (name, value) in super::programs::own() {
        facts.insert(format!("weir_{name}"), value);
    }
    facts.insert("lab_sha256".to_owned(), super::programs::sha256(&*lab.text()).into());
    facts.extend(machine);
    facts
}

/// How much of the time of all CPUs the hypervisor took away during a run.
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

/// The repeats with which a run began, if it is continued with more. The decision to go on may
/// follow the figures, so a report says it.
pub(crate) fn fewer_at_first(began: &toml::Table, repeats: u32) -> Option<i64> {
    let before = began.get("environment").and_then(|facts| facts.get(AT_FIRST));
    let first = before.or_else(|| began.get("repeats")).and_then(toml::Value::as_integer);
    first.filter(|first| *first < i64::from(repeats))
}

/// The same for virtual time. There the machine affects only the running time.
pub(crate) fn describe_simulator(lab: &LabFile, threads: usize) -> IndexMap<String, Value> {
    let mut facts = machine();
    facts.insert("world".to_owned(), Value::from("virtual time"));
    facts.insert("threads".to_owned(), Value::from(threads));
    facts.insert("seed".to_owned(), Value::from(lab.seed));
    facts
}

/// The seconds that all parts of a run took, in `run.toml`.
pub(crate) const MEASURED: &str = "measured_s";

/// The repeats of a run that was continued with more.
pub(crate) const AT_FIRST: &str = "repeats_at_first";

/// The same as TOML, for `run.toml`.
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
    // The time of all parts of a run that was interrupted.
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

pub(crate) fn machine() -> IndexMap<String, Value> {
    let mut facts = IndexMap::new();
    match probe::machine::Machine::read() {
        Ok(machine) => {
            if let Ok(Value::Object(fields)) = serde_json::to_value(&machine) {
                let told = |(name, value): &(String, Value)| name != UNTOLD && !value.is_null();
                facts.extend(fields.into_iter().filter(told));
            }
        }
        Err(error) => tracing::warn!("the machine cannot be described: {error}"),
    }
    facts
}

/// The kernel's settings as a host of the lab reads them back. Empty if no host can be made.
fn settings_of_hosts(lab: &LabFile) -> Map<String, Value> {
    let read = || -> Result<_, HostError> {
        let host = Namespace::create("settings")?;
        host.run(|| {
            let mut settings = Map::new();
            for (name, value) in &lab.sysctl {
                let (name, value) = (name.get_ref().clone(), value.get_ref().clone());
                if value.contains('{') {
                    // The cells differ in it, and each names its axes.
                    continue;
                }
                host::write_sysctl(&Sysctl { name: name.clone(), value })?;
                if let Some(value) = host::read_sysctl(&name) {
                    settings.insert(name, value.into());
                }
            }
            let known = probe::machine::sysctls().into_iter();
            settings.extend(known.map(|(name, value)| (name.to_owned(), value.into())));
            Ok(settings)
        })
    };
    read().unwrap_or_else(|error| {
        tracing::warn!("the kernel's settings of the hosts cannot be read: {error}");
        Map::new()
    })
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

/// A fact that is omitted because reports are passed on, and that is of no use to others.
const UNTOLD: &str = "boot_id";
/// The commands and files of external systems.
const SYSTEMS: &str = "systems";

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
    fn the_identity_stands_before_the_machine() {
        let lab = crate::builtin::open("validate").unwrap();
        let build = Build { commit: Some("abc".to_owned()), ..Build::default() };
        let machine = IndexMap::from([("kernel_release".to_owned(), Value::from("6.1"))]);
        let facts = with_identity(&lab, &build, machine);
        assert_eq!(facts["commit"], "abc");
        assert_eq!(facts["lab_sha256"].as_str().unwrap().len(), 64);
        assert_eq!(facts["weir_sha256"].as_str().unwrap().len(), 64);
        assert_eq!(facts.keys().next_back().unwrap(), "kernel_release");
    }
}
