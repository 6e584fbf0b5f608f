//! The event loop of a thread, which serves many connections with a single epoll.

use super::connection::{Connection, Stage, Step, Target};
use super::schedule::Schedule;
use super::tally::Tally;
use super::{Fault, WebOptions};
use crate::PerfError;
use crate::event::Stop;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

pub(super) struct Engine<'a> {
    options: &'a WebOptions,
    target: &'a Target,
    stop: &'a Stop,
    epoll: OwnedFd,
    slots: Vec<Slot>,
    /// Indices of the slots that can send a request now.
    free: Vec<u32>,
    schedule: Option<Schedule>,
    /// Whether the engine sends requests. At first the engine only opens connections.
    is_begun: bool,
    /// The time of the next check for timeouts.
    look: Instant,
    buffer: Vec<u8>,
    tally: Tally,
    broken: Option<PerfError>,
}

/// A slot for a connection, and later for the connections that replace it.
#[derive(Debug)]
struct Slot {
    connection: Option<Connection>,
    /// Distinguishes the events of this connection from late events of the slot's former
    /// connection.
    generation: u32,
    /// The time from which the latency of the request counts.
    due: Option<Instant>,
    /// The time at which the opening of the connection, or the sending of the request, began.
    began: Instant,
    sent: Instant,
    /// Number of consecutive failures. The pause of the slot grows with this number.
    failures: u32,
    /// The time at which to open the next connection; `None` outside a pause.
    again: Option<Instant>,
    is_free: bool,
}

impl<'a> Engine<'a> {
    pub(super) fn new(
        options: &'a WebOptions,
        target: &'a Target,
        stop: &'a Stop,
        connections: u32,
    ) -> Result<Self, PerfError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|error| PerfError::system("opening an epoll", error.into()))?;
        let now = Instant::now();
        let slot = |_| Slot {
            connection: None,
            generation: 0,
            due: None,
            began: now,
            sent: now,
            failures: 0,
            again: None,
            is_free: false,
        };
        Ok(Self {
            options,
            target,
            stop,
            epoll,
            slots: (0..connections).map(slot).collect(),
            free: Vec::with_capacity(connections as usize),
            schedule: None,
            is_begun: false,
            look: now,
            buffer: vec![0; BUFFER],
            tally: Tally::default(),
            broken: None,
        })
    }

    /// Opens the persistent connections; returns when all are open or have failed.
    pub(super) fn open(&mut self) -> Result<(), PerfError> {
        let until = Instant::now() + self.options.timeout;
        for slot in 0..self.slots.len() {
            self.renew(slot, Instant::now());
        }
        // Ignore failures here: the measurement opens the connections again and counts errors.
        let is_tried = |own: &Self| {
            let failed: u64 = own.tally.faults.values().sum();
            own.free.len() as u64 + failed >= own.slots.len() as u64
        };
        while !is_tried(self) && Instant::now() < until {
            if self.stop.is_called() {
                return Err(PerfError::Interrupted);
            }
            self.turn(until)?;
        }
        Ok(())
    }

    /// Sends requests from `begin` until `until`. Requests that end before `counts` do not count in
    /// the results. `schedule`: the send times of an open loop; `None` for a closed loop.
    pub(super) fn run(
        mut self,
        begin: Instant,
        counts: Instant,
        until: Instant,
        schedule: Option<Schedule>,
    ) -> Result<Tally, PerfError> {
        self.is_begun = true;
        self.schedule = schedule;
        let mut is_counting = counts <= begin;
        if is_counting {
            self.forget();
        }
        for slot in std::mem::take(&mut self.free) {
            self.slots[slot as usize].is_free = false;
            self.offer(slot as usize, Instant::now());
        }
        loop {
            let now = Instant::now();
            if !is_counting && now >= counts {
                is_counting = true;
                self.forget();
            }
            if now >= until || self.stop.is_called() {
                break;
            }
            self.send_due(now);
            self.turn(if is_counting { until } else { counts })?;
        }
        let under_way = |slot: &&Slot| slot.due.is_some();
        self.tally.unfinished = self.slots.iter().filter(under_way).count() as u64;
        if let Some(schedule) = &self.schedule {
            self.tally.unsent = schedule.waiting(Instant::now().min(until));
        }
        Ok(self.tally)
    }

    /// Discards all counts so far. Keeps the connect times and the protocol of open connections.
    fn forget(&mut self) {
        let Tally { connect, protocol, .. } = std::mem::take(&mut self.tally);
        let connect = if self.options.keep_alive { connect } else { Default::default() };
        self.tally = Tally { connect, protocol, ..Tally::default() };
    }

    /// Waits for events, at most until `until` or until a request or a check is due, and handles
    /// them.
    fn turn(&mut self, until: Instant) -> Result<(), PerfError> {
        let now = Instant::now();
        let mut wake = until.min(self.look);
        if let Some(schedule) = self.schedule.as_ref().filter(|_| !self.free.is_empty()) {
            wake = wake.min(schedule.next());
        }
        let left = wake.saturating_duration_since(now);
        let timeout =
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let mut events = Vec::with_capacity(EVENTS);
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&timeout))
        {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(PerfError::system("waiting for events", error.into())),
        }
        let now = Instant::now();
        for event in &events {
            let key = event.data.u64();
            let (slot, generation) = (key as u32 as usize, (key >> 32) as u32);
            let known = self.slots.get(slot);
            if known.is_some_and(|known| known.generation == generation) {
                let flags = event.flags;
                let ended = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
                self.event(slot, ended, flags.contains(EventFlags::IN), now);
            }
        }
        if now >= self.look {
            self.look = now + LOOK_EVERY;
            self.look_after(now);
        }
        match self.broken.take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Handles an event of a socket. `ended`: the end of the connection has arrived. `has_data`:
    /// bytes have arrived.
    fn event(&mut self, slot: usize, ended: bool, has_data: bool, now: Instant) {
        let own = &mut self.slots[slot];
        let Some(connection) = &mut own.connection else { return };
        let generation = own.generation;
        let step = connection.step(&self.target.request, ended, &mut self.buffer);
        let is_opened = step == Step::Opened;
        self.done(slot, step, now);
        // The same event may report that the connection is open and that bytes have arrived:
        // handle the second part, too.
        if is_opened && (ended || has_data) && self.slots[slot].generation == generation {
            self.event(slot, ended, false, now);
        }
    }

    fn done(&mut self, slot: usize, step: Step, now: Instant) {
        let own = &mut self.slots[slot];
        match step {
            Step::Wait => {}
            Step::More => self.report_again(slot),
            Step::Opened => {
                self.tally.connected(now.saturating_duration_since(own.began));
                if self.tally.protocol.is_none() {
                    self.tally.protocol = own.connection.as_ref().and_then(Connection::protocol);
                }
                match own.due {
                    Some(_) => self.ask(slot, now),
                    None => self.offer(slot, now),
                }
            }
            Step::Answered { status, body, closes } => {
                let now = Instant::now();
                let due = own.due.take();
                if status >= 300 {
                    *self.tally.statuses.entry(status).or_default() += 1;
                }
                match status {
                    400.. => {
                        self.tally
                            .fault(Fault::Status, || Some(format!("the status was {status}")));
                        own.failures += 1;
                    }
                    _ => {
                        self.tally.responses += 1;
                        self.tally.body += body;
                        let since = |then: Instant| now.saturating_duration_since(then);
                        self.tally.latency.add(since(due.unwrap_or(own.sent)));
                        self.tally.service.add(since(own.sent));
                        own.failures = 0;
                    }
                }
                match (closes, self.options.keep_alive) {
                    (false, true) => self.offer(slot, now),
                    // The server closed the connection without announcing it.
                    (false, false) => self.renew(slot, now),
                    (true, _) => {
                        own.began = now;
                        // The server's close may have arrived with the response.
                        self.event(slot, true, false, now);
                    }
                }
            }
            Step::Closed => self.renew(slot, now),
            Step::Failed(fault, words) => self.failed(slot, fault, now, || words),
        }
    }

    fn failed(
        &mut self,
        slot: usize,
        fault: Fault,
        now: Instant,
        words: impl FnOnce() -> Option<String>,
    ) {
        self.tally.fault(fault, words);
        let own = &mut self.slots[slot];
        own.failures = own.failures.saturating_add(1);
        own.due = None;
        own.close();
        let wait = match own.failures {
            0 | 1 => Duration::ZERO,
            more => (FIRST_PAUSE * 2_u32.pow((more - 2).min(10))).min(LONGEST_PAUSE),
        };
        match wait.is_zero() {
            true => self.renew(slot, now),
            false => own.again = Some(now + wait),
        }
    }

    /// Prepares the slot for its next request: opens a connection, or only marks the slot as free
    /// if each request opens its own connection.
    fn renew(&mut self, slot: usize, now: Instant) {
        let own = &mut self.slots[slot];
        own.close();
        own.again = None;
        match self.options.keep_alive {
            true => self.connect(slot, now),
            false => self.offer(slot, now),
        }
    }

    fn connect(&mut self, slot: usize, now: Instant) {
        let opened = Connection::open(self.target);
        let own = &mut self.slots[slot];
        own.began = now;
        match opened {
            Ok(connection) => {
                let data = own.event_data(slot);
                if let Err(error) = epoll::add(&self.epoll, connection.socket(), data, flags()) {
                    self.broken = Some(PerfError::system("watching a socket", error.into()));
                }
                own.connection = Some(connection);
            }
            Err((_, error)) if is_limit(&error) => {
                self.broken = Some(PerfError::system("opening a connection", error));
            }
            Err((fault, error)) => self.failed(slot, fault, now, || Some(error.to_string())),
        }
    }

    /// Makes epoll report the connection again, even if no further bytes arrive.
    fn report_again(&mut self, slot: usize) {
        let own = &self.slots[slot];
        let Some(connection) = &own.connection else { return };
        let data = own.event_data(slot);
        if let Err(error) = epoll::modify(&self.epoll, connection.socket(), data, flags()) {
            self.broken = Some(PerfError::system("watching a socket", error.into()));
        }
    }

    /// Gives a ready slot its next request: sends the request if it is due, else marks the slot as
    /// free.
    fn offer(&mut self, slot: usize, now: Instant) {
        let due = match (&mut self.schedule, self.is_begun) {
            (_, false) => None,
            (None, true) => Some(now),
            (Some(schedule), true) => schedule.take(now),
        };
        match due {
            Some(due) => self.assign(slot, due, now),
            None => {
                let own = &mut self.slots[slot];
                if !own.is_free {
                    own.is_free = true;
                    self.free.push(slot as u32);
                }
            }
        }
    }

    fn send_due(&mut self, now: Instant) {
        while let Some(slot) = self.free.last().map(|slot| *slot as usize) {
            let own = &mut self.slots[slot];
            let stage = own.connection.as_ref().map(Connection::stage);
            // The server may have closed the connection meanwhile.
            if stage != self.options.keep_alive.then_some(Stage::Ready) {
                own.is_free = false;
                self.free.pop();
                continue;
            }
            let Some(due) = self.schedule.as_mut().and_then(|schedule| schedule.take(now)) else {
                return;
            };
            own.is_free = false;
            self.free.pop();
            self.assign(slot, due, now);
        }
    }

    fn assign(&mut self, slot: usize, due: Instant, now: Instant) {
        let own = &mut self.slots[slot];
        own.due = Some(due);
        own.sent = now;
        match own.connection.is_some() {
            true => self.ask(slot, now),
            false => self.connect(slot, now),
        }
    }

    fn ask(&mut self, slot: usize, now: Instant) {
        let own = &mut self.slots[slot];
        // If the request has its own connection, its timeout and its latency include the opening.
        if self.options.keep_alive {
            (own.began, own.sent) = (now, now);
        }
        let Some(connection) = &mut own.connection else { return };
        let step = connection.ask(&self.target.request);
        self.done(slot, step, now);
    }

    /// Ends requests that have timed out, and opens connections whose pause is over.
    fn look_after(&mut self, now: Instant) {
        for slot in 0..self.slots.len() {
            let own = &self.slots[slot];
            if own.again.is_some_and(|again| again <= now) {
                self.renew(slot, now);
                continue;
            }
            let Some(connection) = &own.connection else { continue };
            let age = now.saturating_duration_since(own.began);
            match connection.stage() {
                Stage::Closing if age >= LONGEST_CLOSE => self.renew(slot, now),
                Stage::Ready | Stage::Closing => {}
                Stage::Connecting if age >= self.options.timeout => {
                    self.failed(slot, Fault::Unconnected, now, || None);
                }
                _ if age >= self.options.timeout => {
                    self.failed(slot, Fault::Stalled, now, || None);
                }
                _ => {}
            }
        }
    }
}

impl Slot {
    /// Returns the data that identifies the slot and its connection in epoll's events.
    fn event_data(&self, slot: usize) -> EventData {
        EventData::new_u64((u64::from(self.generation) << 32) | slot as u64)
    }

    fn close(&mut self) {
        self.connection = None;
        self.generation = self.generation.wrapping_add(1);
    }
}

/// Returns the flags of a connection in epoll. The events are edge-triggered, so that a single call
/// registers a connection until it closes.
fn flags() -> EventFlags {
    EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET
}

/// True if this process or this machine has no room for more sockets.
fn is_limit(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
    )
}

const BUFFER: usize = 64 << 10;
const EVENTS: usize = 256;
/// Interval between checks for timeouts and for calls to stop.
const LOOK_EVERY: Duration = Duration::from_millis(5);
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// Maximum wait for the server to close a connection after its last response.
const LONGEST_CLOSE: Duration = Duration::from_millis(500);
