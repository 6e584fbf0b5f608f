use crate::connection::Connection as TunnelLeg;
use crate::packet::Packet;
use bytes::Bytes;
use quic::{Connection, PathWindow, Readable, Reassembly, StreamError, StreamId, send_window};
use std::time::Instant;
use units::Time;

/// A TCP flow inside a tunnel: the client reads data from the application's connection, and the
/// server writes the data to its own connection.
#[derive(Debug, Default)]
pub(crate) struct Carried {
    /// The client's stream.
    stream: Option<StreamId>,
    /// The server's stream.
    accepted: Option<StreamId>,
    /// Whether the client has written all data to its stream.
    fed: bool,
    arrived: Reassembly,
    ended: bool,
    /// Whether the server has written all data to its connection.
    handed_on: bool,
}

/// The buffer sizes of one end of a tunnel.
#[derive(Debug)]
pub(crate) struct Windows {
    receive: PathWindow,
    send: u64,
}

impl Windows {
    pub(crate) fn new(now: Instant) -> Self {
        Self { receive: PathWindow::new(now, quic::FIRST_CREDIT), send: quic::FIRST_CREDIT }
    }

    fn on_read(&mut self, now: Instant, bytes: u64, connection: &mut Connection) {
        if let Some(bound) = self.receive.receive(now, bytes, || connection.rtt()) {
            connection.set_stream_window(bound);
            connection.set_receive_window(bound);
        }
    }

    fn on_write(&mut self, connection: &mut Connection) {
        let cwnd = connection.readings().now().cwnd.count();
        if let Some(window) = send_window(cwnd, quic::FIRST_CREDIT, self.send) {
            self.send = window;
            connection.set_send_window(window);
        }
    }
}

impl Carried {
    pub(crate) fn begin(&mut self, stream: StreamId) {
        self.stream = Some(stream);
    }

    pub(crate) fn accept(&mut self, stream: StreamId) {
        self.accepted = Some(stream);
    }

    pub(crate) fn is_handed_on(&self) -> bool {
        self.handed_on
    }

    /// At the client: reads the data of the application's connection that the stream takes. Returns
    /// whether the client read any data.
    pub(crate) fn feed(
        &mut self,
        near: &mut TunnelLeg,
        connection: &mut Connection,
        windows: &mut Windows,
        out: &mut Vec<Packet>,
    ) -> bool {
        let Some(stream) = self.stream.filter(|_| !self.fed) else { return false };
        let mut moved = false;
        while near.receiver.unread() > 0 {
            let most = near.receiver.unread().min(ZEROS.len() as u64) as usize;
            let mut piece = Bytes::from_static(&ZEROS[..most]);
            if connection.write(stream, &mut piece).is_err() {
                self.fed = true;
                return moved;
            }
            windows.on_write(connection);
            let written = most - piece.len();
            near.receiver.read(written as u64, out);
            moved |= written > 0;
            // The connection reports room with an event.
            if !piece.is_empty() {
                return moved;
            }
        }
        let all = near.sender.is_closed() && near.receiver.received() == near.sender.written();
        if all {
            connection.finish(stream);
            self.fed = true;
        }
        moved | all
    }

    /// At the client: ends the flow, because the server has received all data and sends no data.
    pub(crate) fn on_delivered(&mut self, connection: &mut Connection) {
        if let Some(stream) = self.stream {
            connection.stop(stream, 0);
            connection.drop_sending(stream);
        }
    }

    /// At the server: reads the arrived data of the stream, and writes the data that is in order.
    pub(crate) fn take(
        &mut self,
        stream: StreamId,
        (now, instant): (Time, Instant),
        far: &mut TunnelLeg,
        connection: &mut Connection,
        windows: &mut Windows,
        out: &mut Vec<Packet>,
    ) {
        if self.handed_on {
            return;
        }
        let mut chunks = Vec::new();
        let mut taken = 0;
        while !self.ended {
            match connection.read(stream, AT_ONCE, &mut chunks) {
                Ok(Readable::Some) => {
                    for (offset, bytes) in chunks.drain(..) {
                        taken += bytes.len() as u64;
                        self.arrived.insert(offset, bytes);
                    }
                }
                Ok(Readable::Ended) => self.ended = true,
                Ok(Readable::Later) => break,
                Err(StreamError::GivenUp(_) | StreamError::Scattered | StreamError::Lost(_)) => {
                    return;
                }
            }
        }
        windows.on_read(instant, taken, connection);
        self.hand_on(now, far, connection, out);
    }

    /// At the server: writes the in-order data that its connection's buffer takes. Returns whether
    /// the server wrote any data.
    pub(crate) fn hand_on(
        &mut self,
        now: Time,
        far: &mut TunnelLeg,
        connection: &mut Connection,
        out: &mut Vec<Packet>,
    ) -> bool {
        let Some(stream) = self.accepted.filter(|_| !self.handed_on) else { return false };
        let ready = self.arrived.ready() as u64;
        let bytes = far.sender.room().min(ready);
        if bytes > 0 {
            self.arrived.consume(bytes as usize);
            far.sender.write(now, bytes, out);
            connection.consume(stream, bytes);
        }
        if self.ended && bytes == ready {
            self.handed_on = true;
            far.sender.close();
            connection.stop(stream, 0);
            connection.drop_sending(stream);
        }
        bytes > 0 || self.handed_on
    }
}

/// The simulator's applications send zeros. The tests of crates/quic check that bytes arrive as
/// sent.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];
const AT_ONCE: usize = 128 * 1024;
