//! Clients that take more than their share: other clients are still served.

#![allow(clippy::unwrap_used)]

#[path = "support/hostile.rs"]
mod hostile;

use hostile::{House, Raw, patient, rest, server_error};
use perf::control::State;
use perf::options::{Limits, Protocol};
use perf::rounds::Kind;
use perf::rounds::wire::{Ask, Order, Ready, Refusal};
use serde_json::json;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;
use units::Span;

/// A test that runs until its client ends it, or `None` if the server is busy.
fn endless(house: &House) -> Option<Raw> {
    let mut raw = Raw::connect(house);
    if raw.named() == State::AccessDenied {
        return None;
    }
    raw.send(br#"{"tcp":true,"time":600,"parallel":1,"len":1000}"#);
    raw.expect(State::CreateStreams);
    raw.open_stream(house);
    raw.expect(State::TestStart);
    raw.expect(State::TestRunning);
    Some(raw)
}

#[test]
fn one_address_cannot_take_all_sessions() {
    let sessions_per_address = Limits::default().sessions_per_address;
    let house = House::open(Limits { sessions_per_address, ..patient() });
    let most = Limits::default().sessions;
    let held: Vec<Raw> = (0..most).map_while(|_| endless(&house)).collect();
    assert!(held.len() < most, "one address took all {most} sessions");
    let mut options = house.client_options(Protocol::Tcp);
    options.bind = Some(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)));
    hostile::client(options).join().unwrap().unwrap();
    // A session that ends makes room for the next from its address.
    let mut held = held;
    held.remove(0).finish();
    house.assert_serves();
}

#[test]
fn silent_control_connections_hold_no_session() {
    let house = House::open(Limits { sessions: 2, ..patient() });
    let silent: Vec<Raw> = (0..60)
        .map(|_| {
            let mut raw = Raw::connect(&house);
            raw.name();
            raw
        })
        .collect();
    house.assert_serves();
    drop(silent);
}

#[test]
fn a_client_that_never_sends_its_parameters_is_closed() {
    let house = House::open(Limits { patience: Duration::from_millis(500), ..patient() });
    let mut raw = Raw::connect(&house);
    raw.name();
    // RECEIVE_PARAMETERS of iperf3.
    assert_eq!(server_error(&rest(&mut raw.control)), Some(114));
}

#[test]
fn a_test_of_a_day_is_refused_by_default() {
    let house = House::open(patient());
    for (parameters, code) in [
        (json!({"tcp": true, "time": 86_400}), 5),
        (json!({"tcp": true, "time": 0}), 5),
        (json!({"tcp": true, "time": 1, "omit": 86_400}), 5),
        (json!({"tcp": true, "num": 1, "omit": 86_400}), 5),
        (json!({"tcp": true, "time": 86_400, "client_version": "3.20"}), 37),
    ] {
        let mut raw = Raw::connect(&house);
        raw.name();
        raw.send(parameters.to_string().as_bytes());
        let said = rest(&mut raw.control);
        assert_eq!(server_error(&said), Some(code), "{parameters}: {said:?}");
    }
    house.assert_serves();
}

/// Its amount would keep the session for years.
#[test]
fn a_test_of_bytes_ends_at_the_limit() {
    let limits = Limits { duration: Some(Span::from_millis(300)), ..patient() };
    let house = House::open(limits);
    for (version, code) in [("3.12", 120), ("3.21", 160)] {
        let mut raw = Raw::connect(&house);
        raw.name();
        let parameters =
            json!({"tcp": true, "num": 1_u64 << 50, "len": 1000, "client_version": version});
        raw.send(parameters.to_string().as_bytes());
        raw.expect(State::CreateStreams);
        raw.open_stream(&house);
        raw.expect(State::TestStart);
        raw.expect(State::TestRunning);
        assert_eq!(server_error(&rest(&mut raw.control)), Some(code));
    }
}

fn offered(house: &House, kind: Kind) -> Raw {
    let mut raw = Raw::connect(house);
    raw.name();
    raw.send(json!({"tcp": true, "weir": Ask { kind }.to_weir()}).to_string().as_bytes());
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

/// Refused orders cost a client nothing, and would keep its session for ever.
#[test]
fn endless_orders_end_at_the_limit() {
    let house = House::open(Limits { duration: Some(Span::from_millis(300)), ..patient() });
    let mut raw = offered(&house, Kind::Rr);
    let message = order(Kind::Crr, None);
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let bytes = [&[State::TestStart.byte()], length.as_slice(), &message].concat();
    for _ in 0..1000 {
        let mut state = [0];
        let said = raw.control.write_all(&bytes).and_then(|()| raw.control.read_exact(&mut state));
        if said.is_err() || state[0] == State::ServerError.byte() {
            house.assert_serves();
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
fn ports_are_opened_within_the_range_only() {
    let ports = 29_100..=29_149;
    let house = House::open(Limits { data_ports: Some(ports.clone()), ..patient() });
    for kind in [Kind::Crr, Kind::UdpRr] {
        // Ports of system services, and those just outside the range.
        for wish in [1024, 29_099, 29_150, 65_535] {
            let mut raw = offered(&house, kind);
            raw.say(State::TestStart);
            raw.send(&order(kind, Some(wish)));
            raw.expect(State::AccessDenied);
            let refusal: Refusal = serde_json::from_value(raw.receive_json()).unwrap();
            assert!(refusal.reason.contains("29100 to 29149 are allowed"), "{refusal:?}");
        }
        let mut raw = offered(&house, kind);
        raw.say(State::TestStart);
        raw.send(&order(kind, None));
        raw.expect(State::CreateStreams);
        let ready: Ready = serde_json::from_value(raw.receive_json()).unwrap();
        assert!(!ready.ports.is_empty());
        assert!(ready.ports.iter().all(|port| ports.contains(port)), "{ready:?}");
    }
}
