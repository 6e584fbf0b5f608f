//! Tests that the client reports every failure in a clear sentence, within the requested time.
#![allow(clippy::unwrap_used)]

mod scripted;

use host::Namespace;
use perf::PerfError;
use perf::client::run;
use perf::event::{Audience, Event, Stop};
use perf::options::{Amount, ClientOptions, Direction, Family, Protocol, TestOptions};
use scripted::{After, Server, Step};
use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;
use testing::Attempt;
use units::Span;

#[derive(Debug, Default)]
struct EventNames(Vec<&'static str>);

impl Audience for EventNames {
    fn event(&mut self, event: &Event<'_>) {
        self.0.push(match event {
            Event::Listening(_) => "listening",
            Event::Started(_) => "started",
            Event::Idle(_) => "idle",
            Event::Interval(_) => "interval",
            Event::Ended(_) => "ended",
            Event::Failed(_) => "failed",
        });
    }
}

fn options(host: &str, port: u16) -> ClientOptions {
    ClientOptions {
        host: host.to_owned(),
        port,
        interval: Span::ZERO,
        probes: false,
        idle_probe: Span::ZERO,
        test: TestOptions { amount: Amount::Time(Span::from_millis(50)), ..TestOptions::default() },
        ..ClientOptions::default()
    }
}

fn hurried(port: u16) -> ClientOptions {
    let short = Duration::from_millis(400);
    ClientOptions { connect_timeout: short, receive_timeout: short, ..options("127.0.0.1", port) }
}

fn failure(options: &ClientOptions) -> PerfError {
    let error = reported(options);
    assert!(!error.is_misuse(), "{error}");
    error
}

fn reported(options: &ClientOptions) -> PerfError {
    let mut reported = EventNames::default();
    let error = run(options, &Stop::default(), &mut reported).unwrap_err();
    assert_eq!(reported.0.last(), Some(&"failed"), "{error}");
    let sentence = error.to_string();
    assert!(!sentence.contains('\n') && sentence.len() < 300, "{sentence}");
    error
}

/// Listens at a port, accepts a connection and passes it to `serve`; returns the port.
fn one_connection(serve: impl FnOnce(std::net::TcpStream) + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || serve(listener.accept().unwrap().0));
    port
}

#[test]
fn a_port_without_a_listener_is_reported() {
    // No other test uses this address, so the port stays free after the listener is dropped.
    let port = TcpListener::bind("127.0.0.79:0").unwrap().local_addr().unwrap().port();
    let error = failure(&options("127.0.0.79", port));
    assert!(matches!(error, PerfError::Refused { .. }), "{error}");
    assert!(error.to_string().contains("start `weir perf server` or `iperf3 -s`"));
}

#[test]
fn an_unknown_name_is_reported() {
    let error = failure(&options("no-such-name.invalid", 5201));
    assert!(matches!(error, PerfError::NoAddress { .. }), "{error}");
    assert!(error.to_string().starts_with("no-such-name.invalid has no address"));
}

#[test]
fn an_address_of_the_wrong_family_is_refused() {
    for (host, family) in [("127.0.0.1", Family::V6), ("::1", Family::V4)] {
        let error = failure(&ClientOptions { family: Some(family), ..options(host, 5201) });
        assert!(matches!(error, PerfError::NoAddress { .. }), "{error}");
    }
    let bind = Some("127.0.0.1".parse().unwrap());
    let error = failure(&ClientOptions { bind, ..options("::1", 5201) });
    assert!(error.to_string().contains("--bind is IPv4, and ::1 is IPv6"), "{error}");
}

#[test]
fn a_missing_address_or_interface_is_reported() {
    let bind = Some("192.0.2.77".parse().unwrap());
    let error = reported(&ClientOptions { bind, ..options("127.0.0.1", 5201) });
    assert!(error.is_misuse(), "{error}");
    assert!(error.to_string().contains("192.0.2.77 of --bind is no address of this machine"));
    let bind_device = Some("nodevice0".to_owned());
    let error = failure(&ClientOptions { bind_device, ..options("127.0.0.1", 5201) });
    assert!(error.to_string().contains("there is no interface nodevice0"), "{error}");
}

#[test]
fn impossible_options_are_refused_by_the_client() {
    let misuse = |options: &ClientOptions| {
        let error = run(options, &Stop::default(), &mut EventNames::default()).unwrap_err();
        assert!(error.is_misuse(), "{error}");
        error.to_string()
    };
    let error = misuse(&ClientOptions { affinity: Some(1023), ..options("127.0.0.1", 1) });
    assert!(error.contains("CPU 1023: give one of ["), "{error}");
    let server = Server::start(vec![Step::Cookie, Step::State(9)], After::Die);
    let mut titled = options("127.0.0.1", server.port());
    titled.test.title = Some("x".repeat(9000));
    let error = misuse(&titled);
    assert!(error.contains("a server reads 8192: shorten --title"), "{error}");
}

#[test]
fn a_server_of_another_protocol_is_named() {
    let port = one_connection(|mut socket| {
        socket.write_all(b"SSH-2.0-OpenSSH_9.2p1\r\n").unwrap();
        let _ = socket.read(&mut [0; 64]);
    });
    let error = failure(&options("127.0.0.1", port)).to_string();
    assert!(
        error
            .contains("does not speak iperf3's protocol: it answers `SSH-2.0-OpenSSH_9.2p1`; name")
    );
    let port = one_connection(|mut socket| {
        let _ = socket.read(&mut [0; 64]);
        socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n<html>").unwrap();
    });
    let error = failure(&options("127.0.0.1", port)).to_string();
    assert!(error.contains("it answers `HTTP/1.1 400 Bad Request`; name"), "{error}");
}

#[test]
fn a_server_that_accepts_and_sends_nothing_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let error = failure(&hurried(listener.local_addr().unwrap().port()));
    let PerfError::Silent { within, .. } = error else { panic!("{error}") };
    assert_eq!(within, Duration::from_millis(400));
    assert!(error.to_string().contains("something else may listen there"), "{error}");
}

#[test]
fn a_busy_server_is_reported() {
    let server = Server::start(vec![Step::Cookie, Step::State(-1)], After::Die);
    let error = failure(&options("127.0.0.1", server.port()));
    assert!(matches!(error, PerfError::Busy { .. }), "{error}");
}

#[test]
fn a_servers_error_is_reported() {
    let server = Server::start(
        vec![Step::Cookie, Step::State(9), Step::ReadJson, Step::Error(27, 0)],
        After::Die,
    );
    let error = failure(&options("127.0.0.1", server.port()));
    assert!(matches!(error, PerfError::PeerFailed { .. }), "{error}");
    assert!(error.to_string().ends_with("ask for less with --bitrate"), "{error}");
}

#[test]
fn a_server_that_dies_in_any_state_is_reported() {
    for steps in scripted::prefixes() {
        let server = Server::start(steps.clone(), After::Die);
        let error = failure(&options("127.0.0.1", server.port()));
        assert!(matches!(error, PerfError::Gone { .. }), "after {steps:?}: {error}");
    }
}

#[test]
fn a_server_that_hangs_in_any_state_times_out() {
    for steps in scripted::prefixes() {
        let server = Server::start(steps.clone(), After::Hang);
        let error = failure(&hurried(server.port()));
        assert!(matches!(error, PerfError::Silent { .. }), "after {steps:?}: {error}");
    }
}

#[test]
fn a_test_with_a_server_that_follows_the_whole_script_succeeds() {
    let server = Server::start(scripted::whole(), After::Hang);
    let mut reported = EventNames::default();
    run(&options("127.0.0.1", server.port()), &Stop::default(), &mut reported).unwrap();
    assert_eq!(reported.0, ["started", "ended"]);
}

#[test]
fn unexpected_states_and_absurd_message_lengths_are_refused() {
    let server = Server::start(vec![Step::Cookie, Step::State(13)], After::Hang);
    let error = failure(&options("127.0.0.1", server.port()));
    assert!(matches!(error, PerfError::NotIperf { .. }), "{error}");
    let mut steps = scripted::whole();
    let results = steps.iter().position(|step| *step == Step::Results).unwrap();
    steps.truncate(results);
    steps.push(Step::RawClient(vec![0x7f, 0xff, 0xff, 0xff, b'{']));
    let server = Server::start(steps, After::Hang);
    let error = failure(&options("127.0.0.1", server.port()));
    assert!(error.to_string().contains("2147483647 bytes was announced"), "{error}");
}

#[test]
fn a_server_that_terminates_a_running_test_is_reported() {
    let mut steps = scripted::running();
    steps.push(Step::State(11));
    let server = Server::start(steps, After::Hang);
    let mut reported = EventNames::default();
    let error =
        run(&options("127.0.0.1", server.port()), &Stop::default(), &mut reported).unwrap_err();
    assert!(matches!(error, PerfError::EndedByPeer { .. }), "{error}");
    assert_eq!(reported.0, ["started", "ended", "failed"]);
}

#[test]
fn a_call_to_stop_ends_the_test_and_reports_the_measurements() {
    let mut steps = scripted::running();
    steps.push(Step::Expect(12));
    let server = Server::start(steps, After::Die);
    let mut endless = options("127.0.0.1", server.port());
    endless.test.amount = Amount::Time(Span::from_secs(600));
    endless.interval = Span::from_millis(100);
    let stop = Stop::default();
    let mut reported = StopsAtInterval { reported: EventNames::default(), stop: stop.clone() };
    let error = run(&endless, &stop, &mut reported).unwrap_err();
    assert!(matches!(error, PerfError::Interrupted), "{error}");
    let names = reported.reported.0;
    assert!(names.starts_with(&["started", "interval"]), "{names:?}");
    assert!(names.ends_with(&["ended", "failed"]), "{names:?}");
    server.has_done_all();
}

#[test]
fn a_lost_udp_hello_is_repeated() {
    // If the machine stalls for this long, the client has no time for a second hello.
    testing::undisturbed("second hello", |_| {
        let steps = scripted::running().into_iter().take(4).collect();
        let server = Server::start(steps, After::Hang);
        let stopped = hellos(server.port(), 1);
        let within = Duration::from_millis(1500);
        let mut options = udp(server.port());
        options.connect_timeout = within;
        // The script ends here, so the client waits in this state.
        let error = failure(&options).to_string();
        if !error.ends_with("the test was to start") {
            return Attempt::Wrong(error);
        }
        assert_eq!(stopped.join().unwrap(), 2);
        Attempt::Right(())
    });
}

#[test]
fn the_start_of_the_test_replaces_a_lost_reply_to_a_udp_hello() {
    // If the server stalls between two messages, the client sends a second hello.
    testing::undisturbed("single hello", |_| {
        let mut steps = scripted::whole();
        steps.retain(|step| *step != Step::Stream);
        let server = Server::start(steps, After::Hang);
        let silent = UdpSocket::bind(("127.0.0.1", server.port())).unwrap();
        run(&udp(server.port()), &Stop::default(), &mut EventNames::default()).unwrap();
        let mut datagram = [0; 64];
        let mut came = std::iter::from_fn(|| {
            silent.set_nonblocking(true).unwrap();
            silent.recv(&mut datagram).ok()
        });
        assert_eq!(came.next(), Some(4));
        match came.all(|length| length > 4) {
            true => Attempt::Right(()),
            false => Attempt::Wrong("a second hello counts as data at a stock server".to_owned()),
        }
    });
}

/// Ignores the first `deaf_to` hellos and replies to the next hello. Returns the number of received
/// hellos.
fn hellos(port: u16, deaf_to: usize) -> thread::JoinHandle<usize> {
    let socket = UdpSocket::bind(("127.0.0.1", port)).unwrap();
    thread::spawn(move || {
        let mut datagram = [0; 64];
        for _ in 0..deaf_to {
            socket.recv(&mut datagram).unwrap();
        }
        let (length, from) = socket.recv_from(&mut datagram).unwrap();
        let hello = perf::udp::is_hello(&datagram[..length]).unwrap();
        socket.send_to(&perf::udp::answer(hello), from).unwrap();
        deaf_to + 1
    })
}

fn udp(port: u16) -> ClientOptions {
    let mut options = options("127.0.0.1", port);
    options.test.protocol = Protocol::Udp;
    options
}

#[derive(Debug)]
struct StopsAtInterval {
    reported: EventNames,
    stop: Stop,
}

impl Audience for StopsAtInterval {
    fn event(&mut self, event: &Event<'_>) {
        self.reported.event(event);
        if matches!(event, Event::Interval(_)) {
            self.stop.call();
        }
    }
}

#[test]
fn a_firewall_that_rejects_or_drops_is_reported() {
    let Some(namespace) = namespace() else { return };
    if Command::new("nft").arg("--version").output().is_err() {
        return testing::skip(testing::Need::Program("nft"));
    }
    let rules = [
        "tcp dport 5201 drop",
        "tcp dport 5202 reject with icmpx type admin-prohibited",
        "udp dport 5203 drop",
        "udp dport 5204 reject with icmpx type admin-prohibited",
    ];
    if !rules.iter().all(|rule| filter(&namespace, rule)) {
        return testing::skip(testing::Need::Nftables);
    }
    let attempt = || {
        namespace.run(|| {
            let listeners =
                [5201, 5202].map(|port| TcpListener::bind(("127.0.0.1", port)).unwrap());
            let servers = [5203, 5204].map(|port| {
                let steps = vec![Step::Cookie, Step::State(9), Step::ReadJson, Step::State(10)];
                let datagrams = UdpSocket::bind(("127.0.0.1", port)).unwrap();
                (Server::start_at(port, steps, After::Hang), datagrams)
            });
            // Opening the control connection takes a part of the time.
            let while_it_opens = Duration::from_secs(2);
            let hurried_udp = |port| ClientOptions {
                connect_timeout: while_it_opens,
                receive_timeout: while_it_opens,
                ..udp(port)
            };
            let outcomes = [hurried(5201), hurried(5202), hurried_udp(5203), hurried_udp(5204)];
            let outcomes = outcomes.map(|options| failure(&options));
            drop((listeners, servers));
            Ok(outcomes)
        })
    };
    // If the machine stalls for two seconds, the client has no time for datagrams.
    let outcomes = testing::undisturbed("datagrams behind a firewall", |_| {
        let outcomes = attempt().unwrap();
        match outcomes[2..].iter().all(|error| error.to_string().contains("UDP")) {
            true => Attempt::Right(outcomes),
            false => Attempt::Wrong(format!("{outcomes:?}")),
        }
    });
    let [dropped, rejected, udp_dropped, udp_rejected] = outcomes.unwrap();
    let PerfError::NoAnswer { within, .. } = &dropped else { panic!("{dropped}") };
    assert_eq!(*within, Duration::from_millis(400));
    assert!(dropped.to_string().contains("a firewall drops"), "{dropped}");
    assert!(matches!(rejected, PerfError::Unreachable { .. }), "{rejected}");
    assert!(rejected.to_string().contains("rejects it"), "{rejected}");
    assert!(udp_dropped.to_string().contains("a firewall may drop UDP"), "{udp_dropped}");
    assert!(udp_rejected.to_string().contains("a firewall rejects UDP"), "{udp_rejected}");
}

#[test]
fn an_unreachable_network_is_reported() {
    let Some(namespace) = namespace() else { return };
    let error = namespace.run(|| Ok(failure(&options("192.0.2.1", 5201)))).unwrap();
    assert!(error.to_string().contains("no route there"), "{error}");
}

#[test]
fn an_iperf3_server_killed_during_a_test_is_reported() {
    let Some(namespace) = namespace() else { return };
    for direction in [Direction::Forward, Direction::Reverse] {
        let outcome = namespace.run(|| {
            let mut options = options("127.0.0.1", 5201);
            options.test.amount = Amount::Time(Span::from_secs(600));
            options.test.direction = direction;
            options.test.rate = Some(units::Rate::from_mbit(10));
            options.interval = Span::from_millis(100);
            let Some(server) = Iperf3::start() else { return Ok(None) };
            let mut reported = KillsServer { reported: EventNames::default(), server };
            let error = run(&options, &Stop::default(), &mut reported).unwrap_err();
            Ok(Some((error, reported.reported.0)))
        });
        let Some((error, reported)) = outcome.unwrap() else { return };
        assert!(matches!(error, PerfError::Gone { .. }), "{error}");
        assert!(
            reported.contains(&"interval") && reported.ends_with(&["ended", "failed"]),
            "{reported:?}"
        );
    }
}

#[derive(Debug)]
struct KillsServer {
    reported: EventNames,
    server: Iperf3,
}

impl Audience for KillsServer {
    fn event(&mut self, event: &Event<'_>) {
        self.reported.event(event);
        if matches!(event, Event::Interval(_)) {
            self.server.0.kill().unwrap();
        }
    }
}

#[derive(Debug)]
struct Iperf3(Child);

impl Iperf3 {
    /// Starts iperf3 and waits until iperf3 listens; `None` if iperf3 is not installed.
    fn start() -> Option<Self> {
        let mut command = Command::new("iperf3");
        command.args(["-s", "-1", "--forceflush"]).stdout(Stdio::piped());
        let Ok(mut child) = command.spawn() else {
            testing::skip(testing::Need::Program("iperf3"));
            return None;
        };
        let mut output = child.stdout.take().unwrap();
        let mut received = String::new();
        while !received.contains("listening") {
            let mut bytes = [0; 256];
            let count = output.read(&mut bytes).unwrap();
            assert!(count > 0, "iperf3 ended: {received}");
            received += &String::from_utf8_lossy(&bytes[..count]);
        }
        // Keep reading the process's output: a process that writes to a pipe without a reader dies.
        thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        Some(Self(child))
    }
}

impl Drop for Iperf3 {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn namespace() -> Option<Namespace> {
    let namespace = Namespace::create("client-errors");
    namespace.map_err(|error| testing::skip_because(testing::Need::NetworkNamespaces, error)).ok()
}

/// Installs a firewall rule in the namespace; returns true if the kernel accepted it.
fn filter(namespace: &Namespace, rule: &str) -> bool {
    let script = format!(
        "add table inet weir\n\
         add chain inet weir input {{ type filter hook input priority 0; }}\n\
         add rule inet weir input {rule}\n"
    );
    let done = namespace.run(|| {
        let nft = Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn();
        let mut nft = nft.unwrap();
        nft.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        Ok(nft.wait().unwrap().success())
    });
    done.unwrap()
}
