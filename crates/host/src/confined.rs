#![allow(unsafe_code)]

use crate::{HostError, Namespace, pin_to};
use nix::sched::{CloneFlags, unshare};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A program to run, and the destinations of its output.
#[derive(Debug)]
pub struct Program {
    pub argv: Vec<String>,
    pub environment: Vec<(String, String)>,
    pub stdout: File,
    pub stderr: File,
    /// The CPUs that the program may use; all if empty.
    pub cpus: Vec<usize>,
}

/// How a program ended, and its use of the machine until then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    pub status: ExitStatus,
    /// Time from the call that started the program to its end.
    pub took: Duration,
    /// CPU time of the program, and of the descendants that ended before the program.
    pub cpu: Duration,
}

/// A running program inside a network namespace, the first process of a new process namespace. The
/// program ends with this process, and all its descendants end with the program.
#[derive(Debug)]
pub struct Confined {
    pid: u32,
    /// A process ID may be reused for another process; this descriptor cannot.
    handle: OwnedFd,
    name: String,
    ended: mpsc::Receiver<io::Result<Ended>>,
    end: Option<Ended>,
    keeper: Option<std::thread::JoinHandle<()>>,
}

impl Confined {
    pub fn start(namespace: &Namespace, program: Program) -> Result<Self, HostError> {
        Self::start_in(Some(namespace.share()?), program)
    }

    /// Starts a program in the network namespace of this process, which needs no network
    /// privileges.
    pub fn start_here(program: Program) -> Result<Self, HostError> {
        Self::start_in(None, program)
    }

    fn start_in(inside: Option<Namespace>, program: Program) -> Result<Self, HostError> {
        let name = program.argv.first().cloned().unwrap_or_default();
        let (started, start) = mpsc::channel();
        let (ending, ended) = mpsc::channel();
        // The parent-death signal is sent when the thread that forked ends, not when the process
        // ends. So this thread ends only when the program ends.
        let keeper = std::thread::Builder::new()
            .name(format!("keeper of {}", name.replace('\0', "")))
            .spawn(move || match fork_into(inside.as_ref(), program) {
                Err(error) => {
                    let _ = started.send(Err(error));
                }
                Ok((child, begun)) => {
                    let _ = started.send(handle_of(&child));
                    let _ = ending.send(end_of(&child, begun));
                }
            })
            .map_err(|e| HostError::io("starting a thread", e))?;
        let gone = || HostError::io("starting a program", io::Error::other("its keeper died"));
        let (pid, handle) = start.recv().map_err(|_| gone())??;
        Ok(Self { pid, handle, name, ended, end: None, keeper: Some(keeper) })
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits for at most `patience`. Returns the exit status if the program has ended.
    pub fn wait(&mut self, patience: Duration) -> Result<Option<ExitStatus>, HostError> {
        Ok(self.end_within(patience)?.map(|end| end.status))
    }

    /// Waits for at most `patience`. Returns the exit status and the times of the program if it has
    /// ended.
    pub fn end_within(&mut self, patience: Duration) -> Result<Option<Ended>, HostError> {
        if self.end.is_some() {
            return Ok(self.end);
        }
        match self.ended.recv_timeout(patience) {
            Ok(Ok(end)) => {
                self.end = Some(end);
                Ok(self.end)
            }
            Ok(Err(source)) => Err(HostError::io(format!("waiting for {}", self.name), source)),
            Err(mpsc::RecvTimeoutError::Timeout) => Ok(None),
            Err(mpsc::RecvTimeoutError::Disconnected) => Err(HostError::io(
                format!("waiting for {}", self.name),
                io::Error::other("its keeper died"),
            )),
        }
    }

    /// Kills the program and all its descendants, and waits for their end.
    pub fn kill(&mut self) -> Result<ExitStatus, HostError> {
        self.signal(Signal::KILL);
        let ended = self.wait(KILLED_WITHIN)?;
        ended.ok_or_else(|| {
            let source = io::Error::from(io::ErrorKind::TimedOut);
            HostError::io(format!("killing {}", self.name), source)
        })
    }

    /// Asks the program to end, waits for `grace`, then kills the program and all its descendants.
    pub fn stop(&mut self, grace: Duration) -> Result<ExitStatus, HostError> {
        let deadline = Instant::now() + grace;
        for signal in [Signal::TERM, Signal::KILL] {
            self.signal(signal);
            let patience = match signal {
                Signal::KILL => KILLED_WITHIN,
                _ => deadline.saturating_duration_since(Instant::now()),
            };
            if let Some(status) = self.wait(patience)? {
                return Ok(status);
            }
        }
        Err(HostError::io(
            format!("stopping {}", self.name),
            io::Error::from(io::ErrorKind::TimedOut),
        ))
    }

    /// Sends a signal; does nothing if the process has already ended.
    fn signal(&self, signal: Signal) {
        if self.end.is_none() {
            let _ = pidfd_send_signal(&self.handle, signal);
        }
    }
}

impl Drop for Confined {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
    }
}

fn handle_of(child: &std::process::Child) -> Result<(u32, OwnedFd), HostError> {
    let pid = child.id();
    let raw = Pid::from_raw(pid as i32).ok_or(io::ErrorKind::NotFound);
    raw.map_err(io::Error::from)
        .and_then(|raw| pidfd_open(raw, PidfdFlags::empty()).map_err(io::Error::from))
        .map(|handle| (pid, handle))
        .map_err(|e| HostError::io("opening a process handle", e))
}

/// Waits for the child and reads what the kernel counted for it. `std` reports no CPU time.
fn end_of(child: &std::process::Child, begun: Instant) -> io::Result<Ended> {
    let (mut status, mut usage) = (0, MaybeUninit::<libc::rusage>::zeroed());
    // SAFETY: both pointers are to values that outlive the call, and all-zero is a valid rusage.
    let usage = unsafe {
        loop {
            if libc::wait4(child.id() as i32, &raw mut status, 0, usage.as_mut_ptr()) >= 0 {
                break usage.assume_init();
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    };
    let took = begun.elapsed();
    let time = |time: libc::timeval| {
        let whole = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0));
        whole + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
    };
    let cpu = time(usage.ru_utime) + time(usage.ru_stime);
    Ok(Ended { status: ExitStatus::from_raw(status), took, cpu })
}

fn fork_into(
    namespace: Option<&Namespace>,
    program: Program,
) -> Result<(std::process::Child, Instant), HostError> {
    let name = program.argv.first().cloned().unwrap_or_default();
    if let Some(namespace) = namespace {
        namespace.enter()?;
    }
    if !program.cpus.is_empty() {
        pin_to(&program.cpus)?;
    }
    unshare(CloneFlags::CLONE_NEWPID)
        .map_err(|e| HostError::io("creating a process namespace", e))?;
    let mut command = Command::new(&name);
    command
        .args(&program.argv[1.min(program.argv.len())..])
        .envs(program.environment)
        .stdin(Stdio::null())
        .stdout(program.stdout)
        .stderr(program.stderr)
        // Ctrl-C signals the foreground process group. The programs have another group, because the
        // lab decides how the programs end.
        .process_group(0);
    // Reads this process's ID from /proc, which may have been mounted in another process namespace.
    let parent = std::fs::read_link("/proc/self").ok().and_then(|pid| pid.to_str()?.parse().ok());
    // SAFETY: between fork and exec only async-signal-safe calls are allowed: prctl, and the calls
    // of `parent_is`, which are open, read and close on its own buffer.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(io::Error::last_os_error());
            }
            // If the parent died before prctl, no signal comes.
            match parent_is(parent) {
                true => Ok(()),
                false => Err(io::Error::from_raw_os_error(libc::ESRCH)),
            }
        });
    }
    let begun = Instant::now();
    let spawned = command.spawn().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => HostError::NoSuchProgram { program: name },
        _ => HostError::io(format!("starting {name}"), source),
    });
    Ok((spawned?, begun))
}

/// Whether the calling process still has this parent. In the new process namespace getppid(2)
/// always returns 0, but a /proc that was mounted outside shows the parent. Returns true without
/// /proc.
fn parent_is(expected: Option<u32>) -> bool {
    let mut buffer = [0_u8; 512];
    // SAFETY: the path ends in NUL, the buffer outlives the read, and only its length is written.
    let length = unsafe {
        let file = libc::open(c"/proc/self/stat".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if file < 0 {
            return true;
        }
        let length = libc::read(file, buffer.as_mut_ptr().cast(), buffer.len());
        libc::close(file);
        length
    };
    let text = &buffer[..usize::try_from(length).unwrap_or(0)];
    match (parent_of(text), expected) {
        (Some(parent), Some(expected)) => parent == expected,
        _ => true,
    }
}

/// Returns the parent: the fourth field of /proc/PID/stat. The second field is in brackets and may
/// contain any text.
fn parent_of(stat: &[u8]) -> Option<u32> {
    let name_ends = stat.iter().rposition(|byte| *byte == b')')?;
    let mut fields = stat[name_ends + 1..].split(|byte| *byte == b' ').skip(2);
    std::str::from_utf8(fields.next()?).ok()?.parse().ok()
}

/// How long the kernel may take to end a killed program.
const KILLED_WITHIN: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_pid_is_parsed_after_a_name_with_any_characters() {
        assert_eq!(parent_of(b"12 (a ) b) S 34 56 7"), Some(34));
        assert_eq!(parent_of(b""), None);
        let own = std::fs::read("/proc/self/stat").unwrap();
        assert_eq!(parent_of(&own), Some(std::os::unix::process::parent_id()));
    }
}
