//! Runs on disk: the directory of a new run, the unfinished run, and the results of a finished run.

use super::directory::RunDirectory;
pub use crate::analysis::compare::Run;
use crate::bench::LabFile;
use crate::model::file::Document;
use crate::model::{LabError, Shard};
use crate::workloads::builtin;
use results::{Form, Results, Samples};
use std::path::{Path, PathBuf};

/// Returns a directory for a new run: `runs/quic-tun-quick-20261121-030000`.
pub fn fresh(folder: &Path, lab: &str, form: Form) -> PathBuf {
    let stamp: String = super::date::now()
        .chars()
        .filter_map(|c| match c {
            'T' => Some('-'),
            c => c.is_ascii_digit().then_some(c),
        })
        .collect();
    let first = folder.join(format!("{}{stamp}", prefix(lab, form)));
    let mut path = first.clone();
    for number in 2.. {
        if !path.exists() {
            break;
        }
        path = first.with_file_name(format!("{}{stamp}-{number}", prefix(lab, form)));
    }
    path
}

/// Returns a directory for a new shard: `runs/cc-grid-shard-2-of-16-20261121-030000`. `--resume`
/// without a directory does not find a shard.
pub(super) fn fresh_shard(folder: &Path, lab: &str, form: Form, shard: Shard) -> PathBuf {
    let prefix = prefix(lab, form);
    let name = format!("{prefix}shard-{}-of-{}", shard.number(), shard.of());
    fresh(folder, &name, Form::Full)
}

/// Finds the latest run of this lab and form that has no results yet.
pub fn latest_unfinished(folder: &Path, lab: &str, form: Form) -> Result<PathBuf, LabError> {
    let begins = prefix(lab, form);
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        // Skip symbolic links, which could lead out of the folder.
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter(|entry| {
            let name = entry.file_name();
            let rest = name.to_str().and_then(|name| name.strip_prefix(&begins));
            rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        })
        .map(|entry| entry.path())
        .filter(|path| path.join("run.toml").exists() && !path.join(RESULTS).exists())
        .collect();
    // The directories' names end with the time of the run, so the last name is the latest run.
    found.sort();
    found.pop().ok_or_else(|| {
        LabError::Usage(format!(
            "--resume: no unfinished run of `{lab}` in this form under {}/; name one: --resume DIR",
            folder.display()
        ))
    })
}

/// Reads the lab and the form of a run that was begun, for a user who names only the directory.
/// With `trust`, the directory may belong to another user.
pub fn begun(path: &Path, trust: bool) -> Result<(LabFile, Form), LabError> {
    let began = RunDirectory::description(path, trust)?;
    let word = |key: &str| began.get(key).and_then(toml::Value::as_str).unwrap_or_default();
    let forms = [Form::Full, Form::Quick, Form::Smoke];
    let form = forms.into_iter().find(|form| form.word() == word("form"));
    let kept = path.join(LAB);
    let text = Document::text_of(&kept).unwrap_or_default();
    // A user's own file may have the name of a built-in lab.
    let builtin = builtin::BUILTIN.iter().find(|one| one.name == word("lab") && one.text == text);
    let lab = match builtin {
        Some(builtin) => builtin::open(builtin.name)?,
        None => LabFile::read(&kept)?,
    };
    form.map(|form| (lab, form)).ok_or_else(|| {
        let reason = format!("names no form of a lab, {:?}: begin a new run", word("form"));
        LabError::RunDirectory { path: path.to_owned(), reason }
    })
}

/// Reads a run from its directory or its results.json.
pub fn read(path: &Path) -> Result<Run, LabError> {
    let file = results_file(path);
    let (samples, lab) = (file.with_file_name("samples.parquet"), file.with_file_name(LAB));
    let results =
        report::read_results(&file).map_err(|error| LabError::Usage(error.to_string()))?;
    let samples = match samples.exists() {
        true => report::read_samples(&samples)?,
        false => Samples::new(&results.lab),
    };
    let lab_file = match lab.exists() {
        true => Some(Document::text_of(&lab)?),
        false => None,
    };
    Ok(Run { path: path.to_owned(), results, samples, lab_file })
}

/// Reads the results of a run without changing their texts, for a caller that escapes the texts.
pub(super) fn read_as_written(path: &Path) -> Result<Results, LabError> {
    let results = report::read_results_as_written(&results_file(path));
    results.map_err(|error| LabError::Usage(error.to_string()))
}

/// Returns the path of a run's results. The user names the run by its directory or by its
/// results.json.
pub(super) fn results_file(path: &Path) -> PathBuf {
    if path.is_dir() { path.join(RESULTS) } else { path.to_owned() }
}

fn prefix(lab: &str, form: Form) -> String {
    match form {
        Form::Full | Form::Other => format!("{lab}-"),
        form => format!("{lab}-{}-", form.word()),
    }
}

const RESULTS: &str = "results.json";
const LAB: &str = "lab.toml";
