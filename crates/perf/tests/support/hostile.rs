//! A server in this process, and clients that send it single bytes and messages.
#![allow(dead_code)]

use perf::PerfError;
use perf::control::{Cookie, State};
use perf::event::{Audience, Ended, Event, Stop};
use perf::options::{Amount, ClientOptions, Limits, Protocol, ServerOptions, TestOptions};
use perf::server::{Server, Summary};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;
use socket2::{Domain, Socket, Type};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use testing::Attempt;
use units::{Bytes, Span};

pub(crate) const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

pub(crate) fn on_loopback() -> ServerOptions {
    ServerOptions {
        port: 0,
        bind: Some(LOCALHOST),
        limits: long_timeouts(),
        ..ServerOptions::default()
    }
}

/// Timeouts longer than any step takes on a busy host: a test that waits for such a timeout hangs
/// instead of passing. The limit per address is high, because a session that has just ended still
/// counts for a moment, and all clients here have the same address.
pub(crate) fn long_timeouts() -> Limits {
    Limits {
        sessions_per_address: Limits::default().sessions,
        patience: Duration::from_secs(60),
        receive_timeout: Duration::from_secs(60),
        ..Limits::default()
    }
}

/// Short timeouts, for tests of clients that send nothing. The tests' other clients must send at
/// once.
pub(crate) fn short_timeouts() -> Limits {
    Limits {
        patience: Duration::from_secs(2),
        receive_timeout: Duration::from_secs(2),
        ..Limits::default()
    }
}

pub(crate) struct TestServer {
    pub(crate) stop: Stop,
    address: SocketAddr,
    failures: Failures,
    thread: JoinHandle<Summary>,
}

impl TestServer {
    pub(crate) fn open(limits: Limits) -> Self {
        Self::open_with(ServerOptions { limits, ..on_loopback() })
    }

    pub(crate) fn open_with(options: ServerOptions) -> Self {
        let bound = Server::bind(&options).unwrap();
        let (stop, address, failures) = (Stop::default(), bound.address(), Failures::default());
        let (stopped, all) = (stop.clone(), failures.clone());
        let thread =
            std::thread::spawn(move || bound.run(&stopped, |_| Box::new(all.clone())).unwrap());
        Self { stop, address, failures, thread }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(self.address).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        socket
    }

    pub(crate) fn client_options(&self, protocol: Protocol) -> ClientOptions {
        ClientOptions {
            host: self.address.ip().to_string(),
            port: self.address.port(),
            probes: false,
            idle_probe: Span::ZERO,
            connect_timeout: TIMEOUT,
            test: TestOptions {
                protocol,
                block: Some(Bytes::new(1200)),
                amount: Amount::Bytes(100_000),
                ..TestOptions::default()
            },
            ..ClientOptions::default()
        }
    }

    /// Connects clients that send their cookie and nothing else.
    pub(crate) fn silent_clients(&self, count: usize) -> Vec<RawClient> {
        let silent = |_| {
            let mut raw = RawClient::connect(self);
            raw.send_cookie();
            raw
        };
        (0..count).map(silent).collect()
    }

    /// Runs a whole test of a well-behaved client. Sessions that just ended may still hold their
    /// slots for a moment.
    pub(crate) fn assert_serves(&self) {
        loop {
            match client(self.client_options(Protocol::Tcp)).join().unwrap() {
                Err(PerfError::Busy { .. }) => std::thread::yield_now(),
                ended => {
                    let ended = ended.unwrap();
                    assert!(ended.streams[0].received.bytes.count() > 0, "{ended:?}");
                    return;
                }
            }
        }
    }

    /// Checks that the server reported a single clear sentence for a broken session, or nothing if
    /// there was no session (`fails` is false).
    pub(crate) fn assert_one_failure(self, fails: bool, what: &str) {
        let failures = self.failures.clone();
        self.close();
        let failures = failures.0.lock().unwrap();
        assert_eq!(failures.len(), usize::from(fails), "{what}: {failures:?}");
    }

    pub(crate) fn close(self) -> Summary {
        self.stop.call();
        self.wait()
    }

    /// Waits for a server that ends without a call to stop.
    pub(crate) fn wait(self) -> Summary {
        self.thread.join().unwrap()
    }
}

/// The failures of all sessions. A client that is asked to try again later has had no session.
#[derive(Debug, Clone, Default)]
struct Failures(Arc<Mutex<Vec<String>>>);

impl Audience for Failures {
    fn event(&mut self, event: &Event<'_>) {
        if let Event::Failed(error) = event
            && !matches!(error, PerfError::Postponed { .. })
        {
            self.0.lock().unwrap().push(error.to_string());
        }
    }
}

/// Runs a check of short timeouts, and repeats it if it failed while the machine was disturbed: the
/// steps before the tested timeout may then exceed other timeouts.
pub(crate) fn in_time(check: impl Fn()) {
    testing::undisturbed("short time limit of a perf server", |_| {
        match catch_unwind(AssertUnwindSafe(&check)) {
            Ok(()) => Attempt::Right(()),
            Err(_) => Attempt::Wrong("its panic is above".to_owned()),
        }
    });
}

/// The client's side of a control connection, without a protocol implementation.
pub(crate) struct RawClient {
    pub(crate) control: TcpStream,
    pub(crate) cookie: Cookie,
    pub(crate) streams: Vec<TcpStream>,
}

impl RawClient {
    pub(crate) fn connect(server: &TestServer) -> Self {
        Self { control: server.connect(), cookie: Cookie::random(), streams: Vec::new() }
    }

    pub(crate) fn connect_from(server: &TestServer, address: IpAddr) -> Self {
        let control = connect_from(server, address);
        Self { control, cookie: Cookie::random(), streams: Vec::new() }
    }

    pub(crate) fn send_cookie(&mut self) {
        self.control.write_all(self.cookie.as_bytes()).unwrap();
        self.expect(State::ExchangeParameters);
    }

    pub(crate) fn first_state(&mut self) -> State {
        self.control.write_all(self.cookie.as_bytes()).unwrap();
        self.next_state()
    }

    pub(crate) fn keep_sending(&self) {
        for stream in &self.streams {
            let mut stream = stream.try_clone().unwrap();
            std::thread::spawn(move || {
                while stream.write_all(&[0; 1000]).is_ok() {
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
        }
    }

    pub(crate) fn open_stream(&mut self, server: &TestServer) {
        let mut socket = connect_from(server, self.control.local_addr().unwrap().ip());
        socket.write_all(self.cookie.as_bytes()).unwrap();
        self.streams.push(socket);
    }

    pub(crate) fn send_state(&mut self, state: State) {
        self.control.write_all(&[state.byte()]).unwrap();
    }

    pub(crate) fn send(&mut self, json: &[u8]) {
        let length = u32::try_from(json.len()).unwrap();
        self.control.write_all(&length.to_be_bytes()).unwrap();
        self.control.write_all(json).unwrap();
    }

    pub(crate) fn expect(&mut self, state: State) {
        assert_eq!(self.next_state(), state);
    }

    pub(crate) fn next_state(&mut self) -> State {
        let mut byte = [0];
        self.control.read_exact(&mut byte).unwrap();
        State::from_byte(byte[0]).unwrap()
    }

    pub(crate) fn receive_json(&mut self) -> Value {
        let mut length = [0; 4];
        self.control.read_exact(&mut length).unwrap();
        let mut bytes = vec![0; u32::from_be_bytes(length) as usize];
        self.control.read_exact(&mut bytes).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    /// Ends a running test properly.
    pub(crate) fn finish(mut self) {
        self.send_state(State::TestEnd);
        self.expect(State::ExchangeResults);
        self.send(br#"{"streams":[]}"#);
        self.receive_json();
        self.expect(State::DisplayResults);
        self.send_state(State::Done);
        assert!(read_to_end(&mut self.control).is_empty());
    }
}

pub(crate) fn client(options: ClientOptions) -> JoinHandle<Result<Ended, PerfError>> {
    std::thread::spawn(move || perf::client::run(&options, &Stop::default(), &mut NoAudience))
}

struct NoAudience;

impl Audience for NoAudience {
    fn event(&mut self, _: &Event<'_>) {}
}

pub(crate) fn datagrams(server: &TestServer) -> UdpSocket {
    let socket = UdpSocket::bind((LOCALHOST, 0)).unwrap();
    socket.connect(server.address()).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    socket
}

fn connect_from(server: &TestServer, address: IpAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::new(address, 0).into()).unwrap();
    socket.connect(&server.address().into()).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    socket.into()
}

/// Returns all bytes that the server sends until it closes or resets the connection.
pub(crate) fn read_to_end(socket: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    let mut bytes = [0; 4096];
    loop {
        match socket.read(&mut bytes) {
            Ok(0) => return all,
            Ok(count) => all.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return all,
            Err(error) => {
                panic!("the server did not close the connection: {error}; it said {all:?}")
            }
        }
    }
}

/// Returns iperf3's error number if the server's last message was an error.
pub(crate) fn server_error(received: &[u8]) -> Option<i32> {
    let (state, numbers) = received.split_first()?;
    let code = numbers.first_chunk::<4>()?;
    (numbers.len() == 8 && *state == State::ServerError.byte()).then(|| i32::from_be_bytes(*code))
}

/// Raises this process's limit of file descriptors as far as the system permits.
pub(crate) fn allow_files(count: u64) {
    let limit = getrlimit(Resource::Nofile);
    let count = limit.maximum.map_or(count, |maximum| count.min(maximum));
    if limit.current.is_some_and(|current| current < count) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(count), ..limit }).unwrap();
    }
}

/// iperf3's first datagram, in this host's byte order.
pub(crate) const HELLO: [u8; 4] = 0x3637_3839_u32.to_ne_bytes();
const TIMEOUT: Duration = Duration::from_secs(60);
