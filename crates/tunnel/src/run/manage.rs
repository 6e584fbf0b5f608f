//! Sends requests to running ends, from another process of the same user or root.

use super::{RunError, runtime, sockets, statuses};
use crate::identity::handed;
use crate::status::{self, Reply, Request, Status, StatusError};
use std::ffi::OsStr;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// Asks this user's servers, or the end behind `socket` and its former processes, to end all
/// sessions of an identity (`laptop`) or one session (`laptop/17`).
pub fn kick(socket: Option<&Path>, session: &str) -> Result<Vec<(Status, Reply)>, RunError> {
    let request = Request::Kick { session: session.to_owned() };
    let mut all = asked(socket, &request, |status| socket.is_some() || status.role == "server")?;
    let is_done =
        |all: &[(Status, Reply)]| all.iter().any(|(_, reply)| matches!(reply, Reply::Kicked(_)));
    let mut failed = None;
    for file in socket.map(former_sockets).unwrap_or_default() {
        // Each process numbers its own sessions. A number means a session of the newest process
        // that has the number.
        if is_done(&all) && session.contains('/') {
            break;
        }
        match asked(Some(&file), &request, |status| status.is_draining) {
            Ok(replies) => all.extend(replies),
            // A process that has just ended, or a file of another kind or user.
            Err(RunError::Status(error)) if error.has_ended() || error.is_foreign() => {
                tracing::debug!(path = %file.display(), %error, "not asked");
            }
            Err(error) => {
                tracing::warn!(%error, "sessions of a former process may go on");
                failed = failed.or(Some(error));
            }
        }
    }
    if let Some(error) = failed.filter(|_| !is_done(&all)) {
        return Err(error);
    }
    Ok(all)
}

/// Asks the end behind `socket`, or the only end of this user, to drain within this time. Returns
/// nothing if no end runs.
pub fn drain(socket: Option<&Path>, within: Duration) -> Result<Option<(Status, Reply)>, RunError> {
    let ends = statuses(socket)?;
    if ends.len() > 1 {
        return Err(RunError::several(&ends));
    }
    let request = Request::Drain { timeout_seconds: within.as_secs_f64() };
    Ok(asked(socket, &request, |_| true)?.into_iter().next())
}

/// Gets the private key that another process has handed to the end behind `socket`. This process
/// needs the key to take over from the end, because systemd gives a service no current copy of its
/// key.
pub fn fetch_key(socket: &Path) {
    match asked(Some(socket), &Request::Key {}, |_| true) {
        Ok(replies) => {
            for (_, reply) in replies {
                if let Reply::Key(Some(text)) = reply
                    && let Err(error) = handed::keep(text.as_bytes())
                {
                    tracing::warn!(
                        %error,
                        "the key of the running end is not used: name a key by --key-file"
                    );
                }
            }
        }
        // The hand-over itself reports why the end does not answer.
        Err(error) => tracing::debug!(%error, "the running end was not asked for its key"),
    }
}

/// Waits until the draining end has ended. Returns the number of open tunnels at the last query if
/// the time limit was over, and 0 if the end ended earlier. Returns `None` if the end still runs
/// long after its time limit.
pub fn drained(socket: Option<&Path>, pid: u32, within: Duration) -> Result<Option<u64>, RunError> {
    let mut over = Instant::now() + within;
    let mut tunnels = 0;
    while Instant::now() < over + GRACE {
        let asked = Instant::now();
        let found = match statuses(socket) {
            Ok(all) => all.into_iter().find(|status| status.pid == pid),
            Err(RunError::Status(error)) if error.has_ended() => None,
            Err(error) => return Err(error),
        };
        let Some(status) = found else {
            // An end that exits before its time limit has no tunnel left.
            return Ok(Some(if Instant::now() < over { 0 } else { tunnels }));
        };
        // Another request may have changed the time limit.
        let left = Duration::try_from_secs_f64(status.drain_seconds).unwrap_or_default();
        if !left.is_zero() {
            over = asked + left.min(LONGEST);
        }
        tunnels = status.counters.get("tunnels").copied().unwrap_or_default();
        std::thread::sleep(LOOK);
    }
    Ok(None)
}

/// Returns the status sockets of the former processes of the end behind `socket`, the newest first:
/// each adds its process number to the path (`status.sock.4711`).
fn former_sockets(socket: &Path) -> Vec<PathBuf> {
    let Some(name) = socket.file_name().and_then(OsStr::to_str) else { return Vec::new() };
    let folder = socket.parent().filter(|folder| !folder.as_os_str().is_empty());
    let entries = std::fs::read_dir(folder.unwrap_or(Path::new(".")));
    let mut all: Vec<(SystemTime, PathBuf)> = entries
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let number =
                entry.file_name().to_str()?.strip_prefix(name)?.strip_prefix('.')?.to_owned();
            let is_former = number.parse::<u32>().is_ok() && entry.file_type().ok()?.is_socket();
            // A former process makes its socket when another process takes over from it.
            let since = entry.metadata().ok()?.modified().ok()?;
            is_former.then(|| (since, entry.path()))
        })
        .collect();
    all.sort_by(|(one, _), (other, _)| other.cmp(one));
    all.into_iter().map(|(_, path)| path).collect()
}

/// Sends the request to each end for which `may` is true. Without `socket`, an error of one end is
/// returned only if no other end carries out the request.
fn asked(
    socket: Option<&Path>,
    request: &Request,
    may: impl Fn(&Status) -> bool,
) -> Result<Vec<(Status, Reply)>, RunError> {
    let mut all: Vec<(Status, Reply)> = Vec::new();
    let mut failed: Option<StatusError> = None;
    for file in sockets(socket)? {
        let asked = runtime()?.block_on(async {
            let Some(answer) = status::ask(&file, None).await? else { return Ok(None) };
            if !may(&answer.status) {
                return Ok(None);
            }
            let reply = status::request(&file, request).await?;
            Ok(reply.map(|(reply, _)| (answer.status, reply)))
        });
        match asked {
            Ok(reply) => all.extend(reply),
            // The end has exited meanwhile.
            Err(error) if socket.is_none() && StatusError::is_gone(&error) => {}
            Err(error) if socket.is_none() => failed = failed.or(Some(error)),
            Err(error) => return Err(error.into()),
        }
    }
    let is_done = all.iter().any(|(_, reply)| !matches!(reply, Reply::Refused(_)));
    match failed {
        Some(error) if !is_done => Err(error.into()),
        _ => Ok(all),
    }
}

/// How long an end may run beyond its time limit, to reset its last tunnels and notify its peers.
const GRACE: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_millis(100);
/// Maximum duration of a drain.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn only_sockets_with_a_process_number_belong_to_former_processes() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("status.sock");
        let names = ["status.sock", "status.sock.4711", "status.sock.old", "other.sock.4711"];
        let _listeners = names.map(|name| UnixListener::bind(folder.path().join(name)).unwrap());
        std::fs::write(folder.path().join("status.sock.12"), "").unwrap();
        assert_eq!(former_sockets(&socket), [folder.path().join("status.sock.4711")]);
        assert_eq!(former_sockets(&folder.path().join("none/a.sock")), [""; 0].map(PathBuf::from));
    }
}
