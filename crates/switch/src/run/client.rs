//! A client of a running switch's control socket.

use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use host::SocketFile;
use serde_json::Value;
use thiserror::Error;

use super::unixctl;

/// The name of the control socket in the switch's folder.
pub const CONTROL_SOCKET: &str = "weir-switch.ctl";
const PATIENCE: Duration = Duration::from_secs(5);
const LONGEST_REPLY: u64 = 1 << 30;

#[derive(Debug, Error)]
pub enum ClientError {
    #[error(
        "no switch runs at {}: start one by `weir switch run`, or name its folder by --rundir",
        path.display()
    )]
    NotRunning { path: PathBuf },
    #[error("cannot talk to the switch at {}: {error}{}", path.display(), remedy(.error))]
    Connection { path: PathBuf, error: std::io::Error },
    #[error(
        "the switch at {} sent a malformed reply: restart it, if it is of another version",
        path.display()
    )]
    Malformed { path: PathBuf },
    #[error("{0}")]
    Refused(String),
}

/// Advice where the system's own message is not enough.
fn remedy(error: &std::io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::PermissionDenied => ": run this command as the switch's user, or as root",
        ErrorKind::TimedOut => ": the switch may be stopped; continue it, or restart it",
        _ => "",
    }
}

/// Calls a command of the switch whose folder is `rundir`.
pub fn call(rundir: &Path, method: &str, arguments: &[String]) -> Result<String, ClientError> {
    let path = rundir.join(CONTROL_SOCKET);
    let broken = |error| ClientError::Connection { path: path.clone(), error };
    let connected = SocketFile::at(&path).and_then(|file| file.connect(PATIENCE));
    let mut stream = connected.map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            ClientError::NotRunning { path: path.clone() }
        }
        _ => broken(error),
    })?;
    stream.write_all(&unixctl::call(method, arguments)).map_err(broken)?;
    stream.shutdown(std::net::Shutdown::Write).map_err(broken)?;
    let mut bytes = Vec::new();
    stream.take(LONGEST_REPLY).read_to_end(&mut bytes).map_err(broken)?;
    let malformed = || ClientError::Malformed { path: path.clone() };
    let reply: Value = serde_json::from_slice(&bytes).map_err(|_| malformed())?;
    match (reply.get("result"), reply.get("error")) {
        (_, Some(Value::String(error))) => Err(ClientError::Refused(error.trim_end().to_owned())),
        (Some(Value::String(text)), _) => Ok(text.clone()),
        _ => Err(malformed()),
    }
}
