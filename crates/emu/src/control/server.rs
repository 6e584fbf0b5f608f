use crate::control::line::Lines;
use crate::control::{Claim, Reply, Request};
use crate::{EmuError, Inspector};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The control server of one running link. Dropping this value ends the service and frees the name.
#[derive(Debug)]
pub struct Server {
    claim: Claim,
    shared: Arc<Shared>,
    end: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    inspector: Inspector,
    down: AtomicBool,
    clients: AtomicUsize,
    /// Clients that requested `down`. The connections of these clients close once the link has
    /// removed all its objects.
    parting: Mutex<Vec<Lines>>,
}

impl Server {
    pub fn start(claim: Claim, inspector: Inspector) -> Result<Self, EmuError> {
        let failed = |source: io::Error| EmuError::Control {
            doing: "serving the control socket".to_owned(),
            source,
        };
        let listener = claim.listener.try_clone().map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let end = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
        let end = Arc::new(end.map_err(|e| failed(e.into()))?);
        let shared = Arc::new(Shared {
            inspector,
            down: AtomicBool::new(false),
            clients: AtomicUsize::new(0),
            parting: Mutex::new(Vec::new()),
        });
        let (inside, ending) = (Arc::clone(&shared), Arc::clone(&end));
        let thread = std::thread::Builder::new()
            .name("control socket".to_owned())
            .spawn(move || serve(&listener, &inside, &ending))
            .map_err(failed)?;
        Ok(Self { claim, shared, end, thread: Some(thread) })
    }

    pub fn name(&self) -> &str {
        self.claim.name()
    }

    pub fn down_requested(&self) -> bool {
        self.shared.down.load(Ordering::Acquire)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.end, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(listener: &UnixListener, shared: &Arc<Shared>, end: &OwnedFd) {
    loop {
        let mut fds = [PollFd::new(listener, PollFlags::IN), PollFd::new(end, PollFlags::IN)];
        if poll(&mut fds, None).is_err() {
            continue;
        }
        if !fds[1].revents().is_empty() {
            return;
        }
        match listener.accept() {
            Ok((stream, _)) => welcome(stream, shared),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                // Descriptors have probably run out: retrying at once would keep a core busy.
                tracing::debug!(%error, "accepting a client of the control socket");
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

fn welcome(stream: UnixStream, shared: &Arc<Shared>) {
    let mut lines = Lines::new(stream, PATIENCE);
    if shared.clients.fetch_add(1, Ordering::AcqRel) >= MOST_CLIENTS {
        shared.clients.fetch_sub(1, Ordering::AcqRel);
        let _ = say(&mut lines, &Reply::Error("too many clients: try again later".to_owned()));
        return;
    }
    let inside = Arc::clone(shared);
    let thread = std::thread::Builder::new().name("control client".to_owned()).spawn(move || {
        converse(lines, &inside);
        inside.clients.fetch_sub(1, Ordering::AcqRel);
    });
    if thread.is_err() {
        shared.clients.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Serves a client until the client closes the connection, takes too long, or sends a malformed
/// line.
fn converse(mut lines: Lines, shared: &Shared) {
    loop {
        let line = match lines.read() {
            Ok(Some(line)) => line,
            Ok(None) => return,
            Err(error) => {
                let _ =
                    say(&mut lines, &Reply::Error(format!("the request cannot be read: {error}")));
                return;
            }
        };
        let reply = match serde_json::from_str(&line) {
            Ok(Request::Down) => {
                if say(&mut lines, &Reply::Done("ending".to_owned())).is_ok() {
                    shared.parting.lock().unwrap_or_else(PoisonError::into_inner).push(lines);
                }
                shared.down.store(true, Ordering::Release);
                return;
            }
            Ok(Request::Show) => shared.inspector.inspect().map(|link| Reply::Link(Box::new(link))),
            Ok(Request::Set { both, ab, ba }) => {
                shared.inspector.change(&both, &ab, &ba).map(|()| Reply::Done("changed".to_owned()))
            }
            Err(error) => Err(EmuError::Refused(format!(
                "the request is not understood: {error}; use the weir that made the link"
            ))),
        };
        let reply = reply.unwrap_or_else(|error| Reply::Error(error.to_string()));
        if say(&mut lines, &reply).is_err() {
            return;
        }
    }
}

fn say(lines: &mut Lines, reply: &Reply) -> io::Result<()> {
    lines.write(serde_json::to_string(reply)?)
}

const MOST_CLIENTS: usize = 16;
const PATIENCE: Duration = Duration::from_secs(10);
