//! Clients that take more than their share must not keep the server from serving other clients.

#![allow(clippy::unwrap_used)]

#[path = "support/hostile.rs"]
mod hostile;

use hostile::{RawClient, TestServer, long_timeouts, read_to_end, server_error};
use perf::control::State;
use perf::options::{Limits, Protocol};
use perf::rounds::Kind;
use perf::rounds::wire::{Order, Ready, Refusal, TestRequest};
use serde_json::json;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;
use units::Span;

/// Starts a test that runs until its client ends it; `None` if the server is busy.
fn endless(server: &TestServer) -> Option<RawClient> {
    let mut raw = RawClient::connect(server);
    if raw.first_state() == State::AccessDenied {
        return None;
    }
    raw.send(br#"{"tcp":true,"time":600,"parallel":1,"len":1000}"#);
    if raw.next_state() == State::AccessDenied {
        return None;
    }
    raw.open_stream(server);
    raw.expect(State::TestStart);
    raw.expect(State::TestRunning);
    raw.keep_sending();
    Some(raw)
}

#[test]
fn one_address_cannot_take_all_sessions() {
    let sessions_per_address = Limits::default().sessions_per_address;
    let server = TestServer::open(Limits { sessions_per_address, ..long_timeouts() });
    let most = Limits::default().sessions;
    let held: Vec<RawClient> = (0..most).map_while(|_| endless(&server)).collect();
    assert!(held.len() < most, "one address took all {most} sessions");
    let mut options = server.client_options(Protocol::Tcp);
    options.bind = Some(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)));
    hostile::client(options).join().unwrap().unwrap();
    // A session that ends makes room for the next session from the same address.
    let mut held = held;
    held.remove(0).finish();
    server.assert_serves();
}

#[test]
fn silent_control_connections_hold_no_session() {
    let server = TestServer::open(Limits { sessions: 2, ..long_timeouts() });
    let silent = server.silent_clients(60);
    server.assert_serves();
    drop(silent);
}

#[test]
fn a_client_that_never_sends_its_parameters_is_closed() {
    hostile::in_time(|| {
        let server =
            TestServer::open(Limits { patience: Duration::from_secs(3), ..long_timeouts() });
        let mut raw = RawClient::connect(&server);
        raw.send_cookie();
        // iperf3's error RECEIVE_PARAMETERS.
        assert_eq!(server_error(&read_to_end(&mut raw.control)), Some(114));
    });
}

#[test]
fn a_test_of_a_day_is_refused_by_default() {
    let server = TestServer::open(long_timeouts());
    for (parameters, code) in [
        (json!({"tcp": true, "time": 86_400}), 5),
        (json!({"tcp": true, "time": 0}), 5),
        (json!({"tcp": true, "time": 1, "omit": 86_400}), 5),
        (json!({"tcp": true, "num": 1, "omit": 86_400}), 5),
        (json!({"tcp": true, "time": 86_400, "client_version": "3.20"}), 37),
    ] {
        let mut raw = RawClient::connect(&server);
        raw.send_cookie();
        raw.send(parameters.to_string().as_bytes());
        let received = read_to_end(&mut raw.control);
        assert_eq!(server_error(&received), Some(code), "{parameters}: {received:?}");
    }
    server.assert_serves();
}

/// The requested amount would take years.
#[test]
fn a_test_of_bytes_ends_at_the_duration_limit() {
    let limits = Limits { duration: Some(Span::from_millis(300)), ..long_timeouts() };
    let server = TestServer::open(limits);
    for (version, code) in [("3.12", 120), ("3.21", 160)] {
        let mut raw = RawClient::connect(&server);
        raw.send_cookie();
        let parameters =
            json!({"tcp": true, "num": 1_u64 << 50, "len": 1000, "client_version": version});
        raw.send(parameters.to_string().as_bytes());
        raw.expect(State::CreateStreams);
        raw.open_stream(&server);
        raw.expect(State::TestStart);
        raw.expect(State::TestRunning);
        assert_eq!(server_error(&read_to_end(&mut raw.control)), Some(code));
    }
}

fn offered(server: &TestServer, kind: Kind) -> RawClient {
    let mut raw = RawClient::connect(server);
    raw.send_cookie();
    raw.send(json!({"tcp": true, "weir": TestRequest { kind }.to_weir()}).to_string().as_bytes());
    raw.expect(State::WeirOffer);
    raw.receive_json();
    raw
}

fn order(kind: Kind, port: Option<u16>) -> Vec<u8> {
    let order = Order {
        kind,
        request: 1,
        response: 1,
        connections: 2,
        depth: 1,
        seconds: 0.1,
        server_affinity: None,
        port,
    };
    serde_json::to_vec(&order).unwrap()
}

/// Without the limit, a client could hold its session for ever with orders that the server refuses.
#[test]
fn a_session_of_refused_orders_ends_at_the_duration_limit() {
    let server =
        TestServer::open(Limits { duration: Some(Span::from_millis(300)), ..long_timeouts() });
    let mut raw = offered(&server, Kind::Rr);
    let message = order(Kind::Crr, None);
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let bytes = [&[State::TestStart.byte()], length.as_slice(), &message].concat();
    for _ in 0..1000 {
        let mut state = [0];
        let received =
            raw.control.write_all(&bytes).and_then(|()| raw.control.read_exact(&mut state));
        if received.is_err() || state[0] == State::ServerError.byte() {
            server.assert_serves();
            return;
        }
        assert_eq!(state[0], State::AccessDenied.byte());
        let refusal: Refusal = serde_json::from_value(raw.receive_json()).unwrap();
        assert!(!refusal.reason.is_empty());
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("a session of 0.3 s was served for ten seconds");
}

#[test]
fn a_server_opens_ports_within_the_allowed_range_only() {
    let ports = 29_100..=29_149;
    let server = TestServer::open(Limits { data_ports: Some(ports.clone()), ..long_timeouts() });
    for kind in [Kind::Crr, Kind::UdpRr] {
        // Ports of system services, and ports just outside the range.
        for wish in [1024, 29_099, 29_150, 65_535] {
            let mut raw = offered(&server, kind);
            raw.send_state(State::TestStart);
            raw.send(&order(kind, Some(wish)));
            raw.expect(State::AccessDenied);
            let refusal: Refusal = serde_json::from_value(raw.receive_json()).unwrap();
            assert!(refusal.reason.contains("29100 to 29149 are allowed"), "{refusal:?}");
        }
        let mut raw = offered(&server, kind);
        raw.send_state(State::TestStart);
        raw.send(&order(kind, None));
        raw.expect(State::CreateStreams);
        let ready: Ready = serde_json::from_value(raw.receive_json()).unwrap();
        assert!(!ready.ports.is_empty());
        assert!(ready.ports.iter().all(|port| ports.contains(port)), "{ready:?}");
    }
}
