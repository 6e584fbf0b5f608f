//! The files of a run: `lab.toml` (the file as it was), `run.toml` (everything needed to repeat the
//! run), `journal.jsonl` (one line per finished step), and at the end the reports.

mod own;

use crate::model::plan::name_of;
use crate::model::{LabError, Outcome};
use own::Owner;
use results::Axes;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub(crate) struct RunDirectory {
    path: PathBuf,
    journal: File,
    /// Folder for temporary files of the run's programs. A killed program may leave files in the
    /// folder. The continued run removes these files.
    programs: PathBuf,
    /// The origin of the turns that follow, written into each line of the journal.
    mark: Mark,
    /// The run's lock, held while the run is active: a second run in this directory would mix its
    /// turns with the turns of this run.
    _lock: File,
}

impl RunDirectory {
    /// Creates a new directory. Calls `name` again if another process created that directory first.
    pub(crate) fn create_new(
        name: impl Fn() -> PathBuf,
        lab: &str,
        run: &str,
    ) -> Result<Self, LabError> {
        loop {
            let path = name();
            let made = match path.parent() {
                Some(folder) => fs::create_dir_all(folder).and_then(|()| fs::create_dir(&path)),
                None => fs::create_dir(&path),
            };
            match made {
                Ok(()) => return Self::create(&path, lab, run),
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => {
                    let reason = format!("cannot be created: {e}; name another with --out");
                    return Err(LabError::RunDirectory { path, reason });
                }
            }
        }
    }

    /// Creates a new directory. Refuses a directory that is not empty.
    pub(crate) fn create(path: &Path, lab: &str, run: &str) -> Result<Self, LabError> {
        let wrong = |reason: String| LabError::RunDirectory { path: path.to_owned(), reason };
        fs::create_dir_all(path)
            .map_err(|e| wrong(format!("cannot be created: {e}; name another with --out")))?;
        let lock = lock(path)?;
        let entries = fs::read_dir(path)
            .map_err(|e| wrong(format!("cannot be read: {e}; name another with --out")))?;
        let names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
        if names.iter().any(|name| name == JOURNAL) {
            let advice =
                "holds a run already: continue it with --resume, or name another with --out";
            return Err(wrong(advice.to_owned()));
        }
        // Without a journal these files belong to a run that was killed before its first step. A
        // single lab.toml is a file of the user.
        let begun = [LAB, RUN, NEW_LAB, NEW_RUN, PROGRAMS];
        let ours = names.iter().all(|name| begun.iter().any(|known| name == known))
            && (names.iter().any(|name| name == RUN) || !names.iter().any(|name| name == LAB));
        if let (false, Some(name)) = (ours, names.first()) {
            let name = name.display();
            let text = format!("holds something else (`{name}`): name another folder with --out");
            return Err(wrong(text));
        }
        put(path, RUN, NEW_RUN, run)?;
        put(path, LAB, NEW_LAB, lab)?;
        Ok(Self {
            path: path.to_owned(),
            journal: journal(path, Owner::Anybody)?,
            programs: room(path)?,
            mark: Mark::default(),
            _lock: lock,
        })
    }

    /// Opens the directory at `path` to continue its run, and reads the finished turns. Drops a
    /// line that a crash cut short, so that the step of this line runs again. Leaves finished lines
    /// unchanged. Continues another user's run only with `trust`, and even then follows no symbolic
    /// link in the run's directory.
    pub(crate) fn resume(
        path: &Path,
        lab: &str,
        form: &str,
        trust: bool,
    ) -> Result<(Self, Vec<Outcome>), LabError> {
        let wrong = |reason: String| LabError::RunDirectory { path: path.to_owned(), reason };
        let another =
            |difference: String| LabError::ResumesAnother { path: path.to_owned(), difference };
        let owner = if trust { Owner::Anybody } else { Owner::Myself };
        let read = |name: &str| {
            own::read(&path.join(name), owner).map_err(|e| wrong(not_resumable(name, &e)))
        };
        own::check_folder(path, owner).map_err(&wrong)?;
        if read(LAB)? != lab {
            let difference = "the lab file has changed since: leave out the lab's name to go on \
                              with the file as it was, or begin a new run";
            return Err(another(difference.to_owned()));
        }
        let run = Self::description(path, trust)?;
        let ran = run.get("form").and_then(toml::Value::as_str).unwrap_or_default();
        if ran != form {
            let hint = match ran {
                "quick" | "smoke" => format!(": add --{ran}"),
                _ => format!(": leave out --{form}"),
            };
            return Err(another(format!("it was begun in its {ran} form, not {form}{hint}")));
        }
        let lock = lock(path)?;
        let mut journal = journal(path, owner)?;
        let finished = finished(&mut journal).map_err(&wrong)?;
        let (path, programs, mark) = (path.to_owned(), room(path)?, Mark::default());
        Ok((Self { path, journal, programs, mark, _lock: lock }, finished))
    }

    /// Reads the `run.toml` of the run at `path`.
    pub(crate) fn description(path: &Path, trust: bool) -> Result<toml::Table, LabError> {
        let wrong = |reason: String| LabError::RunDirectory { path: path.to_owned(), reason };
        let owner = if trust { Owner::Anybody } else { Owner::Myself };
        own::check_folder(path, owner).map_err(&wrong)?;
        let text = own::read(&path.join(RUN), owner).map_err(|e| wrong(not_resumable(RUN, &e)))?;
        toml::from_str(&text)
            .map_err(|e| wrong(format!("{RUN} cannot be read: {e}; begin a new run")))
    }

    /// Whether the directory at `path` is no run, and holds the directories of runs.
    pub(crate) fn holds_runs(path: &Path) -> bool {
        let is_run = |folder: &Path| folder.join(RUN).is_file();
        let mut entries = fs::read_dir(path).into_iter().flatten().flatten();
        !is_run(path) && entries.any(|entry| is_run(&entry.path()))
    }

    /// Replaces `run.toml` with the facts that were unknown at the start.
    pub(crate) fn describe(&self, run: &str) -> Result<(), LabError> {
        put(&self.path, RUN, NEW_RUN, run)
    }

    /// Sets the mark of the turns that follow.
    pub(crate) fn mark(&mut self, mark: Mark) {
        self.mark = mark;
    }

    /// Returns the marks of the turns of the run at `path`, each once. The mark is empty for a turn
    /// of an older weir, which wrote no marks.
    pub(crate) fn marks(path: &Path) -> Result<BTreeSet<Mark>, LabError> {
        let text = own::read(&path.join(JOURNAL), Owner::Anybody);
        let text = text.map_err(|e| LabError::RunDirectory {
            path: path.to_owned(),
            reason: format!("{JOURNAL} cannot be read: {e}; name the directory of a run"),
        })?;
        let turns = text.lines().filter_map(|line| {
            let turn: Marked = serde_json::from_str(line).ok()?;
            let Marked { system, axes, block, inputs, weir } = turn;
            Some((name_of(&system, &axes, block), Mark { inputs, weir }))
        });
        // If a step has several turns, the newest turn counts.
        let newest: HashMap<String, Mark> = turns.collect();
        Ok(newest.into_values().collect())
    }

    /// Reads the lab file of the run at `path`, and its finished turns. Changes nothing in the
    /// run's directory.
    pub(crate) fn turns(path: &Path, trust: bool) -> Result<(String, Vec<Outcome>), LabError> {
        let wrong = |reason: String| LabError::RunDirectory { path: path.to_owned(), reason };
        let owner = if trust { Owner::Anybody } else { Owner::Myself };
        let read = |name: &str| {
            let text = own::read(&path.join(name), owner);
            text.map_err(|e| wrong(format!("{name} cannot be read: {e}; name a run's directory")))
        };
        let (lab, journal) = (read(LAB)?, read(JOURNAL)?);
        let whole = journal.rfind('\n').map_or("", |at| &journal[..at]);
        let lines = whole.lines().enumerate().map(|(number, line)| {
            serde_json::from_str(line).map_err(|e| {
                wrong(format!("{JOURNAL}, line {}: {e}; run the shard again", number + 1))
            })
        });
        Ok((lab, newest(lines.collect::<Result<_, _>>()?)))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn programs(&self) -> &Path {
        &self.programs
    }

    /// Writes a finished step through to the disk before the next step begins.
    pub(crate) fn keep(&mut self, outcome: &Outcome) -> Result<(), LabError> {
        self.keep_all(std::slice::from_ref(outcome))
    }

    /// Writes outcomes that another run has measured.
    pub(crate) fn keep_all(&mut self, outcomes: &[Outcome]) -> Result<(), LabError> {
        let text = |outcome| line(&Turn { outcome, mark: self.mark.clone() });
        let text = outcomes.iter().map(text).collect::<Result<String, _>>()?;
        self.journal.write_all(text.as_bytes()).and_then(|()| self.journal.sync_data()).map_err(
            |e| LabError::Unwritten {
                path: self.path.clone(),
                reason: format!(
                    "cannot write {JOURNAL}: {e}; make room, then continue the run with --resume"
                ),
            },
        )
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.programs);
    }
}

/// Returns the reason why the file `name` of a run cannot be read.
fn not_resumable(name: &str, error: &std::io::Error) -> String {
    let advice = match error.kind() {
        std::io::ErrorKind::NotFound => "; name the directory of a run that was begun",
        _ => "",
    };
    format!("is not a run that can be resumed: {name}: {error}{advice}")
}

/// Creates an empty folder. Returns an absolute path, because a program may change its directory.
fn room(path: &Path) -> Result<PathBuf, LabError> {
    let wrong = |e: std::io::Error| LabError::RunDirectory {
        path: path.to_owned(),
        reason: format!("cannot create the folder for temporary files: {e}; check the permissions"),
    };
    let room = std::path::absolute(path.join(PROGRAMS)).map_err(wrong)?;
    match fs::remove_dir_all(&room) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(wrong(e)),
        _ => {}
    }
    fs::create_dir(&room).map_err(wrong)?;
    Ok(room)
}

/// Reads the journal's steps. Truncates the journal after the last complete line.
fn finished(journal: &mut File) -> Result<Vec<Outcome>, String> {
    let mut bytes = Vec::new();
    journal.read_to_end(&mut bytes).map_err(|e| format!("cannot read {JOURNAL}: {e}"))?;
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let lines: Vec<&[u8]> = bytes[..whole].split_inclusive(|byte| *byte == b'\n').collect();
    let (mut outcomes, mut good) = (Vec::new(), 0);
    for (number, text) in lines.iter().enumerate() {
        match serde_json::from_slice(text) {
            Ok(outcome) => outcomes.push(outcome),
            // After a crash of the machine the last block may be on the disk only in part.
            Err(_) if number + 1 == lines.len() => break,
            Err(e) => {
                let line = number + 1;
                let advice = "remove the line to measure its turn again";
                return Err(format!("{JOURNAL}, line {line}: {e}; {advice}"));
            }
        }
        good += text.len() as u64;
    }
    journal.set_len(good).map_err(|e| format!("cannot write {JOURNAL}: {e}"))?;
    Ok(newest(outcomes))
}

/// Keeps the newest outcome of each step.
fn newest(outcomes: Vec<Outcome>) -> Vec<Outcome> {
    let mut seen = BTreeSet::new();
    let mut kept: Vec<Outcome> =
        outcomes.into_iter().rev().filter(|one| seen.insert(one.step_name())).collect();
    kept.reverse();
    kept
}

/// The origin of a turn.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Mark {
    /// The checksum over all inputs of the turn's run.
    #[serde(default)]
    pub(crate) inputs: String,
    /// The checksum of the `weir` program that measured the turn.
    #[serde(default)]
    pub(crate) weir: String,
}

/// A line of the journal: a turn and its mark.
#[derive(Debug, Serialize)]
struct Turn<T> {
    #[serde(flatten)]
    outcome: T,
    #[serde(flatten)]
    mark: Mark,
}

/// The parts of a journal's line that name the step and its origin. The figures are most of a line,
/// and are not read.
#[derive(Deserialize)]
struct Marked {
    system: String,
    axes: Axes,
    block: u32,
    #[serde(default)]
    inputs: String,
    #[serde(default)]
    weir: String,
}

fn line(turn: &Turn<&Outcome>) -> Result<String, LabError> {
    serde_json::to_string(turn)
        .map(|text| text + "\n")
        .map_err(|e| LabError::Usage(format!("a result cannot be written as JSON: {e}")))
}

fn journal(path: &Path, owner: Owner) -> Result<File, LabError> {
    let mut options = File::options();
    options.create(true).read(true).append(true);
    own::open(&mut options, &path.join(JOURNAL), owner).map_err(|e| LabError::RunDirectory {
        path: path.to_owned(),
        reason: format!("cannot write {JOURNAL}: {e}"),
    })
}

/// Replaces `name` atomically: a reader sees the whole text or nothing.
fn put(folder: &Path, name: &str, new: &str, text: &str) -> Result<(), LabError> {
    let new = folder.join(new);
    own::write_new(&new, text).and_then(|()| fs::rename(&new, folder.join(name))).map_err(|e| {
        LabError::RunDirectory {
            path: folder.to_owned(),
            reason: format!("cannot write {name}: {e}"),
        }
    })
}

fn lock(path: &Path) -> Result<File, LabError> {
    let wrong = |reason: String| LabError::RunDirectory { path: path.to_owned(), reason };
    let folder = File::open(path)
        .map_err(|e| wrong(format!("cannot be opened: {e}; check the permissions")))?;
    match folder.try_lock() {
        Ok(()) => Ok(folder),
        Err(fs::TryLockError::WouldBlock) => Err(wrong(
            "another weir is running here: wait for its end, or name another directory with --out"
                .into(),
        )),
        // Some network file systems cannot lock files, and then nothing prevents a second run.
        Err(fs::TryLockError::Error(_)) => Ok(folder),
    }
}

const JOURNAL: &str = "journal.jsonl";
const PROGRAMS: &str = ".programs";
const LAB: &str = "lab.toml";
const RUN: &str = "run.toml";
const NEW_LAB: &str = ".lab.toml.new";
const NEW_RUN: &str = ".run.toml.new";
