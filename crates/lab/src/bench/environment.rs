//! Facts about the machine that a repetition of the run needs.

use super::machine::CpuPlan;
use super::{LabFile, programs};
use host::{HostError, Namespace, Privilege, Sysctl};
use indexmap::IndexMap;
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
    for (name, found) in
        [("programs", programs::started_by(lab)), (SYSTEMS, programs::configurations(lab))]
    {
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

/// Describes the machine of a run in virtual time, where the machine affects only the running time.
pub(crate) fn describe_simulator(lab: &LabFile, threads: usize) -> IndexMap<String, Value> {
    let mut facts = machine();
    facts.insert("world".to_owned(), Value::from("virtual time"));
    facts.insert("threads".to_owned(), Value::from(threads));
    facts.insert("seed".to_owned(), Value::from(lab.seed));
    facts
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

/// Reads back the kernel's settings in a new host namespace of the lab. Empty if no namespace can
/// be created.
fn settings_of_hosts(lab: &LabFile) -> Map<String, Value> {
    let read = || -> Result<_, HostError> {
        let host = Namespace::create("settings")?;
        host.run(|| {
            let mut settings = Map::new();
            for (name, value) in &lab.sysctl {
                let (name, value) = (name.get_ref().clone(), value.get_ref().clone());
                if value.contains('{') {
                    // Skip a setting whose value differs from cell to cell: each cell names its
                    // axes.
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

/// A fact that the report omits, because the fact identifies the machine and explains no figure.
const UNTOLD: &str = "boot_id";
/// The name of the fact with the commands and files of external systems.
const SYSTEMS: &str = "systems";
