//! The request/response tests against a weir server in this process, and against other servers.

#![allow(clippy::unwrap_used)]

use perf::PerfError;
use perf::control::{Control, Cookie, Message, Parameters, State};
use perf::event::{self, Stop};
use perf::options::{Limits, ServerOptions};
use perf::rounds::wire::{Offer, Order, Ready, Refusal, Report, TestRequest};
use perf::rounds::{self, Confidence, Event, Kind, Repeats, RoundsOptions, RoundsOutcome, Size};
use perf::server::Server;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use testing::Attempt;
use units::{Bytes, Rate, Span};

struct Served {
    port: u16,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

struct NoAudience;

impl event::Audience for NoAudience {
    fn event(&mut self, _: &event::Event<'_>) {}
}

impl rounds::Audience for NoAudience {
    fn event(&mut self, _: &Event<'_>) {}
}

impl Served {
    fn start() -> Self {
        Self::with(Limits::default(), Ipv4Addr::LOCALHOST.into())
    }

    fn with(limits: Limits, bind: IpAddr) -> Self {
        // Permit all sessions from the same address: an ended session still counts for a moment,
        // and all clients here have the same address.
        let sessions_per_address = limits.sessions;
        let limits = Limits { patience: Duration::from_secs(5), sessions_per_address, ..limits };
        let options = ServerOptions { port: 0, bind: Some(bind), limits, ..Default::default() };
        let bound = Server::bind(&options).unwrap();
        let (port, stop) = (bound.address().port(), Stop::default());
        let stopped = stop.clone();
        let thread = thread::spawn(move || {
            bound.run(&stopped, |_| Box::new(NoAudience)).unwrap();
        });
        Self { port, stop, thread: Some(thread) }
    }

    fn options(&self, kind: Kind) -> RoundsOptions {
        RoundsOptions {
            port: self.port,
            // Several times the maximum time for which a thread waits for a CPU on a busy machine.
            time: Span::from_millis(200),
            ..RoundsOptions::new("127.0.0.1", kind)
        }
    }

    /// Opens a control connection for a client whose messages the test itself sends.
    fn control(&self) -> (Control, Cookie) {
        let socket = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let patience = Duration::from_secs(10);
        let mut control =
            Control::new(socket, "server".to_owned(), patience, Stop::default()).unwrap();
        let cookie = Cookie::random();
        control.send_cookie(&cookie).unwrap();
        assert_eq!(control.receive_state("").unwrap(), State::ExchangeParameters);
        (control, cookie)
    }

    /// Opens a control connection for a client that has read the server's offer.
    fn offered(&self, kind: Kind) -> (Control, Cookie) {
        let (mut control, cookie) = self.control();
        let weir = Some(TestRequest { kind }.to_weir());
        control.send_json(&Parameters { tcp: true, weir, ..Parameters::default() }).unwrap();
        assert_eq!(control.receive_state("").unwrap(), State::WeirOffer);
        let _: Offer = control.receive_json(10_000, "").unwrap();
        (control, cookie)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.call();
        // A panic of the server fails the test, unless the test has already failed.
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(thread::panicking() || matches!(ended, Some(Ok(()))));
    }
}

fn size(text: &str) -> Size {
    text.parse().unwrap()
}

fn measure_once(options: &RoundsOptions) -> Vec<RoundsOutcome> {
    rounds::run(options, &Stop::default(), &mut NoAudience).unwrap()
}

/// Measures. Repeats a measurement that counts no transaction, because the machine stalled.
fn measure(options: &RoundsOptions) -> Vec<RoundsOutcome> {
    let outcomes = testing::undisturbed("rounds", |_| {
        let outcomes = measure_once(options);
        let counts = |outcome: &RoundsOutcome| outcome.runs.iter().all(|run| run.count > 0);
        match outcomes.iter().all(counts) {
            true => Attempt::Right(outcomes),
            false => Attempt::Wrong(format!("{outcomes:?}")),
        }
    });
    outcomes.unwrap()
}

fn order(kind: Kind) -> Order {
    Order {
        kind,
        request: 1,
        response: 1,
        connections: 1,
        depth: 1,
        seconds: 60.0,
        server_affinity: None,
        port: None,
    }
}

#[test]
fn every_request_gets_a_response_and_client_and_server_count_the_same() {
    let server = Served::start();
    for kind in [Kind::Rr, Kind::Crr, Kind::UdpRr] {
        let options = RoundsOptions {
            sizes: ["1", "1/20000", "20000/1", "37", "1000/1000"].map(size).to_vec(),
            connections: 2,
            // A stalled machine replies late; this timeout keeps late replies from counting as
            // lost.
            loss_timeout: Duration::from_secs(20),
            ..server.options(kind)
        };
        for outcome in measure(&options) {
            let (run, latency) = (&outcome.runs[0], outcome.latency.unwrap());
            assert!(run.count > 0 && run.rate > 0.0, "{kind} {}", outcome.size);
            assert_eq!(latency.samples, run.count);
            assert!(latency.min <= latency.p50 && latency.p999 <= latency.max);
            assert_eq!((run.late, outcome.lost()), (0, 0), "loopback must lose nothing");
            // The first transaction of each connection is not counted here.
            let first = if kind == Kind::UdpRr { 0 } else { 2 };
            let served = (run.count + first) * outcome.size.request.count();
            assert_eq!(run.bytes_received, served, "{kind} {}", outcome.size);
            assert!(run.client.threads() > Span::ZERO && run.server.threads() > Span::ZERO);
            assert!(outcome.confidence.is_none() && outcome.is_sure());
        }
    }
}

#[test]
fn a_client_keeps_several_requests_in_flight() {
    let server = Served::start();
    // More data than the sockets' buffers hold: if client and server only sent, both would wait
    // for ever.
    for text in ["1", "1000000/1000000", "100000/1", "1/100000"] {
        let options =
            RoundsOptions { sizes: vec![size(text)], depth: 16, ..server.options(Kind::Rr) };
        let outcome = &measure(&options)[0];
        assert!(outcome.runs[0].count >= 16, "{text}");
        assert_eq!(outcome.depth, 16);
    }
}

#[test]
fn the_rate_of_a_stream_test_counts_received_data() {
    let server = Served::start();
    for (kind, most) in [(Kind::TcpStream, "65536"), (Kind::UdpStream, "65507")] {
        let options = RoundsOptions {
            sizes: ["1", "37", "1024", most].map(size).to_vec(),
            connections: 2,
            ..server.options(kind)
        };
        for outcome in measure(&options) {
            let run = &outcome.runs[0];
            assert!(run.bytes_received > 0, "{kind} {}", outcome.size);
            assert_eq!(run.bytes_sent, run.count * outcome.size.request.count());
            assert_eq!(outcome.latency, None);
            let mean = run.bytes_received as f64 * 8.0 / run.elapsed.secs_f64();
            assert!((run.rate - mean).abs() <= 1e-3 * mean);
            match outcome.loss() {
                None => assert_eq!(kind, Kind::TcpStream),
                Some(loss) => {
                    let came = run.bytes_received / outcome.size.request.count();
                    assert_eq!(run.lost, run.count - came);
                    assert!(loss.fraction() < 1.0);
                }
            }
        }
    }
}

#[test]
fn repeats_end_at_the_required_confidence_and_an_unmet_confidence_is_reported() {
    let server = Served::start();
    let asked = |text: &str| Some(text.parse::<Confidence>().unwrap());
    let loose = RoundsOptions {
        confidence: asked("50,100"),
        repeats: Repeats { least: 3, most: 50 },
        ..server.options(Kind::Rr)
    };
    let outcome = &measure(&loose)[0];
    assert!(outcome.confidence.unwrap().met && outcome.is_sure());
    assert!(outcome.runs.len() >= 3 && outcome.runs.len() < 50);
    assert_eq!(outcome.rate.count, outcome.runs.len());
    // The percentiles cover all repeats.
    let count: u64 = outcome.runs.iter().map(|run| run.count).sum();
    assert_eq!(outcome.latency.unwrap().samples, count);

    let strict = RoundsOptions {
        confidence: asked("99.99,0.0001"),
        repeats: Repeats { least: 2, most: 3 },
        ..server.options(Kind::Rr)
    };
    let outcome = &measure(&strict)[0];
    assert!(!outcome.confidence.unwrap().met && !outcome.is_sure());
    assert_eq!(outcome.runs.len(), 3);
}

#[test]
fn rounds_run_over_ipv6_on_a_requested_cpu_and_from_requested_ports() {
    let Ok(probe) = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)) else {
        return testing::skip(testing::Need::Ipv6);
    };
    let port = probe.local_addr().unwrap().port();
    drop(probe);
    let server = Served::with(Limits::default(), Ipv6Addr::LOCALHOST.into());
    let cpu = probe::cpu::affinity().unwrap()[0];
    for kind in [Kind::Rr, Kind::Crr, Kind::UdpRr] {
        let options = RoundsOptions {
            host: "::1".to_owned(),
            affinity: Some(cpu),
            server_affinity: Some(cpu),
            server_port: (kind != Kind::Crr).then_some(port),
            ..server.options(kind)
        };
        assert!(measure(&options)[0].runs[0].count > 0, "{kind}");
    }
}

#[test]
fn several_clients_measure_concurrently() {
    let server = Served::start();
    thread::scope(|scope| {
        let clients: Vec<_> = [Kind::Rr, Kind::Crr, Kind::UdpRr, Kind::TcpStream, Kind::UdpStream]
            .into_iter()
            .map(|kind| {
                let options = server.options(kind);
                scope.spawn(move || measure(&options)[0].runs[0].count)
            })
            .collect();
        for client in clients {
            assert!(client.join().unwrap() > 0);
        }
    });
}

#[test]
fn a_lost_datagram_is_counted_and_the_next_request_is_sent() {
    // If the server's thread waits long for a CPU, it responds to no request in time.
    testing::undisturbed("rounds with lost datagrams", |_| {
        let (port, server) = forgetful_server();
        let options = RoundsOptions {
            port,
            loss_timeout: Duration::from_millis(50),
            time: Span::from_secs(1),
            ..RoundsOptions::new("127.0.0.1", Kind::UdpRr)
        };
        let outcome = &measure_once(&options)[0];
        let run = &outcome.runs[0];
        let requests = server.join().unwrap();
        assert_eq!(requests, run.count + run.lost);
        assert!(run.count > 0 && run.lost > 0 && run.late > 0, "{run:?}");
        assert!(run.lost >= requests / 2, "every second response was held: {run:?}");
        assert_eq!(outcome.latency.unwrap().samples, run.count);
        match run.lost.abs_diff(run.count) <= 1 {
            true => Attempt::Right(()),
            false => Attempt::Wrong(format!("not every second request was lost: {run:?}")),
        }
    });
}

/// Starts a server for a single client. The server responds to every second request in time, and to
/// the other requests when the client no longer waits. The thread returns the number of requests.
fn forgetful_server() -> (u16, JoinHandle<u64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = thread::spawn(move || {
        let socket = listener.accept().unwrap().0;
        let mut cookie = [0; Cookie::LENGTH];
        (&socket).read_exact(&mut cookie).unwrap();
        let patience = Duration::from_secs(20);
        let mut control =
            Control::new(socket, "client".to_owned(), patience, Stop::default()).unwrap();
        control.send_state(State::ExchangeParameters).unwrap();
        let asked: Parameters = control.receive_json(10_000, "").unwrap();
        assert_eq!(
            TestRequest::within(&asked.weir.unwrap()),
            Some(TestRequest { kind: Kind::UdpRr })
        );
        control.send_state(State::WeirOffer).unwrap();
        control.send_json(&Offer::default()).unwrap();
        assert_eq!(control.receive_state("").unwrap(), State::TestStart);
        let _: Order = control.receive_json(10_000, "").unwrap();
        let data = UdpSocket::bind("127.0.0.1:0").unwrap();
        data.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        control.send_state(State::CreateStreams).unwrap();
        let ports = vec![data.local_addr().unwrap().port()];
        control.send_json(&Ready { ports }).unwrap();
        control.send_state(State::TestRunning).unwrap();
        let (mut requests, mut held) = (0_u64, None);
        while control.try_state("").unwrap().is_none() {
            let mut bytes = [0; 100];
            let Ok((length, from)) = data.recv_from(&mut bytes) else { continue };
            if bytes[..length] == cookie {
                data.send_to(&cookie, from).unwrap();
                continue;
            }
            requests += 1;
            if requests.is_multiple_of(2) {
                held = Some(bytes);
            } else {
                // Send the held response to the previous request, for which the client no longer
                // waits.
                if let Some(late) = held.take() {
                    data.send_to(&late[..length], from).unwrap();
                }
                data.send_to(&bytes[..length], from).unwrap();
            }
        }
        // Read the remaining requests, so that they count, too.
        data.set_nonblocking(true).unwrap();
        while data.recv_from(&mut [0; 100]).is_ok() {
            requests += 1;
        }
        control.send_state(State::ExchangeResults).unwrap();
        control
            .send_json(&Report { count: requests, bytes: requests, ..Report::default() })
            .unwrap();
        assert_eq!(control.receive_state("").unwrap(), State::Done);
        requests
    });
    (port, server)
}

struct Iperf3(Child);

impl Drop for Iperf3 {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_stock_iperf3_server_is_recognised_and_released() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let spawned = Command::new("iperf3")
        .args(["-s", "-B", "127.0.0.1", "-p", &port.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(child) = spawned else {
        return testing::skip(testing::Need::Program("iperf3"));
    };
    let mut iperf3 = Iperf3(child);
    let options = RoundsOptions { port, ..RoundsOptions::new("127.0.0.1", Kind::Rr) };
    // The server may not listen yet, and needs some time between two tests.
    let mut ask = || loop {
        let error = rounds::run(&options, &Stop::default(), &mut NoAudience).unwrap_err();
        let is_between_tests = match &error {
            PerfError::Refused { .. } | PerfError::Gone { .. } | PerfError::Busy { .. } => true,
            // iperf3 closes its listener while the connection is in the accept queue.
            PerfError::Unreachable { reason, .. } => {
                reason.kind() == std::io::ErrorKind::ConnectionReset
            }
            _ => false,
        };
        if !is_between_tests || iperf3.0.try_wait().unwrap().is_some() {
            return error;
        }
        thread::yield_now();
    };
    let error = ask();
    assert!(matches!(&error, PerfError::NeedsWeir { wanted, .. } if wanted == "rr"), "{error}");
    assert!(error.to_string().contains("weir perf server"));
    // The server was released, so the next client gets the same error.
    let again = ask();
    assert!(matches!(again, PerfError::NeedsWeir { .. }), "{again}");
}

#[test]
fn an_order_out_of_bounds_is_refused_and_the_session_goes_on() {
    let server = Served::start();
    let (mut control, cookie) = server.offered(Kind::Rr);
    let wrong = [
        Order { request: u64::MAX, ..order(Kind::Rr) },
        Order { response: 1 << 40, ..order(Kind::Rr) },
        Order { request: 0, ..order(Kind::Rr) },
        Order { connections: 1_000_000, ..order(Kind::Rr) },
        Order { connections: 0, ..order(Kind::Rr) },
        Order { seconds: 1e18, ..order(Kind::Rr) },
        Order { seconds: -1.0, ..order(Kind::Rr) },
        Order { server_affinity: Some(1 << 60), ..order(Kind::Rr) },
        order(Kind::Crr),
    ];
    for order in wrong {
        control.send_state(State::TestStart).unwrap();
        control.send_json(&order).unwrap();
        assert_eq!(control.receive_state("").unwrap(), State::AccessDenied, "{order:?}");
        let refusal: Refusal = control.receive_json(10_000, "").unwrap();
        assert!(!refusal.reason.is_empty());
    }
    control.send_state(State::TestStart).unwrap();
    control.send_json(&order(Kind::Rr)).unwrap();
    assert_eq!(control.receive_state("").unwrap(), State::CreateStreams);
    let _: Ready = control.receive_json(10_000, "").unwrap();
    let mut data = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    data.write_all(cookie.as_bytes()).unwrap();
    assert_eq!(control.receive_state("").unwrap(), State::TestRunning);
    data.write_all(b"x").unwrap();
    data.read_exact(&mut [0]).unwrap();
    drop(data);
    control.send_state(State::TestEnd).unwrap();
    assert_eq!(control.receive_state("").unwrap(), State::ExchangeResults);
    let report: Report = control.receive_json(100_000, "").unwrap();
    assert_eq!((report.count, report.bytes), (1, 1));
    control.send_state(State::Done).unwrap();
}

#[test]
fn the_limits_of_the_server_are_reported_to_the_client() {
    let limits = Limits { streams: 2, duration: Some(Span::from_secs(5)), ..Limits::default() };
    let server = Served::with(limits, Ipv4Addr::LOCALHOST.into());
    let refused = |change: fn(&mut RoundsOptions)| {
        let mut options = server.options(Kind::Rr);
        change(&mut options);
        let error = rounds::run(&options, &Stop::default(), &mut NoAudience).unwrap_err();
        assert!(matches!(error, PerfError::Denied { .. }), "{error}");
        error.to_string()
    };
    assert!(refused(|o| o.connections = 3).contains("3 connections: 1 to 2"));
    assert!(refused(|o| o.time = Span::from_secs(6)).contains("6 seconds: up to 5"));
    assert!(refused(|o| o.server_affinity = Some(999)).contains("CPU 999"));
    assert_eq!(measure(&server.options(Kind::Rr)).len(), 1);

    let limits = Limits { rate: Some(Rate::from_mbit(10)), ..Limits::default() };
    let server = Served::with(limits, Ipv4Addr::LOCALHOST.into());
    let error =
        rounds::run(&server.options(Kind::Rr), &Stop::default(), &mut NoAudience).unwrap_err();
    assert!(error.to_string().contains("10mbit"), "{error}");
}

/// A client that dies or sends garbage at any step ends only its own session.
#[test]
fn clients_that_die_in_any_state_leave_the_server_serving() {
    let server = Served::start();
    for kind in [Kind::Rr, Kind::Crr, Kind::UdpRr, Kind::TcpStream, Kind::UdpStream] {
        drop(server.offered(kind));
        let (mut control, _) = server.offered(kind);
        control.send_state(State::TestStart).unwrap();
        drop(control);
        let (mut control, _) = server.offered(kind);
        control.send_state(State::TestRunning).unwrap();
        drop(control);
        let (mut control, _) = server.offered(kind);
        control.send_state(State::TestStart).unwrap();
        control.socket().write_all(&[0x7f, 0xff, 0xff, 0xff, b'{']).unwrap();
        assert!(control.receive_state("").is_err() || control.receive_state("").is_err());
        let (mut control, _) = server.offered(kind);
        control.send_state(State::TestStart).unwrap();
        let nonsense: Value = serde_json::json!({"kind": 7, "request": -1, "seconds": "x"});
        let bytes = Message::encode(&nonsense).unwrap();
        control.socket().write_all(&bytes).unwrap();
        drop(control);
        // The client dies in the middle of a measurement.
        let (mut control, cookie) = server.offered(kind);
        control.send_state(State::TestStart).unwrap();
        control.send_json(&order(kind)).unwrap();
        assert_eq!(control.receive_state("").unwrap(), State::CreateStreams);
        let ready: Ready = control.receive_json(10_000, "").unwrap();
        let mut data = None;
        if matches!(kind, Kind::Rr | Kind::TcpStream) {
            let mut socket = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
            socket.write_all(cookie.as_bytes()).unwrap();
            data = Some(socket);
        }
        assert_eq!(control.receive_state("").unwrap(), State::TestRunning);
        if kind == Kind::Crr {
            // This connection sends nothing, and keeps a thread of the server waiting.
            data = Some(TcpStream::connect(("127.0.0.1", ready.ports[0])).unwrap());
        }
        drop(control);
        drop(data);
    }
    for kind in [Kind::Rr, Kind::UdpRr] {
        assert!(measure(&server.options(kind))[0].runs[0].count > 0);
    }
}

#[test]
fn datagrams_of_unknown_senders_get_no_response() {
    let server = Served::start();
    let (mut control, cookie) = server.offered(Kind::UdpRr);
    control.send_state(State::TestStart).unwrap();
    control.send_json(&order(Kind::UdpRr)).unwrap();
    assert_eq!(control.receive_state("").unwrap(), State::CreateStreams);
    let ready: Ready = control.receive_json(10_000, "").unwrap();
    assert_eq!(control.receive_state("").unwrap(), State::TestRunning);
    let address = ("127.0.0.1", ready.ports[0]);
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    for bytes in [&b"x"[..], &[0; 1000], &Cookie::random().as_bytes()[..]] {
        stranger.send_to(bytes, address).unwrap();
    }
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    client.send_to(cookie.as_bytes(), address).unwrap();
    let mut bytes = [0; 100];
    assert_eq!(client.recv(&mut bytes).unwrap(), Cookie::LENGTH);
    client.send_to(b"7", address).unwrap();
    assert_eq!(client.recv(&mut bytes).unwrap(), 1);
    assert_eq!(bytes[0], b'7');
    // The server has read the stranger's earlier datagrams by now, and must not have answered.
    stranger.set_nonblocking(true).unwrap();
    assert!(stranger.recv(&mut bytes).is_err());
}

#[test]
fn a_server_that_dies_is_reported() {
    let server = Served::start();
    let options = RoundsOptions { time: Span::from_secs(600), ..server.options(Kind::Rr) };
    let stop = server.stop.clone();
    struct Killer(Stop);
    impl rounds::Audience for Killer {
        fn event(&mut self, event: &Event<'_>) {
            if matches!(event, Event::Connected { .. }) {
                self.0.call();
            }
        }
    }
    let error = rounds::run(&options, &Stop::default(), &mut Killer(stop)).unwrap_err();
    let expected = matches!(
        error,
        PerfError::EndedByPeer { .. } | PerfError::Gone { .. } | PerfError::PeerFailed { .. }
    );
    assert!(expected, "{error}");
}

#[test]
fn a_call_to_stop_ends_a_measurement_at_once() {
    let server = Served::start();
    for kind in [Kind::Rr, Kind::Crr, Kind::UdpRr, Kind::TcpStream, Kind::UdpStream] {
        let options = RoundsOptions { time: Span::from_secs(600), ..server.options(kind) };
        let stop = Stop::default();
        let caller = stop.clone();
        let call = thread::spawn(move || {
            thread::sleep(Duration::from_millis(150));
            caller.call();
        });
        let error = rounds::run(&options, &stop, &mut NoAudience).unwrap_err();
        assert!(matches!(error, PerfError::Interrupted), "{kind}: {error}");
        call.join().unwrap();
    }
}

#[test]
fn the_outcomes_of_a_sweep_come_in_the_order_of_its_sizes() {
    let server = Served::start();
    let sizes: Vec<_> = [1, 64, 1024].map(|count| Size::both(Bytes::new(count))).to_vec();
    let options = RoundsOptions { sizes: sizes.clone(), ..server.options(Kind::Rr) };
    let measured: Vec<_> = measure(&options).iter().map(|outcome| outcome.size).collect();
    assert_eq!(measured, sizes);
}
