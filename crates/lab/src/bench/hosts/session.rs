//! The changes that a lab makes to a host, and how each change is taken back however the lab ends.
//!
//! A session has a folder with a lock, a list of changes, and room for the temporary files of
//! programs. The list is written before each change. A second process, the guardian, waits for the
//! lock: when the first process ends without an orderly end, the guardian takes the changes back
//! and removes the folder. If both are killed, the next session on this host takes the changes
//! back.

use super::seam::Change;
use crate::model::Failure;
use host::{Confined, HostError, Namespace, Program, Sysctl};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The changes of one process to one host.
#[derive(Debug)]
pub(super) struct Session {
    folder: PathBuf,
    weir: PathBuf,
    changes: Vec<Entry>,
    guardian: Option<Child>,
    /// Held until this process ends.
    _lock: File,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Entry {
    /// A kernel setting and its former value.
    Sysctl {
        name: String,
        value: String,
    },
    Command(Vec<String>),
}

impl Session {
    /// Starts a session below `parent`. Ends the sessions below `parent` whose processes are gone.
    pub(super) fn new(parent: &Path, weir: &Path) -> Result<Self, Failure> {
        let wrong = |doing: &str, error: &io::Error| {
            Failure::io(&format!("{doing} in {}", parent.display()), error)
        };
        end_abandoned(parent);
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent);
        let folder = folder.map_err(|error| wrong("making a folder", &error))?.keep();
        // Another session would take an unlocked file with the name of the lock for an abandoned
        // session, and would end this one.
        let unnamed = folder.join("lock.new");
        let lock = File::create(&unnamed).and_then(|lock| {
            lock.lock()?;
            fs::rename(&unnamed, folder.join(LOCK))?;
            Ok(lock)
        });
        let lock = lock.map_err(|error| wrong("locking a folder", &error))?;
        let own = std::process::id().to_string();
        fs::write(folder.join(PROCESS), own).map_err(|error| wrong("writing a file", &error))?;
        fs::create_dir(folder.join(ROOM)).map_err(|error| wrong("making a folder", &error))?;
        let (changes, weir) = (Vec::new(), weir.to_owned());
        Ok(Self { folder, weir, changes, guardian: None, _lock: lock })
    }

    /// Returns the folder for temporary files of programs.
    pub(super) fn room(&self) -> PathBuf {
        self.folder.join(ROOM)
    }

    /// Sets a kernel setting of the calling thread's network namespace.
    pub(super) fn set(&mut self, setting: &Sysctl) -> Result<(), Failure> {
        let Some(before) = host::read_sysctl(&setting.name) else {
            let name = &setting.name;
            return Err(Failure::Workload(format!("this kernel has no setting `{name}`")));
        };
        if before == setting.value.split_whitespace().collect::<Vec<_>>().join(" ") {
            return Ok(());
        }
        self.record(Entry::Sysctl { name: setting.name.clone(), value: before })?;
        Ok(host::write_sysctl(setting)?)
    }

    /// Runs the command of a change in the calling thread's network namespace.
    pub(super) fn change(&mut self, change: &Change) -> Result<(), Failure> {
        self.record(Entry::Command(change.undo.clone()))?;
        run(&change.apply)
            .map_err(|reason| Failure::Workload(format!("`{}` {reason}", change.apply.join(" "))))
    }

    /// Takes every change back, the last change first. The error names the first change that could
    /// not be taken back; no change is tried twice.
    pub(super) fn undo(&mut self) -> Result<(), Failure> {
        let changes = std::mem::take(&mut self.changes);
        let failed = take_back(&changes);
        let _ = fs::remove_file(self.folder.join(LIST));
        match failed.first() {
            None => Ok(()),
            Some(reason) => Err(Failure::NotUndone(format!(
                "a change was not taken back: {reason}; take it back yourself before anything else"
            ))),
        }
    }

    fn record(&mut self, entry: Entry) -> Result<(), Failure> {
        self.changes.push(entry);
        let write = || -> io::Result<()> {
            let next = self.folder.join("next");
            fs::write(&next, serde_json::to_vec(&self.changes)?)?;
            fs::rename(&next, self.folder.join(LIST))
        };
        write().map_err(|error| Failure::io("writing down a change before it is made", &error))?;
        if self.guardian.is_none() {
            let mut guardian = Command::new(&self.weir);
            guardian.args(["agent", "--guard"]).arg(&self.folder);
            let quiet = [Stdio::null(), Stdio::null(), Stdio::null()];
            let [input, output, errors] = quiet;
            guardian.stdin(input).stdout(output).stderr(errors);
            // A signal to this process's group must not reach the guardian.
            std::os::unix::process::CommandExt::process_group(&mut guardian, 0);
            let child = guardian.spawn();
            self.guardian =
                Some(child.map_err(|error| Failure::io("starting the guardian", &error))?);
        }
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Err(failure) = self.undo() {
            tracing::warn!("{failure}");
        }
        let _ = fs::remove_dir_all(&self.folder);
        // No change is left, so the guardian has nothing to do. The guardian is ended here, because
        // later no process waits for its end.
        if let Some(mut guardian) = self.guardian.take() {
            let _ = guardian.kill();
            let _ = guardian.wait();
        }
    }
}

/// Waits until the process of the session in `folder` has ended. Ends the session if the process
/// left it open.
pub fn guard(folder: &Path) -> io::Result<()> {
    let lock = File::open(folder.join(LOCK))?;
    while let Err(error) = lock.lock() {
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    end(folder);
    Ok(())
}

/// Ends the sessions below `parent` whose processes were killed.
pub fn tidy(parent: &Path) {
    end_abandoned(parent);
}

fn end_abandoned(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_session = entry.file_name().to_string_lossy().starts_with(PREFIX);
        // A session without a lock has just begun, or is about to be removed.
        let Ok(lock) = File::open(entry.path().join(LOCK)) else { continue };
        if !is_session {
            continue;
        }
        let deadline = Instant::now() + GUARDIAN_WITHIN;
        loop {
            if lock.try_lock().is_ok() {
                end(&entry.path());
                break;
            }
            // The guardian of a dead process may hold the lock. Until the guardian has ended, the
            // host still has the changed settings.
            if is_alive(&entry.path()) || !entry.path().exists() || Instant::now() > deadline {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Whether the process of the session exists.
fn is_alive(folder: &Path) -> bool {
    let pid = fs::read_to_string(folder.join(PROCESS)).unwrap_or_default();
    pid.is_empty() || Path::new("/proc").join(pid).exists()
}

fn end(folder: &Path) {
    let list = fs::read(folder.join(LIST)).ok();
    let changes: Option<Vec<Entry>> = list.and_then(|list| serde_json::from_slice(&list).ok());
    for reason in take_back(&changes.unwrap_or_default()) {
        tracing::warn!("a change was not taken back: {reason}");
    }
    let _ = fs::remove_dir_all(folder);
}

/// Takes changes back, the last one first. Returns the reason of each change that failed.
fn take_back(changes: &[Entry]) -> Vec<String> {
    let undo = |change: &Entry| match change {
        Entry::Sysctl { name, value } => {
            let setting = Sysctl { name: name.clone(), value: value.clone() };
            host::write_sysctl(&setting).map_err(|error| error.to_string())
        }
        Entry::Command(argv) => {
            run(argv).map_err(|reason| format!("`{}` {reason}", argv.join(" ")))
        }
    };
    changes.iter().rev().filter_map(|change| undo(change).err()).collect()
}

/// Runs a short command to its end. The error text continues a sentence that begins with the
/// command.
fn run(argv: &[String]) -> Result<(), String> {
    let null = || File::options().read(true).write(true).open("/dev/null");
    let doing = |error: io::Error| format!("cannot be started: {error}");
    let (errors, stderr) = super::capture::Capture::new().map_err(doing)?;
    let program = Program {
        argv: argv.to_vec(),
        environment: Vec::new(),
        stdout: null().map_err(doing)?,
        stderr,
        cpus: Vec::new(),
    };
    let start = Confined::start_here(program);
    let mut program = start.map_err(|error: HostError| format!("cannot be started: {error}"))?;
    match program.wait(LONGEST_CHANGE).map_err(|error| error.to_string())? {
        Some(status) if status.success() => Ok(()),
        Some(status) => {
            drop(program);
            std::thread::sleep(Duration::from_millis(10));
            Err(format!("failed ({status}): {}", errors.so_far().last_lines(3)))
        }
        None => Err(format!("did not end within {} s", LONGEST_CHANGE.as_secs())),
    }
}

/// Runs `work` on a thread inside `namespace`, or on this thread.
pub(super) fn inside<T: Send>(
    namespace: Option<&Namespace>,
    work: impl FnOnce() -> Result<T, Failure> + Send,
) -> Result<T, Failure> {
    match namespace {
        None => work(),
        Some(namespace) => namespace.run(|| Ok(work()))?,
    }
}

const PREFIX: &str = "session-";
const LOCK: &str = "lock";
const LIST: &str = "changes.json";
const ROOM: &str = "room";
const PROCESS: &str = "process";
const GUARDIAN_WITHIN: Duration = Duration::from_secs(60);
const LONGEST_CHANGE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        ["sh", "-c", line].map(str::to_owned).into()
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    fn can_confine() -> bool {
        match run(&words("true")) {
            Ok(()) => true,
            Err(reason) => {
                testing::skip_because(testing::Need::NetworkNamespaces, reason);
                false
            }
        }
    }

    #[test]
    fn host_changes_are_undone_in_reverse_order() {
        if !can_confine() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let say = |text: &str| words(&format!("echo {text} >> {}", log.display()));
        let mut session = Session::new(folder.path(), Path::new("true")).unwrap();
        for name in ["a", "b"] {
            let change = Change { apply: say(name), undo: say(&format!("no-{name}")) };
            session.change(&change).unwrap();
        }
        let broken = Change { apply: words("echo broken >&2; exit 3"), undo: say("no-c") };
        let refused = session.change(&broken).unwrap_err().to_string();
        assert!(refused.contains("exit status: 3") && refused.contains("broken"), "{refused}");
        drop(session);
        assert_eq!(fs::read_to_string(&log).unwrap(), "a\nb\nno-c\nno-b\nno-a\n");
        assert_eq!(names(folder.path()), ["log"]);
    }

    #[test]
    fn a_new_session_ends_a_session_whose_process_was_killed() {
        if !can_confine() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let left = folder.path().join("session-left");
        fs::create_dir(&left).unwrap();
        fs::write(left.join(LOCK), "").unwrap();
        let mark = folder.path().join("undone");
        let undo = vec!["touch".to_owned(), mark.display().to_string()];
        fs::write(left.join(LIST), serde_json::to_vec(&[Entry::Command(undo)]).unwrap()).unwrap();
        let own = Session::new(folder.path(), Path::new("true")).unwrap();
        assert!(mark.exists() && !left.exists());
        // A new session leaves a running session alone.
        let second = Session::new(folder.path(), Path::new("true")).unwrap();
        assert!(own.room().exists() && second.room().exists());
    }
}
