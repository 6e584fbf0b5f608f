//! `--logfile`, `--daemon` and `--pidfile`.

use crate::exit::{Ending, Unusable};
use crate::output;
use anyhow::Context;
use host::{ConfinedPaths, Earlier, OtherThreads, Policy, open_output_file};
use rustix::thread::CapabilitySet;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Appends standard output to the file at `path` from now on.
pub(crate) fn log_to(path: &Path) -> anyhow::Result<()> {
    let file = opened(path)?;
    rustix::stdio::dup2_stdout(&file).context("redirecting the output")
}

/// Starts this program again in the background, and waits until the new process serves. Returns the
/// ending of this process; `None` in the new process.
pub(crate) fn detach() -> anyhow::Result<Option<Ending>> {
    if std::env::var_os(MARK).is_some() {
        // Fails if this process already leads a session.
        let _ = rustix::process::setsid();
        return Ok(None);
    }
    let program = std::env::current_exe().context("finding this program itself")?;
    let mut command = Command::new(program);
    command.args(std::env::args_os().skip(1)).env(MARK, "1").stderr(Stdio::piped());
    host::prepare_background(&mut command);
    let mut child = command.spawn().context("starting the program in the background")?;
    let mut said = String::new();
    if let Some(mut errors) = child.stderr.take() {
        // The new process closes its end of the pipe once it serves.
        let _ = errors.read_to_string(&mut said);
    }
    if !said.is_empty() {
        output::note(said.trim_end());
    }
    // Wait long enough that a new process that could not start has ended.
    std::thread::sleep(std::time::Duration::from_millis(20));
    let ended = child.try_wait().context("looking after the program in the background")?;
    Ok(Some(match ended {
        Some(status) if status.code() == Some(2) => Ending::Misused,
        Some(status) if !status.success() => Ending::Failed,
        _ => Ending::Fine,
    }))
}

/// Tells the starting process that this process now serves. Later errors go to `log`.
pub(crate) fn serving(log: Option<&Path>) -> anyhow::Result<()> {
    if std::env::var_os(MARK).is_none() {
        return Ok(());
    }
    let file = match log {
        Some(path) => opened(path)?,
        None => File::options().write(true).open("/dev/null").context("opening /dev/null")?,
    };
    rustix::stdio::dup2_stderr(&file).context("redirecting the errors")
}

/// A file with this process's number, removed when the value is dropped.
#[derive(Debug)]
pub(crate) struct PidFile {
    path: PathBuf,
    /// The thread that may remove the file after the process has given up this right.
    remover: Option<OtherThreads>,
}

impl PidFile {
    pub(crate) fn write(path: &Path) -> anyhow::Result<Self> {
        let text = format!("{}\n", std::process::id());
        open_output_file(path, Earlier::Replaced, READABLE)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(|cause| Unusable::path("write", path, &cause, "--pidfile"))?;
        Ok(Self { path: std::path::absolute(path)?, remover: None })
    }

    /// Starts a thread that keeps this user's right to remove files of the file's directory, and
    /// gives up all other rights. Call this method before the process gives up its rights.
    pub(crate) fn remove_on_own_thread(&mut self) -> anyhow::Result<()> {
        let mut paths = ConfinedPaths::default();
        paths.removes(&self.path);
        let (threads, _) = OtherThreads::start("pidfile", move || host::confine(&REMOVER, &paths))
            .context("starting the thread that removes the file of --pidfile")?;
        self.remover = Some(threads);
        Ok(())
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let Some(remover) = &self.remover else {
            let _ = std::fs::remove_file(&self.path);
            return;
        };
        let path = self.path.clone();
        let _ = remover.call(move || std::fs::remove_file(path));
    }
}

/// The rights of the thread that removes a file of `--pidfile`. CAP_DAC_OVERRIDE: another user may
/// own the directory.
const REMOVER: Policy =
    Policy { capabilities: CapabilitySet::DAC_OVERRIDE, system: &[], calls: &[] };

fn opened(path: &Path) -> anyhow::Result<File> {
    open_output_file(path, Earlier::Kept, READABLE)
        .map_err(|cause| Unusable::path("write", path, &cause, "--logfile").into())
}

/// Permission bits of a new file, before the umask applies.
const READABLE: u32 = 0o666;
/// Environment variable that marks the background process.
const MARK: &str = "WEIR_IN_BACKGROUND";
