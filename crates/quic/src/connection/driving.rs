//! Drives a connection for its endpoint: packets, timeouts, and engine events.

use super::{Connection, Event, OVER_CREDIT, short};
use crate::control::Blocked;
use crate::lost::Lost;
use crate::stream::Stream;
use crate::turns::CREDIT_PRIORITY;
use bytes::Bytes;
use quinn_proto::{
    ConnectionEvent, Dir, EndpointEvent, ReadError, StreamEvent, StreamId, Transmit, VarInt,
};
use std::time::{Duration, Instant};

impl Connection {
    pub(crate) fn handle_event(&mut self, event: ConnectionEvent) {
        self.inner.handle_event(event);
    }

    pub(crate) fn arrived(&self, now: Instant, arrived: Instant) {
        self.control.lock().at(now, arrived);
    }

    /// Records that a router has marked an arriving datagram (CE). The acknowledgement that reports
    /// the mark to the peer must not wait (RFC 9000, section 13.2.1).
    pub(crate) fn on_marked(&self) {
        self.control.lock().hurry();
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        self.control.lock().at(now, now);
        if self.inner.poll_timeout().is_some_and(|due| due <= now) {
            self.one_by_one = PROBES;
            self.inner.handle_timeout(now);
        }
        if self.tail.fire(now) && self.control.lock().outstanding().is_some() {
            self.is_eager = true;
            self.inner.ping();
        }
        if self.is_connected() && self.probes.fire(now) {
            self.is_eager = true;
            self.inner.ping();
        }
    }

    pub(crate) fn endpoint_event(&mut self) -> Option<EndpointEvent> {
        self.inner.poll_endpoint_events()
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.inner.is_drained()
    }

    /// Whether the connection was lost since the last call.
    pub(crate) fn is_newly_closed(&mut self) -> bool {
        self.lost.is_some() && !std::mem::replace(&mut self.is_listed_as_closed, true)
    }

    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub(crate) fn deadline(&mut self) -> Option<Instant> {
        let probe = self.probes.due().filter(|_| self.is_connected());
        let waiting = [self.paced_until, self.acknowledge_at, self.tail.due(), probe];
        let all = waiting.into_iter().chain([self.inner.poll_timeout()]);
        all.flatten().min()
    }

    /// Processes the engine's events since the last call.
    pub(crate) fn pump(&mut self, now: Instant) {
        self.now = now;
        self.since_pumped = 0;
        let mut readable = std::mem::take(&mut self.readable);
        while let Some(event) = self.inner.poll() {
            match event {
                quinn_proto::Event::HandshakeDataReady | quinn_proto::Event::DatagramsUnblocked => {
                }
                quinn_proto::Event::Connected => {
                    self.connected = true;
                    self.control_out = self.inner.streams().open(Dir::Uni);
                    if let Some(stream) = self.control_out {
                        // Send credit records before data.
                        let _ = self.inner.send_stream(stream).set_priority(CREDIT_PRIORITY);
                    }
                    self.events.push_back(Event::Connected);
                }
                quinn_proto::Event::ConnectionLost { reason } => self.lose(reason.into()),
                quinn_proto::Event::DatagramReceived => {
                    self.owes = true;
                    self.events.push_back(Event::Datagrams);
                }
                quinn_proto::Event::Stream(event) => self.on_stream_event(event, &mut readable),
            }
        }
        readable.sort_unstable();
        readable.dedup();
        for id in readable.drain(..) {
            self.drain(now, id);
        }
        self.readable = readable;
        self.weigh();
        self.grow_stream_limit();
        self.mend_rtt(now);
    }

    /// Records that the address of the peer that opens this connection is not validated yet.
    pub(crate) fn expect_proof(&mut self) {
        self.is_unproved = true;
    }

    /// Whether a full-size packet would exceed three times the bytes received from an unvalidated
    /// address. The engine itself would send such a packet even if only a single byte of the
    /// allowance is left. A Handshake packet validates the address (RFC 9000, section 8.1): once
    /// this packet is acknowledged, the peer sends no more packets that would raise the allowance.
    fn would_amplify(&self) -> bool {
        if !self.is_unproved || self.connected || self.control.lock().peer_has_handshake_keys() {
            return false;
        }
        let quinn_proto::ConnectionStats { udp_tx, udp_rx, path, .. } = self.inner.stats();
        // The engine does not count the first packet, which has at least this size (RFC 9000,
        // section 14.1).
        let received = LEAST_INITIAL + udp_rx.bytes;
        udp_tx.bytes + u64::from(path.current_mtu) > received * 3
    }

    /// Returns the time until which this end waits because it has only acknowledgements to send.
    fn may_wait(&self, now: Instant) -> Option<Instant> {
        let is_quiet = self.connected
            && self.lost.is_none()
            && !self.is_eager
            && self.records_out.is_empty()
            && self.record_rest.is_empty();
        self.control.lock().may_wait(now).filter(|_| is_quiet)
    }

    /// Writes the next packets of this connection, if the congestion control allows any now.
    pub(crate) fn transmit(
        &mut self,
        now: Instant,
        most: usize,
        out: &mut Vec<u8>,
    ) -> Option<Transmit> {
        self.now = now;
        if self.would_amplify() {
            return None;
        }
        self.acknowledge_at = self.may_wait(now);
        if self.acknowledge_at.is_some() {
            // The time of the pacer belongs to a path that the engine has left, so drop this time.
            self.paced_until = None;
            return None;
        }
        self.write_records();
        // Ask the controller of the engine's present path for its window: the engine may have
        // returned to a former path, and the call switches to that path.
        let _ = self.inner.congestion_state().window();
        let allowed = self.control.lock().open_gate(now, self.owes, self.probes.is_forced);
        let most = if self.one_by_one > 0 || self.is_unproved && !self.connected {
            1
        } else {
            allowed.clamp(1, most)
        };
        let transmit = self.inner.poll_transmit(now, most, out);
        self.probes.on_transmit(now, transmit.is_some());
        match &transmit {
            Some(_) => {
                self.owes = false;
                self.one_by_one = self.one_by_one.saturating_sub(1);
            }
            None => {
                self.is_eager = false;
                self.one_by_one = 0;
            }
        }
        let mut control = self.control.lock();
        let blocked = control.close_gate(now, transmit.is_some());
        if transmit.is_none() {
            self.tail.arm(control.outstanding());
        }
        drop(control);
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
                    self.peers_streams += 1;
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
                // Wake the first stream in the queue, not the stream that the engine names.
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
                // RFC 9000, section 3.5: an endpoint resets a stopped stream.
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

    /// Reads all data of a stream from the engine. If many chunks stayed in the engine's assembler,
    /// the engine would close the connection.
    fn drain(&mut self, now: Instant, id: StreamId) {
        let is_control = Some(id) == self.control_in;
        let mut receiving = self.inner.recv_stream(id);
        // An error means that the peer has stopped the stream, or that all of its data was read.
        let Ok(mut chunks) = receiving.read(false) else { return };
        let mut arrived = std::mem::take(&mut self.arrived);
        let end = loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => arrived.push((chunk.offset, unshared(chunk.bytes))),
                Ok(None) => break Some(Ok(())),
                Err(ReadError::Blocked) => break None,
                Err(ReadError::Reset(code)) => break Some(Err(short(code))),
            }
        };
        self.owes |= !arrived.is_empty();
        // Ignore the result: after every batch, the driver asks the engine for frames to send.
        let _ = chunks.finalize();
        let kept = match is_control {
            true => self.take_records(&mut arrived, end),
            false => self.take_chunks(id, &mut arrived, end),
        };
        arrived.clear();
        self.arrived = arrived;
        if let Err(why) = kept {
            tracing::warn!(remote = %self.remote(), "connection closed: {why}");
            self.is_eager = true;
            self.inner.close(now, VIOLATION, Bytes::from_static(why.as_bytes()));
            self.lose(Lost::Violation(why));
        }
    }

    fn take_chunks(
        &mut self,
        id: StreamId,
        arrived: &mut Vec<(u64, Bytes)>,
        end: Option<Result<(), u32>>,
    ) -> Result<(), &'static str> {
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        for (offset, bytes) in arrived.drain(..) {
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

    /// Raises the stream limit as the peer opens streams, because the engine keeps state for each
    /// stream that the peer may open.
    fn grow_stream_limit(&mut self) {
        let open = self.inner.streams().remote_open_streams(Dir::Bi);
        if open * 2 > u64::from(self.stream_limit) && self.stream_limit < self.most_streams {
            self.stream_limit = (self.stream_limit * 4).min(self.most_streams);
            self.is_eager = true;
            self.inner.set_max_concurrent_streams(Dir::Bi, self.stream_limit.into());
        }
    }

    /// Replaces the engine's RTT after the handshake. The samples of the handshake include the
    /// computing time of both ends, which would delay retransmissions on a short path.
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

/// Copies a small chunk, which would otherwise keep its whole packet in memory.
fn unshared(bytes: Bytes) -> Bytes {
    if bytes.len() < SMALL { Bytes::copy_from_slice(&bytes) } else { bytes }
}

const VIOLATION: VarInt = VarInt::from_u32(2);
/// Number of loss probes per timeout (RFC 9002, section 6.2.4).
const PROBES: u8 = 2;
const SMALL: usize = 512;
const LEAST_INITIAL: u64 = 1200;
const SLACK: Duration = Duration::from_millis(2);
