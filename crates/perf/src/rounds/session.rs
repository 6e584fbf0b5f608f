use super::client_threads::{ClientThreads, End, ThreadFailure, Work};
use super::crr::Addresses;
use super::options::RoundsOptions;
use super::outcome::Run;
use super::serve::wait_readable;
use super::timeouts::{POLL_INTERVAL, Timeouts, TransferError, prepare};
use super::wire::{LONGEST, Offer, Order, Ready, Refusal, Report, TestRequest};
use super::{Kind, Latencies, Size};
use crate::PerfError;
use crate::client::handshake::{expect, greeted, next, refusal, token, unexpected};
use crate::client::{dial, resolve};
use crate::control::{Control, Cookie, Parameters, State};
use crate::event::Stop;
use crate::options::{Amount, ClientOptions, Protocol, TestOptions};
use socket2::Type;
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct Session<'a> {
    options: &'a RoundsOptions,
    path: ClientOptions,
    stop: &'a Stop,
    control: Control,
    cookie: Cookie,
    remote: SocketAddr,
}

impl<'a> Session<'a> {
    /// Opens the connection, and returns once the server has offered these tests.
    pub(super) fn open(
        options: &'a RoundsOptions,
        stop: &'a Stop,
    ) -> Result<(Self, Offer), PerfError> {
        let path = options.path();
        let deadline = Instant::now() + path.connect_timeout;
        let addresses = resolve::addresses(&path, deadline, stop)?;
        let socket = dial::control(&path, &addresses, deadline, stop)?;
        let remote = socket.peer_addr().map_err(|e| PerfError::system("connecting", e))?;
        let control = Control::new(socket, remote.to_string(), options.patience, stop.clone())?;
        let mut session = Self { options, path, stop, control, cookie: Cookie::random(), remote };
        let offer = session.agree()?;
        Ok((session, offer))
    }

    pub(super) fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// Makes a repeat, and adds its latencies to `latencies`.
    pub(super) fn measure(
        &mut self,
        size: &Size,
        latencies: &mut Latencies,
    ) -> Result<Run, PerfError> {
        let order = self.options.order(size);
        self.control.send_state(State::TestStart)?;
        self.control.send_json(&order)?;
        let ready = self.ready()?;
        let ends = self.connect(&order, &ready)?;
        expect(&mut self.control, State::TestRunning, STARTING)?;
        let mut work = self.work(&order, ends)?;
        // Closing the connections ends the server's threads, too. A stream's connections stay open
        // until the server's report.
        if order.kind != Kind::TcpStream {
            work.ends.clear();
        }
        self.control.send_state(State::TestEnd)?;
        expect(&mut self.control, State::ExchangeResults, ENDING)?;
        let report: Report = self.control.receive_json(LONGEST, ENDING)?;
        let mut own = Latencies::default();
        work.tallies.iter().for_each(|tally| own.merge(&tally.latencies));
        latencies.merge(&own);
        Run::of(order.kind, &work.tallies, &own, (&report, work.cpu))
            .map_err(|saw| self.foreign(saw))
    }

    /// Ends the session with the state `word`. Ignores an error, because the caller already knows
    /// if the server has gone.
    pub(super) fn leave(mut self, word: State) {
        let _ = self.control.send_state(word);
    }

    pub(super) fn foreign(&self, saw: String) -> PerfError {
        PerfError::NotIperf { peer: self.control.peer().to_owned(), saw }
    }

    fn agree(&mut self) -> Result<Offer, PerfError> {
        let Self { control, options, .. } = self;
        control.send_cookie(&self.cookie)?;
        greeted(control, options.patience, self.stop)?;
        expect(control, State::ExchangeParameters, AGREEING)?;
        // An iperf3 server may react to these parameters in any way: the client then closes the
        // session.
        let test = TestOptions {
            protocol: if options.kind.is_udp() { Protocol::Udp } else { Protocol::Tcp },
            amount: Amount::Time(options.time),
            ..TestOptions::default()
        };
        let weir = Some(TestRequest { kind: options.kind }.to_weir());
        let authtoken = token(options.credentials.as_ref())?;
        control.send_json(&Parameters { weir, authtoken, ..Parameters::of(&test) })?;
        match next(control, AGREEING)? {
            State::WeirOffer => control.receive_json(LONGEST, AGREEING),
            State::CreateStreams => {
                let _ = control.send_state(State::ClientTerminate);
                let peer = control.peer().to_owned();
                Err(PerfError::NeedsWeir { peer, wanted: options.kind.to_string() })
            }
            state => Err(unexpected(control, state)),
        }
    }

    fn ready(&mut self) -> Result<Ready, PerfError> {
        match self.control.receive_state(ORDERING)? {
            State::CreateStreams => self.control.receive_json(LONGEST, ORDERING),
            State::AccessDenied => {
                let refusal: Refusal = self.control.receive_json(LONGEST, ORDERING)?;
                let peer = self.control.peer().to_owned();
                Err(PerfError::Denied { peer, reason: refusal.reason })
            }
            state => Err(refusal(&mut self.control, state)
                .unwrap_or_else(|| unexpected(&self.control, state))),
        }
    }

    fn connect(&self, order: &Order, ready: &Ready) -> Result<Vec<End>, PerfError> {
        let count = order.connections as usize;
        let expected = match order.kind {
            Kind::Rr | Kind::TcpStream => 0,
            Kind::Crr => 1,
            Kind::UdpRr | Kind::UdpStream => count,
        };
        if ready.ports.len() != expected || ready.ports.contains(&0) {
            return Err(self.foreign(format!("it opened the ports {:?}", ready.ports)));
        }
        let short = |remote| Addresses {
            remote,
            bind: self.path.bind,
            bind_device: self.path.bind_device.clone(),
        };
        let ports = ready.ports.iter().copied();
        match order.kind {
            Kind::Rr | Kind::TcpStream => (0..count).map(|_| self.stream()).collect(),
            Kind::Crr => {
                let all = ports.cycle().take(count);
                Ok(all.map(|port| End::Short(short(self.at(port)))).collect())
            }
            Kind::UdpRr | Kind::UdpStream => ports.map(|port| self.datagrams(port)).collect(),
        }
    }

    fn stream(&self) -> Result<End, PerfError> {
        let deadline = Instant::now() + self.path.connect_timeout;
        let socket = dial::socket(&self.path, self.remote, Type::STREAM, None)?;
        let socket = dial::connect(socket, &self.path, self.remote, deadline, self.stop)?;
        let mut socket = TcpStream::from(socket);
        prepare(&socket)
            .and_then(|()| socket.write_all(self.cookie.as_bytes()))
            .map_err(|e| PerfError::system("opening a data connection", e))?;
        Ok(End::Stream(socket))
    }

    fn datagrams(&self, port: u16) -> Result<End, PerfError> {
        let remote = self.at(port);
        let socket = dial::socket(&self.path, remote, Type::DGRAM, None)?;
        socket
            .set_nonblocking(false)
            .and_then(|()| socket.connect(&remote.into()))
            .map_err(|e| PerfError::system(format!("a UDP socket to {remote}"), e))?;
        Ok(End::Datagrams(UdpSocket::from(socket), port))
    }

    fn work(&mut self, order: &Order, ends: Vec<End>) -> Result<Work, PerfError> {
        let over = AtomicBool::new(false);
        let Self { options, stop, cookie, control, .. } = self;
        let team = ClientThreads {
            order,
            cookie,
            time: options.time.as_duration(),
            loss_timeout: options.loss_timeout,
            affinity: options.affinity,
            timeouts: Timeouts::new(&over, stop, options.patience),
        };
        // The first transaction may take `patience`, and the last transaction may take `patience`.
        let longest = options.time.as_duration() + options.patience * 3;
        let outcome =
            team.work(ends, |ended, threads| listen(control, stop, ended, threads, longest))?;
        outcome.map_err(|failure| self.why(failure, order.kind))
    }

    /// Returns the error for a broken data connection, with the server's reason if the server sent
    /// a reason.
    fn why(&mut self, failure: ThreadFailure, kind: Kind) -> PerfError {
        let is_refused = |e: &std::io::Error| e.kind() == ErrorKind::ConnectionRefused;
        let gone = match &failure.broken {
            TransferError::Closed => true,
            TransferError::Failed(error) => is_refused(error),
            TransferError::Ended | TransferError::Silent => false,
        };
        if gone {
            wait_readable(self.control.socket(), LAST_WORD);
            match self.control.try_state(MEASURING) {
                Ok(Some(state)) => {
                    if let Some(error) = refusal(&mut self.control, state) {
                        return error;
                    }
                }
                Ok(None) => {}
                Err(error) => return error,
            }
        }
        let (peer, within) = (self.control.peer().to_owned(), self.options.patience);
        match (failure.broken, failure.port) {
            (TransferError::Ended, _) => PerfError::Interrupted,
            (TransferError::Silent, Some(port)) => {
                let protocol = if kind.is_udp() { "UDP" } else { "TCP" };
                // The server opened this port for the test, and a firewall may block it.
                let peer = format!("{} ({protocol}; --server-port chooses it)", self.at(port));
                PerfError::NoAnswer { peer, within }
            }
            (TransferError::Silent, None) => PerfError::Silent { peer, within, doing: MEASURING },
            (TransferError::Failed(error), _) if !gone => {
                PerfError::system(format!("measuring {kind}"), error)
            }
            (TransferError::Closed | TransferError::Failed(_), _) => {
                PerfError::Gone { peer, doing: MEASURING }
            }
        }
    }

    fn at(&self, port: u16) -> SocketAddr {
        let mut address = self.remote;
        address.set_port(port);
        address
    }
}

/// Watches the control connection and `stop` until all threads have ended.
fn listen(
    control: &mut Control,
    stop: &Stop,
    ended: &Receiver<()>,
    threads: usize,
    longest: Duration,
) -> Result<(), PerfError> {
    let deadline = Instant::now() + longest;
    let mut left = threads;
    while left > 0 {
        match ended.recv_timeout(POLL_INTERVAL) {
            Ok(()) => left -= 1,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                if let Some(state) = control.try_state(MEASURING)? {
                    let refused = refusal(control, state);
                    return Err(refused.unwrap_or_else(|| unexpected(control, state)));
                }
                if Instant::now() >= deadline {
                    let peer = control.peer().to_owned();
                    return Err(PerfError::Silent { peer, within: longest, doing: MEASURING });
                }
            }
        }
    }
    if stop.is_called() { Err(PerfError::Interrupted) } else { Ok(()) }
}

const AGREEING: &str = "agreeing on the test";
const ORDERING: &str = "a measurement was ordered";
const STARTING: &str = "the measurement was to start";
const MEASURING: &str = "it was measured";
const ENDING: &str = "the results were awaited";
/// Time for a server to send the reason why it closed a connection.
const LAST_WORD: Duration = Duration::from_millis(500);
