//! Traffic of real network stacks through ports, with default offloads.

#![allow(clippy::unwrap_used)]

mod testbed;

use std::hash::{DefaultHasher, Hasher};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use port::{
    PacketOptions, PacketPort, Port, PortCounters, PortError, SuperPackets, TapKind, TapPort,
};
use testbed::{Forwarder, Namespace, Testbed, each_family, forwarded};
use testing::Need;

#[test]
fn tcp_over_ipv4_and_ipv6_arrives_intact() {
    let Some(testbed) = Testbed::new() else { return };
    let addresses = each_family("10.9.0.2:5000", "[fd09::2]:5000");
    let ways = [SuperPackets::Queue, SuperPackets::Ring];
    for (address, way) in addresses.iter().flat_map(|address| ways.map(|way| (address, way))) {
        let address: &'static str = address;
        let ports = || testbed.middle.run(move || packet_ports_with(way));
        let [left, right] = forwarded(ports, || exchange(&testbed.left, &testbed.right, address));
        for counters in [left, right] {
            assert!(counters.super_packets > 0, "no super-packet came: {counters:?}");
            assert!(counters.segments > counters.super_packets);
            assert!(counters.checksums_completed > 0);
        }
        assert_eq!(
            (left.received_bytes, right.received_bytes),
            (right.sent_bytes, left.sent_bytes)
        );
    }
}

#[test]
fn tcp_over_a_vlan_interface_arrives_intact() {
    let Some(testbed) = Testbed::new() else { return };
    for (number, host) in [(1, &testbed.left), (2, &testbed.right)] {
        let made = host
            .run(|| testbed::try_command("ip", "link add link eth0 name eth0.5 type vlan id 5"));
        if !made {
            testing::skip(Need::Vlan);
            return;
        }
        host.ip(&format!("address add 10.5.0.{number}/24 dev eth0.5"));
        host.ip("link set eth0.5 up");
    }
    let ports = || testbed.middle.run(packet_ports);
    let work = || exchange(&testbed.left, &testbed.right, "10.5.0.2:5000");
    let [left, right] = forwarded(ports, work);
    assert!(left.tags_inserted > 0 && right.tags_inserted > 0);
    assert!(left.super_packets > 0);
}

#[test]
fn udp_super_packets_arrive_as_separate_datagrams() {
    if !Need::UdpSuperPackets.is_met() {
        return testing::skip(Need::UdpSuperPackets);
    }
    let Some(testbed) = Testbed::new() else { return };
    let ipv6 = ("[fd09::1]:0", "[fd09::2]:6000");
    for (from, to) in each_family(("10.9.0.1:0", "10.9.0.2:6000"), ipv6) {
        let forwarder = Forwarder::start(testbed.middle.run(packet_ports));
        let receiver = testbed.right.run(move || UdpSocket::bind(to).unwrap());
        let sender = testbed.left.run(move || UdpSocket::bind(from).unwrap());
        send_datagrams(&sender, &receiver, to);
        let [left, right] = forwarder.stop();
        assert_eq!((left.drops(), right.drops()), (0, 0), "{left:?} {right:?}");
        assert!(left.super_packets >= ROUNDS as u64, "no super-packet came: {left:?}");
    }
}

#[test]
fn tap_and_tun_devices_carry_tcp_and_udp() {
    for kind in [TapKind::Tap, TapKind::Tun] {
        let Some((left, right)) = Namespace::new().zip(Namespace::new()) else {
            return;
        };
        let mut ports = Vec::new();
        for (number, host) in [(1, &left), (2, &right)] {
            let port = match host.run(move || TapPort::create("dev%d", kind)) {
                Ok(port) => port,
                Err(PortError::NotSupported { feature }) => {
                    testing::skip_because(Need::Tun, feature);
                    return;
                }
                Err(error) => panic!("{error}"),
            };
            let name = port.interface().name.clone();
            assert_eq!(name, "dev0");
            host.ip(&format!("address add 10.9.0.{number}/24 dev {name}"));
            if Need::Ipv6.is_met() {
                host.ip(&format!("address add fd09::{number}/64 dev {name} nodad"));
            }
            host.ip(&format!("link set {name} up"));
            ports.push(Box::new(port) as Box<dyn Port>);
        }
        let ports: [Box<dyn Port>; 2] = ports.try_into().unwrap();
        let forwarder = Forwarder::start(ports);
        for address in each_family("10.9.0.2:5000", "[fd09::2]:5000") {
            exchange(&left, &right, address);
        }
        let to = "10.9.0.2:6000";
        let receiver = right.run(move || UdpSocket::bind(to).unwrap());
        let sender = left.run(|| UdpSocket::bind("10.9.0.1:0").unwrap());
        send_datagrams(&sender, &receiver, to);
        let [left, right] = forwarder.stop();
        assert_eq!((left.drops(), right.drops()), (0, 0), "{left:?} {right:?}");
        assert!(left.super_packets > 0 && right.super_packets > 0, "{left:?} {right:?}");
    }
}

#[test]
fn a_port_that_cannot_be_opened_reports_the_reason() {
    let Some(testbed) = Testbed::new() else { return };
    let error = testbed.middle.run(|| PacketPort::open("lefd")).unwrap_err();
    assert!(
        matches!(&error, PortError::NoSuchInterface { nearest: Some(near), .. } if near == "left")
    );
    assert_eq!(error.to_string(), "there is no interface \"lefd\" (did you mean `left`?)");
    let error =
        testbed.middle.run(|| PacketPort::open("a name that no interface has")).unwrap_err();
    assert!(matches!(error, PortError::NoSuchInterface { nearest: None, .. }));
}

#[test]
fn receiving_from_a_removed_interface_is_an_error() {
    let Some(testbed) = Testbed::new() else { return };
    let mut port = testbed.middle.run(|| PacketPort::open("left")).unwrap();
    testbed.middle.ip("link delete left");
    let mut batch = Vec::new();
    let error = (0..100_000).find_map(|_| port.receive(&mut batch, 64).err()).unwrap();
    assert!(matches!(error, PortError::InterfaceDown { name } if name == "left"));
    let frame = port::Frame::from_bytes(&[0; 60], units::Time::ZERO);
    assert!(matches!(port.send(&[frame]), Err(PortError::InterfaceDown { .. })));
}

#[test]
fn frames_beyond_the_mtu_are_refused_and_counted() {
    let Some(testbed) = Testbed::new() else { return };
    let mut port = testbed.middle.run(|| PacketPort::open("left")).unwrap();
    assert_eq!(port.mtu(), units::Bytes::new(1500));
    let frames: Vec<_> = [1514, 1515, 60, 1518]
        .map(|len| port::Frame::from_bytes(&vec![0; len], units::Time::ZERO))
        .into();
    let report = port.send(&frames).unwrap();
    assert_eq!((report.sent, report.dropped), (2, 2));
    let counters = port.counters();
    let expected = PortCounters {
        sent_frames: 2,
        sent_bytes: 1574,
        dropped_too_long: 2,
        ..PortCounters::default()
    };
    let sending =
        PortCounters { received_frames: 0, received_bytes: 0, checksums_completed: 0, ..counters };
    assert_eq!(sending, expected);
}

fn packet_ports() -> [Box<dyn Port>; 2] {
    packet_ports_with(SuperPackets::Auto)
}

fn packet_ports_with(super_packets: SuperPackets) -> [Box<dyn Port>; 2] {
    let options = PacketOptions { super_packets, ..PacketOptions::default() };
    ["left", "right"]
        .map(|name| Box::new(PacketPort::open_with(name, options).unwrap()) as Box<dyn Port>)
}

/// Transfers some megabytes in both directions at once, with different contents.
fn exchange(client: &Namespace, server: &Namespace, address: &'static str) {
    let listener = server.run(move || TcpListener::bind(address).unwrap());
    let accepted = std::thread::spawn(move || both_ways(listener.accept().unwrap().0, 2));
    let there = both_ways(client.run(move || TcpStream::connect(address).unwrap()), 1);
    let back = accepted.join().unwrap();
    assert_eq!((there.sent, there.received), (back.received, back.sent));
}

struct Hashes {
    sent: u64,
    received: u64,
}

fn both_ways(stream: TcpStream, salt: u64) -> Hashes {
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.set_write_timeout(Some(TIMEOUT)).unwrap();
    let sending = std::thread::spawn({
        let mut stream = stream.try_clone().unwrap();
        move || {
            let mut hash = DefaultHasher::new();
            let mut state = salt;
            for piece in 0..PIECES {
                let bytes: Vec<u8> = (0..PIECE + piece)
                    .map(|_| {
                        state = state.wrapping_mul(6364136223846793005).wrapping_add(salt);
                        (state >> 56) as u8
                    })
                    .collect();
                stream.write_all(&bytes).unwrap();
                bytes.iter().for_each(|byte| hash.write_u8(*byte));
            }
            stream.shutdown(Shutdown::Write).unwrap();
            hash.finish()
        }
    });
    let mut hash = DefaultHasher::new();
    let mut buffer = vec![0; 1 << 16];
    let mut stream = stream;
    loop {
        let read = match stream.read(&mut buffer) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            read => read.unwrap(),
        };
        match read {
            0 => break,
            len => buffer[..len].iter().for_each(|byte| hash.write_u8(*byte)),
        }
    }
    Hashes { sent: sending.join().unwrap(), received: hash.finish() }
}

fn send_datagrams(sender: &UdpSocket, receiver: &UdpSocket, to: &str) {
    setsockopt(sender, sockopt::UdpGsoSegment, &SEGMENT).unwrap();
    receiver.set_read_timeout(Some(TIMEOUT)).unwrap();
    for round in 0..ROUNDS {
        let bytes: Vec<u8> = (0..20 * SEGMENT as usize + round)
            .map(|n| ((n * 7) >> 4) as u8 ^ round as u8)
            .collect();
        sender.send_to(&bytes, to).unwrap();
        for expected in bytes.chunks(SEGMENT as usize) {
            let mut buffer = [0; 2000];
            let len = receiver.recv(&mut buffer).unwrap();
            assert!(buffer[..len] == *expected, "a datagram of round {round} is damaged");
        }
    }
}

const TIMEOUT: Duration = Duration::from_secs(60);
const PIECE: usize = 100_001;
const PIECES: usize = 60;
const ROUNDS: usize = 50;
const SEGMENT: i32 = 1201;
