//! Differences between runs besides their figures, such as another kernel or lab file. These
//! differences may explain the figures better than the intended change does.

use super::Run;
use indexmap::IndexMap;
use results::Form;
use serde_json::Value;

/// Returns one note for each difference between the runs.
pub(super) fn differences(runs: &[&Run]) -> Vec<String> {
    let mut notes: Vec<String> = FACTS.iter().filter_map(|group| of_group(runs, group)).collect();
    notes.extend(TABLES.iter().flat_map(|(fact, name)| of_table(runs, fact, name)));
    notes.extend(of_lab_files(runs));
    for run in runs {
        if !run.results.valid {
            notes.push(format!("{} is marked invalid", run.path.display()));
        }
        if run.results.environment.get(TREE).and_then(Value::as_str) == Some(MODIFIED) {
            let path = run.path.display();
            notes.push(format!("{path} ran a build of files that differ from its commit"));
        }
    }
    let form = |run: &&Run| run.results.form;
    let first = runs.first().map_or(Form::Full, form);
    if runs.iter().any(|run| form(run) != first) {
        notes.push("one run is of another form: fewer repeats, shorter cells".to_owned());
    }
    notes
}

/// Returns a note about the first fact of a group that differs between the runs. All facts of a
/// group describe one property of the machine, the most readable fact first.
fn of_group(runs: &[&Run], group: &[(&str, &str)]) -> Option<String> {
    let value = |run: &Run, fact: &str| {
        run.results.environment.get(fact).map_or_else(|| UNKNOWN.to_owned(), shown)
    };
    group.iter().find_map(|(fact, name)| of_values(runs, name, |run| value(run, fact)))
}

/// Returns one note for each entry that differs in a table of programs or of kernel settings.
fn of_table(runs: &[&Run], fact: &str, name: &str) -> Vec<String> {
    let entries =
        |run: &&Run| run.results.environment.get(fact).and_then(Value::as_object).cloned();
    // A run of an older Weir has a single value in place of the table: the note then compares the
    // whole fact.
    let Some(tables) = runs.iter().map(entries).collect::<Option<Vec<_>>>() else {
        return of_group(runs, &[(fact, name)]).into_iter().collect();
    };
    let mut keys: Vec<&String> = tables.iter().flat_map(|table| table.keys()).collect();
    keys.sort();
    keys.dedup();
    let value = |run: &Run, key: &str| {
        let table = run.results.environment.get(fact).and_then(Value::as_object);
        table.and_then(|table| table.get(key)).map_or_else(|| NONE.to_owned(), shown)
    };
    let of_key = |key: &String| of_values(runs, &format!("{name} {key}"), |run| value(run, key));
    keys.into_iter().filter_map(of_key).collect()
}

/// Returns, for example, `the kernel differs: 6.1.0 in runs/a; 6.12.0 in runs/b`.
fn of_values(runs: &[&Run], name: &str, value: impl Fn(&Run) -> String) -> Option<String> {
    let mut values: IndexMap<String, Vec<String>> = IndexMap::new();
    for run in runs {
        values.entry(value(run)).or_default().push(run.path.display().to_string());
    }
    let parts: Vec<String> =
        values.iter().map(|(value, runs)| format!("{value} in {}", runs.join(", "))).collect();
    (parts.len() > 1).then(|| format!("{name} differs: {}", parts.join("; ")))
}

/// Renders a fact for a note. A program is shown by its version and the first digits of its
/// checksum.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(facts) if facts.contains_key(SHA256) => {
            let text = |name: &str| facts.get(name).and_then(Value::as_str).unwrap_or_default();
            let sum: String = text(SHA256).chars().take(DIGITS).collect();
            format!("{} sha256 {sum}…", text("version")).trim_start().to_owned()
        }
        other => other.to_string(),
    }
}

/// Returns a note with the first line in which two runs' lab files differ.
fn of_lab_files(runs: &[&Run]) -> Option<String> {
    let (first, others) = runs.split_first()?;
    let other = others.iter().find(|run| run.lab_file != first.lab_file)?;
    let (a, b) = (first.path.display(), other.path.display());
    let (Some(one), Some(two)) = (&first.lab_file, &other.lab_file) else {
        let without = if first.lab_file.is_none() { a } else { b };
        return Some(format!("{without} kept no lab file: it may differ"));
    };
    let lines = one.lines().map(Some).chain(std::iter::repeat(None));
    let pairs = lines.zip(two.lines().map(Some).chain(std::iter::repeat(None)));
    let place = one.lines().count().max(two.lines().count());
    let mut pairs = pairs.take(place).enumerate();
    let text = |line: Option<&str>| line.map_or("no line".to_owned(), |line| format!("`{line}`"));
    Some(match pairs.find(|(_, (old, new))| old != new) {
        Some((number, (old, new))) => format!(
            "the lab file differs, first in line {}: {} in {a}; {} in {b}",
            number + 1,
            text(old),
            text(new)
        ),
        None => format!("the lab file differs in its line ends: {a} and {b}"),
    })
}

/// The facts of a run's environment that affect the run's figures, with the facts' names for
/// people.
const FACTS: [&[(&str, &str)]; 10] = [
    &[("weir", "the version of weir")],
    &[
        ("commit", "the commit of weir"),
        ("weir_build", "the build of weir"),
        ("weir_sha256", "the binary of weir"),
    ],
    &[("rustc", "the compiler")],
    &[("kernel_release", "the kernel"), ("kernel_version", "the kernel's build")],
    &[("iperf3", "iperf3")],
    &[("cpu_model", "the CPU")],
    &[("cores_online", "the set of CPUs")],
    &[("privilege", "the privilege")],
    &[("world", "the world")],
    &[("seed", "the seed")],
];
const TABLES: [(&str, &str); 4] = [
    ("programs", "the program"),
    ("systems", "the configuration of"),
    ("sysctls", "the machine's"),
    ("host_sysctls", "the hosts'"),
];
const UNKNOWN: &str = "unknown";
const NONE: &str = "none";
const TREE: &str = "tree";
const MODIFIED: &str = "modified";
const SHA256: &str = "sha256";
const DIGITS: usize = 12;
