use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::net::{RecvFlags, SendFlags};

use super::consumer::Consumer;
use super::handshake::{self, Handed};
use super::layout::{Direction, Geometry, LONGEST, Violation};
use super::producer::Producer;
use crate::bell::{Bell, Watched};
use crate::clock::monotonic;
use crate::tally::Tally;
use crate::unix_peer::{Attendant, Meeting, StopSignal, Wake, failed};
use crate::{Accepted, DuplexPort, Frame, PortCounters, PortError, Refusal, lock};

#[derive(Debug)]
pub struct RingPort {
    place: PathBuf,
    is_creator: bool,
    ends: Arc<Ends>,
    _attendant: Attendant,
}

/// The rings of both directions, while a peer is connected.
#[derive(Debug)]
struct Ends {
    bell: Bell,
    receiving: Mutex<Option<Receiving>>,
    sending: Mutex<Option<Sending>>,
    is_connected: AtomicBool,
    changes: AtomicU64,
    tally: Tally,
    /// The reason why no peer is connected.
    problem: Mutex<Option<String>>,
}

#[derive(Debug)]
struct Receiving {
    consumer: Consumer,
    socket: Arc<UnixStream>,
    /// Watches the socket of this connection as long as the connection exists.
    _watched: Option<Watched>,
    empty_calls: u32,
    /// Whether the peer has ended. The port still receives the frames that the peer left in the
    /// ring.
    has_ended: bool,
}

#[derive(Debug)]
struct Sending {
    producer: Producer,
    socket: Arc<UnixStream>,
}

impl RingPort {
    /// Returns the socket of a ring that has a path, or a name without a slash.
    pub fn path_of(place: &str) -> PathBuf {
        match place.contains('/') {
            true => PathBuf::from(place),
            false => PathBuf::from(format!("/dev/shm/weir-ring-{place}")),
        }
    }

    /// Listens at a path, or at a name without a slash, and serves one peer after another.
    pub fn create(place: &str) -> Result<Self, PortError> {
        let path = Self::path_of(place);
        let meeting = Meeting::at(&path).map_err(|error| failed(&path, "listening at", error))?;
        Self::start(path, meeting)
    }

    /// Attaches to a ring that another process creates, now or later, and attaches again when this
    /// process returns.
    pub fn attach(place: &str) -> Result<Self, PortError> {
        let path = Self::path_of(place);
        let meeting = Meeting::with(&path);
        Self::start(path, meeting)
    }

    fn start(place: PathBuf, meeting: Meeting) -> Result<Self, PortError> {
        let bell = Bell::new().map_err(|error| failed(&place, "making a bell for", error))?;
        let ends = Arc::new(Ends {
            bell,
            receiving: Mutex::default(),
            sending: Mutex::default(),
            is_connected: AtomicBool::default(),
            changes: AtomicU64::default(),
            tally: Tally::default(),
            problem: Mutex::default(),
        });
        let is_creator = meeting.listens();
        let work = {
            let (ends, place) = (ends.clone(), place.clone());
            move |stop: StopSignal| attend(&ends, &place, &meeting, &stop)
        };
        let attendant = Attendant::start("ring", work)
            .map_err(|error| failed(&place, "starting a thread for", error))?;
        Ok(Self { place, is_creator, ends, _attendant: attendant })
    }
}

impl DuplexPort for RingPort {
    fn receive(&self, _: usize, batch: &mut Vec<Frame>, limit: usize) -> Result<usize, PortError> {
        let mut guard = lock(&self.ends.receiving);
        let Some(receiving) = guard.as_mut() else { return Ok(0) };
        let before = batch.len();
        match receiving.take(batch, limit) {
            Ok(0) => {
                if receiving.has_ended {
                    *guard = None;
                }
                Ok(0)
            }
            Ok(count) => {
                self.ends.tally.received(&batch[before..]);
                Ok(count)
            }
            Err(violation) => {
                self.ends.accuse(violation, &receiving.socket, &self.place);
                *guard = None;
                let frames = batch.len() - before;
                self.ends.tally.received(&batch[before..]);
                Ok(frames)
            }
        }
    }

    fn send(&self, packets: &[&[u8]]) -> Result<Accepted, PortError> {
        let mut guard = lock(&self.ends.sending);
        let absent = Accepted { sent: 0, refusal: Some(Refusal::NoPeer) };
        let Some(sending) = guard.as_mut() else { return Ok(absent) };
        match sending.producer.send(packets) {
            Ok((accepted, sleeps)) => {
                if sleeps {
                    wake(&sending.socket);
                }
                self.ends.tally.sent(&packets[..accepted.sent], &[]);
                Ok(accepted)
            }
            Err(violation) => {
                self.ends.accuse(violation, &sending.socket, &self.place);
                *guard = None;
                Ok(absent)
            }
        }
    }

    fn occupancy(&self, frames: &[Frame]) -> f64 {
        let guard = lock(&self.ends.receiving);
        guard.as_ref().map_or(0.0, |receiving| receiving.consumer.geometry().occupancy(frames))
    }

    fn fd(&self, _: usize) -> Option<OwnedFd> {
        self.ends.bell.fd()
    }

    fn is_connected(&self) -> bool {
        self.ends.is_connected.load(Ordering::Acquire)
    }

    fn changes(&self) -> u64 {
        self.ends.changes.load(Ordering::Acquire)
    }

    fn reconnects(&self) -> bool {
        true
    }

    fn longest(&self) -> usize {
        LONGEST
    }

    fn counters(&self) -> PortCounters {
        self.ends.tally.counters()
    }

    fn describe(&self) -> String {
        let role = if self.is_creator { "created" } else { "attached to" };
        let state = match (self.is_connected(), lock(&self.ends.problem).as_deref()) {
            (true, _) => "connected".to_owned(),
            (false, None) => "no peer".to_owned(),
            (false, Some(problem)) => format!("no peer: {problem}"),
        };
        format!("ring in shared memory, {role} {}: {state}", self.place.display())
    }
}

impl Receiving {
    #[inline]
    fn take(&mut self, batch: &mut Vec<Frame>, limit: usize) -> Result<usize, Violation> {
        let count = self.consumer.receive(batch, limit, monotonic)?;
        if count > 0 {
            self.empty_calls = 0;
            return Ok(count);
        }
        self.empty_calls = self.empty_calls.saturating_add(1);
        if self.empty_calls == BEFORE_SLEEP {
            drain(&self.socket);
            if !self.consumer.prepare_to_sleep()? {
                self.empty_calls = 0;
            }
        }
        Ok(0)
    }
}

impl Ends {
    fn connect(&self, handed: &Handed, stream: UnixStream, is_creator: bool) {
        let socket = Arc::new(stream);
        let (sends, receives) = match is_creator {
            true => (Direction::FromCreator, Direction::ToCreator),
            false => (Direction::ToCreator, Direction::FromCreator),
        };
        let (memory, geometry) = (&handed.memory, handed.geometry);
        let watched = socket.as_fd().try_clone_to_owned().and_then(|fd| self.bell.watch(fd)).ok();
        let mut consumer = Consumer::new(memory.clone(), geometry, receives);
        // Ask for a wake-up now, because the receiving thread may already be asleep.
        let _ = consumer.prepare_to_sleep();
        *lock(&self.receiving) = Some(Receiving {
            consumer,
            socket: socket.clone(),
            _watched: watched,
            empty_calls: BEFORE_SLEEP,
            has_ended: false,
        });
        *lock(&self.sending) =
            Some(Sending { producer: Producer::new(memory.clone(), geometry, sends), socket });
        *lock(&self.problem) = None;
        self.is_connected.store(true, Ordering::Release);
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    fn disconnect(&self) {
        self.is_connected.store(false, Ordering::Release);
        *lock(&self.sending) = None;
        if let Some(receiving) = lock(&self.receiving).as_mut() {
            receiving.has_ended = true;
        }
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Ends the connection with a peer that broke a rule. The attendant thread sees the
    /// disconnection.
    fn accuse(&self, violation: Violation, socket: &UnixStream, place: &Path) {
        tracing::warn!("ring {}: the peer is disconnected: {violation}", place.display());
        *lock(&self.problem) = Some(format!("disconnected, because {violation}"));
        let _ = socket.shutdown(std::net::Shutdown::Both);
    }
}

/// Connects to a peer, waits until the peer disconnects, and connects to the next peer.
fn attend(ends: &Ends, place: &Path, meeting: &Meeting, stop: &StopSignal) {
    loop {
        match meet(meeting, stop) {
            Ok(None) => return,
            Ok(Some((handed, stream))) => {
                let watched = stream.try_clone();
                ends.connect(&handed, stream, meeting.listens());
                drop(handed);
                if let Ok(watched) = watched {
                    let woken = stop.wait(Some((watched.as_fd(), PollFlags::empty())), None);
                    if woken == Wake::Stop {
                        let _ = watched.shutdown(std::net::Shutdown::Both);
                        return;
                    }
                }
                ends.disconnect();
            }
            Err(problem) => {
                tracing::debug!("ring {}: {problem}", place.display());
                *lock(&ends.problem) = Some(problem);
                if stop.wait(None, Some(PAUSE)) == Wake::Stop {
                    return;
                }
            }
        }
    }
}

/// Returns the next peer and the memory shared with it; `None` when the port is closed.
fn meet(meeting: &Meeting, stop: &StopSignal) -> Result<Option<(Handed, UnixStream)>, String> {
    let Some(stream) = meeting.next(stop)? else { return Ok(None) };
    let handed = match meeting.listens() {
        true => handshake::create(&stream, Geometry::default()),
        false => handshake::attach(&stream),
    };
    handed.map(|handed| Some((handed, stream))).map_err(|error| error.to_string())
}

/// Wakes the peer by a byte on the socket. If the socket is full, the peer already has enough
/// unread bytes to wake up.
fn wake(socket: &UnixStream) {
    let _ = rustix::net::send(socket, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// Reads the bytes that woke this process, up to a limit, because a peer may flood the socket.
fn drain(socket: &UnixStream) {
    let mut bytes = [0; 512];
    for _ in 0..64 {
        match rustix::net::recv(socket, &mut bytes, RecvFlags::DONTWAIT) {
            Ok((count, _)) if count == bytes.len() => {}
            _ => return,
        }
    }
}

/// The number of empty calls of `receive` before the consumer asks for a wake-up, which costs the
/// producer a system call.
const BEFORE_SLEEP: u32 = 32;
const PAUSE: Duration = Duration::from_millis(100);
