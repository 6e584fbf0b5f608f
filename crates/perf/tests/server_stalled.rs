//! Clients that stall at any step of the protocol must not lock out other clients.

#![allow(clippy::unwrap_used)]

#[path = "support/hostile.rs"]
mod hostile;

use hostile::{RawClient, TestServer, long_timeouts, on_loopback, read_to_end, server_error};
use perf::PerfError;
use perf::control::State;
use perf::options::{Limits, Protocol, ServerOptions};
use perf::rounds::Kind;
use perf::rounds::wire::TestRequest;
use serde_json::json;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};
use units::Bytes;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stall {
    Parameters,
    Orders,
    Running,
    Ended,
}

const STALLS: [Stall; 4] = [Stall::Parameters, Stall::Orders, Stall::Running, Stall::Ended];

fn address(number: usize) -> IpAddr {
    Ipv4Addr::new(127, 0, 1, u8::try_from(number).unwrap() + 1).into()
}

/// Connects a client that stalls, from the address `number`; `None` if the server is busy.
fn stalled(server: &TestServer, number: usize, stall: Stall) -> Option<RawClient> {
    let mut raw = RawClient::connect_from(server, address(number));
    if raw.first_state() == State::AccessDenied {
        return None;
    }
    let weir = (stall == Stall::Orders).then(|| TestRequest { kind: Kind::Rr }.to_weir());
    let mut parameters = json!({"tcp": true, "time": 3600, "parallel": 1, "len": 1000});
    if let Some(weir) = weir {
        parameters["weir"] = weir;
    }
    raw.send(parameters.to_string().as_bytes());
    if raw.next_state() == State::AccessDenied {
        return None;
    }
    if matches!(stall, Stall::Running | Stall::Ended) {
        raw.open_stream(server);
        raw.expect(State::TestStart);
        raw.expect(State::TestRunning);
    }
    if stall == Stall::Ended {
        raw.send_state(State::TestEnd);
        raw.expect(State::ExchangeResults);
    }
    Some(raw)
}

/// Runs a whole test from an address that has no session yet.
fn measure(server: &TestServer) -> Result<(), PerfError> {
    let mut options = server.client_options(Protocol::Tcp);
    options.bind = Some(Ipv4Addr::new(127, 0, 3, 1).into());
    hostile::client(options).join().unwrap().map(|ended| {
        assert!(ended.streams[0].received.bytes > Bytes::ZERO, "{ended:?}");
    })
}

#[test]
fn stalled_clients_at_eight_addresses_leave_room_for_a_ninth() {
    for (addresses, each, limits) in [
        (8, 4, Limits::default()),
        (7, 3, Limits { sessions: 12, sessions_per_address: 3, ..Limits::default() }),
        (2, 9, Limits { sessions: 16, sessions_per_address: 8, ..Limits::default() }),
    ] {
        let (patience, receive_timeout) = (Duration::from_secs(60), Duration::from_secs(60));
        let server = TestServer::open(Limits { patience, receive_timeout, ..limits });
        let held: Vec<_> = (0..addresses * each)
            .filter_map(|client| stalled(&server, client / each, STALLS[client % STALLS.len()]))
            .collect();
        assert!(held.len() >= 9, "{}", held.len());
        measure(&server).unwrap();
    }
}

/// The stalled tests take all sessions of the server, each from another address.
#[test]
fn a_test_that_stalls_in_any_state_loses_its_slot() {
    std::thread::scope(|scope| {
        for (stall, sessions) in STALLS.into_iter().zip([9, 6, 11, 5]) {
            scope.spawn(move || {
                let server = TestServer::open(Limits { sessions, ..long_timeouts() });
                let held: Vec<_> =
                    (0..sessions).filter_map(|number| stalled(&server, number, stall)).collect();
                assert_eq!(held.len(), sessions, "{stall:?}");
                // A test whose traffic has just stopped keeps its slot for a moment.
                let began = Instant::now();
                while let Err(error) = measure(&server) {
                    assert!(matches!(error, PerfError::Busy { .. }), "{stall:?}: {error}");
                    assert!(began.elapsed() < Duration::from_secs(45), "{stall:?}: {error}");
                    std::thread::sleep(Duration::from_millis(100));
                }
                server.close();
            });
        }
    });
}

#[test]
fn a_test_with_traffic_keeps_its_slot() {
    let server = TestServer::open(Limits { sessions: 1, ..long_timeouts() });
    let mut busy = stalled(&server, 0, Stall::Running).unwrap();
    busy.keep_sending();
    std::thread::sleep(Duration::from_millis(300));
    // Try for longer than a stalled test keeps its slot.
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(7) {
        assert!(matches!(measure(&server), Err(PerfError::Busy { .. })));
        std::thread::sleep(Duration::from_millis(500));
    }
    busy.send_state(State::TestEnd);
    busy.expect(State::ExchangeResults);
}

#[test]
fn a_client_that_does_not_end_its_test_loses_its_session_soon() {
    hostile::in_time(|| {
        let patience = Duration::from_secs(2);
        let server = TestServer::open(Limits { patience, ..long_timeouts() });
        let mut raw = RawClient::connect(&server);
        raw.send_cookie();
        raw.send(br#"{"tcp":true,"time":1,"parallel":1,"len":1000}"#);
        raw.expect(State::CreateStreams);
        raw.open_stream(&server);
        raw.expect(State::TestStart);
        raw.expect(State::TestRunning);
        raw.keep_sending();
        let began = Instant::now();
        assert_eq!(server_error(&read_to_end(&mut raw.control)), Some(120));
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    });
}

/// The client reads nothing, so the server's sender waits for room in the socket.
#[test]
fn a_client_that_reads_nothing_loses_its_session() {
    hostile::in_time(|| {
        let limits = Limits { receive_timeout: Duration::from_secs(2), ..long_timeouts() };
        let server = TestServer::open(limits);
        let mut raw = RawClient::connect(&server);
        raw.send_cookie();
        raw.send(br#"{"tcp":true,"time":3600,"reverse":true,"len":131072}"#);
        raw.expect(State::CreateStreams);
        raw.open_stream(&server);
        raw.expect(State::TestStart);
        raw.expect(State::TestRunning);
        assert_eq!(server_error(&read_to_end(&mut raw.control)), Some(144));
    });
}

/// The client opens each stream within the timeout of a step.
#[test]
fn a_client_that_opens_its_streams_slowly_loses_its_session() {
    hostile::in_time(|| {
        let patience = Duration::from_secs(2);
        let server = TestServer::open(Limits { patience, ..long_timeouts() });
        let mut raw = RawClient::connect(&server);
        raw.send_cookie();
        raw.send(br#"{"tcp":true,"time":1,"parallel":100,"len":1000}"#);
        raw.expect(State::CreateStreams);
        raw.control.set_read_timeout(Some(Duration::from_millis(1500))).unwrap();
        let mut opened = 0;
        let closed = loop {
            let mut byte = [0];
            if let Ok(1) = raw.control.read(&mut byte) {
                break byte[0];
            }
            opened += 1;
            assert!(opened < 15, "{opened} streams in {opened} times 1.5 s");
            let mut socket = server.connect();
            // The server may have ended the session meanwhile.
            let _ = socket.write_all(raw.cookie.as_bytes());
            std::mem::forget(socket);
        };
        assert_eq!(closed, State::ServerError.byte());
    });
}

#[test]
fn clients_that_leave_after_their_parameters_do_not_end_a_one_off_server() {
    for parameters in [
        r#"{"tcp":true,"time":10,"parallel":1}"#,
        r#"{"tcp":true,"time":86400}"#,
        r#"{"udp":true,"time":10,"len":1}"#,
        r#"{"tcp":true,"time":10,"parallel":3,"congestion":"no-such"}"#,
        r#"{"tcp":true,"weir":{"test":{"kind":"rr"}}}"#,
        r#"{"tcp":true,"time":10,"weir":{}}"#,
    ] {
        let server = TestServer::open_with(ServerOptions { one_off: true, ..on_loopback() });
        for _ in 0..2 {
            let mut leaves = RawClient::connect(&server);
            leaves.send_cookie();
            leaves.send(parameters.as_bytes());
            leaves.next_state();
        }
        let mut stays = RawClient::connect(&server);
        if stays.first_state() == State::ExchangeParameters {
            stays.send(parameters.as_bytes());
        }
        server.assert_serves();
        assert_eq!(server.wait().completed, 1, "{parameters}");
    }
}
