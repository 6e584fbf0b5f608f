//! Everything that decides the figures of a run and may change between two parts of the run: the
//! program, the files, and texts that the program makes for the cells. Each input has a checksum.

use super::Build;
use super::directory::Mark;
use crate::bench::LabFile;
use crate::bench::programs;
use crate::model::LabError;
use crate::model::Plan;
use crate::model::checksum::sha256;
use crate::model::file::{SystemSpec, text_of_trace};
use indexmap::IndexMap;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Each input and its checksum, or its name where a name tells people more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Inputs(BTreeMap<String, String>);

impl Inputs {
    /// Collects the inputs of a run. `facts`: the facts of the environment.
    pub(crate) fn of(
        lab: &LabFile,
        plan: &Plan,
        systems: &[SystemSpec],
        build: &Build,
        facts: &IndexMap<String, Value>,
    ) -> Self {
        let mut inputs = BTreeMap::new();
        let mut add = |name: &str, value: String| inputs.insert(name.to_owned(), value);
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        add(LAB_FILE, sha256(&*lab.text()));
        add(WEIR, text(facts.get("weir_sha256")).unwrap_or_default());
        if let Some(commit) = &build.commit {
            let tree = build.tree.as_deref().unwrap_or("unknown");
            add(COMMIT, format!("{commit} ({tree} tree)"));
        }
        // In virtual time the kernel does not affect the figures.
        if facts.contains_key("privilege")
            && let Some(kernel) = text(facts.get("kernel_release"))
        {
            add("kernel", kernel);
        }
        // Between real machines only the kernels of the hosts affect the figures.
        let hosts = facts.get("hosts").and_then(Value::as_object);
        for (name, host) in hosts.into_iter().flatten() {
            if let Some(kernel) = text(host.get("kernel_release")) {
                add(&format!("kernel of {name}"), kernel);
            }
            if let Some(place) = text(host.get("place")) {
                add(&format!("place of {name}"), place);
            }
        }
        let known = facts.get("programs");
        for program in programs::names_of(lab, systems) {
            if let Some(sha256) = text(known.and_then(|all| all.get(&program)?.get("sha256"))) {
                add(&format!("{PROGRAM}{program}"), sha256);
            }
        }
        let mut places: Vec<_> = plan.cells.iter().map(|cell| &cell.axes).collect();
        places.dedup();
        for (name, text) in places.iter().flat_map(|axes| lab.kind().inputs(lab, axes)) {
            add(&name, sha256(&text));
        }
        let traces: BTreeSet<String> =
            places.iter().flat_map(|axes| lab.trace_files_at(axes)).collect();
        for path in traces {
            let text = text_of_trace(&path).unwrap_or_default();
            add(&format!("trace {path}"), sha256(&text));
        }
        if !lab.population.is_empty() {
            // The paths of the populations, which the seed has drawn.
            add("drawn paths", sha256(format!("{:?}", lab.link)));
        }
        Self(inputs)
    }

    /// Reads the inputs that `run.toml` names. `None` if an older weir wrote `run.toml`.
    pub(crate) fn of_run(description: &toml::Table) -> Option<Self> {
        let table = description.get(INPUTS)?.as_table()?;
        let each = table.iter();
        Some(Self(each.map(|(name, value)| (name.clone(), shown(value))).collect()))
    }

    pub(crate) fn to_toml(&self) -> toml::Table {
        self.0.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect()
    }

    /// Returns one checksum over all inputs except other programs: a system that is added later
    /// brings new programs.
    pub(crate) fn sha256(&self) -> String {
        let own = self.0.iter().filter(|(name, _)| !name.starts_with(PROGRAM));
        let lines = own.map(|(name, value)| format!("{name}\t{value}\n"));
        sha256(lines.collect::<String>())
    }

    /// Returns the mark of turns that are measured with these inputs.
    pub(crate) fn mark(&self) -> Mark {
        Mark { inputs: self.sha256(), weir: self.0.get(WEIR).cloned().unwrap_or_default() }
    }

    /// Describes the inputs that differ. A program that is missing in one part is no difference:
    /// the program has measured no turn of that part.
    pub(crate) fn changes_to(&self, now: &Self) -> Vec<String> {
        let mut changes = Vec::new();
        for (name, before) in &self.0 {
            match now.0.get(name) {
                Some(now) if now == before => {}
                Some(now) => {
                    changes.push(format!("{name} ({} then, {} now)", cut(before), cut(now)))
                }
                None if name.starts_with(PROGRAM) => {}
                None => changes.push(format!("{name} (gone now)")),
            }
        }
        let is_new = |name: &&String| !self.0.contains_key(*name) && !name.starts_with(PROGRAM);
        changes.extend(now.0.keys().filter(is_new).map(|name| format!("{name} (new)")));
        changes
    }

    /// Returns the names of the inputs that differ, or that only one side has.
    pub(crate) fn differences(&self, other: &Self) -> Vec<String> {
        let names: BTreeSet<&String> = self.0.keys().chain(other.0.keys()).collect();
        let differs = |name: &&String| self.0.get(*name) != other.0.get(*name);
        names.into_iter().filter(differs).cloned().collect()
    }

    /// Refuses to continue a run that began with other inputs, because the run would mix figures of
    /// both inputs. Keeps the programs of systems that have been measured already.
    pub(crate) fn continue_from(
        &mut self,
        path: &Path,
        began: &toml::Table,
    ) -> Result<(), LabError> {
        let wrong =
            |difference: String| LabError::ResumesAnother { path: path.to_owned(), difference };
        let Some(first) = Self::of_run(began) else {
            let difference = "a weir that recorded no inputs began it, and its turns would mix with those \
                              of another build: begin a new run";
            return Err(wrong(difference.to_owned()));
        };
        match first.changes_to(self).as_slice() {
            [] => {
                self.0.extend(first.0);
                Ok(())
            }
            changes => Err(wrong(format!(
                "its inputs have changed since: {}; go on with the programs and files that began it, or \
                 begin a new run",
                changes.join(", ")
            ))),
        }
    }
}

fn shown(value: &toml::Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Shortens a checksum to its start, which is enough to tell two checksums apart.
pub(super) fn cut(value: &str) -> &str {
    let is_checksum = value.len() == 64 && value.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_checksum { &value[..SHORT] } else { value }
}

/// The name of the table of inputs in `run.toml`.
pub(crate) const INPUTS: &str = "inputs";
const LAB_FILE: &str = "lab file";
const WEIR: &str = "weir's program";
const COMMIT: &str = "weir's commit";
const PROGRAM: &str = "program ";
const SHORT: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::builtin;
    use results::Form;

    fn of(lab: &str, program: &str) -> Inputs {
        let lab = builtin::open(lab).unwrap();
        let systems: Vec<SystemSpec> = lab.systems().cloned().collect();
        let names: Vec<String> = systems.iter().map(|one| one.name().to_owned()).collect();
        let plan = Plan::new(&lab, Form::Quick, &names, None);
        let build = Build { commit: Some("abc".to_owned()), ..Build::default() };
        let facts = [("weir_sha256", program), ("kernel_release", "6.1"), ("privilege", "root")];
        let facts = facts.map(|(name, value)| (name.to_owned(), Value::from(value)));
        Inputs::of(&lab, &plan, &systems, &build, &IndexMap::from(facts))
    }

    #[test]
    fn a_runs_inputs_include_fault_files_and_drawn_paths() {
        let faults = of("faults", "aa");
        let text = include_str!("../../../../labs/faults/loss.toml");
        assert_eq!(faults.0["fault file labs/faults/loss.toml"], sha256(text));
        assert_eq!(faults.0["kernel"], "6.1");
        let paths = of("tcpa-paths", "aa");
        assert_eq!(paths.0["drawn paths"].len(), 64);
        assert!(paths.0.keys().any(|name| name.starts_with("served file")), "{paths:?}");
        let rules = of("flow-rules", "aa");
        assert!(rules.0.keys().any(|name| name.starts_with("traffic profile")), "{rules:?}");
    }

    #[test]
    fn a_run_is_not_continued_with_other_inputs() {
        let first = of("faults", &"a".repeat(64));
        let mut began = toml::Table::new();
        let refused = |began: &toml::Table, now: &Inputs| {
            let continued = now.clone().continue_from(Path::new("runs/x"), began);
            continued.err().map(|error| error.to_string())
        };
        assert!(refused(&began, &first).unwrap().contains("recorded no inputs"));
        began.insert(INPUTS.to_owned(), first.to_toml().into());
        assert_eq!(refused(&began, &first), None);
        let said = refused(&began, &of("faults", &"b".repeat(64))).unwrap();
        assert!(said.contains("weir's program (aaaaaaaaaaaa then, bbbbbbbbbbbb now)"), "{said}");
        assert!(said.contains("begin a new run"), "{said}");
        for name in ["fault file labs/faults/ecn.toml", "kernel", "weir's commit"] {
            let mut other = first.clone();
            other.0.insert(name.to_owned(), "other".to_owned());
            assert!(refused(&began, &other).unwrap().contains(name), "{name}");
            other.0.remove(name);
            assert!(refused(&began, &other).unwrap().contains(name), "{name}");
            assert_ne!(first.sha256(), other.sha256());
        }
        // A peer that was installed between the two parts has measured no turn yet.
        let mut installed = first.clone();
        installed.0.insert("program peer".to_owned(), "aa".to_owned());
        assert_eq!(refused(&began, &installed), None);
        assert_eq!(first.sha256(), installed.sha256());
    }
}
