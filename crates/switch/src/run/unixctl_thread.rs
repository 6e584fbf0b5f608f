use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use host::BoundFile;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::commands;
use super::connection::is_transient;
use super::outgoing::Outgoing;
use super::switch::Switch;
use super::unixctl::{Requests, reply};
use super::waker::Waker;

/// The thread that serves ovs-appctl and `weir switch`.
pub(super) struct UnixctlThread {
    pub(super) switch: Arc<Switch>,
    /// The listeners, each with its socket's file. The files are removed when the thread ends.
    pub(super) listeners: Vec<(UnixListener, BoundFile)>,
    pub(super) waker: Arc<Waker>,
    pub(super) stop: Arc<AtomicBool>,
}

struct Client {
    stream: UnixStream,
    requests: Requests,
    out: Outgoing,
    has_ended: bool,
}

impl UnixctlThread {
    /// Serves until the switch is stopped, then sends the last replies.
    pub(super) fn run(self) {
        let mut clients: Vec<Client> = Vec::new();
        let mut scratch = vec![0; READ];
        while !self.stop.load(Ordering::Acquire) {
            let ready = self.wait(&clients);
            self.waker.clear();
            let mut index = 0;
            let held: usize = clients.iter().map(|client| client.requests.waiting()).sum();
            clients.retain_mut(|client| {
                let ready = ready.get(index).copied().unwrap_or(PollFlags::empty());
                index += 1;
                self.serve(client, ready, held, &mut scratch).unwrap_or(false)
            });
            for (listener, _) in &self.listeners {
                while let Ok((stream, _)) = listener.accept() {
                    if clients.len() < MOST_CLIENTS && stream.set_nonblocking(true).is_ok() {
                        clients.push(Client {
                            stream,
                            requests: Requests::default(),
                            out: Outgoing::new(),
                            has_ended: false,
                        });
                    }
                }
            }
        }
        drop(self.listeners);
    }

    fn wait(&self, clients: &[Client]) -> Vec<PollFlags> {
        let mut fds = vec![PollFd::from_borrowed_fd(self.waker.as_fd(), PollFlags::IN)];
        let listeners = self.listeners.iter().map(|(listener, _)| listener.as_fd());
        fds.extend(listeners.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let first = fds.len();
        for client in clients {
            let mut flags = PollFlags::empty();
            if client.out.waiting() > 0 {
                flags |= PollFlags::OUT;
            } else if !client.has_ended {
                flags |= PollFlags::IN;
            }
            fds.push(PollFd::from_borrowed_fd(client.stream.as_fd(), flags));
        }
        let pause = Timespec { tv_sec: 0, tv_nsec: PAUSE.as_nanos() as i64 };
        // A signal may interrupt the wait; the iteration then runs early, which does no harm.
        let _ = poll(&mut fds, Some(&pause));
        fds[first..].iter().map(PollFd::revents).collect()
    }

    /// Serves a client. Returns false if the client needs no more service.
    fn serve(
        &self,
        client: &mut Client,
        ready: PollFlags,
        held: usize,
        scratch: &mut [u8],
    ) -> std::io::Result<bool> {
        client.out.write(&mut client.stream)?;
        if client.out.is_stuck() {
            return Ok(false);
        }
        // A client must read a reply before the thread sends the next reply.
        if client.out.waiting() > 0 {
            return Ok(true);
        }
        if ready.intersects(PollFlags::IN | PollFlags::HUP) && !client.has_ended {
            match client.stream.read(scratch) {
                Ok(0) => client.has_ended = true,
                Ok(read) => {
                    let is_too_much = held + read > MOST_HELD;
                    if is_too_much || client.requests.receive(&scratch[..read]).is_err() {
                        return Ok(false);
                    }
                }
                Err(error) if is_transient(&error) => {}
                Err(error) => return Err(error),
            }
        }
        while client.out.waiting() == 0 {
            let Ok(request) = client.requests.take() else { return Ok(false) };
            let Some(request) = request else { break };
            let outcome = commands::run(&self.switch, &request.method, &request.arguments);
            client.out.buffer().extend(reply(&request.id, &outcome));
            client.out.write(&mut client.stream)?;
            client.stream.flush()?;
        }
        Ok(!client.has_ended || client.out.waiting() > 0)
    }
}

const READ: usize = 256 << 10;
const MOST_CLIENTS: usize = 64;
/// Maximum number of bytes of all clients' incomplete requests. A request of `weir switch
/// add-flows` has a whole file.
const MOST_HELD: usize = 512 << 20;
const PAUSE: Duration = Duration::from_millis(500);
