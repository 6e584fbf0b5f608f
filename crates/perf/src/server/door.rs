use super::Summary;
use super::datagrams::{self, Letter};
use super::guests::{Guests, Placement};
use super::listen::Sockets;
use super::threshold::{Dismissed, Named, Threshold};
use crate::PerfError;
use crate::control::State;
use crate::options::ServerOptions;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Where everybody comes in. It never waits for anyone in particular.
#[derive(Debug)]
pub(super) struct Door<'a> {
    sockets: &'a Sockets,
    options: &'a ServerOptions,
    guests: Arc<Guests>,
    threshold: Threshold,
    accepted: u64,
    /// Not before then, after the system had no room for one more.
    closed_until: Option<Instant>,
    letter: Letter,
}

impl<'a> Door<'a> {
    pub(super) fn new(
        sockets: &'a Sockets,
        options: &'a ServerOptions,
        guests: Arc<Guests>,
    ) -> Self {
        let limits = &options.limits;
        Self {
            sockets,
            options,
            guests,
            threshold: Threshold::new(limits.unnamed, limits.patience),
            accepted: 0,
            closed_until: None,
            letter: Letter::new(),
        }
    }

    /// Sees to what comes within a short time, and returns the new clients.
    pub(super) fn look(&mut self, summary: &mut Summary) -> Result<Vec<Named>, PerfError> {
        if self.closed_until.is_some_and(|until| Instant::now() >= until) {
            self.closed_until = None;
        }
        let listens = self.closed_until.is_none();
        let mut ready = self.wait(listens)?;
        let spoke = ready.split_off(2);
        if ready[1] {
            datagrams::answer(self.sockets, self.options, &self.guests, &mut self.letter);
        }
        let now = Instant::now();
        let named = self.threshold.listen(&spoke, now, |from, why| summary.dismiss(from, why));
        if ready[0] && listens {
            self.accept(now, summary);
        }
        Ok(named.into_iter().filter_map(|named| self.place(named)).collect())
    }

    /// Whether the listener, the datagrams' socket and each of the unnamed has news.
    fn wait(&self, listens: bool) -> Result<Vec<bool>, PerfError> {
        let listener = self.sockets.listener.as_fd();
        let listener_flags = if listens { PollFlags::IN } else { PollFlags::empty() };
        let mut fds = vec![
            PollFd::from_borrowed_fd(listener, listener_flags),
            PollFd::from_borrowed_fd(self.sockets.datagrams.as_fd(), PollFlags::IN),
        ];
        fds.extend(
            self.threshold.descriptors().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)),
        );
        let timeout = Timespec { tv_sec: 0, tv_nsec: TURN.subsec_nanos().into() };
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(PerfError::system("waiting for clients", error.into())),
        }
        Ok(fds.iter().map(|fd| !fd.revents().is_empty()).collect())
    }

    fn accept(&mut self, now: Instant, summary: &mut Summary) {
        for _ in 0..AT_ONCE {
            match self.sockets.listener.accept() {
                Ok((socket, from)) => {
                    if socket.set_nonblocking(true).is_err() {
                        continue;
                    }
                    self.accepted += 1;
                    let gone = self.threshold.enter(socket, from, self.accepted, now);
                    if let Some((from, why)) = gone {
                        summary.dismiss(from, why);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if has_no_room(&error) => {
                    tracing::warn!("no room for another connection: {error}");
                    self.closed_until = Some(now + PAUSE);
                    if let Some((from, why)) = self.threshold.give_way() {
                        summary.dismiss(from, why);
                    }
                    return;
                }
                // Of the connection that was to be accepted: it is gone.
                Err(_) => {}
            }
        }
    }

    fn place(&self, named: Named) -> Option<Named> {
        let Named { cookie, socket, from, order } = named;
        match self.guests.place(&cookie, socket, order) {
            Ok(()) => None,
            Err((Placement::New, socket)) => Some(Named { cookie, socket, from, order }),
            Err((Placement::Unwanted, socket)) => {
                tracing::debug!("{from} offered a stream that its test has no use for");
                deny(socket);
                None
            }
        }
    }
}

impl Summary {
    fn dismiss(&mut self, from: SocketAddr, why: Dismissed) {
        self.dismissed += 1;
        let from = super::plain(from);
        match why {
            // A scanner must not fill a disk with what is said of it.
            Dismissed::Foreign if self.dismissed > MOST_TOLD => {
                tracing::debug!("{from} does not speak iperf3's protocol");
            }
            Dismissed::Foreign => {
                let last =
                    if self.dismissed == MOST_TOLD { "; of more nothing is said" } else { "" };
                tracing::warn!("{from} does not speak iperf3's protocol{last}");
            }
            Dismissed::Silent => tracing::info!("{from} connected and said nothing"),
            Dismissed::GaveWay => {
                tracing::debug!("{from} said nothing, and gave way to newer connections");
            }
            Dismissed::Left => tracing::debug!("{from} connected and left"),
        }
    }
}

/// What a stock iperf3 shows as "the server is busy running a test". One byte fits any socket, so
/// nobody waits.
pub(super) fn deny(mut socket: TcpStream) {
    let _ = socket.write_all(&[State::AccessDenied.byte()]);
}

fn has_no_room(error: &io::Error) -> bool {
    let errors = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    error.raw_os_error().is_some_and(|code| errors.iter().any(|e| e.raw_os_error() == code))
}

/// Of connections that were dismissed.
const MOST_TOLD: u64 = 100;
/// How long a call to stop may go unheard.
const TURN: Duration = Duration::from_millis(50);
const PAUSE: Duration = Duration::from_millis(200);
/// Accepted in one go, so that those who speak are heard in between.
const AT_ONCE: usize = 32;
