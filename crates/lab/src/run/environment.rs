//! Facts about the machine that are needed to repeat a run.

use crate::LabFile;
use crate::executor::machine::CpuPlan;
use host::Privilege;
use indexmap::IndexMap;
use serde_json::Value;

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
    if let Ok(version) = probe::machine::program_version("iperf3", &["--version"]) {
        facts.insert("iperf3".to_owned(), Value::from(version));
    }
    let programs = super::programs::started_by(lab);
    if !programs.is_empty() {
        facts.insert("programs".to_owned(), Value::from(programs));
    }
    facts.insert("seed".to_owned(), Value::from(lab.seed));
    facts
}

/// The same for virtual time. There the machine affects only the running time.
pub(crate) fn describe_simulator(lab: &LabFile, threads: usize) -> IndexMap<String, Value> {
    let mut facts = machine();
    facts.insert("world".to_owned(), Value::from("virtual time"));
    facts.insert("threads".to_owned(), Value::from(threads));
    facts.insert("seed".to_owned(), Value::from(lab.seed));
    facts
}

/// The same as TOML, for `run.toml`.
pub(crate) fn as_run_toml(
    lab: &LabFile,
    form: &str,
    command: &str,
    started: &str,
    facts: &IndexMap<String, Value>,
) -> String {
    let mut run = toml::Table::new();
    run.insert("lab".to_owned(), lab.name().into());
    run.insert("form".to_owned(), form.into());
    run.insert("command".to_owned(), command.into());
    run.insert("started".to_owned(), started.into());
    let mut environment = toml::Table::new();
    for (name, value) in facts {
        // TOML has no null, so unknown facts are omitted.
        if let Ok(value) = toml::Value::try_from(without_nulls(value.clone())) {
            environment.insert(name.clone(), value);
        }
    }
    run.insert("environment".to_owned(), environment.into());
    let mut sysctls = toml::Table::new();
    for (name, value) in &lab.sysctl {
        sysctls.insert(name.get_ref().clone(), value.as_str().into());
    }
    run.insert("host_sysctl".to_owned(), sysctls.into());
    run.to_string()
}

fn machine() -> IndexMap<String, Value> {
    let mut facts = IndexMap::new();
    facts.insert("weir".to_owned(), Value::from(env!("CARGO_PKG_VERSION")));
    if let Some(build) = super::programs::own_build() {
        facts.insert("weir_build".to_owned(), Value::from(build));
    }
    match probe::machine::Machine::read() {
        Ok(machine) => {
            if let Ok(Value::Object(fields)) = serde_json::to_value(&machine) {
                let told = |(name, value): &(String, Value)| {
                    !UNTOLD.contains(&name.as_str()) && !value.is_null()
                };
                facts.extend(fields.into_iter().filter(told));
            }
        }
        Err(error) => tracing::warn!("the machine cannot be described: {error}"),
    }
    facts
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name, without_nulls(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        Value::Array(values) => {
            values.into_iter().filter(|value| !value.is_null()).map(without_nulls).collect()
        }
        other => other,
    }
}

/// Facts that are omitted because reports are passed on. The boot command line may contain secrets,
/// and its mitigations have a field of their own. The boot ID is of no use to others.
const UNTOLD: [&str; 2] = ["kernel_command_line", "boot_id"];
