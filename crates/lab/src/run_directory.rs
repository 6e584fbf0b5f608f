//! Where a run keeps what it did: `lab.toml` (the file as it was), `run.toml` (everything needed to
//! repeat it), `journal.jsonl` (one line per finished turn), and at the end the reports.

use crate::outcome::Outcome;
use crate::LabError;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub(crate) struct RunDirectory {
    path: PathBuf,
    journal: File,
    /// Held locked while the run goes on: a second run in the same place would mix the two.
    _lock: File,
}

impl RunDirectory {
    /// A new directory; one that holds something already is refused.
    pub(crate) fn create(path: &Path, lab: &str, run: &str) -> Result<Self, LabError> {
        let wrong = |reason: String| LabError::RunDirectory { path: path.to_owned(), reason };
        fs::create_dir_all(path).map_err(|e| wrong(format!("cannot be created: {e}")))?;
        let lock = lock(path)?;
        if path.join(JOURNAL).exists() {
            let advice = "holds a run already: continue it with --resume, or name another with --out";
            return Err(wrong(advice.to_owned()));
        }
        let write = |name: &str, text: &str| {
            fs::write(path.join(name), text).map_err(|e| wrong(format!("cannot write {name}: {e}")))
        };
        write(LAB, lab)?;
        write(RUN, run)?;
        Ok(Self { path: path.to_owned(), journal: journal(path)?, _lock: lock })
    }

    /// The run at `path`, to be continued, and what of it is finished. A line cut short by a crash is
    /// dropped: its turn runs again.
    pub(crate) fn resume(path: &Path, lab: &str, form: &str) -> Result<(Self, Vec<Outcome>), LabError> {
        let wrong = |reason: String| LabError::RunDirectory { path: path.to_owned(), reason };
        let another =
            |difference: String| LabError::ResumesAnother { path: path.to_owned(), difference };
        let read = |name: &str| {
            fs::read_to_string(path.join(name))
                .map_err(|e| wrong(format!("is not a run that can be resumed: {name}: {e}")))
        };
        if read(LAB)? != lab {
            return Err(another("the lab file has changed since".to_owned()));
        }
        let run: toml::Table = toml::from_str(&read(RUN)?)
            .map_err(|e| wrong(format!("{RUN} cannot be read: {e}")))?;
        let ran = run.get("form").and_then(toml::Value::as_str).unwrap_or_default();
        if ran != form {
            return Err(another(format!("it was begun in its {ran} form, not {form}")));
        }
        let lock = lock(path)?;
        let finished = finished(path)?;
        // Rewritten without a torn last line, so that what is appended begins a line of its own.
        let text: String = finished.iter().map(line).collect::<Result<_, _>>()?;
        let fresh = path.join(format!("{JOURNAL}.new"));
        fs::write(&fresh, text)
            .and_then(|()| fs::rename(&fresh, path.join(JOURNAL)))
            .map_err(|e| wrong(format!("cannot rewrite {JOURNAL}: {e}")))?;
        Ok((Self { path: path.to_owned(), journal: journal(path)?, _lock: lock }, finished))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a finished turn through to the disk before the next one begins.
    pub(crate) fn keep(&mut self, outcome: &Outcome) -> Result<(), LabError> {
        let text = line(outcome)?;
        self.journal
            .write_all(text.as_bytes())
            .and_then(|()| self.journal.sync_data())
            .map_err(|e| LabError::RunDirectory {
                path: self.path.clone(),
                reason: format!("cannot write {JOURNAL}: {e}"),
            })
    }
}

fn finished(path: &Path) -> Result<Vec<Outcome>, LabError> {
    let wrong = |reason: String| LabError::RunDirectory { path: path.to_owned(), reason };
    let file = match File::open(path.join(JOURNAL)) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(wrong(format!("cannot read {JOURNAL}: {e}"))),
    };
    let mut outcomes = Vec::new();
    let lines: Vec<String> = BufReader::new(file)
        .lines()
        .collect::<Result<_, _>>()
        .map_err(|e| wrong(format!("cannot read {JOURNAL}: {e}")))?;
    let count = lines.len();
    for (number, text) in lines.into_iter().enumerate() {
        match serde_json::from_str(&text) {
            Ok(outcome) => outcomes.push(outcome),
            Err(_) if number + 1 == count => {}
            Err(e) => return Err(wrong(format!("{JOURNAL}, line {}: {e}", number + 1))),
        }
    }
    Ok(outcomes)
}

fn line(outcome: &Outcome) -> Result<String, LabError> {
    serde_json::to_string(outcome)
        .map(|text| text + "\n")
        .map_err(|e| LabError::Usage(format!("a result cannot be written as JSON: {e}")))
}

fn journal(path: &Path) -> Result<File, LabError> {
    File::options().create(true).append(true).open(path.join(JOURNAL)).map_err(|e| {
        LabError::RunDirectory { path: path.to_owned(), reason: format!("cannot write {JOURNAL}: {e}") }
    })
}

fn lock(path: &Path) -> Result<File, LabError> {
    let wrong = |reason: String| LabError::RunDirectory { path: path.to_owned(), reason };
    let folder = File::open(path).map_err(|e| wrong(format!("cannot be opened: {e}")))?;
    match folder.try_lock() {
        Ok(()) => Ok(folder),
        Err(fs::TryLockError::WouldBlock) => {
            Err(wrong("another weir is running here: wait for it, or name another with --out".into()))
        }
        // Some network file systems cannot lock; then nobody else is kept out.
        Err(fs::TryLockError::Error(_)) => Ok(folder),
    }
}

const JOURNAL: &str = "journal.jsonl";
const LAB: &str = "lab.toml";
const RUN: &str = "run.toml";
