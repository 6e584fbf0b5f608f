use super::refusal::{CONGESTION, INIT_STREAM, Refusal, WINDOW, stream_code};
use super::sessions::{Arrival, Reservation};
use crate::PerfError;
use crate::control::{Control, State};
use crate::event::Stop;
use crate::options::{Direction, Protocol, TestOptions};
use crate::stream::{DataSocket, Opened, SocketError, on_unconnected};
use crate::udp::{self, is_hello};
use probe::tcp::set_congestion_control;
use std::net::{TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// Asks the client for its streams and waits until all have arrived.
pub(super) fn open(
    control: &mut Control,
    reservation: &Reservation,
    options: &TestOptions,
    patience: Duration,
    stop: &Stop,
) -> Result<Vec<Opened>, Refusal> {
    let directions = directions(options);
    let mut opening = Opening { control, reservation, options, patience, stop };
    let sockets = match options.protocol {
        Protocol::Tcp => opening.connections(directions.len()),
        Protocol::Udp => opening.datagrams(directions.len()),
    }?;
    reservation.want_nothing();
    let streams = sockets.into_iter().zip(directions).enumerate();
    Ok(streams.map(|(index, (socket, sends))| Opened { id: id(index), sends, socket }).collect())
}

struct Opening<'a> {
    control: &'a mut Control,
    reservation: &'a Reservation,
    options: &'a TestOptions,
    patience: Duration,
    stop: &'a Stop,
}

impl Opening<'_> {
    fn connections(&mut self, count: usize) -> Result<Vec<DataSocket>, Refusal> {
        self.reservation.want_connections(count);
        self.control.send_state(State::CreateStreams)?;
        let mut deadline = Instant::now() + self.patience;
        self.reservation.progress().step();
        let mut sockets = Vec::with_capacity(count);
        while sockets.len() < count {
            match self.next(deadline)? {
                Some(Arrival::Connection { socket, order }) => {
                    self.prepare_connection(&socket)?;
                    sockets.push((order, socket));
                    // A client opens its streams one after another, and may lose the SYN of any
                    // stream: extend the deadline for each stream.
                    deadline = (Instant::now() + self.patience).min(deadline + EACH_STREAM);
                    self.reservation.progress().step();
                }
                Some(Arrival::Datagrams { .. } | Arrival::NoRoom(_)) | None => {}
            }
        }
        // Client and server number the streams in the order in which the client opened them.
        sockets.sort_by_key(|(order, _)| *order);
        Ok(sockets.into_iter().map(|(_, socket)| DataSocket::Tcp(socket)).collect())
    }

    fn datagrams(&mut self, count: usize) -> Result<Vec<DataSocket>, Refusal> {
        self.await_turn()?;
        self.reservation.want_datagrams(count);
        self.control.send_state(State::CreateStreams)?;
        let deadline = Instant::now() + self.patience;
        self.reservation.progress().step();
        let mut sockets: Vec<UdpSocket> = Vec::with_capacity(count);
        while sockets.len() < count {
            if let Some(Arrival::Datagrams { socket, hello }) = self.next(deadline)? {
                self.prepare_datagrams(&socket, &hello)?;
                self.reservation.progress().step();
                sockets.push(socket);
            }
            sockets.iter().for_each(answer_again);
        }
        self.reservation.end_turn();
        for socket in &sockets {
            socket.set_nonblocking(false).map_err(|e| system("preparing a stream", e))?;
        }
        Ok(sockets.into_iter().map(DataSocket::Udp).collect())
    }

    /// Returns the listener's next delivery; an error if the client leaves meanwhile.
    fn next(&mut self, deadline: Instant) -> Result<Option<Arrival>, Refusal> {
        let arrival = self.reservation.next(POLL_INTERVAL);
        if let Some(Arrival::NoRoom(error)) = arrival {
            return Err(system("opening a stream", error));
        }
        if arrival.is_none() {
            self.is_waiting(OPENING)?;
            if Instant::now() >= deadline {
                let code = stream_code(self.options.protocol);
                let error = self.silent(OPENING);
                return Err(Refusal::new(code, error));
            }
        }
        Ok(arrival)
    }

    fn await_turn(&mut self) -> Result<(), Refusal> {
        let began = Instant::now();
        while !self.reservation.take_turn(POLL_INTERVAL) {
            self.is_waiting(QUEUEING)?;
            // The client is not to blame: this session waits for other sessions.
            self.reservation.progress().step();
            // Each session ahead in the queue may take the time of this session.
            let ahead = u32::try_from(self.reservation.turns_ahead()).unwrap_or(u32::MAX);
            if began.elapsed() >= self.patience.saturating_mul(ahead.saturating_add(1)) {
                return Err(Refusal::busy(self.silent(QUEUEING)));
            }
        }
        Ok(())
    }

    /// Checks that the client still waits. A waiting client sends nothing in this phase.
    fn is_waiting(&mut self, doing: &'static str) -> Result<(), Refusal> {
        let peer = self.control.peer().to_owned();
        match self.control.try_state(doing)? {
            None if self.stop.is_called() => Err(PerfError::Interrupted.into()),
            None => Ok(()),
            Some(State::ClientTerminate) => Err(PerfError::EndedByPeer { peer }.into()),
            Some(state) => {
                let saw = format!("it sent {state:?} while {doing}");
                Err(PerfError::NotIperf { peer, saw }.into())
            }
        }
    }

    fn prepare_connection(&self, socket: &TcpStream) -> Result<(), Refusal> {
        let wrong = |e| system("preparing a stream", e);
        socket.set_nonblocking(false).map_err(wrong)?;
        let v6 = socket.local_addr().map_err(wrong)?.is_ipv6();
        let mut options = self.local_options();
        if self.options.direction == Direction::Forward
            && let Some(name) = options.congestion.take()
        {
            self.follow_congestion(socket, &name);
        }
        // The kernel accepts all of these options on an established connection. Window scale and
        // segment size were agreed in the handshake; the client's own settings limit them.
        self.prepared(on_unconnected(socket, &options, v6))
    }

    /// Sets the congestion control on a socket that only receives, as iperf3 does. The algorithm
    /// has almost no effect on a receiver, so the test goes on even if the kernel lacks the
    /// algorithm. The session reads the algorithm in use back and reports it.
    fn follow_congestion(&self, socket: &TcpStream, name: &str) {
        if let Err(error) = set_congestion_control(socket, name) {
            let peer = self.control.peer();
            tracing::warn!("for {peer} this end only receives, and goes on all the same: {error}");
        }
    }

    fn prepare_datagrams(&self, socket: &UdpSocket, hello: &[u8]) -> Result<(), Refusal> {
        let wrong = |e| system("preparing a stream", e);
        let v6 = socket.local_addr().map_err(wrong)?.is_ipv6();
        self.prepared(on_unconnected(socket, &self.local_options(), v6))?;
        answer(socket, hello).map_err(|e| system("answering a stream's first datagram", e))
    }

    /// Returns the options for the server's sockets, without the flow label: only the client, which
    /// opens the connection, sets it.
    fn local_options(&self) -> TestOptions {
        TestOptions { flow_label: None, ..self.options.clone() }
    }

    fn prepared(&self, done: Result<(), SocketError>) -> Result<(), Refusal> {
        done.map_err(|error| {
            let code = match &error {
                SocketError::Window { .. } => WINDOW,
                SocketError::Congestion(_) => CONGESTION,
                _ => INIT_STREAM,
            };
            let peer = self.control.peer();
            Refusal::new(code, PerfError::Usage(format!("{peer} was refused: {error}")))
        })
    }

    fn silent(&self, doing: &'static str) -> PerfError {
        let peer = self.control.peer().to_owned();
        PerfError::Silent { peer, within: self.patience, doing }
    }
}

/// Returns, for each stream in iperf3's order, whether the server sends. The streams on which the
/// server receives come first.
fn directions(options: &TestOptions) -> Vec<bool> {
    let count = options.streams as usize;
    match options.direction {
        Direction::Forward => vec![false; count],
        Direction::Reverse => vec![true; count],
        Direction::Both => [vec![false; count], vec![true; count]].concat(),
    }
}

/// Returns iperf3's number of the stream at `index`: 1, 3, 4, 5, …, without 2.
fn id(index: usize) -> u32 {
    match u32::try_from(index) {
        Ok(0) => 1,
        Ok(index) => index.saturating_add(2),
        Err(_) => u32::MAX,
    }
}

fn answer(socket: &UdpSocket, hello: &[u8]) -> std::io::Result<()> {
    match is_hello(hello) {
        Some(hello) => socket.send(&udp::answer(hello)).map(|_| ()),
        None => Ok(()),
    }
}

/// Replies to a repeated hello, whose client did not get the first reply.
fn answer_again(socket: &UdpSocket) {
    let mut bytes = [0; 64];
    if let Ok(length) = socket.recv(&mut bytes) {
        // Ignore errors: the stream reports a failed socket.
        let _ = answer(socket, &bytes[..length]);
    }
}

fn system(what: &str, error: std::io::Error) -> Refusal {
    Refusal::new(INIT_STREAM, PerfError::system(what, error))
}

const OPENING: &str = "opening its streams";
const QUEUEING: &str = "others from its address opened theirs";
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Each stream that arrives extends the wait by this time: a stream that lost its SYN arrives a
/// second later.
const EACH_STREAM: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_numbered_as_in_iperf3() {
        assert_eq!((0..4).map(id).collect::<Vec<_>>(), [1, 3, 4, 5]);
    }

    #[test]
    fn a_bidirectional_test_lists_receiving_streams_first() {
        let both = TestOptions { direction: Direction::Both, streams: 2, ..TestOptions::default() };
        assert_eq!(directions(&both), [false, false, true, true]);
        let reverse = TestOptions { direction: Direction::Reverse, ..both };
        assert_eq!(directions(&reverse), [true, true]);
    }
}
