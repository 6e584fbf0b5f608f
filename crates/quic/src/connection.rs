//! A connection: quinn-proto's state machine, the streams, and the credit that each end grants to
//! the other end.

mod driving;
mod probes;
mod records;
mod tail;

pub(crate) use tail::Outstanding;

use crate::control::{Losses, Shared};
use crate::credit::{Allowed, EarlyFinals, Granted, Record};
use crate::endpoint::Settings;
use crate::lost::Lost;
use crate::meter::Charge;
use crate::reading::{Reading, Readings};
use crate::reassembly::Reassembly;
use crate::stream::{Readable, Stream, StreamError};
use crate::turns::{Class, RESERVE, Turns};
use bytes::Bytes;
use probes::Probes;
use quinn_proto::{
    ConnectionHandle, ConnectionStats, Dir, FinishError, SendDatagramError, StreamId, VarInt,
    WriteError,
};
use records::RecordKey;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tail::TailProbe;

/// An event for the code that waits on a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The handshake is complete: streams and datagrams may be sent.
    Connected,
    /// The connection has ended. The endpoint may already have dropped the connection's state.
    Lost(Lost),
    /// The peer opened streams: call [`Connection::accept`].
    Opened,
    /// The peer allows another stream: call [`Connection::open`].
    MayOpen,
    /// Data of this stream has arrived, or the stream has ended: call [`Connection::read`].
    Readable(StreamId),
    /// This stream may have room for more data, or the peer has stopped the stream: call
    /// [`Connection::write`].
    Writable(StreamId),
    /// The peer has received all data of a stream, or has stopped the stream.
    Delivered(StreamId),
    /// Datagrams have arrived: call [`Connection::receive_datagram`] until it returns `None`.
    Datagrams,
}

/// The reason for which a datagram was not queued.
#[derive(Debug, Clone, Copy, thiserror::Error, PartialEq, Eq)]
pub enum DatagramRefused {
    /// The datagram exceeds [`Connection::datagram_limit`].
    #[error("the datagram is too large for the path")]
    TooLarge,
    /// The peer accepts no datagrams (RFC 9221 is optional).
    #[error("the peer does not support datagrams")]
    Unsupported,
    /// The connection has ended.
    #[error("the connection is lost")]
    Lost,
}

/// Counts and measurements of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Statistics {
    /// The round-trip time, as [`Connection::rtt`] returns it.
    pub rtt: Duration,
    /// Largest UDP payload that the path is known to carry, in bytes.
    pub mtu: u16,
    /// UDP payload sent, in bytes, including retransmissions.
    pub sent_bytes: u64,
    /// UDP payload received, in bytes.
    pub received_bytes: u64,
    /// UDP datagrams sent on this connection.
    pub packets_sent: u64,
    /// UDP datagrams received.
    pub packets_received: u64,
    /// Number of QUIC packets that the engine counted as lost, including packets that arrived late.
    pub packets_lost: u64,
    /// Bytes on the present path that were counted as lost, and that the peer did not acknowledge
    /// later.
    pub bytes_lost: u64,
    /// Bytes on the present path that were counted as lost, and that the peer acknowledged later.
    pub bytes_mistaken: u64,
    /// Packets that arrived after packets with a higher number.
    pub packets_late: u64,
    /// Snapshot of the congestion control at the last acknowledgement.
    pub reading: Reading,
}

/// A connection of an [`Endpoint`](crate::Endpoint): its streams, its datagrams, and the credit of
/// both ends.
pub struct Connection {
    pub(crate) handle: ConnectionHandle,
    inner: quinn_proto::Connection,
    control: Shared,
    readings: Readings,
    streams: HashMap<StreamId, Stream>,
    /// The number of open streams that the peer initiated.
    peers_streams: u64,
    /// Number of streams that this end opened and gave up, and whose final size the peer has not
    /// reported yet.
    unreported_streams: u64,
    charge: Charge,
    accepted: VecDeque<StreamId>,
    /// Connection-level credit, for all streams together.
    granted: Granted,
    allowed: Allowed,
    window: u64,
    stream_window: u64,
    /// Maximum number of unacknowledged bytes that this end buffers. Messages may exceed this limit
    /// by [`RESERVE`].
    send_window: u64,
    /// Streams that wait for connection-level credit or for send window. A stream stays in its
    /// queue until it has written.
    turns: Turns,
    /// The time of the last packet or timeout.
    now: Instant,
    control_out: Option<StreamId>,
    control_in: Option<StreamId>,
    records_in: Reassembly,
    records_out: BTreeMap<RecordKey, Record>,
    record_rest: Bytes,
    early_finals: EarlyFinals,
    events: VecDeque<Event>,
    connected: bool,
    /// Whether the peer's address is not validated. This end may then send at most three times as
    /// many bytes as it has received from this address.
    is_unproved: bool,
    lost: Option<Lost>,
    most_streams: u32,
    stream_limit: u32,
    /// The number of the next packets that must leave one at a time. A batch has packets of one
    /// size, and loss probes may differ in size.
    one_by_one: u8,
    rtt_is_of_handshake: bool,
    /// Whether data has arrived since this end last sent a packet, so that an acknowledgement is
    /// due.
    owes: bool,
    /// Whether the engine may have data to send: the application or a probe has given data to the
    /// engine since the engine last had nothing to send.
    is_eager: bool,
    /// The time at which waiting acknowledgements are due.
    acknowledge_at: Option<Instant>,
    /// The time at which the pacer releases the next packets.
    paced_until: Option<Instant>,
    tail: TailProbe,
    probes: Probes,
    /// Scratch buffers of [`Self::pump`], kept to reuse their memory.
    readable: Vec<StreamId>,
    arrived: Vec<(u64, Bytes)>,
    pub(crate) since_pumped: u32,
    pub(crate) is_ready: bool,
    /// Whether the endpoint lists this connection among the closed connections.
    is_listed_as_closed: bool,
}

impl Connection {
    pub(crate) fn new(
        handle: ConnectionHandle,
        inner: quinn_proto::Connection,
        control: Shared,
        readings: Readings,
        settings: &Settings,
        now: Instant,
    ) -> Self {
        let most_streams = settings.streams;
        Self {
            handle,
            inner,
            control,
            readings,
            streams: HashMap::new(),
            peers_streams: 0,
            unreported_streams: 0,
            charge: Charge::new(&settings.meter, 0),
            accepted: VecDeque::new(),
            granted: Granted::new(),
            allowed: Allowed::new(),
            window: crate::FIRST_CREDIT,
            stream_window: crate::FIRST_CREDIT,
            send_window: crate::FIRST_CREDIT,
            turns: Turns::default(),
            now,
            control_out: None,
            control_in: None,
            records_in: Reassembly::default(),
            records_out: BTreeMap::new(),
            record_rest: Bytes::new(),
            early_finals: EarlyFinals::default(),
            events: VecDeque::new(),
            connected: false,
            is_unproved: false,
            lost: None,
            most_streams,
            stream_limit: FIRST_STREAMS.min(most_streams),
            one_by_one: 0,
            rtt_is_of_handshake: true,
            owes: false,
            is_eager: true,
            acknowledge_at: None,
            paced_until: None,
            tail: TailProbe::default(),
            probes: Probes::default(),
            readable: Vec::new(),
            arrived: Vec::new(),
            since_pumped: 0,
            is_ready: false,
            is_listed_as_closed: false,
        }
    }

    /// Whether the handshake is complete and the connection has not been lost.
    pub fn is_connected(&self) -> bool {
        self.connected && self.lost.is_none()
    }

    /// Returns the reason for which the connection ended; `None` while the connection is open.
    pub fn lost(&self) -> Option<&Lost> {
        self.lost.as_ref()
    }

    /// Returns the peer's present address, which changes if the peer migrates.
    pub fn remote(&self) -> SocketAddr {
        self.inner.remote_address()
    }

    /// Returns the TLS session, which holds the peer's identity.
    pub fn session(&self) -> &dyn quinn_proto::crypto::Session {
        self.inner.crypto_session()
    }

    /// Returns the counts and measurements so far.
    pub fn statistics(&self) -> Statistics {
        let ConnectionStats { udp_tx, udp_rx, path, .. } = self.inner.stats();
        let Losses { bytes_lost, bytes_mistaken, packets_late } = self.control.lock().losses();
        Statistics {
            rtt: self.rtt(),
            mtu: path.current_mtu,
            sent_bytes: udp_tx.bytes,
            received_bytes: udp_rx.bytes,
            packets_sent: udp_tx.datagrams,
            packets_received: udp_rx.datagrams,
            packets_lost: path.lost_packets,
            bytes_lost,
            bytes_mistaken,
            packets_late,
            reading: self.readings.now(),
        }
    }

    /// Returns a handle to the latest reading. Clones keep working after the connection has ended.
    pub fn readings(&self) -> &Readings {
        &self.readings
    }

    /// Returns the path's round-trip time, excluding the peer's ACK delay.
    pub fn rtt(&self) -> Duration {
        self.control.lock().smoothed_rtt().unwrap_or_else(|| self.inner.rtt())
    }

    /// Closes the connection immediately. `why` is the reason that the peer receives.
    pub fn close(&mut self, now: Instant, why: &str) {
        let reason = Bytes::copy_from_slice(why.as_bytes());
        self.inner.close(now, CLOSED, reason);
        self.is_eager = true;
        self.lose(Lost::Here);
    }

    /// Asks the peer for an answer: sends a PING, even if the congestion control allows no packet.
    pub fn probe(&mut self) {
        if self.is_connected() {
            self.is_eager = true;
            self.probes.is_forced = true;
            self.inner.ping();
        }
    }

    /// Asks the peer for an answer whenever this end has sent nothing for `silence`. With `None`,
    /// only the keepalives of [`Settings::keepalive`] are sent.
    pub fn probe_after(&mut self, silence: Option<Duration>) {
        self.probes.set(silence);
    }

    /// Opens a stream. Returns `None` if the peer allows no further stream for now;
    /// [`Event::MayOpen`] follows later.
    pub fn open(&mut self) -> Result<Option<StreamId>, Lost> {
        self.alive()?;
        let opened = self.inner.streams().open(Dir::Bi);
        if let Some(stream) = opened {
            self.streams.insert(stream, Stream::new());
        }
        Ok(opened)
    }

    /// Returns the next stream that the peer has opened. Returns `None` if no stream waits;
    /// [`Event::Opened`] reports the next stream.
    pub fn accept(&mut self) -> Result<Option<StreamId>, Lost> {
        match self.accepted.pop_front() {
            Some(stream) => Ok(Some(stream)),
            None => self.alive().map(|()| None),
        }
    }

    /// Takes the part of `bytes` that credit and send window permit. If bytes are left,
    /// [`Event::Writable`] follows.
    ///
    /// A stream that sends little goes before streams that send much, in this queue and on the
    /// path.
    pub fn write(&mut self, id: StreamId, bytes: &mut Bytes) -> Result<(), StreamError> {
        self.alive()?;
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.habit.offer(self.now);
        }
        let written = self.write_in_turn(id, bytes);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.habit.left(bytes.len());
        }
        written
    }

    fn write_in_turn(&mut self, id: StreamId, bytes: &mut Bytes) -> Result<(), StreamError> {
        while !bytes.is_empty() {
            let stream = self.streams.get(&id).ok_or(StreamError::GivenUp(0))?;
            if let Some(code) = stream.stopped {
                return Err(StreamError::GivenUp(code));
            }
            let room = stream.allowed.room();
            if room == 0 {
                return Ok(());
            }
            let class = self.turns.class(&stream.habit);
            let at_once = match class {
                Class::Message => stream.habit.allowance(),
                Class::Bulk => TURN,
            };
            if stream.queued.is_some_and(|queue| queue != class) {
                self.leave_queue(id);
            }
            if !self.turns.is_in_turn(class, id) || self.allowed.room() == 0 {
                self.enqueue(id, class);
                return Ok(());
            }
            let most = room.min(self.allowed.room()).min(at_once);
            let part = bytes.slice(..usize::try_from(most).unwrap_or(usize::MAX).min(bytes.len()));
            match self.write_to_engine(id, class, part) {
                Ok(written) => {
                    self.is_eager = true;
                    bytes::Buf::advance(bytes, written);
                    self.took(id, class, written as u64);
                }
                Err(WriteError::Blocked) => {
                    self.enqueue(id, class);
                    return Ok(());
                }
                Err(WriteError::Stopped(code)) => return Err(StreamError::GivenUp(short(code))),
                Err(WriteError::ClosedStream) => return Err(StreamError::GivenUp(0)),
            }
        }
        Ok(())
    }

    /// Passes bytes to the engine, which sends streams in the order of their classes. Returns the
    /// number of bytes that the engine took.
    fn write_to_engine(
        &mut self,
        id: StreamId,
        class: Class,
        part: Bytes,
    ) -> Result<usize, WriteError> {
        if let Some(stream) = self.streams.get_mut(&id)
            && std::mem::replace(&mut stream.class, class) != class
        {
            // If the stream no longer sends, the write below reports an error.
            let _ = self.inner.send_stream(id).set_priority(class.priority());
        }
        if class == Class::Message {
            self.inner.set_send_window(self.send_window.saturating_add(RESERVE));
        }
        let written = self.inner.send_stream(id).write_chunks(&mut [part]);
        self.inner.set_send_window(self.send_window);
        written.map(|written| written.bytes)
    }

    /// Ends the stream's sending half after the bytes written so far.
    pub fn finish(&mut self, id: StreamId) {
        self.is_eager = true;
        match self.inner.send_stream(id).finish() {
            Ok(()) => self.end_sending(id),
            Err(FinishError::Stopped(code)) => self.reset(id, short(code)),
            // The application has already finished or reset the stream.
            Err(FinishError::ClosedStream) => {}
        }
    }

    /// Resets the sending half and discards undelivered data.
    pub fn reset(&mut self, id: StreamId, code: u32) {
        self.is_eager = true;
        if self.inner.send_stream(id).reset(code.into()).is_ok() {
            self.end_sending(id);
        }
    }

    /// Whether the peer has received the finished stream completely. [`Event::Delivered`] reports
    /// the change.
    pub fn delivered(&self, id: StreamId) -> Result<bool, StreamError> {
        let Some(stream) = self.streams.get(&id) else { return Ok(true) };
        match stream.stopped {
            Some(code) => Err(StreamError::GivenUp(code)),
            None if stream.delivered => Ok(true),
            None => self.alive().map(|()| false).map_err(StreamError::from),
        }
    }

    /// Takes chunks of data that have arrived, in the order of arrival, up to about `most` bytes.
    pub fn read(
        &mut self,
        id: StreamId,
        most: usize,
        out: &mut Vec<(u64, Bytes)>,
    ) -> Result<Readable, StreamError> {
        if let Some(stream) = self.streams.get_mut(&id)
            && let Some(readable) = stream.read(most, out)
        {
            return readable;
        }
        self.alive()?;
        Ok(Readable::Later)
    }

    /// Records that the application has consumed these bytes, so that the peer may send the same
    /// number of further bytes. Returns whether this end must notify the peer now.
    pub fn consume(&mut self, id: StreamId, bytes: u64) -> bool {
        let Some(stream) = self.streams.get_mut(&id) else { return false };
        let before = stream.granted.consumed();
        stream.granted.consume(bytes);
        self.granted.consume(stream.granted.consumed() - before);
        if stream.may_grow()
            && let Some(limit) = stream.granted.raise(self.stream_window)
        {
            self.queue_record(Record::Stream(id, limit));
        }
        self.raise();
        self.weigh();
        !self.records_out.is_empty()
    }

    /// Records that the application discards the rest of a stream, or has read all of it.
    pub fn stop(&mut self, id: StreamId, code: u32) {
        self.is_eager = true;
        // If the stream has ended, the peer needs no STOP_SENDING frame.
        let _ = self.inner.recv_stream(id).stop(code.into());
        if let Some(stream) = self.streams.get_mut(&id) {
            let left = stream.granted.unread();
            stream.granted.consume(left);
            stream.discard();
            self.granted.consume(left);
        }
        // Ignore a final size beyond the credit: this end detects the violation when the peer sends
        // data beyond the credit.
        let _ = self.settle(id);
        self.forget(id);
    }

    /// Returns the number of bytes of memory that the peer makes this end hold: for data that the
    /// application has not consumed, including data after gaps, for streams, and for credit
    /// records.
    pub fn held(&self) -> u64 {
        self.charge.bytes()
    }

    /// Returns the number of received bytes that the application has not consumed, including bytes
    /// after gaps.
    pub fn unread(&self) -> u64 {
        self.granted.unread()
    }

    /// Returns the number of received bytes of a stream that the application has not consumed.
    pub fn unread_of(&self, id: StreamId) -> u64 {
        self.streams.get(&id).map_or(0, |stream| stream.granted.unread())
    }

    /// Copies data that the application has not read since the last call, so that this data no
    /// longer keeps whole packets in memory. Should be called about once a second.
    pub fn compact(&mut self) {
        if self.held() > LEAST_COMPACTED {
            self.streams.values_mut().for_each(Stream::compact);
        }
    }

    /// Records that the application has dropped the sending half of a stream.
    pub fn drop_sending(&mut self, id: StreamId) {
        self.finish(id);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.sender_gone = true;
        }
        self.forget(id);
    }

    /// Sets how many unconsumed bytes the peer may send on all streams together.
    pub fn set_receive_window(&mut self, window: u64) {
        self.window = window;
        self.raise();
    }

    /// Sets how many unconsumed bytes the peer may send on each stream. The limit applies from the
    /// stream's next read.
    pub fn set_stream_window(&mut self, window: u64) {
        self.stream_window = window;
    }

    /// Sets how many unacknowledged bytes this end buffers for retransmission. Together, the
    /// streams that send little may exceed this limit by 128 KiB.
    pub fn set_send_window(&mut self, window: u64) {
        self.send_window = window;
        self.inner.set_send_window(window);
    }

    /// Queues a datagram. The path may lose the datagram, and a full queue drops its oldest
    /// datagram.
    pub fn send_datagram(&mut self, datagram: Bytes) -> Result<(), DatagramRefused> {
        self.alive().map_err(|_| DatagramRefused::Lost)?;
        self.is_eager = true;
        self.inner.datagrams().send(datagram, true).map_err(|error| match error {
            SendDatagramError::TooLarge => DatagramRefused::TooLarge,
            _ => DatagramRefused::Unsupported,
        })
    }

    /// Takes the oldest datagram that has arrived; `None` if no datagram waits.
    pub fn receive_datagram(&mut self) -> Option<Bytes> {
        self.inner.datagrams().recv()
    }

    /// Returns the maximum size of a datagram that fits in a packet now; `None` if the peer accepts
    /// no datagrams.
    pub fn datagram_limit(&mut self) -> Option<usize> {
        self.inner.datagrams().max_size()
    }

    fn alive(&self) -> Result<(), Lost> {
        self.lost.clone().map_or(Ok(()), Err)
    }

    fn enqueue(&mut self, id: StreamId, class: Class) {
        if let Some(stream) = self.streams.get_mut(&id)
            && stream.queued.replace(class).is_none()
        {
            self.turns.join(class, id);
        }
    }

    /// Records that a stream has written `bytes`, and lets the next waiting stream write.
    fn took(&mut self, id: StreamId, class: Class, bytes: u64) {
        self.allowed.take(bytes);
        self.turns.wrote(class, bytes);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.allowed.take(bytes);
            stream.habit.wrote(bytes);
        }
        self.leave_queue(id);
    }

    fn leave_queue(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if let Some(class) = stream.queued.take() {
            self.turns.leave(class, id);
        }
        self.wake_writer();
    }

    fn wake_writer(&mut self) {
        if let Some(next) = self.turns.next() {
            self.events.push_back(Event::Writable(next));
        }
    }

    fn end_sending(&mut self, id: StreamId) {
        self.leave_queue(id);
        if let Some(stream) = self.streams.get_mut(&id)
            && !std::mem::replace(&mut stream.said_final, true)
        {
            let size = stream.allowed.used();
            self.queue_record(Record::Final(id, size));
        }
    }

    /// Forgets the stream once both halves have ended and the peer has reported its final size.
    fn forget(&mut self, id: StreamId) {
        let is_own = id.initiator() == self.inner.side();
        if let Some(stream) = self.streams.get_mut(&id) {
            if stream.is_over() {
                let was_unreported = stream.is_unreported;
                self.leave_queue(id);
                self.streams.remove(&id);
                self.peers_streams -= u64::from(!is_own);
                self.unreported_streams -= u64::from(was_unreported);
                if self.streams.capacity() > FEW_STREAMS.max(self.streams.len() * 8) {
                    self.streams.shrink_to(self.streams.len() * 2);
                }
            } else if is_own && stream.is_given_up() {
                let was_unreported = std::mem::replace(&mut stream.is_unreported, true);
                self.unreported_streams += u64::from(!was_unreported);
            }
        }
        self.weigh();
    }

    fn weigh(&mut self) {
        let records = self.records_in.held() as u64 + self.early_finals.memory();
        // The engine keeps a reset stream until the peer acknowledges the reset.
        let of_engine = self.inner.streams().remote_open_streams(Dir::Bi);
        let streams = self.peers_streams.max(of_engine) + self.unreported_streams;
        self.charge.set(self.unread() + records + streams * STREAM_MEMORY);
    }

    fn lose(&mut self, why: Lost) {
        if self.lost.is_none() {
            self.lost = Some(why.clone());
            self.events.push_back(Event::Lost(why));
        }
    }
}

/// Methods with which tests make a peer misbehave.
#[cfg(test)]
impl Connection {
    /// Lets this end send data without credit, on one stream or on all streams.
    pub(crate) fn ignore_credit(&mut self, id: Option<StreamId>) {
        let stream = id.and_then(|id| self.streams.get_mut(&id));
        stream.map_or(&mut self.allowed, |stream| &mut stream.allowed).raise(u64::MAX);
    }

    /// Queues raw bytes for the control stream.
    pub(crate) fn say(&mut self, bytes: &[u8]) {
        self.record_rest = Bytes::copy_from_slice(bytes);
    }

    /// Stops this end's credit records. Returns the stream for [`Self::unmute`].
    pub(crate) fn mute(&mut self) -> Option<StreamId> {
        self.control_out.take()
    }

    pub(crate) fn unmute(&mut self, control: Option<StreamId>) {
        self.control_out = control;
    }

    pub(crate) fn has_unsent_records(&self) -> bool {
        !self.records_out.is_empty() || !self.record_rest.is_empty()
    }

    pub(crate) fn known_streams(&self) -> usize {
        self.streams.len()
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("remote", &self.remote())
            .field("lost", &self.lost)
            .finish_non_exhaustive()
    }
}

fn short(code: VarInt) -> u32 {
    u32::try_from(code.into_inner()).unwrap_or(u32::MAX)
}

const CLOSED: VarInt = VarInt::from_u32(0);
const OVER_CREDIT: &str = "the peer sent more than its credit";
/// The number of streams that a peer may open at first. The engine keeps an entry for each of these
/// streams in two maps, whose capacities are powers of two. A map with 32 places holds 28 entries,
/// and the control stream of each end takes an entry. With more streams, both maps would have 64
/// places.
pub(crate) const FIRST_STREAMS: u32 = 27;
/// Minimum held memory at which this end scans all streams and compacts their memory.
const LEAST_COMPACTED: u64 = 64 * 1024;
/// Approximate memory of an idle stream and of the tasks that wait for it.
const STREAM_MEMORY: u64 = 6 * 1024;
/// Minimum capacity to which the map of streams shrinks.
const FEW_STREAMS: usize = 128;
/// Maximum number of bytes that a stream may write before the next stream may write.
const TURN: u64 = 128 * 1024;
