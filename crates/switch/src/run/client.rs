//! A client of a running switch's control socket.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use host::{HostError, ListeningProcess, PrivateDirectory};
use serde_json::Value;
use thiserror::Error;

use super::unixctl;

/// The name of the control socket in the switch's folder.
pub const CONTROL_SOCKET: &str = "weir-switch.ctl";
/// Maximum wait while the switch's listen backlog is full.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
const LONGEST_REPLY: u64 = 1 << 30;

#[derive(Debug, Error)]
pub enum ClientError {
    #[error(
        "no switch runs at {}: start one by `weir switch run`, or name its folder by --rundir",
        path.display()
    )]
    NotRunning { path: PathBuf },
    #[error("cannot talk to the switch at {}: {error}{}", path.display(), remedy(.error))]
    Connection { path: PathBuf, error: io::Error },
    #[error(
        "the switch at {} did not complete its reply within {} s: it may be stopped or busy; continue it, or \
         wait longer by --timeout",
        path.display(),
        patience.as_secs_f64()
    )]
    Late { path: PathBuf, patience: Duration },
    #[error(transparent)]
    Untrusted(#[from] HostError),
    #[error(
        "the switch at {} sent a malformed reply: restart it, if it is of another version",
        path.display()
    )]
    Malformed { path: PathBuf },
    #[error("{0}")]
    Refused(String),
}

/// Returns advice for errors whose system message does not tell the user what to do.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::PermissionDenied => ": run this command as the switch's user, or as root",
        ErrorKind::TimedOut => ": the switch may be stopped; continue it, or restart it",
        _ => "",
    }
}

/// Calls a command of the switch whose folder is `rundir`. Waits at most `patience` for the whole
/// reply. Returns an error if other users can change the folder, or if the process belongs to
/// another user.
pub fn call(
    rundir: &Path,
    method: &str,
    arguments: &[String],
    patience: Duration,
) -> Result<String, ClientError> {
    let begin = Instant::now();
    let path = rundir.join(CONTROL_SOCKET);
    let broken = |error| ClientError::Connection { path: path.clone(), error };
    let not_running = || ClientError::NotRunning { path: path.clone() };
    let folder = PrivateDirectory::open_named(rundir)?.ok_or_else(not_running)?;
    let connected = folder.socket(CONTROL_SOCKET).connect(CONNECT_PATIENCE.min(patience));
    let stream = connected.map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => not_running(),
        _ => broken(error),
    })?;
    ListeningProcess::verify(&stream)?;
    let late = |error: io::Error| match error.kind() {
        ErrorKind::TimedOut => ClientError::Late { path: path.clone(), patience },
        _ => broken(error),
    };
    let mut stream = Timed { stream, begin, patience };
    stream.write_all(&unixctl::call(method, arguments)).map_err(late)?;
    stream.stream.shutdown(std::net::Shutdown::Write).map_err(broken)?;
    let mut bytes = Vec::new();
    stream.take(LONGEST_REPLY).read_to_end(&mut bytes).map_err(late)?;
    let malformed = || ClientError::Malformed { path: path.clone() };
    let reply: Value = serde_json::from_slice(&bytes).map_err(|_| malformed())?;
    match (reply.get("result"), reply.get("error")) {
        (_, Some(Value::String(error))) => Err(ClientError::Refused(error.trim_end().to_owned())),
        (Some(Value::String(text)), _) => Ok(text.clone()),
        _ => Err(malformed()),
    }
}

/// A stream whose reads and writes together take at most `patience`, counted from `begin`, even if
/// the peer sends single bytes.
struct Timed {
    stream: UnixStream,
    begin: Instant,
    patience: Duration,
}

impl Timed {
    fn left(&self) -> io::Result<Duration> {
        let left = self.patience.checked_sub(self.begin.elapsed()).filter(|left| !left.is_zero());
        left.ok_or_else(|| ErrorKind::TimedOut.into())
    }
}

/// Turns the kernel's EAGAIN, which reports an expired socket timeout (socket(7)), into `TimedOut`.
fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::WouldBlock => ErrorKind::TimedOut.into(),
        _ => error,
    }
}

impl Read for Timed {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(bytes).map_err(timed_out)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(bytes).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
