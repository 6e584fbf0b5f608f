//! The changes that a lab makes to a host, and how each change is taken back however the lab ends.
//!
//! A session has a folder with a lock, a list of changes, and a folder (`room`) for the temporary
//! files of programs. The session writes each change to the list before it makes the change. A
//! second process, the guardian, waits for the lock: when the first process ends without an orderly
//! end, the guardian takes the changes back and removes the folder. If both processes are killed,
//! the next session on this host takes the changes back. An agent starts its guardian at once, and
//! a lab in namespaces starts its guardian before its first change.
//!
//! A controller that lost its connection connects again. Its former agent may still run, with the
//! changes of a turn in force, so the new session ends the former agent first.

use super::seam::Change;
use crate::model::Failure;
use host::{Confined, HostError, Namespace, Program, Sysctl};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
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
    /// The lock of the folder. The kernel releases the lock when this process ends.
    _lock: File,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Entry {
    /// A kernel setting and its former value.
    Sysctl { name: String, value: String },
    /// The words of a command that takes a change back.
    Command(Vec<String>),
}

/// The process of a session, as the session's folder describes it.
#[derive(Debug, Serialize, Deserialize)]
struct Holder {
    pid: u32,
    /// The start of the machine (its boot ID). Several machines may share a home directory.
    boot: String,
    /// The network namespace, whose settings the session changes.
    network: PathBuf,
    /// The controller's name for its connection to this host.
    controller: Option<String>,
}

impl Session {
    /// Starts a session below `parent`. Ends the sessions below `parent` whose processes are gone,
    /// and the former sessions of this `controller`.
    pub(super) fn new(
        parent: &Path,
        weir: &Path,
        controller: Option<&str>,
    ) -> Result<Self, Failure> {
        let wrong = |doing: &str, error: &io::Error| {
            Failure::io(&format!("{doing} in {}", parent.display()), error)
        };
        end_abandoned(parent, controller);
        let made = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent);
        let made = made.map_err(|error| wrong("making a folder", &error))?;
        let folder = made.path().to_owned();
        // Another session would take an unlocked file with the name of the lock for an abandoned
        // session, and would end the present session.
        let unnamed = folder.join("lock.new");
        let lock = File::create(&unnamed).and_then(|lock| {
            lock.lock()?;
            fs::rename(&unnamed, folder.join(LOCK))?;
            Ok(lock)
        });
        let lock = lock.map_err(|error| wrong("locking a folder", &error))?;
        let holder = Holder {
            pid: std::process::id(),
            boot: boot(),
            network: fs::read_link(NETWORK).unwrap_or_default(),
            controller: controller.map(str::to_owned),
        };
        let write = || fs::write(folder.join(PROCESS), serde_json::to_vec(&holder)?);
        write().map_err(|error| wrong("writing a file", &error))?;
        fs::create_dir(folder.join(ROOM)).map_err(|error| wrong("making a folder", &error))?;
        let (changes, weir) = (Vec::new(), weir.to_owned());
        let mut session = Self { folder, weir, changes, guardian: None, _lock: lock };
        if controller.is_some() {
            session.start_guardian()?;
        }
        // The session removes the folder from here on.
        let _ = made.keep();
        Ok(session)
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
        if let Err(error) = write() {
            // The caller makes no change that the list lacks.
            self.changes.pop();
            return Err(Failure::io("writing down a change before it is made", &error));
        }
        self.start_guardian()
    }

    fn start_guardian(&mut self) -> Result<(), Failure> {
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
        // No change is left for the guardian. This process ends the guardian, and reaps it as its
        // parent.
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
    end_abandoned(parent, None);
}

/// Names a controller's connection to a host: the temporary folder of the run, and the number of
/// the host. `control`: a path in that folder whose name is the number.
pub(super) fn controller_of(control: &Path) -> String {
    let part = |part: Option<&std::ffi::OsStr>| {
        let text = part.unwrap_or_default().to_string_lossy();
        text.chars().filter(char::is_ascii_alphanumeric).collect::<String>()
    };
    format!("{}-{}", part(control.parent().and_then(Path::file_name)), part(control.file_name()))
}

/// Returns the processes of other controllers that change the settings of this network namespace
/// now. `folder` holds the sessions of one build; other builds have folders beside it. Waits for a
/// moment: an agent whose controller has just been killed is about to end.
pub(super) fn others(folder: &Path, controller: &str) -> Vec<u32> {
    let deadline = Instant::now() + OTHERS_WITHIN;
    loop {
        let others = others_now(folder, controller);
        if others.is_empty() || Instant::now() > deadline {
            return others;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn others_now(folder: &Path, controller: &str) -> Vec<u32> {
    let own = fs::read_link(NETWORK).unwrap_or_default();
    let run = |controller: &str| controller.rsplit_once('-').map(|(run, _)| run.to_owned());
    let builds = folder.parent().and_then(|all| fs::read_dir(all).ok()).into_iter().flatten();
    let entries = builds.flatten().flat_map(|build| fs::read_dir(build.path())).flatten();
    let is_session = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with(PREFIX);
    // Without ssh the folder is in the folder for temporary files, where anybody may write.
    let user = rustix::process::geteuid().as_raw();
    let is_own = |entry: &fs::DirEntry| {
        entry.metadata().is_ok_and(|session| session.is_dir() && session.uid() == user)
    };
    let is_wanted = |entry: &fs::DirEntry| is_session(&entry.file_name()) && is_own(entry);
    let sessions = entries.flatten().filter(is_wanted);
    let holders = sessions.filter_map(|session| Holder::of(&session.path()));
    let is_other = |holder: &Holder| {
        let named = holder.controller.as_deref();
        holder.network == own
            && holder.boot == boot()
            && named.is_some_and(|name| run(name) != run(controller))
    };
    let others = holders.filter(|holder| is_other(holder) && holder.is_alive());
    others.map(|holder| holder.pid).collect()
}

fn end_abandoned(parent: &Path, controller: Option<&str>) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_session = entry.file_name().to_string_lossy().starts_with(PREFIX);
        // A session without a lock has just begun, or is about to be removed.
        let Ok(lock) = File::open(entry.path().join(LOCK)) else { continue };
        if !is_session {
            continue;
        }
        let holder = Holder::of(&entry.path());
        let is_former =
            |holder: &&Holder| controller.is_some() && holder.controller.as_deref() == controller;
        // The kernel needs a moment to end a killed process.
        let is_killed = holder.as_ref().filter(is_former).is_some_and(Holder::kill);
        let deadline = Instant::now() + GUARDIAN_WITHIN;
        loop {
            if lock.try_lock().is_ok() {
                end(&entry.path());
                break;
            }
            // The guardian of a dead process may hold the lock. Until the guardian has ended, the
            // host still has the changed settings.
            let is_alive = !is_killed && holder.as_ref().is_none_or(Holder::is_alive);
            if is_alive || !entry.path().exists() || Instant::now() > deadline {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Holder {
    fn of(session: &Path) -> Option<Self> {
        let file = host::open_regular_file(&session.join(PROCESS)).ok()?;
        let mut bytes = Vec::new();
        file.take(LONGEST_PROCESS).read_to_end(&mut bytes).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// Whether the process runs. A process that has ended but is not reaped yet does not run. A
    /// process of another machine counts as running.
    fn is_alive(&self) -> bool {
        if self.boot != boot() {
            return true;
        }
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        state.is_some_and(|state| !"ZX".contains(state))
    }

    /// Kills the process, unless the kernel has given its number to another program. Returns
    /// whether the process was killed. The command line decides, because the kernel hides the path
    /// of the program from another user namespace, and each agent of an ordinary user has a user
    /// namespace of its own.
    fn kill(&self) -> bool {
        let line = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        let controller = self.controller.as_deref().unwrap_or_default().as_bytes();
        let is_same = words.windows(2).any(|two| two[0] == b"--controller" && two[1] == controller);
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let is_here = self.boot == boot() && self.pid != std::process::id();
        pid.filter(|_| is_same && is_here)
            .is_some_and(|pid| kill_process(pid, Signal::KILL).is_ok())
    }
}

fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Returns the boot ID of this machine and its network namespace. Two hosts with the same text are
/// one machine.
pub(super) fn machine() -> String {
    format!("{} {}", boot(), fs::read_link(NETWORK).unwrap_or_default().display())
}

fn end(folder: &Path) {
    let list = fs::read(folder.join(LIST)).ok();
    let changes: Option<Vec<Entry>> = list.and_then(|list| serde_json::from_slice(&list).ok());
    for reason in take_back(&changes.unwrap_or_default()) {
        tracing::warn!("a change was not taken back: {reason}");
    }
    let _ = fs::remove_dir_all(folder);
}

/// Takes changes back, the last change first. Returns the reason of each change that failed.
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
const LONGEST_PROCESS: u64 = 4096;
/// The network namespace of the calling thread.
const NETWORK: &str = "/proc/thread-self/ns/net";
const OTHERS_WITHIN: Duration = Duration::from_secs(5);
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
        let mut session = Session::new(folder.path(), Path::new("true"), None).unwrap();
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
        let own = Session::new(folder.path(), Path::new("true"), None).unwrap();
        assert!(mark.exists() && !left.exists());
        // A session leaves a running session of another controller alone.
        let second = Session::new(folder.path(), Path::new("true"), None).unwrap();
        assert!(own.room().exists() && second.room().exists());
    }

    #[test]
    fn a_controller_that_connects_again_ends_its_former_agent_only() {
        let folder = tempfile::tempdir().unwrap();
        let build = folder.path().join("build");
        fs::create_dir(&build).unwrap();
        // Another program has the number of the former agent, and stays alive.
        let mut other = Command::new("sleep").arg("4242").spawn().unwrap();
        let mark = folder.path().join("undone");
        let leave = |name: &str, controller: &str| {
            let left = build.join(format!("{PREFIX}{name}"));
            fs::create_dir(&left).unwrap();
            let holder = Holder {
                pid: other.id(),
                boot: boot(),
                network: fs::read_link(NETWORK).unwrap(),
                controller: Some(controller.to_owned()),
            };
            fs::write(left.join(PROCESS), serde_json::to_vec(&holder).unwrap()).unwrap();
            let lock = File::create(left.join(LOCK)).unwrap();
            lock.lock().unwrap();
            let undo = vec!["touch".to_owned(), mark.display().to_string()];
            fs::write(left.join(LIST), serde_json::to_vec(&[Entry::Command(undo)]).unwrap())
                .unwrap();
            (left, lock)
        };
        let (first, _lock) = leave("first", "weir-a-0");
        let own = Session::new(&build, Path::new("true"), Some("weir-a-0")).unwrap();
        assert!(other.try_wait().unwrap().is_none());
        assert!(first.exists() && !mark.exists());
        // Two hosts of one lab may be one machine.
        assert_eq!(others_now(&build, "weir-a-1"), [0_u32; 0]);
        let mut others = others_now(&build, "weir-b-0");
        others.sort_unstable();
        let mut both = [other.id(), std::process::id()];
        both.sort_unstable();
        assert_eq!(others, both);
        drop(own);
        other.kill().unwrap();
        other.wait().unwrap();
        assert_eq!(others_now(&build, "weir-b-0"), [0_u32; 0]);
    }
}
