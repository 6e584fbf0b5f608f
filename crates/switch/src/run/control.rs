//! The control thread: it listens on the OpenFlow and unixctl sockets, and carries each
//! connection's requests to the switch and the replies back.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use host::BoundFile;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::commands;
use super::switch::Switch;
use super::unixctl::{self, Requests};
use crate::openflow::Session;

/// A listener refuses further connections beyond this number.
const MOST_CONNECTIONS: usize = 128;
/// A client that does not read its replies is not read from while it has this much to read.
const MOST_UNSENT: usize = 4 << 20;
/// A controller that falls this far behind loses packet-ins and other notices.
const MOST_UNSENT_NOTICES: usize = 1 << 20;
const READ_SIZE: usize = 256 << 10;
const TICK: Duration = Duration::from_millis(100);
/// An idle OpenFlow connection over TCP gets an echo request after this time, and is closed after
/// three without a reply.
const ECHO_INTERVAL: Duration = Duration::from_secs(5);
const MOST_SILENCE: Duration = Duration::from_secs(20);

/// A socket on which clients connect.
#[derive(Debug)]
pub struct Listener {
    socket: ListeningSocket,
    purpose: Purpose,
}

#[derive(Debug)]
enum ListeningSocket {
    Unix { listener: UnixListener, _file: BoundFile },
    Tcp(TcpListener),
}

#[derive(Debug, Clone, Copy)]
enum Purpose {
    /// OpenFlow for the bridge of this index.
    OpenFlow(usize),
    Unixctl,
}

impl Listener {
    pub fn unixctl(listener: UnixListener, file: BoundFile) -> io::Result<Self> {
        Self::unix(listener, file, Purpose::Unixctl)
    }

    pub fn openflow(bridge: usize, listener: UnixListener, file: BoundFile) -> io::Result<Self> {
        Self::unix(listener, file, Purpose::OpenFlow(bridge))
    }

    pub fn openflow_tcp(bridge: usize, address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Self { socket: ListeningSocket::Tcp(listener), purpose: Purpose::OpenFlow(bridge) })
    }

    fn unix(listener: UnixListener, file: BoundFile, purpose: Purpose) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self { socket: ListeningSocket::Unix { listener, _file: file }, purpose })
    }

    /// The address of a TCP listener.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.socket {
            ListeningSocket::Tcp(listener) => listener.local_addr().ok(),
            ListeningSocket::Unix { .. } => None,
        }
    }

    fn accept(&self) -> io::Result<Stream> {
        let stream = match &self.socket {
            ListeningSocket::Unix { listener, .. } => Stream::Unix(listener.accept()?.0),
            ListeningSocket::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                Stream::Tcp(stream)
            }
        };
        stream.set_nonblocking()?;
        Ok(stream)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            ListeningSocket::Unix { listener, .. } => listener.as_fd(),
            ListeningSocket::Tcp(listener) => listener.as_fd(),
        }
    }
}

#[derive(Debug)]
pub(super) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_nonblocking(true),
            Self::Tcp(stream) => stream.set_nonblocking(true),
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        }
    }

    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(bytes),
            Self::Tcp(stream) => stream.read(bytes),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(bytes),
            Self::Tcp(stream) => stream.write(bytes),
        }
    }
}

struct Connection {
    stream: Stream,
    protocol: Protocol,
    outbound: Vec<u8>,
    /// The bytes of `outbound` that are sent already.
    sent: usize,
    last_heard: Instant,
    last_echo: Instant,
    /// Closed once everything is sent.
    ends: bool,
}

enum Protocol {
    OpenFlow { bridge: usize, session: Box<Session> },
    Unixctl(Requests),
}

/// The loop of the control thread. It ends when the switch ends.
pub fn serve(switch: &Arc<Switch>, listeners: &[Listener]) {
    let mut connections: HashMap<u64, Connection> = HashMap::new();
    let mut next_id = 0_u64;
    let mut buffer = vec![0; READ_SIZE];
    let mut last_tick = Instant::now();
    while !switch.is_ending() {
        let order: Vec<u64> = connections.keys().copied().collect();
        let ready = wait(switch, listeners, &connections, &order);
        if last_tick.elapsed() >= TICK {
            last_tick = Instant::now();
            switch.tick();
        }
        for (listener, _) in listeners.iter().zip(&ready).filter(|(_, ready)| **ready) {
            while let Ok(stream) = listener.accept() {
                if connections.len() >= MOST_CONNECTIONS {
                    tracing::warn!("too many control connections: one was refused");
                    break;
                }
                connections.insert(next_id, Connection::new(stream, listener.purpose, switch));
                next_id += 1;
            }
        }
        for (id, _) in order.iter().zip(&ready[listeners.len()..]).filter(|(_, ready)| **ready) {
            let Some(connection) = connections.get_mut(id) else { continue };
            connection.read(switch, &mut buffer);
        }
        deliver_notices(switch, &mut connections);
        connections.retain(|_, connection| {
            connection.keep_alive();
            connection.flush().is_ok() && !(connection.ends && connection.outbound.is_empty())
        });
    }
    for connection in connections.values_mut() {
        let _ = connection.flush();
    }
}

/// Waits for the next event; for each listener and connection in order, whether it is ready.
fn wait(
    switch: &Switch,
    listeners: &[Listener],
    connections: &HashMap<u64, Connection>,
    order: &[u64],
) -> Vec<bool> {
    let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(listeners.len() + order.len() + 1);
    for listener in listeners {
        fds.push(PollFd::from_borrowed_fd(listener.fd(), PollFlags::IN));
    }
    for id in order {
        let connection = &connections[id];
        let mut events = PollFlags::empty();
        if connection.unsent() < MOST_UNSENT && !connection.ends {
            events |= PollFlags::IN;
        }
        if connection.unsent() > 0 {
            events |= PollFlags::OUT;
        }
        fds.push(PollFd::from_borrowed_fd(connection.stream.fd(), events));
    }
    fds.push(PollFd::from_borrowed_fd(switch.wake_fd(), PollFlags::IN));
    let timeout = Timespec { tv_sec: 0, tv_nsec: TICK.as_nanos() as i64 };
    if poll(&mut fds, Some(&timeout)).is_err() {
        return vec![false; listeners.len() + order.len()];
    }
    switch.clear_wake();
    fds.pop();
    let readable = PollFlags::IN | PollFlags::HUP | PollFlags::ERR;
    fds.iter().map(|fd| fd.revents().intersects(readable)).collect()
}

/// Gives packet-ins, removed flows and port changes to the sessions of their bridge.
fn deliver_notices(switch: &Switch, connections: &mut HashMap<u64, Connection>) {
    for (bridge, notice) in switch.take_notices() {
        for connection in connections.values_mut() {
            let unsent = connection.unsent();
            match &mut connection.protocol {
                Protocol::OpenFlow { bridge: its, session }
                    if *its == bridge && unsent < MOST_UNSENT_NOTICES =>
                {
                    notice.tell(session, &mut connection.outbound);
                }
                _ => {}
            }
        }
    }
}

impl Connection {
    fn new(stream: Stream, purpose: Purpose, _switch: &Switch) -> Self {
        let mut outbound = Vec::new();
        let protocol = match purpose {
            Purpose::OpenFlow(bridge) => {
                let mut session = Box::new(Session::new());
                session.start(&mut outbound);
                Protocol::OpenFlow { bridge, session }
            }
            Purpose::Unixctl => Protocol::Unixctl(Requests::default()),
        };
        let now = Instant::now();
        Self { stream, protocol, outbound, sent: 0, last_heard: now, last_echo: now, ends: false }
    }

    fn unsent(&self) -> usize {
        self.outbound.len() - self.sent
    }

    fn read(&mut self, switch: &Arc<Switch>, buffer: &mut [u8]) {
        if self.ends || self.unsent() >= MOST_UNSENT {
            return;
        }
        match self.stream.read(buffer) {
            Ok(0) => self.ends = true,
            Ok(length) => {
                self.last_heard = Instant::now();
                self.ends = !self.receive(switch, &buffer[..length]);
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => {
                self.outbound.clear();
                self.sent = 0;
                self.ends = true;
            }
        }
    }

    /// False if the connection must end.
    fn receive(&mut self, switch: &Arc<Switch>, bytes: &[u8]) -> bool {
        match &mut self.protocol {
            Protocol::OpenFlow { bridge, session } => {
                let mut bridge = switch.bridge_access(*bridge);
                match session.receive(bytes, &mut bridge, &mut self.outbound) {
                    Ok(()) => true,
                    Err(error) => {
                        tracing::debug!("an OpenFlow connection ends: {error}");
                        false
                    }
                }
            }
            Protocol::Unixctl(requests) => {
                if requests.receive(bytes).is_err() {
                    return false;
                }
                loop {
                    match requests.next() {
                        Ok(Some(request)) => {
                            let outcome =
                                commands::run(switch, &request.method, &request.arguments);
                            self.outbound.extend(unixctl::reply(&request.id, &outcome));
                        }
                        Ok(None) => return true,
                        Err(_) => return false,
                    }
                }
            }
        }
    }

    fn keep_alive(&mut self) {
        let Protocol::OpenFlow { session, .. } = &mut self.protocol else { return };
        if matches!(self.stream, Stream::Unix(_)) || self.last_heard.elapsed() < ECHO_INTERVAL {
            return;
        }
        if self.last_heard.elapsed() > MOST_SILENCE {
            self.ends = true;
            self.outbound.clear();
            self.sent = 0;
        } else if self.last_echo.elapsed() >= ECHO_INTERVAL {
            self.last_echo = Instant::now();
            session.echo(&mut self.outbound);
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.sent < self.outbound.len() {
            match self.stream.write(&self.outbound[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => self.sent += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.outbound.clear();
        self.sent = 0;
        Ok(())
    }
}
