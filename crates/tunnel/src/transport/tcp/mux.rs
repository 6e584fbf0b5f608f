//! The streams of one connection over TLS. This module neither waits nor does I/O.
//!
//! Streams share one TCP connection, so a lost packet delays all streams. Credit works as over QUIC
//! ([`quic::Granted`], [`quic::Allowed`]): a stream whose application does not read delays no other
//! stream.

mod datagrams;
mod stream;

use super::frame::{Frame, PAYLOAD_LIMIT};
use bytes::{Bytes, BytesMut};
use datagrams::Queue;
use quic::{Allowed, FIRST_CREDIT, Granted, Lost, Readable, StreamError};
use std::collections::{BTreeMap, HashMap, VecDeque};
use stream::{Half, Stream};

/// A connection's streams, and the queues of frames to send.
#[derive(Debug)]
pub(super) struct Mux {
    is_server: bool,
    streams: HashMap<u32, Stream>,
    /// Streams of the peer that this end's application has not accepted yet.
    arrived: VecDeque<u32>,
    /// The number of the next stream that each end will open.
    next_own: u32,
    next_peer: u32,
    /// How many streams each end may open in all.
    own_limit: u32,
    peer_limit: u32,
    /// The number of the peer's streams that have ended.
    peer_ended: u32,
    most_streams: u32,
    granted: Granted,
    allowed: Allowed,
    window: u64,
    stream_window: u64,
    send_window: u64,
    /// The queue of frames without data. Each event of a stream adds at most one frame.
    control: VecDeque<Frame>,
    /// For each stream, the newest credit that has not been sent yet.
    credits: BTreeMap<u32, u64>,
    credit: Option<u64>,
    pong: Option<u64>,
    ping: Option<u64>,
    /// Streams with data to send and with credit, in the order in which they will send.
    ready: VecDeque<u32>,
    /// Bytes in the send queues of all streams.
    outgoing: u64,
    datagrams_in: Queue,
    datagrams_out: Queue,
    frames_received: u64,
    lost: Option<Lost>,
    /// The `CLOSE` frame to send before the connection closes.
    close: Option<Frame>,
    events: Vec<Event>,
}

/// A change that tasks may wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Event {
    Connection,
    /// The peer permits this many more streams.
    Streams(u32),
    Readable(u32),
    Writable(u32),
    Delivered(u32),
    /// All streams may have become writable.
    Writers,
    /// All streams have changed, because the connection has ended.
    All,
}

impl Mux {
    pub(super) fn new(is_server: bool, most_streams: u32) -> Self {
        let peer_limit = FIRST_STREAMS.min(most_streams);
        Self {
            is_server,
            streams: HashMap::new(),
            arrived: VecDeque::new(),
            next_own: u32::from(is_server),
            next_peer: u32::from(!is_server),
            own_limit: 0,
            peer_limit,
            peer_ended: 0,
            most_streams,
            granted: Granted::new(),
            allowed: Allowed::new(),
            window: FIRST_CREDIT,
            stream_window: FIRST_CREDIT,
            send_window: FIRST_CREDIT,
            // This first frame tells the peer that this end has completed the handshake.
            control: [Frame::Streams(peer_limit)].into(),
            credits: BTreeMap::new(),
            credit: None,
            pong: None,
            ping: None,
            ready: VecDeque::new(),
            outgoing: 0,
            datagrams_in: Queue::default(),
            datagrams_out: Queue::default(),
            frames_received: 0,
            lost: None,
            close: None,
            events: Vec::new(),
        }
    }

    pub(super) fn lost(&self) -> Option<&Lost> {
        self.lost.as_ref()
    }

    pub(super) fn frames_received(&self) -> u64 {
        self.frames_received
    }

    /// Returns the received bytes that no application has consumed.
    pub(super) fn unread(&self) -> u64 {
        self.granted.unread()
    }

    /// Returns the memory that the peer makes this end hold.
    pub(super) fn held(&self) -> u64 {
        self.unread()
            + self.outgoing
            + (self.datagrams_in.bytes + self.datagrams_out.bytes) as u64
            + self.streams.len() as u64 * STREAM_MEMORY
            + (self.control.len() * size_of::<Frame>()) as u64
    }

    pub(super) fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    pub(super) fn ping(&mut self, mark: u64) {
        self.ping = Some(mark);
    }

    /// Ends the connection for the reason `lost`, and tells the peer `farewell`.
    pub(super) fn end(&mut self, lost: Lost, farewell: Option<&str>) {
        if self.lost.is_some() {
            return;
        }
        self.close = farewell.map(|why| Frame::Close(why.to_owned()));
        self.lost = Some(lost);
        self.events.push(Event::All);
        for stream in self.streams.values_mut() {
            stream.outgoing.clear();
            stream.queued = 0;
        }
        (self.outgoing, self.ready) = (0, VecDeque::new());
    }

    /// Opens a stream. Returns `None` if the peer does not permit another stream yet.
    pub(super) fn open(&mut self) -> Result<Option<u32>, Lost> {
        if self.next_own / 2 >= STREAM_NUMBERS {
            let why = "the numbers of its streams are used up";
            self.end(Lost::Failed(why.to_owned()), Some(why));
        }
        self.alive()?;
        if self.next_own / 2 >= self.own_limit {
            return Ok(None);
        }
        let id = self.next_own;
        self.next_own += 2;
        self.streams.insert(id, Stream::new());
        Ok(Some(id))
    }

    pub(super) fn accept(&mut self) -> Result<Option<u32>, Lost> {
        let arrived = self.arrived.pop_front();
        if arrived.is_none() {
            self.alive()?;
        }
        Ok(arrived)
    }

    /// Takes as many bytes from the front of `bytes` as the stream has room for.
    pub(super) fn write(&mut self, id: u32, bytes: &mut Bytes) -> Result<(), StreamError> {
        self.alive()?;
        let Some(stream) = self.streams.get_mut(&id) else { return Err(StreamError::GivenUp(0)) };
        if let Some(code) = stream.stopped {
            return Err(StreamError::GivenUp(code));
        }
        let room = stream.room().min(self.send_window.saturating_sub(self.outgoing));
        let taken = bytes.split_to(bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX)));
        if !taken.is_empty() {
            stream.queued += taken.len() as u64;
            self.outgoing += taken.len() as u64;
            stream.outgoing.push_back(taken);
            self.make_ready(id);
        }
        Ok(())
    }

    pub(super) fn finish(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if stream.sending == Half::Open {
            stream.sending = Half::Finishing;
            self.make_ready(id);
        }
    }

    pub(super) fn reset(&mut self, id: u32, code: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if stream.sending == Half::Ended || self.lost.is_some() {
            return;
        }
        stream.sending = Half::Ended;
        stream.is_delivered = true;
        stream.outgoing.clear();
        let queued = std::mem::take(&mut stream.queued);
        self.release(queued);
        self.control.push_back(Frame::Reset(id, code));
        self.forget(id);
    }

    pub(super) fn delivered(&mut self, id: u32) -> Result<bool, StreamError> {
        if let Some(stream) = self.streams.get(&id) {
            if let Some(code) = stream.stopped {
                return Err(StreamError::GivenUp(code));
            }
            if stream.is_delivered {
                return Ok(true);
            }
        }
        self.alive()?;
        Ok(!self.streams.contains_key(&id))
    }

    pub(super) fn drop_sending(&mut self, id: u32) {
        self.finish(id);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.sender_gone = true;
        }
        self.forget(id);
    }

    pub(super) fn read(
        &mut self,
        id: u32,
        most: usize,
        out: &mut Vec<(u64, Bytes)>,
    ) -> Result<Readable, StreamError> {
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(Readable::Ended) };
        let mut taken = 0;
        while taken < most
            && let Some(chunk) = stream.incoming.pop_front()
        {
            let chunk = chunk.freeze();
            let length = chunk.len();
            out.push((stream.offset, chunk));
            taken += length;
            stream.offset += length as u64;
        }
        if taken > 0 {
            return Ok(Readable::Some);
        }
        match stream.end {
            Some(Ok(())) => Ok(Readable::Ended),
            Some(Err(code)) => Err(StreamError::GivenUp(code)),
            None => self.alive().map(|()| Readable::Later).map_err(StreamError::Lost),
        }
    }

    /// Records that the application has consumed these bytes. Returns whether to send the peer new
    /// credit now.
    pub(super) fn consume(&mut self, id: u32, bytes: u64) -> bool {
        let mut is_due = false;
        let mut newly = 0;
        if let Some(stream) = self.streams.get_mut(&id) {
            let before = stream.granted.consumed();
            stream.granted.consume(bytes);
            newly = stream.granted.consumed() - before;
            if stream.end.is_none()
                && let Some(limit) = stream.granted.raise(self.stream_window)
            {
                self.credits.insert(id, limit);
                is_due = true;
            }
        }
        self.granted.consume(newly);
        self.raise() || is_due
    }

    pub(super) fn unread_of(&self, id: u32) -> u64 {
        self.streams.get(&id).map_or(0, |stream| stream.granted.unread())
    }

    /// Records that the application reads no more of the stream.
    pub(super) fn stop(&mut self, id: u32, code: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if stream.discarded {
            return;
        }
        stream.discarded = true;
        stream.incoming.clear();
        let unread = stream.granted.unread();
        stream.granted.consume(unread);
        self.granted.consume(unread);
        self.raise();
        let stream = self.streams.get(&id);
        if self.lost.is_none() && stream.is_some_and(|stream| stream.end.is_none()) {
            self.control.push_back(Frame::Stop(id, code));
        }
    }

    pub(super) fn drop_receiving(&mut self, id: u32) {
        self.stop(id, 0);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.receiver_gone = true;
        }
        self.forget(id);
    }

    /// Queues a datagram. A full queue drops its oldest datagram.
    pub(super) fn send_datagram(&mut self, datagram: Bytes) {
        if self.lost.is_none() {
            self.datagrams_out.push(datagram);
        }
    }

    pub(super) fn receive_datagram(&mut self) -> Option<Bytes> {
        self.datagrams_in.pop()
    }

    pub(super) fn set_receive_window(&mut self, window: u64) {
        self.window = window;
        self.raise();
    }

    pub(super) fn set_stream_window(&mut self, window: u64) {
        self.stream_window = window;
    }

    pub(super) fn set_send_window(&mut self, window: u64) {
        self.send_window = window;
        self.events.push(Event::Writers);
    }

    /// Decodes all complete frames in `bytes`. An error ends the connection.
    pub(super) fn receive(&mut self, bytes: &mut BytesMut) -> Result<(), &'static str> {
        loop {
            let frame = Frame::decode(bytes).map_err(|_| "it sent a malformed frame")?;
            let Some(frame) = frame else { return Ok(()) };
            if self.frames_received == 0 {
                // A client waits for the first frame, which shows that the server admits it.
                self.events.push(Event::Connection);
            }
            self.frames_received += 1;
            if self.lost.is_none() {
                self.handle(frame)?;
            }
        }
    }

    fn handle(&mut self, frame: Frame) -> Result<(), &'static str> {
        match frame {
            Frame::Data(id, bytes) => {
                let length = bytes.len() as u64;
                if !self.granted.receive(length) {
                    return Err("it exceeded its credit");
                }
                // This end forgets only streams that the peer has ended.
                let Some(stream) = self.known(id)? else {
                    return Err("it sent data after the end of a stream");
                };
                if stream.end.is_some() {
                    return Err("it sent data after the end of a stream");
                }
                if !stream.granted.receive(length) {
                    return Err("it exceeded the credit of a stream");
                }
                if stream.discarded {
                    stream.granted.consume(length);
                    self.granted.consume(length);
                    self.raise();
                    return Ok(());
                }
                match stream.incoming.back_mut() {
                    // Join small frames, so that they do not take more memory than their data.
                    Some(last) if last.len() + bytes.len() <= SMALL => {
                        last.extend_from_slice(&bytes)
                    }
                    _ => {
                        let mut chunk = BytesMut::with_capacity(bytes.len());
                        chunk.extend_from_slice(&bytes);
                        stream.incoming.push_back(chunk);
                    }
                }
                self.events.push(Event::Readable(id));
            }
            Frame::Finish(id) => {
                let Some(stream) = self.known(id)? else { return Err("it ended a stream twice") };
                if stream.end.replace(Ok(())).is_some() {
                    return Err("it ended a stream twice");
                }
                self.events.push(Event::Readable(id));
                self.control.push_back(Frame::Received(id));
                self.ended(id);
            }
            Frame::Reset(id, code) => {
                let Some(stream) = self.known(id)? else { return Err("it ended a stream twice") };
                if stream.end.replace(Err(code)).is_some() {
                    return Err("it ended a stream twice");
                }
                // Return the credit of the unread bytes. The application returns the credit of the
                // bytes that it has taken when it consumes them.
                let chunks = stream.incoming.drain(..);
                let waiting = chunks.map(|chunk| chunk.len() as u64).sum();
                stream.granted.consume(waiting);
                self.granted.consume(waiting);
                self.raise();
                self.events.push(Event::Readable(id));
                self.ended(id);
            }
            Frame::Received(id) => {
                if let Some(stream) = self.known(id)? {
                    if stream.sending != Half::Ended {
                        return Err("it received the end of a stream that goes on");
                    }
                    stream.is_delivered = true;
                    self.events.push(Event::Delivered(id));
                }
                self.forget(id);
            }
            Frame::Stop(id, code) => {
                if let Some(stream) = self.known(id)?
                    && stream.stopped.is_none()
                {
                    stream.stopped = Some(code);
                    let queued = std::mem::take(&mut stream.queued);
                    stream.outgoing.clear();
                    let is_open =
                        std::mem::replace(&mut stream.sending, Half::Ended) != Half::Ended;
                    self.release(queued);
                    if is_open {
                        self.control.push_back(Frame::Reset(id, code));
                    }
                    self.events.extend([Event::Writable(id), Event::Delivered(id)]);
                }
                self.forget(id);
            }
            Frame::StreamCredit(id, limit) => {
                if let Some(stream) = self.known(id)? {
                    stream.allowed.raise(limit);
                    self.events.push(Event::Writable(id));
                }
            }
            Frame::Credit(limit) => {
                self.allowed.raise(limit);
            }
            Frame::Streams(count) => {
                let limit = self.own_limit.max(count.min(STREAM_NUMBERS));
                self.events.push(Event::Streams(limit - self.own_limit));
                self.own_limit = limit;
            }
            Frame::Datagram(bytes) => {
                // Copy the datagram, which would otherwise keep the receive buffer in memory.
                self.datagrams_in.push(Bytes::copy_from_slice(&bytes));
                self.events.push(Event::Connection);
            }
            Frame::Ping(mark) => self.pong = Some(mark),
            Frame::Pong(_) => {}
            Frame::Close(why) => self.end(Lost::ByPeer(why), None),
        }
        if self.control.len() > self.most_control() {
            return Err("it ended streams faster than it reads");
        }
        Ok(())
    }

    /// Returns the stream with this number, or `None` if it has ended. Creates the stream if the
    /// peer opens it with this frame.
    fn known(&mut self, id: u32) -> Result<Option<&mut Stream>, &'static str> {
        let is_peers = (id % 2 == 1) != self.is_server;
        if is_peers && id >= self.next_peer {
            if id / 2 >= self.peer_limit {
                return Err("it opened too many streams");
            }
            // Create lower-numbered streams too: first frames may arrive in any order.
            while self.next_peer <= id {
                self.streams.insert(self.next_peer, Stream::new());
                self.arrived.push_back(self.next_peer);
                self.next_peer += 2;
            }
            self.events.push(Event::Connection);
        } else if !is_peers && id >= self.next_own {
            return Err("it named a stream that this end has not opened");
        }
        Ok(self.streams.get_mut(&id))
    }

    /// Appends frames to `out`, up to about `most` bytes. Returns whether more could follow.
    pub(super) fn fill(&mut self, out: &mut BytesMut, most: usize) -> bool {
        if self.lost.is_some() {
            if let Some(close) = self.close.take() {
                close.encode(out);
            }
            return false;
        }
        for frame in [self.pong.take().map(Frame::Pong), self.ping.take().map(Frame::Ping)] {
            frame.iter().for_each(|frame| frame.encode(out));
        }
        if let Some(limit) = self.credit.take() {
            Frame::Credit(limit).encode(out);
        }
        while let Some((id, limit)) = self.credits.pop_first() {
            Frame::StreamCredit(id, limit).encode(out);
            if out.len() >= most {
                return true;
            }
        }
        while let Some(frame) = self.control.pop_front() {
            frame.encode(out);
            if out.len() >= most {
                return true;
            }
        }
        // Datagrams need no credit, so send them even if the connection has none.
        for _ in 0..DATAGRAMS_AT_ONCE {
            let Some(datagram) = self.datagrams_out.pop() else { break };
            Frame::Datagram(datagram).encode(out);
        }
        while out.len() < most {
            let Some(id) = self.ready.pop_front() else { break };
            if !self.send_some(id, out) {
                // The connection's credit is used up.
                self.ready.push_front(id);
                return false;
            }
        }
        !self.ready.is_empty() || !self.datagrams_out.all.is_empty()
    }

    /// Sends at most one data frame of a stream, and its end. Returns `false` if the connection has
    /// no credit.
    fn send_some(&mut self, id: u32, out: &mut BytesMut) -> bool {
        let room = self.allowed.room();
        let Some(stream) = self.streams.get_mut(&id) else { return true };
        if let Some(mut first) = stream.outgoing.pop_front() {
            let most = PAYLOAD_LIMIT.min(usize::try_from(room).unwrap_or(usize::MAX));
            if most == 0 {
                stream.outgoing.push_front(first);
                return false;
            }
            let piece = first.split_to(first.len().min(most));
            if !first.is_empty() {
                stream.outgoing.push_front(first);
            }
            let length = piece.len() as u64;
            stream.allowed.take(length);
            self.allowed.take(length);
            stream.queued -= length;
            self.release(length);
            Frame::Data(id, piece).encode(out);
            self.events.push(Event::Writable(id));
        }
        let Some(stream) = self.streams.get_mut(&id) else { return true };
        stream.is_ready = false;
        if stream.outgoing.is_empty() {
            if stream.sending == Half::Finishing {
                stream.sending = Half::Ended;
                Frame::Finish(id).encode(out);
            }
        } else {
            self.make_ready(id);
        }
        true
    }

    fn make_ready(&mut self, id: u32) {
        if let Some(stream) = self.streams.get_mut(&id)
            && !stream.is_ready
        {
            stream.is_ready = true;
            self.ready.push_back(id);
        }
    }

    /// Frees space in the send window after `bytes` have left the queues, and wakes streams that
    /// wait for it.
    fn release(&mut self, bytes: u64) {
        let was_full = self.outgoing >= self.send_window;
        self.outgoing -= bytes;
        if was_full && !self.events.contains(&Event::Writers) {
            self.events.push(Event::Writers);
        }
    }

    /// Handles the end of the peer's half of this stream.
    fn ended(&mut self, id: u32) {
        self.credits.remove(&id);
        self.forget(id);
    }

    /// Forgets a stream that has ended in both directions and that this end's tasks have dropped.
    fn forget(&mut self, id: u32) {
        if !self.streams.get(&id).is_some_and(Stream::is_over) {
            return;
        }
        self.streams.remove(&id);
        self.credits.remove(&id);
        if (id % 2 == 1) == self.is_server {
            return;
        }
        self.peer_ended += 1;
        // Permit twice as many streams as the peer has open, within bounds.
        let opened = self.next_peer / 2;
        let open = opened.saturating_sub(self.peer_ended);
        let window = (open * 2).clamp(FIRST_STREAMS, MOST_STREAMS_AT_ONCE).min(self.most_streams);
        let limit = self.peer_ended.saturating_add(window).min(STREAM_NUMBERS);
        if limit >= self.peer_limit + window / 8 {
            self.peer_limit = limit;
            self.control.push_back(Frame::Streams(limit));
        }
    }

    fn raise(&mut self) -> bool {
        let limit = self.granted.raise(self.window);
        self.credit = limit.or(self.credit);
        limit.is_some()
    }

    fn alive(&self) -> Result<(), Lost> {
        self.lost.clone().map_or(Ok(()), Err)
    }

    /// Maximum number of frames in the queue `control`. The queue grows if the peer does not read,
    /// but a peer that keeps to the protocol causes only a few frames for each stream.
    fn most_control(&self) -> usize {
        CONTROL + 4 * self.most_streams as usize
    }
}

/// How many streams a peer may open at first, and how many it may have open at once at most.
const FIRST_STREAMS: u32 = 128;
const MOST_STREAMS_AT_ONCE: u32 = 16_384;
/// How many streams one end may open during a connection.
const STREAM_NUMBERS: u32 = u32::MAX / 2;
/// Approximate memory of a stream's state and tasks, as over QUIC.
const STREAM_MEMORY: u64 = 6 * 1024;
/// Size up to which the receiver joins adjacent chunks, in bytes.
const SMALL: usize = 4096;
const DATAGRAMS_AT_ONCE: usize = 8;
const CONTROL: usize = 1024;

#[cfg(test)]
mod tests;
