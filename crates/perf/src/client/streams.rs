use super::dial::{self, POLL_INTERVAL};
use crate::PerfError;
use crate::control::{Control, Cookie, State, ready};
use crate::event::Stop;
use crate::options::{ClientOptions, Direction, Protocol, TestOptions};
use crate::stream::{DataSocket, Opened, flow_labelled, on_unconnected};
use crate::udp::{Opening, is_answer};
use rustix::event::PollFlags;
use rustix::io::Errno;
use socket2::{Socket, Type};
use std::io::{self, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct Opener<'a> {
    pub(super) options: &'a ClientOptions,
    /// The test as agreed.
    pub(super) test: &'a TestOptions,
    pub(super) remote: SocketAddr,
    pub(super) cookie: &'a Cookie,
    pub(super) stop: &'a Stop,
}

impl Opener<'_> {
    /// Opens the streams one after the other, because a server numbers the streams in order of
    /// arrival. The streams on which the client sends come first.
    pub(super) fn open_all(&self, control: &Control) -> Result<Vec<Opened>, PerfError> {
        let directions: &[bool] = match self.test.direction {
            Direction::Forward => &[true],
            Direction::Reverse => &[false],
            Direction::Both => &[true, false],
        };
        let senders = directions.iter().flat_map(|sends| {
            std::iter::repeat_n(*sends, usize::try_from(self.test.streams).unwrap_or(usize::MAX))
        });
        (0..).zip(senders).map(|(index, sends)| self.open(index, sends, control)).collect()
    }

    fn open(&self, index: u32, sends: bool, control: &Control) -> Result<Opened, PerfError> {
        let deadline = Instant::now() + self.options.connect_timeout;
        let kind = match self.test.protocol {
            Protocol::Tcp => Type::STREAM,
            Protocol::Udp => Type::DGRAM,
        };
        let socket = dial::socket(self.options, self.remote, kind, self.port(index)?)?;
        on_unconnected(&socket, self.test, self.remote.is_ipv6())?;
        let remote = flow_labelled(self.remote, self.test);
        let socket = dial::connect(socket, self.options, remote, deadline, self.stop)
            .map_err(|error| self.no_more(error))?;
        let socket = match self.test.protocol {
            Protocol::Tcp => DataSocket::Tcp(self.introduced(socket)?.into()),
            Protocol::Udp => DataSocket::Udp(self.answered(socket.into(), deadline, control)?),
        };
        Ok(Opened { id: number(index), sends, socket })
    }

    /// Returns the local port of stream `index`: the user chooses the first stream's port, and the
    /// other streams take the ports that follow it.
    fn port(&self, index: u32) -> Result<Option<u16>, PerfError> {
        let Some(first) = self.options.client_port else { return Ok(None) };
        match u16::try_from(u32::from(first) + index) {
            Ok(port) => Ok(Some(port)),
            Err(_) => Err(PerfError::Usage(format!(
                "--cport {first} leaves no ports for so many streams: choose a lower one"
            ))),
        }
    }

    /// Replaces the error of a refused stream. A server that accepted the control connection and
    /// then refuses a stream has gone.
    fn no_more(&self, error: PerfError) -> PerfError {
        match error {
            PerfError::Refused { .. } => self.ended(),
            other => other,
        }
    }

    fn introduced(&self, socket: Socket) -> Result<Socket, PerfError> {
        let wrong = |e| PerfError::system("opening a stream", e);
        // The send buffer of a new connection has room for a cookie; the timeout is for kernels
        // whose send buffer is smaller.
        socket.set_nonblocking(false).map_err(wrong)?;
        socket.set_write_timeout(Some(self.options.connect_timeout)).map_err(wrong)?;
        match (&socket).write_all(self.cookie.as_bytes()) {
            Ok(()) => Ok(socket),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(self.silent()),
            Err(error) if is_gone(&error) => Err(self.ended()),
            Err(error) => Err(wrong(error)),
        }
    }

    /// Repeats the hello until the server replies. An iperf3 server that received the first hello
    /// counts a second hello as data. So the second hello goes out late, and not at all once the
    /// server has reported on the control connection that it has all streams.
    fn answered(
        &self,
        socket: UdpSocket,
        deadline: Instant,
        control: &Control,
    ) -> Result<UdpSocket, PerfError> {
        let wrong = |e| PerfError::system("opening a UDP stream", e);
        socket.set_nonblocking(true).map_err(wrong)?;
        let mut next_hello = Instant::now();
        let mut patience = FIRST_PATIENCE;
        let refused_until = next_hello + REOPENING;
        loop {
            let now = Instant::now();
            if self.stop.is_called() {
                return Err(PerfError::Interrupted);
            }
            if now >= deadline {
                return Err(self.no_datagrams());
            }
            match first_word(control) {
                // The server has all its streams.
                Some(State::TestStart) => return Ok(socket),
                Some(_) => return Err(self.ended()),
                None => {}
            }
            if now >= next_hello {
                self.hello(&socket)?;
                next_hello = now + patience;
                patience *= 2;
            }
            let wait = next_hello.min(deadline).saturating_duration_since(now).min(POLL_INTERVAL);
            ready(socket.as_fd(), PollFlags::IN, wait)?;
            let mut datagram = [0; 64];
            match socket.recv(&mut datagram) {
                // Data of a sending server may overtake its reply.
                Ok(count) if is_answer(&datagram[..count]) => return Ok(socket),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if is_refusal(&error) && Instant::now() < refused_until => {
                    next_hello = Instant::now() + BETWEEN_HELLOS;
                    patience = FIRST_PATIENCE;
                }
                Err(error) => return Err(self.unanswered(error)),
            }
        }
    }

    fn hello(&self, socket: &UdpSocket) -> Result<(), PerfError> {
        // With a zero timeout `run` only sends the hello.
        match Opening::new(socket, Duration::ZERO).run() {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            // Refusal of an earlier hello; the client repeats the hello when no reply arrives.
            Err(error) if is_refusal(&error) => Ok(()),
            Err(error) => Err(self.unanswered(error)),
        }
    }

    fn unanswered(&self, error: io::Error) -> PerfError {
        let peer = self.remote.to_string();
        let reason = match Errno::from_io_error(&error) {
            Some(Errno::CONNREFUSED) => {
                "nobody takes UDP there, though TCP is served: a firewall may reject it"
            }
            Some(Errno::HOSTUNREACH | Errno::ACCESS | Errno::PERM) => "a firewall rejects UDP",
            _ => return PerfError::Unreachable { peer, reason: error },
        };
        PerfError::Unreachable { peer, reason: io::Error::new(error.kind(), reason) }
    }

    fn no_datagrams(&self) -> PerfError {
        let within = self.options.connect_timeout;
        let doing = "a UDP stream was opened (a firewall may drop UDP)";
        PerfError::Silent { peer: self.remote.to_string(), within, doing }
    }

    /// Returns the error for a server that refused or closed a stream. `Client::reason` then looks
    /// for the server's reason on the control connection.
    fn ended(&self) -> PerfError {
        PerfError::Gone { peer: self.remote.to_string(), doing: OPENING }
    }

    fn silent(&self) -> PerfError {
        let within = self.options.connect_timeout;
        PerfError::Silent { peer: self.remote.to_string(), within, doing: OPENING }
    }
}

/// Returns iperf3's number for the stream at `index`: 1, 3, 4, …
fn number(index: u32) -> u32 {
    if index == 0 { 1 } else { index + 2 }
}

/// Peeks at the server's next state. A closed connection counts as termination, and so does a byte
/// that is no state.
fn first_word(control: &Control) -> Option<State> {
    let mut byte = [0];
    match control.socket().peek(&mut byte) {
        Ok(1..) => Some(State::from_byte(byte[0]).unwrap_or(State::ServerTerminate)),
        Ok(0) => Some(State::ServerTerminate),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
        Err(_) => Some(State::ServerTerminate),
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}

/// True if the peer has no socket at the port.
fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionRefused
}

const OPENING: &str = "opening a stream";
/// riperf3 0.8 reopens its port for every stream, and the kernel refuses datagrams in between. The
/// server did not receive the refused datagrams, so the hello may be repeated at once.
const REOPENING: Duration = Duration::from_millis(500);
const BETWEEN_HELLOS: Duration = Duration::from_millis(5);
const FIRST_PATIENCE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_numbered_as_in_iperf3() {
        assert_eq!((0..5).map(number).collect::<Vec<_>>(), [1, 3, 4, 5, 6]);
    }
}
