//! A host on this machine: a namespace of a testbed, or the machine of an agent.

use super::capture::Capture;
use super::seam::{Captured, Change, End, LabHost, Order, Stream, Task};
use super::session::{Session, inside};
use crate::model::{Cancel, Failure};
use host::{Confined, Namespace, Program, Sysctl};
use probe::process::{CpuTime, Processes};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(crate) struct LocalHost {
    name: String,
    /// The network namespace of the host. `None`: the namespace of this process.
    namespace: Option<Namespace>,
    weir: String,
    session: Mutex<Session>,
}

impl LocalHost {
    /// Prepares a host. `folder` holds the files of this host's session, which are removed when the
    /// session ends.
    pub(crate) fn new(
        name: &str,
        namespace: Option<Namespace>,
        weir: &Path,
        folder: &Path,
    ) -> Result<Self, Failure> {
        let session = Session::new(folder, weir, None)?;
        Ok(Self::of(name, namespace, weir, session))
    }

    /// Prepares the machine of an agent, for the controller of this name.
    pub(super) fn of_agent(weir: &Path, folder: &Path, controller: &str) -> Result<Self, Failure> {
        let session = Session::new(folder, weir, Some(controller))?;
        Ok(Self::of("this host", None, weir, session))
    }

    fn of(name: &str, namespace: Option<Namespace>, weir: &Path, session: Session) -> Self {
        let (weir, session) = (weir.display().to_string(), Mutex::new(session));
        Self { name: name.to_owned(), namespace, weir, session }
    }

    pub(crate) fn run(&self, order: &Order) -> Result<LocalTask, Failure> {
        let wrong = |error: std::io::Error| Failure::io("making a pipe", &error);
        let (out, stdout) = Capture::new().map_err(wrong)?;
        let (err, stderr) = Capture::new().map_err(wrong)?;
        let environment = vec![("TMPDIR".to_owned(), self.room().display().to_string())];
        let (argv, cpus) = (order.argv.clone(), order.cpus.clone());
        let program = Program { argv, environment, stdout, stderr, cpus };
        let process = match &self.namespace {
            Some(namespace) => Confined::start(namespace, program)?,
            None => Confined::start_here(program)?,
        };
        Ok(LocalTask { process, out, err })
    }

    /// Returns the folder for files of this session.
    pub(super) fn room(&self) -> PathBuf {
        self.session().room()
    }

    /// Returns the path of a file in the session's folder for files of programs. Refuses a name
    /// that leads out of the folder.
    pub(super) fn room_file(&self, name: &str) -> Result<PathBuf, Failure> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        let is_inside = !name.starts_with('/') && !name.contains("..") && name.chars().all(plain);
        match is_inside {
            true => Ok(self.room().join(name)),
            false => {
                let name = units::foreign(name);
                Err(Failure::Workload(format!("`{name}` is outside the folder of the agent")))
            }
        }
    }

    /// Writes a file, or appends to the file, and makes its folder first.
    pub(super) fn write(&self, path: &Path, text: &str, append: bool) -> Result<(), Failure> {
        let write = || {
            path.parent().map_or(Ok(()), fs::create_dir_all)?;
            let mut options = File::options();
            options.create(true).write(true).append(append).truncate(!append).mode(0o600);
            options.open(path)?.write_all(text.as_bytes())
        };
        write().map_err(|error| Failure::io(&format!("writing {}", path.display()), &error))
    }

    fn session(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LabHost for LocalHost {
    fn name(&self) -> &str {
        &self.name
    }

    fn weir(&self) -> &str {
        &self.weir
    }

    fn place(&self, name: &str, text: &str) -> Result<String, Failure> {
        let path = self.room_file(name)?;
        self.write(&path, text, false)?;
        Ok(path.display().to_string())
    }

    fn start(&self, order: &Order) -> Result<Box<dyn Task>, Failure> {
        Ok(Box::new(self.run(order)?))
    }

    fn listens(&self, port: u16) -> Result<bool, Failure> {
        let filter = probe::tcp::Filter::listening().local_port(port);
        inside(self.namespace.as_ref(), || Ok(!probe::tcp::sockets(&filter)?.is_empty()))
    }

    fn set(&self, setting: &Sysctl) -> Result<(), Failure> {
        inside(self.namespace.as_ref(), || self.session().set(setting))
    }

    fn change(&self, change: &Change) -> Result<(), Failure> {
        inside(self.namespace.as_ref(), || self.session().change(change))
    }

    fn undo(&self) -> Result<(), Failure> {
        inside(self.namespace.as_ref(), || self.session().undo())
    }
}

impl Drop for LocalHost {
    fn drop(&mut self) {
        // `Session` would undo the changes in this thread's namespace, which is the wrong
        // namespace.
        if let Err(failure) = self.undo() {
            tracing::warn!("{}: {failure}", self.name);
        }
    }
}

#[derive(Debug)]
pub(crate) struct LocalTask {
    process: Confined,
    out: Capture,
    err: Capture,
}

impl LocalTask {
    /// Returns the program's end if it ended within `patience` and before `is_over` returned true.
    pub(crate) fn end_within(
        &mut self,
        patience: Duration,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Option<End>, Failure> {
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if let Some(end) = self.process.end_within(left.min(LOOK))? {
                self.await_output();
                let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
                let (code, signal) = (end.status.code(), end.status.signal());
                let (took_ns, cpu_ns) = (nanos(end.took), nanos(end.cpu));
                return Ok(Some(End { code, signal, took_ns, cpu_ns }));
            }
            if left.is_zero() || is_over() {
                return Ok(None);
            }
        }
    }

    /// Waits for the last output. The program's descendants have ended too, so the pipes are about
    /// to close.
    fn await_output(&self) {
        self.out.await_end(OUTPUT_LOOKS);
        self.err.await_end(OUTPUT_LOOKS);
    }
}

impl Task for LocalTask {
    fn wait(&mut self, patience: Duration, cancel: &Cancel) -> Result<Option<End>, Failure> {
        let end = self.end_within(patience, &|| cancel.is_cancelled())?;
        match end {
            None if cancel.is_cancelled() => Err(Failure::Interrupted),
            end => Ok(end),
        }
    }

    fn cpu(&mut self) -> Result<Option<Duration>, Failure> {
        match Processes::tree(self.process.pid()) {
            Ok(tree) => {
                let each = tree.each.values().map(|process| process.cpu.plus(&process.reaped));
                let sum = each.fold(CpuTime::default(), |sum, one| sum.plus(&one));
                Ok(Some(sum.total().as_duration()))
            }
            Err(probe::ProbeError::Ended { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn output(&mut self, stream: Stream) -> Result<Captured, Failure> {
        Ok(match stream {
            Stream::Out => self.out.so_far(),
            Stream::Err => self.err.so_far(),
        })
    }
}

/// Polling interval: a cancelled run ends its programs within this time.
const LOOK: Duration = Duration::from_millis(50);
const OUTPUT_LOOKS: u32 = 5_000;
