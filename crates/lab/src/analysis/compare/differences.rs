//! Differences between runs besides their figures. They may explain a difference of the figures
//! better than the intended change does.

use crate::run::runs::Run;
use indexmap::IndexMap;
use results::Form;
use serde_json::Value;

/// One note for each.
pub(super) fn differences(runs: &[&Run]) -> Vec<String> {
    let mut notes: Vec<String> =
        FACTS.iter().filter_map(|(fact, name)| of_fact(runs, fact, name)).collect();
    notes.extend(of_lab_files(runs));
    for run in runs {
        if !run.results.valid {
            notes.push(format!("{} is marked invalid", run.path.display()));
        }
    }
    let form = |run: &&Run| run.results.form;
    let first = runs.first().map_or(Form::Full, form);
    if runs.iter().any(|run| form(run) != first) {
        notes.push("one run is of another form: fewer repeats, shorter cells".to_owned());
    }
    notes
}

/// `the kernel differs: 6.1.0 in runs/a; 6.12.0 in runs/b`
fn of_fact(runs: &[&Run], fact: &str, name: &str) -> Option<String> {
    let mut values: IndexMap<String, Vec<String>> = IndexMap::new();
    for run in runs {
        let value = run.results.environment.get(fact).map_or_else(|| "unknown".to_owned(), shown);
        values.entry(value).or_default().push(run.path.display().to_string());
    }
    let parts: Vec<String> =
        values.iter().map(|(value, runs)| format!("{value} in {}", runs.join(", "))).collect();
    (parts.len() > 1).then(|| format!("{name} differs: {}", parts.join("; ")))
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Names the first line that differs.
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

/// The facts of a run's environment that affect its figures, and their names.
const FACTS: [(&str, &str); 9] = [
    ("weir", "the version of weir"),
    ("weir_build", "the build of weir"),
    ("kernel_release", "the kernel"),
    ("kernel_version", "the kernel's build"),
    ("programs", "a program that the lab starts"),
    ("iperf3", "iperf3"),
    ("cpu_model", "the CPU"),
    ("cores_online", "the set of CPUs"),
    ("privilege", "the privilege"),
];
