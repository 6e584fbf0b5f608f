//! A connection of the event loop. The connection reads no clock: the event loop measures the
//! times.

use super::response::{Progress, Response};
use super::{Fault, tls};
use rustls::ClientConnection;
use rustls_pki_types::ServerName;
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

/// The server and the request, the same for every connection of a measurement.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) address: SocketAddr,
    pub(super) request: Vec<u8>,
    pub(super) tls: Option<(Arc<rustls::ClientConfig>, ServerName<'static>)>,
}

#[derive(Debug)]
pub(super) struct Connection {
    socket: TcpStream,
    tls: Option<Box<ClientConnection>>,
    stage: Stage,
    response: Response,
    /// Number of bytes of the request that were passed to the kernel or to TLS.
    written: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Connecting,
    Handshaking,
    /// Open, without a request in progress.
    Ready,
    Asked,
    /// The response is complete, and the server closes the connection.
    Closing,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The event loop has nothing to do for this connection.
    Wait,
    /// More bytes have arrived. The event loop serves other connections first.
    More,
    /// A request can be sent now.
    Opened,
    /// The response is complete; `closes`: the connection takes no further request.
    Answered {
        status: u16,
        body: u64,
        closes: bool,
    },
    /// The server closed a connection that has no request in progress.
    Closed,
    Failed(Fault, Option<String>),
}

impl Connection {
    pub(super) fn open(target: &Target) -> Result<Self, (Fault, io::Error)> {
        let failed = |error: io::Error| (fault_of(&error, true), error);
        let kind = Type::STREAM.nonblocking().cloexec();
        let socket = Socket::new(Domain::for_address(target.address), kind, Some(Protocol::TCP));
        let socket = socket.map_err(failed)?;
        socket.set_tcp_nodelay(true).map_err(failed)?;
        match socket.connect(&target.address.into()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(IN_PROGRESS) => {}
            Err(error) => return Err(failed(error)),
        }
        let tls = match &target.tls {
            None => None,
            Some((config, name)) => {
                let tls = ClientConnection::new(Arc::clone(config), name.clone());
                Some(Box::new(tls.map_err(|error| (Fault::Tls, io::Error::other(error)))?))
            }
        };
        Ok(Self {
            socket: socket.into(),
            tls,
            stage: Stage::Connecting,
            response: Response::default(),
            written: 0,
        })
    }

    pub(super) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    pub(super) fn stage(&self) -> Stage {
        self.stage
    }

    /// Returns TLS version and cipher suite; `None` without TLS.
    pub(super) fn protocol(&self) -> Option<String> {
        let tls = self.tls.as_ref()?;
        let version = tls.protocol_version()?.as_str()?.replace("TLSv1_", "TLS 1.");
        let suite = tls.negotiated_cipher_suite()?.suite().as_str()?;
        Some(format!("{version}, {}", suite.trim_start_matches("TLS13_")))
    }

    pub(super) fn ask(&mut self, request: &[u8]) -> Step {
        self.stage = Stage::Asked;
        self.response.reset();
        self.written = 0;
        if let Some(tls) = &mut self.tls {
            // The library's buffer takes 64 KiB, and a request is shorter.
            if let Err(error) = tls.writer().write_all(request) {
                return failure(&error);
            }
            self.written = request.len();
        }
        match self.flush(request) {
            Ok(()) => Step::Wait,
            Err(error) => failure(&error),
        }
    }

    /// Handles an event of the socket. `ended`: the kernel reports that the connection has ended.
    pub(super) fn step(&mut self, request: &[u8], ended: bool, buffer: &mut [u8]) -> Step {
        if self.stage == Stage::Connecting {
            match self.socket.take_error() {
                Ok(None) => {}
                Ok(Some(error)) | Err(error) => {
                    return Step::Failed(fault_of(&error, true), Some(error.to_string()));
                }
            }
            // epoll also reports sockets that are not connected yet.
            if self.socket.peer_addr().is_err() {
                return Step::Wait;
            }
            if self.tls.is_none() {
                self.stage = Stage::Ready;
                return Step::Opened;
            }
            self.stage = Stage::Handshaking;
        }
        if let Err(error) = self.flush(request) {
            // The server may have sent a response before it closed the connection.
            return match self.receive(true, buffer) {
                step @ (Step::Answered { .. } | Step::Failed(..)) => step,
                _ => failure(&error),
            };
        }
        self.receive(ended, buffer)
    }

    /// Writes the waiting bytes, as many as the socket takes without blocking.
    fn flush(&mut self, request: &[u8]) -> io::Result<()> {
        match &mut self.tls {
            Some(tls) => {
                while tls.wants_write() {
                    match tls.write_tls(&mut self.socket) {
                        Ok(_) => {}
                        Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                        Err(error) if error.kind() == ErrorKind::Interrupted => {}
                        Err(error) => return Err(error),
                    }
                }
            }
            None => {
                while self.stage == Stage::Asked && self.written < request.len() {
                    match self.socket.write(&request[self.written..]) {
                        Ok(count) => self.written += count,
                        Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                        Err(error) if error.kind() == ErrorKind::Interrupted => {}
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads the bytes that have arrived. `ended`: the peer's close has arrived, too.
    fn receive(&mut self, ended: bool, buffer: &mut [u8]) -> Step {
        match self.tls {
            None => self.receive_plain(ended, buffer),
            Some(_) => self.receive_tls(buffer),
        }
    }

    fn receive_plain(&mut self, ended: bool, buffer: &mut [u8]) -> Step {
        for _ in 0..MOST_READS {
            let count = match self.socket.read(buffer) {
                Ok(0) => return self.closed(),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Step::Wait,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return self.broken(&error),
            };
            match self.take(&buffer[..count]) {
                Step::Wait => {}
                step => return step,
            }
            // A read that returned fewer bytes than requested has emptied the socket (epoll(7)).
            if count < buffer.len() && !ended {
                return Step::Wait;
            }
        }
        Step::More
    }

    fn receive_tls(&mut self, buffer: &mut [u8]) -> Step {
        for _ in 0..MOST_READS {
            let Some(tls) = &mut self.tls else { return Step::Wait };
            let is_end = match tls.read_tls(&mut self.socket) {
                Ok(count) => count == 0,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Step::Wait,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return self.broken(&error),
            };
            let state = match tls.process_new_packets() {
                Ok(state) => state,
                Err(error) => {
                    // Sends the alert, so that the server can log the reason.
                    let _ = tls.write_tls(&mut self.socket);
                    return Step::Failed(Fault::Tls, Some(tls::words(&error)));
                }
            };
            let mut left = state.plaintext_bytes_to_read();
            while left > 0 {
                let Some(tls) = &mut self.tls else { break };
                let most = left.min(buffer.len());
                let count = match tls.reader().read(&mut buffer[..most]) {
                    Ok(0) | Err(_) => break,
                    Ok(count) => count,
                };
                left -= count;
                match self.take(&buffer[..count]) {
                    Step::Wait => {}
                    Step::Answered { .. } if left > 0 => return excess(),
                    step => return step,
                }
            }
            if is_end || state.peer_has_closed() {
                return self.closed();
            }
            if let Some(tls) = &mut self.tls {
                let is_open = self.stage == Stage::Handshaking && !tls.is_handshaking();
                // Send the rest of the handshake.
                if tls.wants_write()
                    && let Err(error) = self.flush(&[])
                {
                    return self.broken(&error);
                }
                if is_open {
                    self.stage = Stage::Ready;
                    return Step::Opened;
                }
            }
        }
        Step::More
    }

    /// Parses received bytes as part of the response.
    fn take(&mut self, bytes: &[u8]) -> Step {
        match self.stage {
            Stage::Asked => {}
            _ => return excess(),
        }
        match self.response.take(bytes) {
            Ok(Progress::Open) => Step::Wait,
            Ok(Progress::Complete { used }) if used < bytes.len() => excess(),
            Ok(Progress::Complete { .. }) => self.answered(),
            Err(fault) => Step::Failed(fault, None),
        }
    }

    fn answered(&mut self) -> Step {
        let closes = self.response.closes();
        self.stage = if closes { Stage::Closing } else { Stage::Ready };
        Step::Answered { status: self.response.status(), body: self.response.body(), closes }
    }

    fn closed(&mut self) -> Step {
        match self.stage {
            Stage::Ready | Stage::Closing => Step::Closed,
            Stage::Handshaking => {
                let words = "the server closed the connection within the handshake".to_owned();
                Step::Failed(Fault::Tls, Some(words))
            }
            Stage::Connecting => Step::Failed(Fault::Reset, None),
            Stage::Asked => match self.response.end() {
                Ok(()) => self.answered(),
                Err(fault) => Step::Failed(fault, None),
            },
        }
    }

    fn broken(&self, error: &io::Error) -> Step {
        match self.stage {
            // Many servers reset a connection after their response.
            Stage::Ready | Stage::Closing => Step::Closed,
            _ => failure(error),
        }
    }
}

fn excess() -> Step {
    Step::Failed(Fault::Length, Some("bytes followed the response".to_owned()))
}

fn failure(error: &io::Error) -> Step {
    Step::Failed(fault_of(error, false), Some(error.to_string()))
}

/// Classifies a socket error. `opening`: the connection was not open yet.
fn fault_of(error: &io::Error, opening: bool) -> Fault {
    match error.kind() {
        ErrorKind::ConnectionRefused => Fault::Refused,
        ErrorKind::AddrNotAvailable | ErrorKind::AddrInUse if opening => Fault::NoPort,
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted => {
            Fault::Reset
        }
        ErrorKind::InvalidData => Fault::Tls,
        _ if opening => Fault::Unconnected,
        _ => Fault::Reset,
    }
}

/// EINPROGRESS of asm-generic/errno.h.
const IN_PROGRESS: i32 = libc::EINPROGRESS;
/// Maximum number of reads per event, so that a server that never stops sending does not block the
/// event loop.
const MOST_READS: u32 = 64;
