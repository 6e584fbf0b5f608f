//! Hostile and broken clients: each such client loses its own session and affects no other session.

#![allow(clippy::unwrap_used)]

#[path = "support/hostile.rs"]
mod hostile;

use hostile::{RawClient, TestServer, long_timeouts, on_loopback, short_timeouts};
use perf::control::State;
use perf::event::StreamTotal;
use perf::options::{Amount, Direction, Limits, Protocol, ServerOptions};
use perf::server::Server;
use serde_json::json;
use std::io::{Read, Write};
use std::net::{Ipv6Addr, TcpListener, TcpStream};
use std::time::Duration;
use testing::Attempt;
use units::{Bytes, Rate, Span};

#[test]
fn connections_of_other_protocols_are_closed() {
    let server = TestServer::open(long_timeouts());
    let strangers: [&[u8]; 4] = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        &[0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03],
        &[0xff; 100],
        // The length of a cookie, but without the zero byte at the end.
        &[b'a'; 37],
    ];
    for bytes in strangers {
        let mut socket = server.connect();
        socket.write_all(bytes).unwrap();
        assert!(hostile::read_to_end(&mut socket).is_empty());
    }
    server.assert_serves();
    let summary = server.close();
    assert_eq!((summary.dismissed, summary.completed, summary.failed), (4, 1, 0));
}

/// The error must name the actual cause, not a consequence at the sender, even if the test ends
/// before the first check.
#[test]
fn oversized_datagrams_end_a_test_in_any_direction() {
    let localhost = Some(Ipv6Addr::LOCALHOST.into());
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        testing::skip(testing::Need::Ipv6);
        return;
    }
    for direction in [Direction::Forward, Direction::Reverse, Direction::Both] {
        let server = TestServer::open_with(ServerOptions { bind: localhost, ..on_loopback() });
        let mut options = server.client_options(Protocol::Udp);
        options.test.direction = direction;
        options.test.dont_fragment = true;
        options.test.block = Some(Bytes::new(65_507));
        options.test.amount = Amount::Time(Span::from_millis(20));
        let error = hostile::client(options).join().unwrap().unwrap_err();
        let received = error.to_string();
        assert!(
            received.contains("do not fit the path's MTU whole: take"),
            "{direction:?}: {received}"
        );
        // If client and server send, either may notice the error first.
        if direction != Direction::Both {
            assert_eq!(
                received.contains(" failed: "),
                direction == Direction::Reverse,
                "{received}"
            );
        }
        server.close();
    }
}

#[test]
fn a_server_is_not_pinned_to_a_missing_cpu() {
    let error = Server::bind(&ServerOptions { affinity: Some(1023), ..on_loopback() }).unwrap_err();
    assert!(error.is_misuse() && error.to_string().contains("CPU 1023"), "{error}");
}

/// As in iperf3, this includes the receiving side of a stream.
#[test]
fn client_and_server_use_the_requested_congestion_control_on_every_stream() {
    for direction in [Direction::Forward, Direction::Reverse, Direction::Both] {
        let server = TestServer::open(long_timeouts());
        let mut options = server.client_options(Protocol::Tcp);
        options.test.direction = direction;
        options.test.congestion = Some("reno".to_owned());
        let ended = hostile::client(options).join().unwrap().unwrap();
        let (here, there) = (ended.local_congestion.as_deref(), ended.remote_congestion.as_deref());
        assert_eq!((here, there), (Some("reno"), Some("reno")), "{direction:?}");
        server.close();
    }
}

/// A server that has sent its amount sends more blocks while the client may lack data. The server
/// must stop these blocks at the end of the test, although the client has sent less than the
/// amount.
#[test]
fn a_server_sends_no_more_after_a_client_ends_a_bidirectional_amount() {
    const BLOCK: usize = 1000;
    const AMOUNT: usize = 20 * BLOCK;
    let server = TestServer::open(long_timeouts());
    let mut raw = RawClient::connect(&server);
    raw.send_cookie();
    let test = json!({"tcp": true, "num": AMOUNT, "len": BLOCK, "bidirectional": true});
    raw.send(test.to_string().as_bytes());
    raw.expect(State::CreateStreams);
    raw.open_stream(&server);
    raw.open_stream(&server);
    raw.expect(State::TestStart);
    raw.expect(State::TestRunning);
    raw.streams[0].write_all(&[0; AMOUNT / 2]).unwrap();
    let mut receiving = raw.streams[1].try_clone().unwrap();
    receiving.read_exact(&mut [0; AMOUNT + 10 * BLOCK]).unwrap();
    let rest = std::thread::spawn(move || hostile::read_to_end(&mut receiving).len());
    raw.finish();
    let rest = rest.join().unwrap();
    assert!(rest <= 20 * BLOCK, "the server sent {rest} bytes after the end of the test");
    server.close();
}

#[test]
fn a_missing_congestion_control_is_refused_if_the_server_sends() {
    for (test, serves) in [
        (json!({"tcp": true, "time": 60, "congestion": "no-such"}), true),
        (json!({"tcp": true, "time": 60, "congestion": "no-such", "reverse": true}), false),
        (json!({"tcp": true, "time": 60, "congestion": "no-such", "bidirectional": true}), false),
    ] {
        let server = TestServer::open(long_timeouts());
        let mut raw = RawClient::connect(&server);
        raw.send_cookie();
        raw.send(test.to_string().as_bytes());
        raw.expect(State::CreateStreams);
        raw.open_stream(&server);
        if test["bidirectional"] == true {
            raw.open_stream(&server);
        }
        if serves {
            raw.expect(State::TestStart);
            raw.expect(State::TestRunning);
            raw.finish();
        } else {
            // iperf3's number for this error.
            assert_eq!(
                hostile::server_error(&hostile::read_to_end(&mut raw.control)),
                Some(134),
                "{test}"
            );
        }
        server.close();
    }
}

#[test]
fn a_client_that_falls_silent_in_any_state_loses_its_session() {
    let check = |step: Step| {
        let server = TestServer::open(short_timeouts());
        let mut raw = RawClient::connect(&server);
        step.advance(&mut raw, &server);
        // The client sends nothing more, and keeps everything open.
        let rest = hostile::read_to_end(&mut raw.control);
        let reported = match step {
            Step::Connected | Step::Displayed => None,
            Step::CookieSent => Some(114),
            Step::ParametersSent => Some(204),
            Step::Running => Some(144),
            Step::Ended => Some(117),
        };
        match reported {
            Some(code) => assert_eq!(hostile::server_error(&rest), Some(code), "{step:?}"),
            None if step == Step::Connected => assert!(rest.is_empty(), "{step:?}"),
            None => assert!(hostile::server_error(&rest).is_some(), "{step:?}: {rest:?}"),
        }
        server.assert_serves();
        server.assert_one_failure(step != Step::Connected, &format!("{step:?}"));
    };
    in_every_state(|step| hostile::in_time(|| check(step)));
}

#[test]
fn a_client_that_dies_in_any_state_ends_its_session() {
    in_every_state(|step| {
        let server = TestServer::open(Limits { sessions: 1, ..long_timeouts() });
        let mut raw = RawClient::connect(&server);
        step.advance(&mut raw, &server);
        drop(raw);
        // The server allows one session, which is free again.
        server.assert_serves();
        // A client that dies after the results fails no test.
        let fails = !matches!(step, Step::Connected | Step::Displayed);
        server.assert_one_failure(fails, &format!("{step:?}"));
    });
}

#[test]
fn an_announced_length_of_two_gigabytes_is_refused_at_once() {
    let server = TestServer::open(long_timeouts());
    for message in ["parameters", "results"] {
        let mut raw = RawClient::connect(&server);
        let step = if message == "parameters" { Step::CookieSent } else { Step::Ended };
        step.advance(&mut raw, &server);
        raw.control.write_all(&0x7fff_ffff_u32.to_be_bytes()).unwrap();
        let code = if message == "parameters" { 114 } else { 117 };
        let rest = hostile::read_to_end(&mut raw.control);
        assert_eq!(hostile::server_error(&rest), Some(code), "{message}");
    }
    server.assert_serves();
}

#[test]
fn absurd_parameters_are_refused_with_iperf3s_numbers() {
    let limits = Limits {
        streams: 16,
        rate: Some(Rate::from_bits_per_second(1_000_000_000)),
        duration: Some(Span::from_secs(60)),
        ..long_timeouts()
    };
    let server = TestServer::open(limits);
    for (parameters, code) in [
        (r#"{"tcp":true,"time":-1}"#, 5),
        (r#"{"tcp":true,"time":61}"#, 5),
        (r#"{"tcp":true,"time":61,"client_version":"3.20"}"#, 37),
        (r#"{"tcp":true,"time":1,"parallel":1e308}"#, 6),
        (r#"{"tcp":true,"time":1,"parallel":17}"#, 6),
        (r#"{"tcp":true,"time":1,"len":1e12}"#, 7),
        (r#"{"udp":true,"time":1,"len":65508}"#, 20),
        (r#"{"udp":true,"time":1,"len":1}"#, 20),
        (r#"{"tcp":true,"time":1,"window":1e18}"#, 8),
        (r#"{"tcp":true,"time":1,"MSS":1e6}"#, 10),
        (r#"{"tcp":true,"time":1,"omit":-0.5}"#, 12),
        (r#"{"tcp":true,"time":1,"TOS":256}"#, 21),
        (r#"{"tcp":true,"time":1,"reverse":true,"bidirectional":true}"#, 25),
        (r#"{"udp":true,"time":1,"bandwidth":2000000000}"#, 27),
        (r#"{"sctp":true,"time":1}"#, 18),
        (r#"{"tcp":true,"time":1,"authtoken":"?"}"#, 142),
        (r#"{"tcp":true,"time":1,"server_affinity":4000}"#, 132),
        (r#"{"tcp":true,"time":"soon"}"#, 114),
        (r#"[[[[[[[["#, 114),
        ("\u{0}", 114),
    ] {
        let mut raw = RawClient::connect(&server);
        raw.send_cookie();
        raw.send(parameters.as_bytes());
        let rest = hostile::read_to_end(&mut raw.control);
        assert_eq!(hostile::server_error(&rest), Some(code), "{parameters}");
    }
    server.assert_serves();
}

#[test]
fn each_absurd_result_is_ignored() {
    let server = TestServer::open(long_timeouts());
    for results in [
        json!({}),
        json!({"streams": [{"id": 1, "bytes": -7, "end_time": 1e300, "jitter": -1e300}]}),
        json!({"streams": [{"id": 99}, {"id": 1e300}, {}], "cpu_util_user": -1e300}),
        json!({"congestion_used": "\u{1b}[2J\u{1b}[31m", "sender_has_retransmits": 1e19}),
        json!({"streams": vec![json!({}); 20_000]}),
    ] {
        let mut raw = RawClient::connect(&server);
        Step::Ended.advance(&mut raw, &server);
        raw.send(results.to_string().as_bytes());
        let reported = raw.receive_json();
        assert_eq!(reported["streams"][0]["id"], json!(1), "{results}");
        raw.expect(State::DisplayResults);
        raw.send_state(State::Done);
        assert!(hostile::read_to_end(&mut raw.control).is_empty());
    }
    let mut raw = RawClient::connect(&server);
    Step::Ended.advance(&mut raw, &server);
    raw.send(br#"{"streams":"none"}"#);
    assert_eq!(hostile::server_error(&hostile::read_to_end(&mut raw.control)), Some(117));
    let summary = server.close();
    assert_eq!((summary.completed, summary.failed), (5, 1));
}

#[test]
fn a_thousand_silent_connections_block_no_other_client() {
    hostile::allow_files(4096);
    let server = TestServer::open(Limits { pending: 100, ..long_timeouts() });
    let mut silent: Vec<TcpStream> = (0..500).map(|_| server.connect()).collect();
    let address = server.address();
    let more = std::thread::spawn(move || -> Vec<TcpStream> {
        let connect = |number: u32| {
            if number.is_multiple_of(2) {
                std::thread::sleep(Duration::from_millis(1));
            }
            TcpStream::connect(address).unwrap()
        };
        (0..500).map(connect).collect()
    });
    // A real client runs while the silent clients connect. If the real client's thread waits for a
    // CPU between its connect and its cookie, the client counts as silent. A hundred silent clients
    // connect in 50 ms at least: then the real client is among the oldest.
    testing::undisturbed("client beside silent connections", |_| {
        match hostile::client(server.client_options(Protocol::Tcp)).join().unwrap() {
            Ok(_) => Attempt::Right(()),
            Err(error) => Attempt::Wrong(error.to_string()),
        }
    });
    silent.extend(more.join().unwrap());
    server.assert_serves();
    // The server has closed all silent connections except the newest connection, without a message.
    let mut oldest = silent.swap_remove(0);
    assert!(hostile::read_to_end(&mut oldest).is_empty());
    let summary = server.close();
    assert_eq!(summary.completed, 2);
    assert!(summary.dismissed >= 900, "{summary:?}");
}

#[test]
fn a_client_beyond_the_session_limit_is_refused_as_busy() {
    let server = TestServer::open(Limits { sessions: 2, ..long_timeouts() });
    let mut first = RawClient::connect(&server);
    Step::Running.advance(&mut first, &server);
    let mut second = RawClient::connect(&server);
    Step::Running.advance(&mut second, &server);
    // A test without traffic would give way to another client.
    first.keep_sending();
    second.keep_sending();
    std::thread::sleep(Duration::from_millis(300));
    let mut third = RawClient::connect(&server);
    third.control.write_all(third.cookie.as_bytes()).unwrap();
    assert_eq!(hostile::read_to_end(&mut third.control), [State::AccessDenied.byte()]);
    // Running tests continue.
    first.send_state(State::TestEnd);
    first.expect(State::ExchangeResults);
    drop(second);
    server.assert_serves();
    assert!(server.close().busy >= 1);
}

#[test]
fn clients_that_send_only_a_cookie_block_no_other_client() {
    let server = TestServer::open(Limits { sessions: 1, pending: 20, ..long_timeouts() });
    let mut silent = server.silent_clients(60);
    server.assert_serves();
    // The server has disconnected all clients except the newest client.
    assert!(hostile::read_to_end(&mut silent[0].control).is_empty());
    drop(silent);
    let summary = server.close();
    assert_eq!((summary.completed, summary.failed), (1, 0));
}

#[test]
fn a_surplus_stream_is_refused_and_blocks_no_other_client() {
    let server = TestServer::open(long_timeouts());
    let mut raw = RawClient::connect(&server);
    Step::Running.advance(&mut raw, &server);
    let mut uninvited = server.connect();
    uninvited.write_all(raw.cookie.as_bytes()).unwrap();
    assert_eq!(hostile::read_to_end(&mut uninvited), [State::AccessDenied.byte()]);
    raw.finish();
}

#[test]
fn two_tests_from_the_same_address_run_concurrently() {
    let server = TestServer::open(long_timeouts());
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        for direction in [Direction::Forward, Direction::Reverse, Direction::Both] {
            let mut options = server.client_options(protocol);
            options.test.direction = direction;
            options.test.streams = 3;
            options.test.amount = Amount::Time(Span::from_millis(300));
            options.test.rate = Some(Rate::from_bits_per_second(20_000_000));
            let clients: Vec<_> = (0..3).map(|_| hostile::client(options.clone())).collect();
            for client in clients {
                let ended = client.join().unwrap().unwrap();
                let ways = if direction == Direction::Both { 2 } else { 1 };
                assert_eq!(ended.streams.len(), 3 * ways, "{protocol:?} {direction:?}");
                let what = format!("{protocol:?} {direction:?} {:?}", ended.streams);
                // Add up all streams: on a busy host a single stream may transfer nothing in so
                // short a time.
                let sum =
                    |bytes: fn(&StreamTotal) -> u64| ended.streams.iter().map(bytes).sum::<u64>();
                let (sent, received) = (
                    sum(|stream| stream.sent.bytes.count()),
                    sum(|stream| stream.received.bytes.count()),
                );
                assert!(received > 0, "{what}");
                // Data for one client must not count for another client. The margin covers data
                // sent while this thread reads the senders' count.
                assert!(received <= sent + (4 << 20), "{what}");
            }
        }
    }
    assert_eq!(server.close().completed, 18);
}

#[test]
fn a_second_udp_hello_opens_no_second_stream() {
    let server = TestServer::open(long_timeouts());
    let mut raw = RawClient::connect(&server);
    raw.send_cookie();
    raw.send(br#"{"udp":true,"time":1,"parallel":2,"len":1000}"#);
    raw.expect(State::CreateStreams);
    let first = hostile::datagrams(&server);
    let mut answer = [0; 16];
    for _ in 0..2 {
        first.send(&hostile::HELLO).unwrap();
        // The server replies to a repeated hello: the first reply may have been lost.
        assert_eq!(first.recv(&mut answer).unwrap(), 4);
    }
    let second = hostile::datagrams(&server);
    second.send(&hostile::HELLO).unwrap();
    assert_eq!(second.recv(&mut answer).unwrap(), 4);
    raw.expect(State::TestStart);
    raw.expect(State::TestRunning);
    raw.finish();
}

#[test]
fn an_unexpected_udp_hello_gets_no_reply_and_does_no_harm() {
    let server = TestServer::open(long_timeouts());
    let stranger = hostile::datagrams(&server);
    for bytes in [&hostile::HELLO[..], &[], &[0; 4], &[0xff; 60_000]] {
        stranger.send(bytes).unwrap();
    }
    let mut options = server.client_options(Protocol::Udp);
    options.test.amount = Amount::Time(Span::from_millis(100));
    hostile::client(options).join().unwrap().unwrap();
    stranger.set_nonblocking(true).unwrap();
    assert!(stranger.recv(&mut [0; 16]).is_err());
}

#[test]
fn latency_probes_with_the_token_are_echoed() {
    let server = TestServer::open(long_timeouts());
    let mut raw = RawClient::connect(&server);
    raw.send_cookie();
    raw.send(br#"{"tcp":true,"time":1,"weir":{}}"#);
    raw.expect(State::WeirOffer);
    let offer = raw.receive_json();
    assert_eq!(offer["echo"]["port"], json!(server.address().port()));
    let token = offer["echo"]["token"].as_str().unwrap().parse().unwrap();
    let echo = |token, sequence| {
        perf::observe::echo::Echo { token, sequence, sent_at: units::Time::ZERO }.encode()
    };
    let socket = hostile::datagrams(&server);
    socket.send(&echo(perf::observe::echo::Token::random(), 1)).unwrap();
    socket.send(&echo(token, 2)).unwrap();
    let mut back = [0; 100];
    let length = socket.recv(&mut back).unwrap();
    assert_eq!(back[..length], echo(token, 2));
}

#[test]
fn a_call_to_stop_the_server_ends_running_tests_with_a_message() {
    let server = TestServer::open(long_timeouts());
    let mut running = RawClient::connect(&server);
    Step::Running.advance(&mut running, &server);
    let mut opening = RawClient::connect(&server);
    Step::ParametersSent.advance(&mut opening, &server);
    server.stop.call();
    for raw in [&mut running, &mut opening] {
        assert_eq!(hostile::read_to_end(&mut raw.control), [State::ServerTerminate.byte()]);
    }
    let summary = server.close();
    assert_eq!((summary.completed, summary.failed), (0, 2));
}

#[test]
fn a_client_above_the_rate_limit_is_stopped() {
    let limits = Limits { rate: Some(Rate::from_bits_per_second(1_000_000)), ..long_timeouts() };
    let server = TestServer::open(limits);
    let mut options = server.client_options(Protocol::Tcp);
    options.test.amount = Amount::Time(Span::from_secs(30));
    let error = hostile::client(options).join().unwrap().unwrap_err();
    assert!(error.to_string().contains("limit") || error.to_string().contains("rate"), "{error}");
    assert_eq!(server.close().failed, 1);
}

#[test]
fn a_one_off_server_ends_after_one_test() {
    let server = TestServer::open_with(ServerOptions { one_off: true, ..on_loopback() });
    // A connection without a test does not end the server.
    let mut stranger = server.connect();
    stranger.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    assert!(hostile::read_to_end(&mut stranger).is_empty());
    server.assert_serves();
    assert_eq!(server.wait().completed, 1);
}

#[test]
fn a_server_without_clients_ends_after_its_idle_timeout() {
    let idle_timeout = Some(Duration::from_millis(100));
    let server = TestServer::open_with(ServerOptions { idle_timeout, ..on_loopback() });
    assert_eq!(server.wait().completed, 0);
}

#[test]
fn a_port_in_use_is_reported() {
    let first = Server::bind(&on_loopback()).unwrap();
    let port = first.address().port();
    let error = Server::bind(&ServerOptions { port, ..on_loopback() }).unwrap_err().to_string();
    assert!(error.contains(&format!("port {port} is taken")), "{error}");
    let bind = Some("192.0.2.77".parse().unwrap());
    let error = Server::bind(&ServerOptions { bind, ..on_loopback() }).unwrap_err().to_string();
    assert!(error.contains("192.0.2.77 is no address of this machine"), "{error}");
}

fn in_every_state(check: impl Fn(Step) + Sync) {
    std::thread::scope(|scope| {
        for step in Step::ALL {
            let check = &check;
            scope.spawn(move || check(step));
        }
    });
}

/// The last step of a client before it falls silent or dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Connected,
    CookieSent,
    ParametersSent,
    Running,
    Ended,
    Displayed,
}

impl Step {
    const ALL: [Self; 6] = [
        Self::Connected,
        Self::CookieSent,
        Self::ParametersSent,
        Self::Running,
        Self::Ended,
        Self::Displayed,
    ];

    fn advance(self, raw: &mut RawClient, server: &TestServer) {
        if self == Self::Connected {
            return;
        }
        raw.send_cookie();
        if self == Self::CookieSent {
            return;
        }
        raw.send(br#"{"tcp":true,"time":30,"parallel":1,"len":1000}"#);
        raw.expect(State::CreateStreams);
        if self == Self::ParametersSent {
            return;
        }
        raw.open_stream(server);
        raw.expect(State::TestStart);
        raw.expect(State::TestRunning);
        if self == Self::Running {
            return;
        }
        raw.send_state(State::TestEnd);
        raw.expect(State::ExchangeResults);
        if self == Self::Ended {
            return;
        }
        raw.send(br#"{"streams":[]}"#);
        raw.receive_json();
        raw.expect(State::DisplayResults);
    }
}
