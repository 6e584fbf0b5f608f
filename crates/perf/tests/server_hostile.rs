//! Hostile and broken clients: each loses its own session, and no other session is affected.

#![allow(clippy::unwrap_used)]

#[path = "support/hostile.rs"]
mod hostile;

use hostile::{House, Raw, on_loopback, patient, quick};
use perf::control::State;
use perf::event::StreamTotal;
use perf::options::{Amount, Direction, Limits, Protocol, ServerOptions};
use perf::server::Server;
use serde_json::json;
use std::io::Write;
use std::net::{Ipv6Addr, TcpListener, TcpStream};
use std::time::Duration;
use units::{Bytes, Rate, Span};

#[test]
fn other_protocols_are_dismissed() {
    let house = House::open(patient());
    let strangers: [&[u8]; 4] = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        &[0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03],
        &[0xff; 100],
        // The length of a cookie, without the zero byte at its end.
        &[b'a'; 37],
    ];
    for bytes in strangers {
        let mut socket = house.connect();
        socket.write_all(bytes).unwrap();
        assert!(hostile::rest(&mut socket).is_empty());
    }
    house.assert_serves();
    let summary = house.close();
    assert_eq!((summary.dismissed, summary.completed, summary.failed), (4, 1, 0));
}

/// The error must name the actual cause, not the state of the sender at the end, even in a test
/// that has ended before the first check.
#[test]
fn oversized_datagrams_end_a_test_in_any_direction() {
    let localhost = Some(Ipv6Addr::LOCALHOST.into());
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        eprintln!("SKIPPED: this machine has no IPv6");
        return;
    }
    for direction in [Direction::Forward, Direction::Reverse, Direction::Both] {
        let house = House::open_with(ServerOptions { bind: localhost, ..on_loopback() });
        let mut options = house.client_options(Protocol::Udp);
        options.test.direction = direction;
        options.test.dont_fragment = true;
        options.test.block = Some(Bytes::new(65_507));
        options.test.amount = Amount::Time(Span::from_millis(20));
        let error = hostile::client(options).join().unwrap().unwrap_err();
        let said = error.to_string();
        assert!(said.contains("do not fit the path's MTU whole: take"), "{direction:?}: {said}");
        // If both ends send, either may notice first.
        if direction != Direction::Both {
            assert_eq!(said.contains(" failed: "), direction == Direction::Reverse, "{said}");
        }
        house.close();
    }
}

#[test]
fn a_server_is_not_pinned_to_a_missing_cpu() {
    let error = Server::bind(&ServerOptions { affinity: Some(1023), ..on_loopback() }).unwrap_err();
    assert!(error.is_misuse() && error.to_string().contains("CPU 1023"), "{error}");
}

/// Like iperf3, also on streams that an end only receives.
#[test]
fn both_ends_of_every_stream_have_the_requested_algorithm() {
    for direction in [Direction::Forward, Direction::Reverse, Direction::Both] {
        let house = House::open(patient());
        let mut options = house.client_options(Protocol::Tcp);
        options.test.direction = direction;
        options.test.congestion = Some("reno".to_owned());
        let ended = hostile::client(options).join().unwrap().unwrap();
        let (here, there) = (ended.local_congestion.as_deref(), ended.remote_congestion.as_deref());
        assert_eq!((here, there), (Some("reno"), Some("reno")), "{direction:?}");
        house.close();
    }
}

#[test]
fn a_missing_algorithm_is_refused_where_it_matters() {
    for (test, serves) in [
        (json!({"tcp": true, "time": 60, "congestion": "no-such"}), true),
        (json!({"tcp": true, "time": 60, "congestion": "no-such", "reverse": true}), false),
        (json!({"tcp": true, "time": 60, "congestion": "no-such", "bidirectional": true}), false),
    ] {
        let house = House::open(patient());
        let mut raw = Raw::connect(&house);
        raw.name();
        raw.send(test.to_string().as_bytes());
        raw.expect(State::CreateStreams);
        raw.open_stream(&house);
        if test["bidirectional"] == true {
            raw.open_stream(&house);
        }
        if serves {
            raw.expect(State::TestStart);
            raw.expect(State::TestRunning);
            raw.finish();
        } else {
            // iperf3's number for it.
            assert_eq!(
                hostile::server_error(&hostile::rest(&mut raw.control)),
                Some(134),
                "{test}"
            );
        }
        house.close();
    }
}

#[test]
fn silence_ends_a_session_in_every_state() {
    in_every_state(|step| {
        let house = House::open(quick());
        let mut raw = Raw::connect(&house);
        step.go_to(&mut raw, &house);
        // The client sends nothing more, and keeps everything open.
        let rest = hostile::rest(&mut raw.control);
        let told = match step {
            Step::Connected | Step::Displayed => None,
            Step::Named => Some(114),
            Step::Asked => Some(204),
            Step::Running => Some(144),
            Step::Ended => Some(117),
        };
        match told {
            Some(code) => assert_eq!(hostile::server_error(&rest), Some(code), "{step:?}"),
            None if step == Step::Connected => assert!(rest.is_empty(), "{step:?}"),
            None => assert!(hostile::server_error(&rest).is_some(), "{step:?}: {rest:?}"),
        }
        house.assert_serves();
        house.assert_one_failure(step != Step::Connected, &format!("{step:?}"));
    });
}

#[test]
fn death_ends_a_session_in_every_state() {
    in_every_state(|step| {
        let house = House::open(Limits { sessions: 1, ..patient() });
        let mut raw = Raw::connect(&house);
        step.go_to(&mut raw, &house);
        drop(raw);
        // The only session that is allowed is free again.
        house.assert_serves();
        // After the results nothing is left to lose.
        let fails = !matches!(step, Step::Connected | Step::Displayed);
        house.assert_one_failure(fails, &format!("{step:?}"));
    });
}

#[test]
fn an_announced_length_of_two_gigabytes_is_refused_at_once() {
    let house = House::open(patient());
    for message in ["parameters", "results"] {
        let mut raw = Raw::connect(&house);
        let step = if message == "parameters" { Step::Named } else { Step::Ended };
        step.go_to(&mut raw, &house);
        raw.control.write_all(&0x7fff_ffff_u32.to_be_bytes()).unwrap();
        let code = if message == "parameters" { 114 } else { 117 };
        let rest = hostile::rest(&mut raw.control);
        assert_eq!(hostile::server_error(&rest), Some(code), "{message}");
    }
    house.assert_serves();
}

#[test]
fn absurd_parameters_are_refused_with_iperf3s_numbers() {
    let limits = Limits {
        streams: 16,
        rate: Some(Rate::from_bits_per_second(1_000_000_000)),
        duration: Some(Span::from_secs(60)),
        ..patient()
    };
    let house = House::open(limits);
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
        let mut raw = Raw::connect(&house);
        raw.name();
        raw.send(parameters.as_bytes());
        let rest = hostile::rest(&mut raw.control);
        assert_eq!(hostile::server_error(&rest), Some(code), "{parameters}");
    }
    house.assert_serves();
}

#[test]
fn each_absurd_result_is_ignored() {
    let house = House::open(patient());
    for results in [
        json!({}),
        json!({"streams": [{"id": 1, "bytes": -7, "end_time": 1e300, "jitter": -1e300}]}),
        json!({"streams": [{"id": 99}, {"id": 1e300}, {}], "cpu_util_user": -1e300}),
        json!({"congestion_used": "\u{1b}[2J\u{1b}[31m", "sender_has_retransmits": 1e19}),
        json!({"streams": vec![json!({}); 20_000]}),
    ] {
        let mut raw = Raw::connect(&house);
        Step::Ended.go_to(&mut raw, &house);
        raw.send(results.to_string().as_bytes());
        let told = raw.receive_json();
        assert_eq!(told["streams"][0]["id"], json!(1), "{results}");
        raw.expect(State::DisplayResults);
        raw.say(State::Done);
        assert!(hostile::rest(&mut raw.control).is_empty());
    }
    let mut raw = Raw::connect(&house);
    Step::Ended.go_to(&mut raw, &house);
    raw.send(br#"{"streams":"none"}"#);
    assert_eq!(hostile::server_error(&hostile::rest(&mut raw.control)), Some(117));
    let summary = house.close();
    assert_eq!((summary.completed, summary.failed), (5, 1));
}

#[test]
fn a_thousand_silent_connections_disturb_nobody() {
    hostile::allow_files(4096);
    let house = House::open(Limits { unnamed: 100, ..patient() });
    let mut silent: Vec<TcpStream> = (0..500).map(|_| house.connect()).collect();
    let server = house.address();
    let more = std::thread::spawn(move || -> Vec<TcpStream> {
        (0..500).map(|_| TcpStream::connect(server).unwrap()).collect()
    });
    // While they connect.
    house.assert_serves();
    silent.extend(more.join().unwrap());
    house.assert_serves();
    // All but the newest were closed, without a message.
    let mut oldest = silent.swap_remove(0);
    assert!(hostile::rest(&mut oldest).is_empty());
    let summary = house.close();
    assert_eq!(summary.completed, 2);
    assert!(summary.dismissed >= 900, "{summary:?}");
}

#[test]
fn a_test_above_the_limit_is_told_to_come_again() {
    let house = House::open(Limits { sessions: 2, ..patient() });
    let mut first = Raw::connect(&house);
    Step::Running.go_to(&mut first, &house);
    let mut second = Raw::connect(&house);
    Step::Asked.go_to(&mut second, &house);
    let mut third = Raw::connect(&house);
    third.control.write_all(third.cookie.as_bytes()).unwrap();
    assert_eq!(hostile::rest(&mut third.control), [State::AccessDenied.byte()]);
    // Running tests do not notice.
    first.say(State::TestEnd);
    first.expect(State::ExchangeResults);
    drop(second);
    house.assert_serves();
    assert!(house.close().busy >= 1);
}

#[test]
fn clients_that_send_only_a_cookie_keep_nobody_out() {
    let house = House::open(Limits { sessions: 1, unnamed: 20, ..patient() });
    let mut named: Vec<Raw> = (0..60)
        .map(|_| {
            let mut raw = Raw::connect(&house);
            raw.name();
            raw
        })
        .collect();
    house.assert_serves();
    // All but the newest were disconnected.
    assert!(hostile::rest(&mut named[0].control).is_empty());
    drop(named);
    let summary = house.close();
    assert_eq!((summary.completed, summary.failed), (1, 0));
}

#[test]
fn a_surplus_stream_is_refused_and_keeps_nobody_out() {
    let house = House::open(patient());
    let mut raw = Raw::connect(&house);
    Step::Running.go_to(&mut raw, &house);
    let mut uninvited = house.connect();
    uninvited.write_all(raw.cookie.as_bytes()).unwrap();
    assert_eq!(hostile::rest(&mut uninvited), [State::AccessDenied.byte()]);
    raw.finish();
}

#[test]
fn two_clients_from_one_address_run_at_once() {
    let house = House::open(patient());
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        for direction in [Direction::Forward, Direction::Reverse, Direction::Both] {
            let mut options = house.client_options(protocol);
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
                // Sum over all streams: on a busy host one stream may transfer nothing in so short
                // a time.
                let sum =
                    |bytes: fn(&StreamTotal) -> u64| ended.streams.iter().map(bytes).sum::<u64>();
                let (sent, received) = (
                    sum(|stream| stream.sent.bytes.count()),
                    sum(|stream| stream.received.bytes.count()),
                );
                assert!(received > 0, "{what}");
                // Data for one client must not be counted for another. A little may be sent while
                // the senders' count is read.
                assert!(received <= sent + (4 << 20), "{what}");
            }
        }
    }
    assert_eq!(house.close().completed, 18);
}

#[test]
fn a_second_hello_makes_no_second_stream() {
    let house = House::open(patient());
    let mut raw = Raw::connect(&house);
    raw.name();
    raw.send(br#"{"udp":true,"time":1,"parallel":2,"len":1000}"#);
    raw.expect(State::CreateStreams);
    let first = hostile::datagrams(&house);
    let mut answer = [0; 16];
    for _ in 0..2 {
        first.send(&hostile::HELLO).unwrap();
        // It is answered again: the first answer may have been lost.
        assert_eq!(first.recv(&mut answer).unwrap(), 4);
    }
    let second = hostile::datagrams(&house);
    second.send(&hostile::HELLO).unwrap();
    assert_eq!(second.recv(&mut answer).unwrap(), 4);
    raw.expect(State::TestStart);
    raw.expect(State::TestRunning);
    raw.finish();
}

#[test]
fn an_unexpected_hello_is_not_answered_and_does_no_harm() {
    let house = House::open(patient());
    let stranger = hostile::datagrams(&house);
    for bytes in [&hostile::HELLO[..], &[], &[0; 4], &[0xff; 60_000]] {
        stranger.send(bytes).unwrap();
    }
    let mut options = house.client_options(Protocol::Udp);
    options.test.amount = Amount::Time(Span::from_millis(100));
    hostile::client(options).join().unwrap().unwrap();
    stranger.set_nonblocking(true).unwrap();
    assert!(stranger.recv(&mut [0; 16]).is_err());
}

#[test]
fn probes_with_the_token_are_echoed() {
    let house = House::open(patient());
    let mut raw = Raw::connect(&house);
    raw.name();
    raw.send(br#"{"tcp":true,"time":1,"weir":{}}"#);
    raw.expect(State::WeirOffer);
    let offer = raw.receive_json();
    assert_eq!(offer["echo"]["port"], json!(house.address().port()));
    let token = offer["echo"]["token"].as_str().unwrap().parse().unwrap();
    let echo = |token, sequence| {
        perf::observe::echo::Echo { token, sequence, sent_at: units::Time::ZERO }.encode()
    };
    let socket = hostile::datagrams(&house);
    socket.send(&echo(perf::observe::echo::Token::random(), 1)).unwrap();
    socket.send(&echo(token, 2)).unwrap();
    let mut back = [0; 100];
    let length = socket.recv(&mut back).unwrap();
    assert_eq!(back[..length], echo(token, 2));
}

#[test]
fn a_call_to_stop_ends_running_tests_with_a_message() {
    let house = House::open(patient());
    let mut running = Raw::connect(&house);
    Step::Running.go_to(&mut running, &house);
    let mut opening = Raw::connect(&house);
    Step::Asked.go_to(&mut opening, &house);
    house.stop.call();
    for raw in [&mut running, &mut opening] {
        assert_eq!(hostile::rest(&mut raw.control), [State::ServerTerminate.byte()]);
    }
    let summary = house.close();
    assert_eq!((summary.completed, summary.failed), (0, 2));
}

#[test]
fn a_client_above_the_rate_is_stopped() {
    let limits = Limits { rate: Some(Rate::from_bits_per_second(1_000_000)), ..patient() };
    let house = House::open(limits);
    let mut options = house.client_options(Protocol::Tcp);
    options.test.amount = Amount::Time(Span::from_secs(30));
    let error = hostile::client(options).join().unwrap().unwrap_err();
    assert!(error.to_string().contains("limit") || error.to_string().contains("rate"), "{error}");
    assert_eq!(house.close().failed, 1);
}

#[test]
fn a_one_off_server_ends_after_one_test() {
    let house = House::open_with(ServerOptions { one_off: true, ..on_loopback() });
    // A connection without a test does not count.
    let mut stranger = house.connect();
    stranger.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    assert!(hostile::rest(&mut stranger).is_empty());
    house.assert_serves();
    assert_eq!(house.wait().completed, 1);
}

#[test]
fn a_server_without_clients_ends() {
    let idle_timeout = Some(Duration::from_millis(100));
    let house = House::open_with(ServerOptions { idle_timeout, ..on_loopback() });
    assert_eq!(house.wait().completed, 0);
}

#[test]
fn a_taken_port_is_reported() {
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

/// How far a client goes before it falls silent or dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Connected,
    Named,
    Asked,
    Running,
    Ended,
    Displayed,
}

impl Step {
    const ALL: [Self; 6] =
        [Self::Connected, Self::Named, Self::Asked, Self::Running, Self::Ended, Self::Displayed];

    fn go_to(self, raw: &mut Raw, house: &House) {
        if self == Self::Connected {
            return;
        }
        raw.name();
        if self == Self::Named {
            return;
        }
        raw.send(br#"{"tcp":true,"time":30,"parallel":1,"len":1000}"#);
        raw.expect(State::CreateStreams);
        if self == Self::Asked {
            return;
        }
        raw.open_stream(house);
        raw.expect(State::TestStart);
        raw.expect(State::TestRunning);
        if self == Self::Running {
            return;
        }
        raw.say(State::TestEnd);
        raw.expect(State::ExchangeResults);
        if self == Self::Ended {
            return;
        }
        raw.send(br#"{"streams":[]}"#);
        raw.receive_json();
        raw.expect(State::DisplayResults);
    }
}
