use super::Summary;
use super::datagrams::{self, DatagramBuffer};
use super::pending::{CloseReason, Identified, PendingConnections};
use super::refusal;
use super::sessions::{Sessions, Undelivered};
use super::sockets::Sockets;
use crate::PerfError;
use crate::control::State;
use crate::options::ServerOptions;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Accepts all connections and datagrams. The listener never blocks on a single client.
#[derive(Debug)]
pub(super) struct Listener<'a> {
    sockets: &'a Sockets,
    options: &'a ServerOptions,
    sessions: Arc<Sessions>,
    pending: PendingConnections,
    accepted: u64,
    /// Time until which the listener accepts nothing, because the system had no room for another
    /// connection.
    closed_until: Option<Instant>,
    /// A spare file descriptor. When no other descriptor is left, the server closes the spare to
    /// accept a further client and refuse it.
    spare: Option<File>,
    /// The client that was accepted with the spare descriptor, to be refused with `shortage`.
    excess: PendingConnections,
    shortage: Errno,
    buffer: DatagramBuffer,
}

impl<'a> Listener<'a> {
    pub(super) fn new(
        sockets: &'a Sockets,
        options: &'a ServerOptions,
        sessions: Arc<Sessions>,
    ) -> Self {
        let limits = &options.limits;
        Self {
            sockets,
            options,
            sessions,
            pending: PendingConnections::new(limits.pending, limits.patience),
            accepted: 0,
            closed_until: None,
            spare: None,
            excess: PendingConnections::new(1, limits.patience.min(LONGEST_EXCESS)),
            shortage: Errno::MFILE,
            buffer: DatagramBuffer::new(),
        }
    }

    /// Handles the arrivals of at most [`POLL_INTERVAL`], and returns the new clients.
    pub(super) fn poll(&mut self, summary: &mut Summary) -> Result<Vec<Identified>, PerfError> {
        if self.closed_until.is_some_and(|until| Instant::now() >= until) {
            self.closed_until = None;
        }
        if self.excess.is_empty() && self.spare.is_none() {
            self.spare = File::open("/dev/null").ok();
        }
        let listens = self.closed_until.is_none() && self.excess.is_empty();
        let mut ready = self.wait(listens)?;
        let excess_ready = ready.split_off(ready.len() - self.excess.descriptors().count());
        let pending_ready = ready.split_off(2);
        if ready[1] {
            datagrams::answer(self.sockets, self.options, &self.sessions, &mut self.buffer);
        }
        let now = Instant::now();
        let identified =
            self.pending.read(&pending_ready, now, |from, why| summary.dismiss(from, why));
        for identified in
            self.excess.read(&excess_ready, now, |from, why| summary.dismiss(from, why))
        {
            self.refuse(identified, summary);
        }
        if ready[0] && listens {
            self.accept(now, summary);
        }
        Ok(identified.into_iter().filter_map(|identified| self.deliver(identified)).collect())
    }

    /// Polls the listener, the datagram socket, and each pending and excess connection.
    fn wait(&self, listens: bool) -> Result<Vec<bool>, PerfError> {
        let listener = self.sockets.listener.as_fd();
        let listener_flags = if listens { PollFlags::IN } else { PollFlags::empty() };
        let mut fds = vec![
            PollFd::from_borrowed_fd(listener, listener_flags),
            PollFd::from_borrowed_fd(self.sockets.datagrams.as_fd(), PollFlags::IN),
        ];
        let descriptors = self.pending.descriptors().chain(self.excess.descriptors());
        fds.extend(descriptors.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let timeout = Timespec { tv_sec: 0, tv_nsec: POLL_INTERVAL.subsec_nanos().into() };
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(PerfError::system("waiting for clients", error.into())),
        }
        Ok(fds.iter().map(|fd| !fd.revents().is_empty()).collect())
    }

    fn accept(&mut self, now: Instant, summary: &mut Summary) {
        for _ in 0..BATCH {
            match self.sockets.listener.accept() {
                Ok((socket, from)) => {
                    if socket.set_nonblocking(true).is_err() {
                        continue;
                    }
                    self.accepted += 1;
                    let gone = self.pending.add(socket, from, self.accepted, now);
                    if let Some((from, why)) = gone {
                        summary.dismiss(from, why);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => match Errno::from_io_error(&error) {
                    Some(shortage) if is_shortage(shortage) => {
                        self.make_room(shortage, now, summary);
                        return;
                    }
                    // The error concerns a single connection, which is gone.
                    _ => {}
                },
            }
        }
    }

    /// Closes a silent connection to make room. If all connections have sent something, accepts a
    /// further client and refuses it: otherwise that client would wait until its own timeout.
    fn make_room(&mut self, shortage: Errno, now: Instant, summary: &mut Summary) {
        if let Some((from, why)) = self.pending.evict_oldest(now) {
            summary.dismiss(from, why);
            return;
        }
        self.shortage = shortage;
        let accepted = self.spare.take().and_then(|spare| {
            drop(spare);
            self.sockets.listener.accept().ok()
        });
        match accepted {
            Some((socket, from)) if socket.set_nonblocking(true).is_ok() => {
                self.excess.add(socket, from, 0, now);
            }
            _ => self.closed_until = Some(now + PAUSE),
        }
    }

    fn refuse(&self, identified: Identified, summary: &mut Summary) {
        let Identified { cookie, mut socket, from, .. } = identified;
        // The stream's session reports the shortage to its client on the control connection.
        if self.sessions.report_no_room(&cookie, self.shortage.into()) {
            return;
        }
        let error = PerfError::system("there is no room for another client", self.shortage.into());
        tracing::warn!("{} was turned away: {error}", super::plain(from));
        summary.busy += 1;
        // The nine bytes fit in any socket buffer, so the write does not block.
        let _ = socket.write_all(&refusal::no_room(self.shortage));
    }

    fn deliver(&self, identified: Identified) -> Option<Identified> {
        let Identified { cookie, socket, from, order } = identified;
        match self.sessions.deliver(&cookie, socket, order) {
            Ok(()) => None,
            Err((Undelivered::NewClient, socket)) => {
                Some(Identified { cookie, socket, from, order })
            }
            Err((Undelivered::Unexpected, socket)) => {
                tracing::debug!("{from} offered a stream that its test does not need");
                deny(socket);
                None
            }
        }
    }
}

impl Summary {
    fn dismiss(&mut self, from: SocketAddr, why: CloseReason) {
        self.dismissed += 1;
        let from = super::plain(from);
        match why {
            // Do not let a scanner fill the disk with warnings.
            CloseReason::NotIperf3 if self.dismissed > MOST_WARNINGS => {
                tracing::debug!("{from} does not speak iperf3's protocol");
            }
            CloseReason::NotIperf3 => {
                let last =
                    if self.dismissed == MOST_WARNINGS { "; more will not be logged" } else { "" };
                tracing::warn!("{from} does not speak iperf3's protocol{last}");
            }
            CloseReason::Silent => tracing::info!("{from} connected and said nothing"),
            CloseReason::Evicted => {
                tracing::debug!("{from} said nothing, and gave way to newer connections");
            }
            CloseReason::ClosedByPeer => tracing::debug!("{from} connected and left"),
        }
    }
}

/// Sends the state that a stock iperf3 shows as "the server is busy running a test". One byte fits
/// in any socket buffer, so the write does not block.
pub(super) fn deny(mut socket: TcpStream) {
    let _ = socket.write_all(&[State::AccessDenied.byte()]);
}

fn is_shortage(errno: Errno) -> bool {
    matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
}

/// Maximum number of foreign connections that the server logs as warnings.
const MOST_WARNINGS: u64 = 100;
/// Maximum delay before the thread notices a call to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum lifetime of the excess connection: short, because other connections may need its
/// descriptor.
const LONGEST_EXCESS: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(200);
/// Maximum number of connections accepted per call, so that waiting clients are read in between.
const BATCH: usize = 32;
