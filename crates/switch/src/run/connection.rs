use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use flow::request::{Bridge, FlowEntry, PacketIn, TableStatus};
use openflow::{
    BundleMemory, FlowChange, FlowRemovedReason, FlowUpdate, Forward, Kind, PIECE_RULES,
    PortStatus, Session, Version,
};
use pipeline::{RecordedEvent, RemovalReason, RuleEvent};
use rustix::event::PollFlags;

use super::inactivity::{Inactivity, Verdict};
use super::outgoing::Outgoing;
use super::remote::ControllerTimes;
use super::stream::{Origin, Stream};

/// An OpenFlow connection.
#[derive(Debug)]
pub(super) struct Connection {
    /// The number of the connection; no earlier connection of the bridge had this number.
    pub(super) number: u64,
    stream: Stream,
    session: Session,
    kind: Kind,
    /// The index of the controller in the settings, for a connection to a controller.
    pub(super) controller: Option<usize>,
    is_open: bool,
    /// Received bytes of requests that have no reply yet.
    input: Vec<u8>,
    out: Outgoing,
    has_ended: bool,
    opened: Instant,
    inactivity: Inactivity,
    /// Whether the switch has given up the connection because the peer does not read.
    is_abandoned: bool,
    /// The start time of the flow dump that is being written.
    list_begun: Option<Instant>,
    /// Packet-ins that were dropped because the peer reads too slowly.
    dropped: u64,
    /// Copies of the messages of both directions; `None` while nobody snoops on the connection.
    copies: Option<Vec<u8>>,
}

/// The reason for which a connection was closed, for the log.
#[derive(Debug, thiserror::Error)]
pub(super) enum Closed {
    #[error("the peer closed it")]
    End,
    #[error("{0}")]
    Protocol(#[from] openflow::ProtocolError),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the peer reads too slowly")]
    Stuck,
    #[error("the peer does not answer")]
    Silent,
    #[error("the peer sent no hello")]
    NoHello,
    #[error("the bridge has other OpenFlow versions or another datapath ID")]
    Changed,
    #[error("bridge/reconnect asked for a new connection")]
    Reconnect,
}

impl Connection {
    /// Creates the connection of a tool or controller that has connected to the switch.
    pub(super) fn accepted(
        number: u64,
        stream: Stream,
        versions: &[Version],
        memory: Arc<BundleMemory>,
        now_ms: u64,
    ) -> Self {
        Self::new(number, stream, None, versions, memory, now_ms)
    }

    /// Creates a connection to a controller, before it is established.
    pub(super) fn connecting(
        number: u64,
        stream: Stream,
        controller: usize,
        versions: &[Version],
        memory: Arc<BundleMemory>,
        now_ms: u64,
    ) -> Self {
        Self::new(number, stream, Some(controller), versions, memory, now_ms)
    }

    fn new(
        number: u64,
        stream: Stream,
        controller: Option<usize>,
        versions: &[Version],
        memory: Arc<BundleMemory>,
        now_ms: u64,
    ) -> Self {
        let (kind, pause) = match controller {
            Some(_) => (Kind::Controller, ControllerTimes::PROBE_MS),
            None => (Kind::Service, SERVICE_PROBE_MS),
        };
        let mut session = Session::sharing(kind, versions, memory);
        let mut out = Outgoing::new();
        session.start(out.buffer());
        Self {
            number,
            stream,
            session,
            kind,
            controller,
            is_open: kind == Kind::Service,
            input: Vec::new(),
            out,
            has_ended: false,
            opened: Instant::now(),
            inactivity: Inactivity::new(pause, now_ms),
            is_abandoned: false,
            list_begun: None,
            dropped: 0,
            copies: None,
        }
    }

    pub(super) fn origin(&self) -> Origin {
        self.stream.origin()
    }

    /// Returns the origin of an accepted connection; `None` for a connection to a controller.
    pub(super) fn accepted_by(&self) -> Option<Origin> {
        (self.kind == Kind::Service).then(|| self.origin())
    }

    pub(super) fn interest(&self) -> PollFlags {
        let mut flags = PollFlags::empty();
        if self.takes_requests() && self.input.len() < MOST_INPUT && !self.has_ended {
            flags |= PollFlags::IN;
        }
        if !self.is_open || self.out.waiting() > 0 {
            flags |= PollFlags::OUT;
        }
        self.stream.interest(flags)
    }

    /// Whether the session can process a request now, or continue a reply.
    pub(super) fn has_work(&self) -> bool {
        if self.session.is_replying() {
            return self.takes_pieces();
        }
        self.takes_requests() && self.message_length().is_some()
    }

    pub(super) fn is_established(&self) -> bool {
        self.is_open && self.session.version().is_some()
    }

    pub(super) fn is_monitoring(&self) -> bool {
        self.session.is_monitoring()
    }

    pub(super) fn takes_misses(&self) -> bool {
        self.session.takes_misses()
    }

    /// Reads the bytes that have arrived.
    pub(super) fn read(&mut self, scratch: &mut [u8], now_ms: u64) -> Result<(), Closed> {
        match self.stream.read(scratch) {
            Ok(0) => self.has_ended = true,
            Ok(read) => {
                self.input.extend_from_slice(&scratch[..read]);
                self.inactivity.heard(now_ms);
            }
            Err(error) if is_transient(&error) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Answers requests until `limit` requests are answered, or until the replies have listed so
    /// many rules that another connection should be served. Calls `after` after each request.
    pub(super) fn answer_some(
        &mut self,
        limit: usize,
        bridge: &mut dyn Bridge,
        mut after: impl FnMut(&mut Self, &mut dyn Bridge, u32),
    ) -> Result<(), Closed> {
        let mut at = 0;
        let mut rules = 0;
        let begin = Instant::now();
        let input = std::mem::take(&mut self.input);
        let mut result = Ok(());
        for _ in 0..limit {
            if self.session.is_replying() && self.takes_pieces() {
                rules += self.session.go_on(bridge, self.out.buffer());
            }
            self.time_list();
            if self.session.is_replying() || rules >= PIECE_RULES {
                break;
            }
            let Some(length) = message_length(&input[at..]).filter(|_| self.takes_requests())
            else {
                break;
            };
            let message = &input[at..at + length];
            let xid = message.get(4..8).map_or(0, |x| u32::from_be_bytes([x[0], x[1], x[2], x[3]]));
            if at > 0 && begin.elapsed() > TURN {
                break;
            }
            at += length;
            self.copy_received(message);
            if let Err(error) = self.session.begin(message, bridge, self.out.buffer()) {
                result = Err(error.into());
                break;
            }
            after(self, bridge, xid);
        }
        self.input = input;
        self.input.drain(..at);
        self.time_list();
        if result.is_err() {
            self.copy_sent();
            let _ = self.out.write(&mut self.stream);
        }
        result
    }

    /// Stores the start time of the flow dump that is being written.
    fn time_list(&mut self) {
        self.list_begun = match self.session.is_replying() {
            true => self.list_begun.or_else(|| Some(Instant::now())),
            false => None,
        };
    }

    pub(super) fn write(&mut self, now_ms: u64) -> Result<(), Closed> {
        if !self.is_open {
            self.stream.outcome()?;
            self.is_open = true;
            self.inactivity.heard(now_ms);
        }
        self.copy_sent();
        self.out.write(&mut self.stream)?;
        self.stream.flush()?;
        Ok(())
    }

    /// Writes replies if the connection is established. Returns an error if the peer has closed its
    /// side and has received all replies.
    pub(super) fn write_if_open(&mut self, now_ms: u64) -> Result<(), Closed> {
        if self.is_abandoned {
            return Err(Closed::Stuck);
        }
        if !self.is_open {
            return Ok(());
        }
        self.write(now_ms)?;
        let is_sent = self.out.waiting() == 0 && !self.stream.is_sending();
        let is_over = self.has_ended && !self.has_work() && is_sent;
        if is_over { Err(Closed::End) } else { Ok(()) }
    }

    /// See [`Session::preference`].
    pub(super) fn preference(&self) -> u8 {
        self.session.preference()
    }

    /// See [`Session::role_name`].
    pub(super) fn role_name(&self) -> &'static str {
        self.session.role_name()
    }

    /// See [`Inactivity::set_pause`].
    pub(super) fn set_probe(&mut self, pause_ms: Option<u64>) {
        self.inactivity.set_pause(pause_ms);
    }

    /// Begins or ends the copying of messages.
    pub(super) fn set_snooped(&mut self, is_snooped: bool) {
        if is_snooped != self.copies.is_some() {
            // Messages from before this time are not copied.
            self.out.fresh();
            self.copies = is_snooped.then(Vec::new);
        }
    }

    /// Returns the copies since the last call.
    pub(super) fn take_copies(&mut self) -> Vec<u8> {
        self.copy_sent();
        self.copies.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Copies a message of the peer. As in Open vSwitch, the hello is left out.
    fn copy_received(&mut self, message: &[u8]) {
        let is_valid = message[2..4] == (message.len() as u16).to_be_bytes();
        if self.session.version().is_none() || !is_valid {
            return;
        }
        self.copy_sent();
        if let Some(copies) = &mut self.copies {
            copies.extend_from_slice(message);
        }
    }

    /// Copies the messages for the peer.
    fn copy_sent(&mut self) {
        if let Some(copies) = &mut self.copies {
            copies.extend_from_slice(self.out.fresh());
        }
    }

    /// Returns the number of bytes that the peer has not read, and the time since the peer last
    /// read a byte.
    pub(super) fn backlog(&self) -> (usize, Duration) {
        (self.out.waiting(), self.out.pause())
    }

    /// Drops the output for the peer. The connection is closed the next time that it is served.
    pub(super) fn abandon(&mut self) {
        self.out = Outgoing::new();
        self.is_abandoned = true;
    }

    /// Returns how long an accepted connection has waited for the peer's hello.
    pub(super) fn greeting(&self) -> Option<Duration> {
        let waits = self.kind == Kind::Service && self.session.version().is_none();
        waits.then(|| self.opened.elapsed())
    }

    /// Closes a connection that hangs, and sends an echo request to a silent peer.
    pub(super) fn check(&mut self, now_ms: u64) -> Result<(), Closed> {
        if self.greeting().is_some_and(|time| time > LONGEST_GREETING) {
            return Err(Closed::NoHello);
        }
        // A flow dump keeps all its rules in memory until the dump ends, even rules that are
        // removed meanwhile.
        if self.list_begun.is_some_and(|begun| begun.elapsed() > LONGEST_LIST) {
            return Err(Closed::Stuck);
        }
        if self.out.is_stuck() || self.out.waiting() > MOST_OUTPUT {
            return Err(Closed::Stuck);
        }
        // A tool that reads a long flow dump answers no echo request before the dump's end.
        let reads = self.session.is_replying() || self.out.waiting() > 0;
        if self.kind == Kind::Service && reads {
            self.inactivity.heard(now_ms);
        }
        match self.inactivity.check(now_ms, self.is_established()) {
            Verdict::Alive => {}
            Verdict::Probe => self.session.echo(self.out.buffer()),
            Verdict::Gone => return Err(Closed::Silent),
        }
        Ok(())
    }

    pub(super) fn packet_in(&mut self, packet: &PacketIn) {
        if self.out.waiting() > MOST_WAITING_PACKETS {
            self.dropped += 1;
            return;
        }
        self.session.packet_in(packet, self.out.buffer());
    }

    /// Removes bundles that have been idle for too long.
    pub(super) fn expire_bundles(&mut self, now_ms: u64) {
        self.session.expire_bundles(now_ms, self.out.buffer());
    }

    /// Returns the changes of groups and meters that the peer made since the last call.
    pub(super) fn take_forwards(&mut self) -> Vec<Forward> {
        self.session.take_forwards()
    }

    pub(super) fn forward(&mut self, forward: &Forward) {
        self.session.forward(forward, self.out.buffer());
    }

    /// Whether the peer has become master since the last call.
    pub(super) fn take_claim(&mut self) -> bool {
        self.session.take_claim()
    }

    /// Makes a master a slave, because another peer has become master.
    pub(super) fn demote(&mut self, generation: Option<u64>) {
        self.session.demote(generation, self.out.buffer());
    }

    /// Sends flow monitor updates. `own`: the transaction ID of the peer's request, if a request of
    /// this peer made the changes.
    pub(super) fn rule_events(&mut self, events: &[RecordedEvent], own: Option<u32>) {
        if events.is_empty() || !self.is_monitoring() {
            return;
        }
        for events in events.chunk_by(|a, b| a.is_requested == b.is_requested) {
            let own = own.filter(|_| events.iter().all(|recorded| recorded.is_requested));
            let updates: Vec<_> = events.iter().map(|recorded| update(&recorded.event)).collect();
            self.session.flows_changed(&updates, own, self.out.buffer());
        }
        if self.out.waiting() > MOST_WAITING_UPDATES && self.is_open {
            self.copy_sent();
            // If this write fails, the next read or write reports the error again.
            let _ = self.out.write(&mut self.stream);
        }
        if self.out.waiting() > MOST_WAITING_UPDATES {
            self.session.pause_monitors(self.out.buffer());
        }
    }

    /// Resumes updates of rules once the peer has read the earlier updates.
    pub(super) fn resume_monitors(&mut self, bridge: &dyn Bridge) {
        let is_free = self.out.waiting() == 0 && !self.session.is_replying();
        if self.session.has_paused_monitors() && is_free {
            self.session.resume_monitors(bridge, self.out.buffer());
        }
    }

    pub(super) fn flow_removed(&mut self, flow: &FlowEntry, reason: RemovalReason) {
        self.session.flow_removed(flow, removed(reason), self.out.buffer());
    }

    pub(super) fn table_status(&mut self, status: &TableStatus) {
        self.session.table_status(status, self.out.buffer());
    }

    /// Sends a port status. `requester`: the connection whose request caused the change.
    pub(super) fn port_status(&mut self, status: &PortStatus, requester: Option<u64>) {
        let is_own = requester == Some(self.number);
        self.session.port_status(status, is_own, self.out.buffer());
    }

    fn takes_requests(&self) -> bool {
        self.is_open && !self.is_abandoned && self.out.waiting() < MOST_WAITING_REPLIES
    }

    fn takes_pieces(&self) -> bool {
        self.is_open && !self.is_abandoned && self.out.waiting() < MOST_WAITING_PIECES
    }

    fn message_length(&self) -> Option<usize> {
        message_length(&self.input)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Returns the length of the first message if all of it has arrived. The session refuses an
/// impossible length.
pub(super) fn message_length(bytes: &[u8]) -> Option<usize> {
    let header = bytes.first_chunk::<8>()?;
    let length = usize::from(u16::from_be_bytes([header[2], header[3]])).max(header.len());
    (bytes.len() >= length).then_some(length)
}

fn update(event: &RuleEvent) -> FlowUpdate<'_> {
    match event {
        RuleEvent::Added { flow, former } => FlowUpdate { change: FlowChange::Added, flow, former },
        RuleEvent::Modified { flow, former } => {
            FlowUpdate { change: FlowChange::Modified, flow, former }
        }
        RuleEvent::Deleted { flow, reason } => {
            FlowUpdate { change: FlowChange::Deleted(removed(*reason)), flow, former: &[] }
        }
    }
}

fn removed(reason: RemovalReason) -> FlowRemovedReason {
    match reason {
        RemovalReason::IdleTimeout => FlowRemovedReason::IdleTimeout,
        RemovalReason::HardTimeout => FlowRemovedReason::HardTimeout,
        RemovalReason::Delete => FlowRemovedReason::Delete,
        RemovalReason::GroupDelete => FlowRemovedReason::GroupDelete,
        RemovalReason::MeterDelete => FlowRemovedReason::MeterDelete,
        RemovalReason::Eviction => FlowRemovedReason::Eviction,
    }
}

pub(super) fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

const MOST_INPUT: usize = 256 << 10;
/// If a peer has at least this number of unread bytes, the switch answers no further requests of
/// the peer.
const MOST_WAITING_REPLIES: usize = 1 << 20;
/// The number of unread bytes below which the switch writes the next part of a long reply.
const MOST_WAITING_PIECES: usize = 128 << 10;
/// If a peer has at least this number of unread bytes, packet-ins are dropped.
const MOST_WAITING_PACKETS: usize = 1 << 20;
/// The number of unread bytes above which monitors pause.
const MOST_WAITING_UPDATES: usize = 128 << 10;
/// The number of unread bytes above which the connection is closed.
const MOST_OUTPUT: usize = 1 << 30;
/// Maximum time for a flow dump: enough for 262,144 rules of 140 bytes at 1 Mbit/s.
const LONGEST_LIST: Duration = Duration::from_secs(300);
/// Maximum time per iteration for the requests of a connection.
const TURN: Duration = Duration::from_millis(50);
/// A peer that has sent no hello in this time is disconnected.
const LONGEST_GREETING: Duration = Duration::from_secs(10);
/// The silence of a tool before an inactivity probe, as in Open vSwitch.
const SERVICE_PROBE_MS: u64 = 60_000;
