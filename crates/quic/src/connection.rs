//! One connection: quinn-proto's state machine, its streams, and the credit that both ends give each other.

use crate::control::{Blocked, Shared};
use crate::credit::{Allowed, EarlyFinals, Granted, Record};
use crate::lost::Lost;
use crate::reading::{Reading, Readings};
use crate::reassembly::Reassembly;
use crate::stream::{Readable, Stream, StreamError};
use bytes::Bytes;
use quinn_proto::{
    ConnectionEvent, ConnectionHandle, ConnectionStats, Dir, EndpointEvent, FinishError, ReadError,
    SendDatagramError, StreamEvent, StreamId, Transmit, VarInt, WriteError,
};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// An event that whoever waits on a connection has to learn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Connected,
    Lost,
    /// The peer opened streams: [`Connection::accept`].
    Opened,
    /// Another stream may be opened: [`Connection::open`].
    MayOpen,
    Readable(StreamId),
    Writable(StreamId),
    /// The peer has all of a stream, or wants no more of it.
    Delivered(StreamId),
    Datagrams,
}

#[derive(Debug, Clone, Copy, thiserror::Error, PartialEq, Eq)]
pub enum DatagramRefused {
    #[error("the datagram is larger than the path takes")]
    TooLarge,
    #[error("the peer takes no datagrams")]
    Unsupported,
    #[error("the connection is lost")]
    Lost,
}

/// Counts and measurements of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Statistics {
    pub rtt: Duration,
    pub mtu: u16,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    pub packets_sent: u64,
    pub packets_received: u64,
    pub packets_lost: u64,
    /// Counted as lost on the present path, without what arrived after all.
    pub bytes_lost: u64,
    /// Packets that arrived behind later ones.
    pub packets_late: u64,
    pub reading: Reading,
}

pub struct Connection {
    pub(crate) handle: ConnectionHandle,
    inner: quinn_proto::Connection,
    control: Shared,
    readings: Readings,
    streams: HashMap<StreamId, Stream>,
    accepted: VecDeque<StreamId>,
    /// For all streams together.
    granted: Granted,
    allowed: Allowed,
    window: u64,
    stream_window: u64,
    /// Streams that wait for the connection's credit or for room to send. Each has a turn, which it keeps until
    /// it has written.
    writers: VecDeque<StreamId>,
    control_out: Option<StreamId>,
    control_in: Option<StreamId>,
    records_in: Reassembly,
    records_out: BTreeMap<RecordKey, Record>,
    record_rest: Bytes,
    early_finals: EarlyFinals,
    events: VecDeque<Event>,
    connected: bool,
    lost: Option<Lost>,
    most_streams: u32,
    stream_limit: u32,
    /// Probes may have different sizes: the next packets leave one by one.
    one_by_one: u8,
    rtt_is_of_handshake: bool,
    /// When the pacer lets the next packets go.
    paced_until: Option<Instant>,
    pub(crate) since_pumped: u32,
    pub(crate) is_ready: bool,
}

/// Of several limits for one thing only the last is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RecordKey {
    Connection,
    Stream(StreamId),
    Final(StreamId),
}

impl Connection {
    pub(crate) fn new(
        handle: ConnectionHandle,
        inner: quinn_proto::Connection,
        control: Shared,
        readings: Readings,
        most_streams: u32,
    ) -> Self {
        Self {
            handle,
            inner,
            control,
            readings,
            streams: HashMap::new(),
            accepted: VecDeque::new(),
            granted: Granted::new(),
            allowed: Allowed::new(),
            window: crate::FIRST_CREDIT,
            stream_window: crate::FIRST_CREDIT,
            writers: VecDeque::new(),
            control_out: None,
            control_in: None,
            records_in: Reassembly::default(),
            records_out: BTreeMap::new(),
            record_rest: Bytes::new(),
            early_finals: EarlyFinals::default(),
            events: VecDeque::new(),
            connected: false,
            lost: None,
            most_streams,
            stream_limit: FIRST_STREAMS.min(most_streams),
            one_by_one: 0,
            rtt_is_of_handshake: true,
            paced_until: None,
            since_pumped: 0,
            is_ready: false,
        }
    }

    pub fn is_connected(&self) -> bool {
        self.connected && self.lost.is_none()
    }

    pub fn lost(&self) -> Option<&Lost> {
        self.lost.as_ref()
    }

    pub fn remote(&self) -> SocketAddr {
        self.inner.remote_address()
    }

    /// The TLS session, for the peer's identity.
    pub fn session(&self) -> &dyn quinn_proto::crypto::Session {
        self.inner.crypto_session()
    }

    pub fn statistics(&self) -> Statistics {
        let ConnectionStats { udp_tx, udp_rx, path, .. } = self.inner.stats();
        let (bytes_lost, packets_late) = self.control.lock().lost_and_late();
        Statistics {
            rtt: self.rtt(),
            mtu: path.current_mtu,
            sent_bytes: udp_tx.bytes,
            received_bytes: udp_rx.bytes,
            packets_sent: udp_tx.datagrams,
            packets_received: udp_rx.datagrams,
            packets_lost: path.lost_packets,
            bytes_lost,
            packets_late,
            reading: self.readings.now(),
        }
    }

    pub fn readings(&self) -> &Readings {
        &self.readings
    }

    /// The path's round trip, without the peer's delay.
    pub fn rtt(&self) -> Duration {
        self.control.lock().smoothed_rtt().unwrap_or_else(|| self.inner.rtt())
    }

    pub fn close(&mut self, now: Instant, why: &str) {
        let reason = Bytes::copy_from_slice(why.as_bytes());
        self.inner.close(now, CLOSED, reason);
        self.lose(Lost::Here);
    }

    /// `None`: the peer allows no more for now; [`Event::MayOpen`] follows.
    pub fn open(&mut self) -> Result<Option<StreamId>, Lost> {
        self.alive()?;
        let opened = self.inner.streams().open(Dir::Bi);
        if let Some(stream) = opened {
            self.streams.insert(stream, Stream::new());
        }
        Ok(opened)
    }

    /// `None`: [`Event::Opened`] tells of the next.
    pub fn accept(&mut self) -> Result<Option<StreamId>, Lost> {
        match self.accepted.pop_front() {
            Some(stream) => Ok(Some(stream)),
            None => self.alive().map(|()| None),
        }
    }

    /// Takes as many of `bytes` as may be sent. If some are left, [`Event::Writable`] follows.
    pub fn write(&mut self, id: StreamId, bytes: &mut Bytes) -> Result<(), StreamError> {
        self.alive()?;
        while !bytes.is_empty() {
            let stream = self.streams.get_mut(&id).ok_or(StreamError::GivenUp(0))?;
            if let Some(code) = stream.stopped {
                return Err(StreamError::GivenUp(code));
            }
            let room = stream.allowed.room();
            if room == 0 {
                return Ok(());
            }
            let in_turn = self.writers.front().is_none_or(|first| *first == id);
            if !in_turn || self.allowed.room() == 0 {
                self.enqueue(id);
                return Ok(());
            }
            let most = room.min(self.allowed.room()).min(TURN);
            let part = bytes.slice(..usize::try_from(most).unwrap_or(usize::MAX).min(bytes.len()));
            match self.inner.send_stream(id).write_chunks(&mut [part]) {
                Ok(written) => {
                    let written = written.bytes;
                    bytes::Buf::advance(bytes, written);
                    self.took(id, written as u64);
                }
                Err(WriteError::Blocked) => {
                    self.enqueue(id);
                    return Ok(());
                }
                Err(WriteError::Stopped(code)) => return Err(StreamError::GivenUp(short(code))),
                Err(WriteError::ClosedStream) => return Err(StreamError::GivenUp(0)),
            }
        }
        Ok(())
    }

    /// No byte follows.
    pub fn finish(&mut self, id: StreamId) {
        match self.inner.send_stream(id).finish() {
            Ok(()) => self.end_sending(id),
            Err(FinishError::Stopped(code)) => self.reset(id, short(code)),
            // It was finished or reset before.
            Err(FinishError::ClosedStream) => {}
        }
    }

    /// Forgets what was not delivered.
    pub fn reset(&mut self, id: StreamId, code: u32) {
        if self.inner.send_stream(id).reset(code.into()).is_ok() {
            self.end_sending(id);
        }
    }

    /// Whether the peer has all that was finished. [`Event::Delivered`] tells when.
    pub fn delivered(&self, id: StreamId) -> Result<bool, StreamError> {
        let Some(stream) = self.streams.get(&id) else { return Ok(true) };
        match stream.stopped {
            Some(code) => Err(StreamError::GivenUp(code)),
            None if stream.delivered => Ok(true),
            None => self.alive().map(|()| false).map_err(StreamError::from),
        }
    }

    /// Takes chunks that arrived, in any order, until about `most` bytes.
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

    /// The application took so many bytes: the peer may send as many more. Tells whether it has to learn that now.
    pub fn consume(&mut self, id: StreamId, bytes: u64) -> bool {
        let Some(stream) = self.streams.get_mut(&id) else { return false };
        let before = stream.granted.consumed();
        stream.granted.consume(bytes);
        self.granted.consume(stream.granted.consumed() - before);
        if stream.may_grow()
            && let Some(limit) = stream.granted.raise(self.stream_window)
        {
            self.tell(Record::Stream(id, limit));
        }
        self.raise();
        !self.records_out.is_empty()
    }

    /// The application wants no more of a stream, or has had all of it.
    pub fn stop(&mut self, id: StreamId, code: u32) {
        // A stream that has ended needs no frame.
        let _ = self.inner.recv_stream(id).stop(code.into());
        if let Some(stream) = self.streams.get_mut(&id) {
            let left = stream.granted.received() - stream.granted.consumed();
            stream.granted.consume(left);
            stream.discard();
            self.granted.consume(left);
        }
        // A final size beyond the credit is found when the peer uses it.
        let _ = self.settle(id);
        self.forget(id);
    }

    /// Nobody asks for the sending half any more.
    pub fn drop_sending(&mut self, id: StreamId) {
        self.finish(id);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.sender_gone = true;
        }
        self.forget(id);
    }

    /// How much the peer may send on all streams that was not consumed.
    pub fn set_receive_window(&mut self, window: u64) {
        self.window = window;
        self.raise();
    }

    /// Likewise on each stream, from its next read on.
    pub fn set_stream_window(&mut self, window: u64) {
        self.stream_window = window;
    }

    /// How much is kept that was not acknowledged.
    pub fn set_send_window(&mut self, window: u64) {
        self.inner.set_send_window(window);
    }

    /// A datagram may be lost. The oldest is dropped where too many wait.
    pub fn send_datagram(&mut self, datagram: Bytes) -> Result<(), DatagramRefused> {
        self.alive().map_err(|_| DatagramRefused::Lost)?;
        self.inner.datagrams().send(datagram, true).map_err(|error| match error {
            SendDatagramError::TooLarge => DatagramRefused::TooLarge,
            _ => DatagramRefused::Unsupported,
        })
    }

    pub fn receive_datagram(&mut self) -> Option<Bytes> {
        self.inner.datagrams().recv()
    }

    pub fn datagram_limit(&mut self) -> Option<usize> {
        self.inner.datagrams().max_size()
    }

    fn alive(&self) -> Result<(), Lost> {
        self.lost.clone().map_or(Ok(()), Err)
    }

    fn enqueue(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id)
            && !std::mem::replace(&mut stream.queued, true)
        {
            self.writers.push_back(id);
        }
    }

    /// A stream has written: the next one has its turn.
    fn took(&mut self, id: StreamId, bytes: u64) {
        self.allowed.take(bytes);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.allowed.take(bytes);
        }
        self.leave_queue(id);
    }

    fn leave_queue(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if std::mem::take(&mut stream.queued) {
            self.writers.retain(|waiting| *waiting != id);
        }
        self.wake_writer();
    }

    fn wake_writer(&mut self) {
        if let Some(first) = self.writers.front() {
            self.events.push_back(Event::Writable(*first));
        }
    }

    fn end_sending(&mut self, id: StreamId) {
        self.leave_queue(id);
        if let Some(stream) = self.streams.get_mut(&id)
            && !std::mem::replace(&mut stream.said_final, true)
        {
            let size = stream.allowed.used();
            self.tell(Record::Final(id, size));
        }
    }

    /// The stream is known until both halves are over and the peer said where its own ends.
    fn forget(&mut self, id: StreamId) {
        if self.streams.get(&id).is_some_and(Stream::is_over) {
            self.leave_queue(id);
            self.streams.remove(&id);
        }
    }

    fn tell(&mut self, record: Record) {
        let key = match record {
            Record::Stream(stream, _) => RecordKey::Stream(stream),
            Record::Connection(_) => RecordKey::Connection,
            Record::Final(stream, _) => RecordKey::Final(stream),
        };
        self.records_out.insert(key, record);
    }

    fn raise(&mut self) {
        if let Some(limit) = self.granted.raise(self.window) {
            self.tell(Record::Connection(limit));
        }
    }

    fn lose(&mut self, why: Lost) {
        if self.lost.is_none() {
            self.lost = Some(why);
            self.events.push_back(Event::Lost);
        }
    }
}

/// For tests of what a peer does.
#[cfg(test)]
impl Connection {
    /// Writes without credit, to one stream or on all together.
    pub(crate) fn ignore_credit(&mut self, id: Option<StreamId>) {
        let stream = id.and_then(|id| self.streams.get_mut(&id));
        stream.map_or(&mut self.allowed, |stream| &mut stream.allowed).raise(u64::MAX);
    }

    /// On the control stream.
    pub(crate) fn say(&mut self, bytes: &[u8]) {
        self.record_rest = Bytes::copy_from_slice(bytes);
    }

    pub(crate) fn known_streams(&self) -> usize {
        self.streams.len()
    }
}

/// For the endpoint, which drives all its connections.
impl Connection {
    pub(crate) fn handle_event(&mut self, event: ConnectionEvent) {
        self.inner.handle_event(event);
    }

    pub(crate) fn arrived(&self, now: Instant, arrived: Instant) {
        self.control.lock().at(now, arrived);
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.control.lock().at(now, now);
        if self.inner.poll_timeout().is_some_and(|due| due <= now) {
            self.one_by_one = PROBES;
            self.inner.handle_timeout(now);
        }
    }

    pub(crate) fn endpoint_event(&mut self) -> Option<EndpointEvent> {
        self.inner.poll_endpoint_events()
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.inner.is_drained()
    }

    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub(crate) fn deadline(&mut self) -> Option<Instant> {
        match (self.inner.poll_timeout(), self.paced_until) {
            (Some(timeout), Some(paced)) => Some(timeout.min(paced)),
            (timeout, paced) => timeout.or(paced),
        }
    }

    /// Takes in what the engine has to say since the last time.
    pub(crate) fn pump(&mut self, now: Instant) {
        self.since_pumped = 0;
        let mut readable = Vec::new();
        while let Some(event) = self.inner.poll() {
            match event {
                quinn_proto::Event::HandshakeDataReady | quinn_proto::Event::DatagramsUnblocked => {
                }
                quinn_proto::Event::Connected => {
                    self.connected = true;
                    self.control_out = self.inner.streams().open(Dir::Uni);
                    if let Some(stream) = self.control_out {
                        // Credit goes before everything it is for.
                        let _ = self.inner.send_stream(stream).set_priority(1);
                    }
                    self.events.push_back(Event::Connected);
                }
                quinn_proto::Event::ConnectionLost { reason } => self.lose(reason.into()),
                quinn_proto::Event::DatagramReceived => self.events.push_back(Event::Datagrams),
                quinn_proto::Event::Stream(event) => self.on_stream_event(event, &mut readable),
            }
        }
        readable.sort_unstable();
        readable.dedup();
        for id in readable {
            self.drain(now, id);
        }
        self.grow_stream_limit();
        self.mend_rtt(now);
    }

    /// The next packets of this connection, if any may leave now.
    pub(crate) fn transmit(
        &mut self,
        now: Instant,
        most: usize,
        out: &mut Vec<u8>,
    ) -> Option<Transmit> {
        self.write_records();
        // The engine may have gone back to a former path, and says so only when it asks for its window.
        let _ = self.inner.congestion_state().window();
        let allowed = self.control.lock().open_gate(now);
        let most = if self.one_by_one > 0 { 1 } else { allowed.clamp(1, most) };
        let transmit = self.inner.poll_transmit(now, most, out);
        match &transmit {
            Some(_) => self.one_by_one = self.one_by_one.saturating_sub(1),
            None => self.one_by_one = 0,
        }
        let blocked = self.control.lock().close_gate(now, transmit.is_some());
        self.paced_until = match blocked {
            Blocked::Until(at) => Some(at),
            Blocked::No => None,
        };
        transmit
    }

    fn on_stream_event(&mut self, event: StreamEvent, readable: &mut Vec<StreamId>) {
        match event {
            StreamEvent::Opened { dir: Dir::Bi } => {
                while let Some(id) = self.inner.streams().accept(Dir::Bi) {
                    let mut stream = Stream::new();
                    stream.final_size = self.early_finals.begin(id);
                    self.streams.insert(id, stream);
                    self.accepted.push_back(id);
                    readable.push(id);
                }
                self.events.push_back(Event::Opened);
            }
            StreamEvent::Opened { dir: Dir::Uni } => {
                while let Some(id) = self.inner.streams().accept(Dir::Uni) {
                    self.control_in = Some(id);
                    readable.push(id);
                }
            }
            StreamEvent::Readable { id } => readable.push(id),
            StreamEvent::Writable { id } => {
                // Whichever stream the engine names, the first in the queue has its turn.
                if Some(id) != self.control_out {
                    self.wake_writer();
                }
            }
            StreamEvent::Finished { id } => {
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.delivered = true;
                    self.events.push_back(Event::Delivered(id));
                }
                self.forget(id);
            }
            StreamEvent::Stopped { id, error_code } => {
                // RFC 9000, section 3.5: a stopped stream is reset.
                let _ = self.inner.send_stream(id).reset(error_code);
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.stopped = Some(short(error_code));
                    self.events.push_back(Event::Writable(id));
                    self.events.push_back(Event::Delivered(id));
                    self.end_sending(id);
                }
            }
            StreamEvent::Available { .. } => self.events.push_back(Event::MayOpen),
        }
    }

    /// Reads all that the engine holds of a stream: chunks that stay in its assembler end the connection when
    /// they are many.
    fn drain(&mut self, now: Instant, id: StreamId) {
        let is_control = Some(id) == self.control_in;
        let mut receiving = self.inner.recv_stream(id);
        // Closed: it was stopped or read to its end.
        let Ok(mut chunks) = receiving.read(false) else { return };
        let mut arrived = Vec::new();
        let end = loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => arrived.push((chunk.offset, unshared(chunk.bytes))),
                Ok(None) => break Some(Ok(())),
                Err(ReadError::Blocked) => break None,
                Err(ReadError::Reset(code)) => break Some(Err(short(code))),
            }
        };
        // Whether a frame has to be sent is asked of the engine after every batch.
        let _ = chunks.finalize();
        let kept = match is_control {
            true => self.take_records(arrived, end),
            false => self.take_chunks(id, arrived, end),
        };
        if let Err(why) = kept {
            tracing::warn!(remote = %self.remote(), "connection closed: {why}");
            self.inner.close(now, VIOLATION, Bytes::from_static(why.as_bytes()));
            self.lose(Lost::Failed(why.to_owned()));
        }
    }

    fn take_chunks(
        &mut self,
        id: StreamId,
        arrived: Vec<(u64, Bytes)>,
        end: Option<Result<(), u32>>,
    ) -> Result<(), &'static str> {
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        for (offset, bytes) in arrived {
            let new = (offset + bytes.len() as u64).saturating_sub(stream.granted.received());
            if !stream.granted.receive(new) || !self.granted.receive(new) {
                return Err(OVER_CREDIT);
            }
            stream.push(offset, bytes);
        }
        if let Some(end) = end {
            stream.end(end);
            self.settle(id)?;
        }
        let Some(stream) = self.streams.get(&id) else { return Ok(()) };
        if stream.is_scattered() {
            return Err("the peer leaves too many gaps in a stream");
        }
        self.events.push_back(Event::Readable(id));
        Ok(())
    }

    fn take_records(
        &mut self,
        arrived: Vec<(u64, Bytes)>,
        end: Option<Result<(), u32>>,
    ) -> Result<(), &'static str> {
        for (offset, bytes) in arrived {
            self.records_in.insert(offset, bytes);
        }
        while self.records_in.ready() >= Record::LENGTH {
            let bytes = self.records_in.peek(Record::LENGTH);
            self.records_in.consume(Record::LENGTH);
            let record = bytes.try_into().ok().and_then(Record::decode);
            self.on_record(record.ok_or("malformed credit record")?)?;
        }
        if self.records_in.held() > MOST_RECORDS {
            return Err("the peer leaves too many gaps in its control stream");
        }
        match end {
            // A peer that goes closes the connection; one that ends its control stream before is broken.
            Some(_) if !self.inner.is_closed() => Err("the peer ended its control stream"),
            _ => Ok(()),
        }
    }

    fn on_record(&mut self, record: Record) -> Result<(), &'static str> {
        match record {
            Record::Connection(limit) => {
                self.allowed.raise(limit);
                self.wake_writer();
            }
            Record::Stream(id, limit) => {
                // A stream that is over needs no credit.
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.allowed.raise(limit);
                    self.events.push_back(Event::Writable(id));
                }
            }
            Record::Final(id, size) => {
                match self.streams.get_mut(&id) {
                    Some(stream) => stream.final_size = Some(size),
                    None if id.initiator() == self.inner.side() => {}
                    None => self.early_finals.keep(id, size, self.most_streams)?,
                }
                self.settle(id)?;
                self.forget(id);
            }
        }
        Ok(())
    }

    /// Bytes of a stream that nobody reads, or that was reset, may never arrive. They count as consumed once the
    /// peer has said how many it sent.
    fn settle(&mut self, id: StreamId) -> Result<(), &'static str> {
        if let Some(stream) = self.streams.get_mut(&id).filter(|stream| stream.is_discarded())
            && let Some(size) = stream.final_size
        {
            let missing = size.saturating_sub(stream.granted.received());
            if !stream.granted.receive(missing) || !self.granted.receive(missing) {
                return Err(OVER_CREDIT);
            }
            stream.granted.consume(missing);
            self.granted.consume(missing);
        }
        self.raise();
        Ok(())
    }

    fn write_records(&mut self) {
        let Some(stream) = self.control_out else { return };
        if self.lost.is_some() {
            return;
        }
        while !self.record_rest.is_empty() || !self.records_out.is_empty() {
            if self.record_rest.is_empty() {
                let records = std::mem::take(&mut self.records_out);
                let bytes: Vec<u8> =
                    records.into_values().flat_map(|record| record.encode()).collect();
                self.record_rest = bytes.into();
            }
            let part = self.record_rest.clone();
            match self.inner.send_stream(stream).write_chunks(&mut [part]) {
                Ok(written) => bytes::Buf::advance(&mut self.record_rest, written.bytes),
                // The send window has no room; the next acknowledgement makes some.
                Err(_) => return,
            }
        }
    }

    /// The engine keeps state for each stream that the peer may open: the limit grows with use.
    fn grow_stream_limit(&mut self) {
        let open = self.inner.streams().remote_open_streams(Dir::Bi);
        if open * 2 > u64::from(self.stream_limit) && self.stream_limit < self.most_streams {
            self.stream_limit = (self.stream_limit * 4).min(self.most_streams);
            self.inner.set_max_concurrent_streams(Dir::Bi, self.stream_limit.into());
        }
    }

    /// Round trips of the handshake contain what both ends computed. With those the engine would wait ten times
    /// too long before it sends again what was lost on a short path.
    fn mend_rtt(&mut self, now: Instant) {
        if !self.rtt_is_of_handshake || !self.connected || self.inner.is_handshaking() {
            return;
        }
        let measured = self.control.lock().smoothed_rtt();
        if let Some(measured) = measured {
            self.rtt_is_of_handshake = false;
            if self.inner.rtt() > measured * 2 + SLACK {
                self.control.lock().keep_path();
                self.inner.path_changed(now);
            }
        }
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

/// A small chunk would keep the whole packet that it came in.
fn unshared(bytes: Bytes) -> Bytes {
    if bytes.len() < SMALL { Bytes::copy_from_slice(&bytes) } else { bytes }
}

fn short(code: VarInt) -> u32 {
    u32::try_from(code.into_inner()).unwrap_or(u32::MAX)
}

const CLOSED: VarInt = VarInt::from_u32(0);
const VIOLATION: VarInt = VarInt::from_u32(2);
const OVER_CREDIT: &str = "the peer sent more than its credit";
/// Streams that a peer may open before it has opened any.
pub(crate) const FIRST_STREAMS: u32 = 128;
/// A stream writes so much in one turn.
const TURN: u64 = 128 * 1024;
/// Loss probes that one timeout asks for (RFC 9002, section 6.2.4).
const PROBES: u8 = 2;
/// Credit records that wait for a lost packet.
const MOST_RECORDS: usize = 256 * 1024;
const SMALL: usize = 512;
const SLACK: Duration = Duration::from_millis(2);
