//! The location of status sockets: below the directory that `host` keeps for each user, which only
//! this user can enter.

use super::{PATIENCE, Reply, Request, Status};
use crate::hand_over::{self, HandOver, Handed, STATUS, SocketOwner, TakeOverError, TakenOver};
use crate::identity;
use host::{HostError, ListeningProcess, PrivateDirectory, RemovedWhenEmpty, SocketFile};
use rustix::fs::Mode;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use units::foreign;

#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    #[error("cannot {doing} {path}: {source}{}", remedy(.source))]
    Socket { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("another process answers on {0}: stop it, or choose another --status-socket")]
    Taken(PathBuf),
    #[error(transparent)]
    Directory(#[from] HostError),
    #[error("{path} gets no request: {source}")]
    Process { path: PathBuf, source: HostError },
    #[error(
        "{path} gave no answer of a tunnel of this version: {reason}; use the weir that runs it"
    )]
    Malformed { path: PathBuf, reason: String },
    #[error(
        "the end behind {path} runs weir {version}, which takes no requests: restart the end with \
         this weir"
    )]
    Earlier { path: PathBuf, version: String },
}

/// Returns the advice to add to the operating system's message.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::NotFound => "; check the path, or leave --status-socket out",
        ErrorKind::PermissionDenied => "; run this command as the folder's owner, or as root",
        ErrorKind::TimedOut => "; the end may be stopped: continue it, or restart it",
        _ => "",
    }
}

#[derive(Debug, Clone)]
pub struct Directory(PathBuf);

/// A function that returns the end's status; `None` once the end has ended.
pub type StatusSource = Arc<dyn Fn() -> Option<Status> + Send + Sync>;

/// A function that carries out a request and returns the reply.
pub type Manage = Arc<dyn Fn(Request) -> Reply + Send + Sync>;

/// The end whose sockets can be handed over.
pub type Handing = Arc<dyn HandOver>;

/// A status socket. Dropping the value removes the socket's file.
#[derive(Debug)]
pub struct StatusListener {
    listener: UnixListener,
    owner: SocketOwner,
    directory: Option<RemovedWhenEmpty>,
}

/// An end's status, and the process that sent it.
#[derive(Debug)]
pub struct Answer {
    pub status: Status,
    pub process: ListeningProcess,
}

impl Directory {
    pub fn of_user() -> Self {
        Self(PrivateDirectory::of_user().join("tunnel"))
    }

    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Listens at the default location for this process. Creates the directory if needed, and
    /// refuses a directory that belongs to another user.
    pub fn listen(&self, role: &str) -> Result<StatusListener, StatusError> {
        let mut attempts = 0..ATTEMPTS;
        loop {
            match self.try_to_listen(role) {
                // Another program has removed the empty directory meanwhile: try again.
                Err(StatusError::Socket { source, .. })
                    if source.kind() == ErrorKind::NotFound && attempts.next().is_some() => {}
                outcome => return outcome,
            }
        }
    }

    fn try_to_listen(&self, role: &str) -> Result<StatusListener, StatusError> {
        PrivateDirectory::make(self.parent())?;
        let directory = PrivateDirectory::make(&self.0)?;
        let listener = bound(directory.socket(socket_name(role, std::process::id())))?;
        Ok(StatusListener { directory: Some(directory.removed_when_empty()), ..listener })
    }

    /// Lists all existing sockets, whether or not a process listens on them. Refuses a directory
    /// that is not private to this user.
    pub fn sockets(&self) -> Result<Vec<SocketFile>, StatusError> {
        if PrivateDirectory::open(self.parent())?.is_none() {
            return Ok(Vec::new());
        }
        let directory = PrivateDirectory::open(&self.0)?;
        Ok(directory.map_or_else(|| Ok(Vec::new()), |directory| directory.sockets())?)
    }

    fn parent(&self) -> &Path {
        self.0.parent().unwrap_or(&self.0)
    }
}

/// Returns the name of the status socket of a process that has no `--status-socket`.
pub(super) fn socket_name(role: &str, pid: u32) -> String {
    format!("{role}-{pid}.sock")
}

/// Listens on a socket that only its owner can open. Replaces the socket of a dead process, but no
/// other file.
pub fn listen(path: &Path) -> Result<StatusListener, StatusError> {
    bound(at(path)?)
}

/// Returns the location that a user named.
pub fn at(path: &Path) -> Result<SocketFile, StatusError> {
    SocketFile::at(path).map_err(|error| StatusError::socket("open", path, error))
}

fn bound(file: SocketFile) -> Result<StatusListener, StatusError> {
    let path = file.path().to_owned();
    let failed = |error: io::Error| match error.kind() {
        ErrorKind::AddrInUse => StatusError::Taken(path.clone()),
        _ => StatusError::socket("listen on", &path, error),
    };
    let (listener, file) = file.listen(Some(Mode::RUSR | Mode::WUSR)).map_err(failed)?;
    let listener = listener.set_nonblocking(true).and_then(|()| UnixListener::from_std(listener));
    let owner = SocketOwner::of(file);
    Ok(StatusListener { listener: listener.map_err(failed)?, owner, directory: None })
}

impl StatusListener {
    /// Takes over the socket that another process has at `path`, if it has one there.
    pub(crate) fn taken_over(
        path: &Path,
        handed: &mut Handed,
    ) -> Option<Result<Self, StatusError>> {
        let (file, owner) = handed.take_path(STATUS, path)?;
        let listener = std::os::unix::net::UnixListener::from(file);
        let listener =
            listener.set_nonblocking(true).and_then(|()| UnixListener::from_std(listener));
        Some(match listener {
            Ok(listener) => Ok(Self { listener, owner, directory: None }),
            Err(error) => Err(StatusError::socket("listen on", path, error)),
        })
    }

    /// Calls listen(2) on a socket that was taken over, so that the kernel reports this process as
    /// the socket's peer: the kernel records the last process that called listen(2).
    pub(crate) fn own(&self) {
        if let Err(error) = rustix::net::listen(&self.listener, BACKLOG) {
            tracing::warn!(%error, "`weir tunnel status` sees the former process");
        }
    }

    /// Returns a copy of the socket, and its file, for another process. Returns `None` for a socket
    /// at the default location, which this process keeps.
    pub(crate) fn shared(&self) -> io::Result<Option<(OwnedFd, SocketOwner)>> {
        if self.directory.is_some() {
            return Ok(None);
        }
        Ok(Some((self.listener.as_fd().try_clone_to_owned()?, self.owner.clone())))
    }

    /// Serves clients for ever. Passes requests to `manage` and take-overs to `handing`, keeps a
    /// key that a client hands over, and sends the status document to every other client.
    pub async fn serve(self, tell: StatusSource, manage: Manage, handing: Option<Handing>) {
        loop {
            match self.listener.accept().await {
                Ok((mut stream, _)) => {
                    let (tell, manage) = (Arc::clone(&tell), Arc::clone(&manage));
                    let handing = handing.clone();
                    tokio::spawn(async move {
                        let text = tokio::time::timeout(PATIENCE, received(&mut stream)).await;
                        let Ok(text) = text else { return };
                        if let Some(within) = asked_to_hand_over(text.as_deref(), &stream)
                            && let Some(handing) = handing
                        {
                            return hand_over::give(stream, &*handing, within).await;
                        }
                        let answer = async {
                            let document = match text {
                                Some(text) if Request::begins(&text) => {
                                    serde_json::to_vec(&replied(&text, &stream, &manage))
                                }
                                text => {
                                    take_key(text, &stream);
                                    let Some(status) = tell() else { return };
                                    serde_json::to_vec(&status)
                                }
                            };
                            let document = document.unwrap_or_default();
                            let _ = stream.write_all(&document).await;
                            let _ = stream.shutdown().await;
                        };
                        let _ = tokio::time::timeout(PATIENCE, answer).await;
                    });
                }
                // This process has too many open files. Wait; the client may retry.
                Err(_) => tokio::time::sleep(PATIENCE / 50).await,
            }
        }
    }
}

/// Reads the text that a client sends, if any.
async fn received(stream: &mut UnixStream) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    // A client of an earlier version sends no request and waits for the answer.
    let first = tokio::time::timeout(KEY_WITHIN, stream.read_buf(&mut text)).await;
    if !matches!(first, Ok(Ok(1..))) {
        return None;
    }
    let mut stream = stream.take(LONGEST_KEY);
    // Stop at the end of a request's line, because a process that takes over sends more bytes
    // later.
    while !(Request::begins(&text) && text.ends_with(b"\n")) {
        match stream.read_buf(&mut text).await {
            Ok(0) => break,
            Ok(_) => {}
            Err(_) => return None,
        }
    }
    Some(text)
}

/// Returns how long this end's last connections may go on, if a trusted process asks to take over.
fn asked_to_hand_over(text: Option<&[u8]>, stream: &UnixStream) -> Option<Duration> {
    let text = text.filter(|text| Request::begins(text) && is_trusted(stream))?;
    match Request::from_json(text) {
        Ok(Request::TakeOver { timeout_seconds }) => {
            Duration::try_from_secs_f64(timeout_seconds).ok()
        }
        _ => None,
    }
}

/// Takes over from the end behind that socket; `None` if no process listens any more.
pub(crate) fn take_over(
    file: &SocketFile,
    within: Duration,
) -> Result<Option<TakenOver>, TakeOverError> {
    let path = file.path();
    let failed = |error| StatusError::socket("read", path, error);
    let mut stream = match file.connect(PATIENCE) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Ok(None),
        connected => connected.map_err(failed)?,
    };
    let process = ListeningProcess::behind(&stream, None)
        .map_err(|source| StatusError::Process { path: path.to_owned(), source })?;
    let request = Request::TakeOver { timeout_seconds: within.as_secs_f64() };
    let mut text = serde_json::to_vec(&request).unwrap_or_default();
    text.push(b'\n');
    io::Write::write_all(&mut stream, &text).map_err(failed)?;
    TakenOver::receive(stream, process).map(Some)
}

/// Whether the client's process belongs to this user or to root.
fn is_trusted(stream: &UnixStream) -> bool {
    let user = stream.peer_cred().map(|peer| peer.uid());
    user.is_ok_and(|user| user == 0 || user == rustix::process::geteuid().as_raw())
}

fn replied(text: &[u8], stream: &UnixStream, manage: &Manage) -> Reply {
    if !is_trusted(stream) {
        let why = "the request comes from another user: run the command as the end's user or root";
        return Reply::Refused(why.to_owned());
    }
    Request::from_json(text).map_or_else(Reply::Refused, |request| manage(request))
}

/// Takes a private key if a trusted client has sent one.
fn take_key(text: Option<Vec<u8>>, stream: &UnixStream) {
    let Some(text) = text.filter(|_| is_trusted(stream)) else { return };
    if let Err(error) = identity::handed::keep(&text) {
        tracing::warn!(%error, "a key that was handed over is not used");
    }
}

/// Queries the end behind the socket `file`. Returns `None` if no process listens. The end's
/// process must belong to this user or to root. Root may also query the process of another user if
/// the socket lies in the other user's directory, as a service's socket does.
///
/// Hands the private key `key` to the end first. The end uses the key from its next reload on.
pub async fn ask(file: &SocketFile, key: Option<&[u8]>) -> Result<Option<Answer>, StatusError> {
    let Some((document, process)) = exchange(file, key.unwrap_or_default()).await? else {
        return Ok(None);
    };
    let status = Status::from_json(&document).map_err(|error| malformed(file.path(), error))?;
    // Trust the process ID from the kernel, not the process ID in the document.
    let status = Status { pid: process.pid(), ..status };
    Ok(Some(Answer { status, process }))
}

/// Asks the end behind that socket to carry out a request. Trusts the same processes as [`ask`].
pub async fn request(
    file: &SocketFile,
    request: &Request,
) -> Result<Option<(Reply, ListeningProcess)>, StatusError> {
    let text = serde_json::to_vec(request).unwrap_or_default();
    let Some((document, process)) = exchange(file, &text).await? else { return Ok(None) };
    let reply = serde_json::from_slice(&document).map_err(|error| {
        // An end of an earlier version answers every request with its status.
        match Status::from_json(&document) {
            Ok(Status { version, .. }) => StatusError::Earlier {
                path: file.path().to_owned(),
                version: foreign(version).to_string(),
            },
            Err(_) => malformed(file.path(), error),
        }
    });
    Ok(Some((reply?, process)))
}

fn malformed(path: &Path, error: serde_json::Error) -> StatusError {
    StatusError::Malformed { path: path.to_owned(), reason: foreign(error).to_string() }
}

/// Sends `text` and reads the answer.
async fn exchange(
    file: &SocketFile,
    text: &[u8],
) -> Result<Option<(Vec<u8>, ListeningProcess)>, StatusError> {
    let path = file.path();
    let failed = |error| StatusError::socket("read", path, error);
    let stream = match file.connect(PATIENCE) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Ok(None),
        connected => connected.map_err(failed)?,
    };
    let process = ListeningProcess::behind(&stream, owner_for_root(path))
        .map_err(|source| StatusError::Process { path: path.to_owned(), source })?;
    stream.set_nonblocking(true).map_err(failed)?;
    let mut stream = UnixStream::from_std(stream).map_err(failed)?;
    let mut document = Vec::new();
    let exchange = async {
        stream.write_all(text).await?;
        // An end of an earlier version may have answered already.
        let _ = stream.shutdown().await;
        stream.take(LONGEST + 1).read_to_end(&mut document).await
    };
    tokio::time::timeout(PATIENCE, exchange)
        .await
        .map_err(|_| failed(ErrorKind::TimedOut.into()))?
        .map_err(failed)?;
    if document.len() as u64 > LONGEST {
        let reason = format!("the answer exceeds {LONGEST} bytes");
        return Err(StatusError::Malformed { path: path.to_owned(), reason });
    }
    Ok(Some((document, process)))
}

/// Returns the owner of a socket's directory, if only the owner can change the directory; `None` if
/// this process is not root.
fn owner_for_root(socket: &Path) -> Option<u32> {
    let directory = std::fs::metadata(socket.parent()?).ok()?;
    let is_private = directory.mode() & 0o022 == 0;
    (rustix::process::geteuid().is_root() && is_private).then(|| directory.uid())
}

impl StatusError {
    /// Whether the socket's file does not exist.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Socket { source, .. } if source.kind() == ErrorKind::NotFound)
    }

    /// Whether the end has closed its socket without an answer, or its process has ended.
    pub fn has_ended(&self) -> bool {
        use ErrorKind::{BrokenPipe, ConnectionReset, NotFound};
        match self {
            Self::Malformed { .. } => true,
            Self::Process { source, .. } => matches!(source, HostError::ProcessGone { .. }),
            Self::Socket { source, .. } => {
                matches!(source.kind(), NotFound | ConnectionReset | BrokenPipe)
            }
            _ => false,
        }
    }

    /// Whether the socket belongs to a process of another user, which gets no request.
    pub fn is_foreign(&self) -> bool {
        matches!(self, Self::Process { source: HostError::ForeignProcess { .. }, .. })
    }

    fn socket(doing: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Socket { doing, path: path.to_owned(), source }
    }
}

/// Number of times that an end tries to create its directory.
const ATTEMPTS: usize = 100;
/// Maximum length of an answer: the status of some ten thousand connections.
const LONGEST: u64 = 16 << 20;
const LONGEST_KEY: u64 = 64 << 10;
const BACKLOG: i32 = 128;
/// The time within which a client must send its request or key, or end its half of the stream. The
/// time is long, because a busy machine may delay a client, and this end would answer a late
/// request with its status.
const KEY_WITHIN: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::super::tests::status;
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[tokio::test]
    async fn a_status_socket_may_have_a_path_longer_than_sun_path() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("a".repeat(100)).join("b".repeat(100));
        std::fs::create_dir_all(&deep).unwrap();
        let path = deep.join("status.sock");
        let first = listen(&path).unwrap();
        assert!(matches!(listen(&path), Err(StatusError::Taken(_))));
        drop(first);
        assert!(!path.exists());
        let nobody = ask(&at(&path).unwrap(), None).await;
        assert!(matches!(nobody, Err(StatusError::Socket { .. })));
        drop(listen(&path).unwrap());
    }

    #[tokio::test]
    async fn a_regular_file_is_never_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes.txt");
        std::fs::write(&path, "mine").unwrap();
        let refused = listen(&path).unwrap_err().to_string();
        assert!(refused.contains("no socket: remove it, or choose another path"), "{refused}");
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    }

    #[tokio::test]
    async fn a_directory_that_others_may_enter_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let directory = Directory::at(home.path().join("weir/tunnel"));
        let _listener = directory.listen("server").unwrap();
        assert_eq!(directory.sockets().unwrap().len(), 1);
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(home.path().join("weir"), open).unwrap();
        let refused = directory.sockets().unwrap_err().to_string();
        assert!(refused.contains("can be entered by others"), "{refused}");
        let refused = directory.listen("client").unwrap_err().to_string();
        assert!(refused.contains("can be entered by others"), "{refused}");
    }

    #[tokio::test]
    async fn a_status_reply_is_bounded_and_its_process_id_comes_from_the_kernel() {
        let home = tempfile::tempdir().unwrap();
        let file = |name: &str| SocketFile::at(&home.path().join(name)).unwrap();
        let serve = |name: &str, document: Vec<u8>| {
            let (listener, bound) = file(name).listen(None).unwrap();
            std::thread::spawn(move || {
                use std::io::Write;
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.write_all(&document);
                drop(bound);
            })
        };
        // The document names process 1 as its sender.
        assert_eq!(status().pid, 1);
        let serving = serve("liar.sock", serde_json::to_vec(&status()).unwrap());
        let answer = ask(&file("liar.sock"), None).await.unwrap().unwrap();
        assert_eq!(answer.status.pid, std::process::id());
        serving.join().unwrap();
        let serving = serve("endless.sock", vec![b' '; 17 << 20]);
        let refused = ask(&file("endless.sock"), None).await.unwrap_err().to_string();
        assert!(refused.contains("the answer exceeds"), "{refused}");
        serving.join().unwrap();
    }
}
