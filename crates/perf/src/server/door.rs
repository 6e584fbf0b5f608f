use super::Summary;
use super::datagrams::{self, Letter};
use super::guests::{Guests, Placement};
use super::listen::Sockets;
use super::refusal;
use super::threshold::{Dismissed, Named, Threshold};
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

/// Accepts all connections and datagrams. It never blocks on a single client.
#[derive(Debug)]
pub(super) struct Door<'a> {
    sockets: &'a Sockets,
    options: &'a ServerOptions,
    guests: Arc<Guests>,
    threshold: Threshold,
    accepted: u64,
    /// End of the pause in accepting, after the system had no room for another connection.
    closed_until: Option<Instant>,
    /// Held in reserve: when no descriptor is left, it lets one more client in to be refused.
    spare: Option<File>,
    /// The client that was let in on the reserve, and the errno that keeps it out.
    excess: Threshold,
    lack: Errno,
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
            spare: None,
            excess: Threshold::new(1, limits.patience.min(LONGEST_EXCESS)),
            lack: Errno::MFILE,
            letter: Letter::new(),
        }
    }

    /// Handles the arrivals of a short time, and returns the new clients.
    pub(super) fn look(&mut self, summary: &mut Summary) -> Result<Vec<Named>, PerfError> {
        if self.closed_until.is_some_and(|until| Instant::now() >= until) {
            self.closed_until = None;
        }
        if self.excess.is_empty() && self.spare.is_none() {
            self.spare = File::open("/dev/null").ok();
        }
        let listens = self.closed_until.is_none() && self.excess.is_empty();
        let mut ready = self.wait(listens)?;
        let excess_spoke = ready.split_off(ready.len() - self.excess.descriptors().count());
        let spoke = ready.split_off(2);
        if ready[1] {
            datagrams::answer(self.sockets, self.options, &self.guests, &mut self.letter);
        }
        let now = Instant::now();
        let named = self.threshold.listen(&spoke, now, |from, why| summary.dismiss(from, why));
        for named in self.excess.listen(&excess_spoke, now, |from, why| summary.dismiss(from, why))
        {
            self.turn_away(named, summary);
        }
        if ready[0] && listens {
            self.accept(now, summary);
        }
        Ok(named.into_iter().filter_map(|named| self.place(named)).collect())
    }

    /// Polls the listener, the datagram socket, and each unnamed and excess connection.
    fn wait(&self, listens: bool) -> Result<Vec<bool>, PerfError> {
        let listener = self.sockets.listener.as_fd();
        let listener_flags = if listens { PollFlags::IN } else { PollFlags::empty() };
        let mut fds = vec![
            PollFd::from_borrowed_fd(listener, listener_flags),
            PollFd::from_borrowed_fd(self.sockets.datagrams.as_fd(), PollFlags::IN),
        ];
        let unnamed = self.threshold.descriptors().chain(self.excess.descriptors());
        fds.extend(unnamed.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
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
                Err(error) => match Errno::from_io_error(&error) {
                    Some(lack) if is_lack(lack) => {
                        self.make_room(lack, now, summary);
                        return;
                    }
                    // The error belongs to the connection that was to be accepted, which is gone.
                    _ => {}
                },
            }
        }
    }

    /// A silent connection makes room. If all have sent something, one more client is let in only
    /// to be refused: it would otherwise wait outside until its own timeout.
    fn make_room(&mut self, lack: Errno, now: Instant, summary: &mut Summary) {
        if let Some((from, why)) = self.threshold.give_way(now) {
            summary.dismiss(from, why);
            return;
        }
        self.lack = lack;
        let let_in = self.spare.take().and_then(|spare| {
            drop(spare);
            self.sockets.listener.accept().ok()
        });
        match let_in {
            Some((socket, from)) if socket.set_nonblocking(true).is_ok() => {
                self.excess.enter(socket, from, 0, now);
            }
            _ => self.closed_until = Some(now + PAUSE),
        }
    }

    fn turn_away(&self, named: Named, summary: &mut Summary) {
        let Named { cookie, mut socket, from, .. } = named;
        // The session that the stream belongs to tells its client on the control connection.
        if self.guests.has_no_room(&cookie, self.lack.into()) {
            return;
        }
        let error = PerfError::system("there is no room for another client", self.lack.into());
        tracing::warn!("{} was turned away: {error}", super::plain(from));
        summary.busy += 1;
        // Nine bytes fit any socket buffer.
        let _ = socket.write_all(&refusal::no_room(self.lack));
    }

    fn place(&self, named: Named) -> Option<Named> {
        let Named { cookie, socket, from, order } = named;
        match self.guests.place(&cookie, socket, order) {
            Ok(()) => None,
            Err((Placement::New, socket)) => Some(Named { cookie, socket, from, order }),
            Err((Placement::Unwanted, socket)) => {
                tracing::debug!("{from} offered a stream that its test does not need");
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
            // Do not let a scanner fill the disk with warnings.
            Dismissed::Foreign if self.dismissed > MOST_TOLD => {
                tracing::debug!("{from} does not speak iperf3's protocol");
            }
            Dismissed::Foreign => {
                let last =
                    if self.dismissed == MOST_TOLD { "; more will not be logged" } else { "" };
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

/// State that a stock iperf3 shows as "the server is busy running a test". One byte fits any socket
/// buffer, so the write does not block.
pub(super) fn deny(mut socket: TcpStream) {
    let _ = socket.write_all(&[State::AccessDenied.byte()]);
}

fn is_lack(errno: Errno) -> bool {
    matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
}

/// Foreign connections that are logged as warnings, out of all dismissed ones.
const MOST_TOLD: u64 = 100;
/// Longest delay until a call to stop takes effect.
const TURN: Duration = Duration::from_millis(50);
/// Kept short: the connection holds a descriptor that others may need.
const LONGEST_EXCESS: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(200);
/// Connections accepted per call, so that waiting clients are read in between.
const AT_ONCE: usize = 32;
