//! Two hosts, an emulated link between the hosts, and numbered frames, for the tests.
#![allow(clippy::unwrap_used, dead_code, unreachable_pub)]

use emu::{Cable, DirectionStatistics, Emulator, Handle, Scheduling, open_port};
use host::{Address, HostError, Namespace};
use link::{Link, LinkConfig};
use port::{Frame, PacketPort, Port};
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};
use units::{Bytes, Span, Time};

/// Hosts `a` and `b` with an `eth0` each, at 10.9.8.1 and 10.9.8.2, and the link between them.
pub struct Testbed {
    pub hosts: [Namespace; 2],
    pub emulator: Emulator,
    _wires: Namespace,
}

/// Builds the testbed; returns `None`, with a note, if networks cannot be created.
pub fn testbed(forward: &LinkConfig, backward: &LinkConfig) -> Option<Testbed> {
    let hosts = [silent("a")?, silent("b")?];
    let wires = silent("wires")?;
    for (number, host) in hosts.iter().enumerate() {
        host::connect((host, "eth0"), (&wires, ["a", "b"][number]), 1500).unwrap();
        let ip = IpAddr::V4(Ipv4Addr::new(10, 9, 8, number as u8 + 1));
        host::add_address(host, "eth0", Address { ip, prefix: 24 }).unwrap();
    }
    let cable = Cable {
        name: "test".to_owned(),
        a: Box::new(open_port(&wires, "a").unwrap()),
        b: Box::new(open_port(&wires, "b").unwrap()),
        forward: forward.clone(),
        backward: backward.clone(),
        interrupts: Span::ZERO,
        access: None,
        tpid: None,
    };
    let emulator = Emulator::start(vec![cable], ordinary()).unwrap();
    Some(Testbed { hosts, emulator, _wires: wires })
}

/// Returns ordinary scheduling: tests share the machine, and no frame has a deadline.
pub fn ordinary() -> Scheduling {
    Scheduling { real_time: false, spin: Span::ZERO, ..Scheduling::default() }
}

/// Creates a host whose kernel sends no packets of its own, such as IPv6 router solicitations, so
/// that all frames on the link are the test's.
fn silent(name: &str) -> Option<Namespace> {
    match host::silent_namespace(name) {
        Ok(namespace) => Some(namespace),
        Err(error @ HostError::NotPermitted { .. }) => {
            testing::skip_because(testing::Need::NetworkNamespaces, error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

impl Testbed {
    pub fn port(&self, host: usize) -> PacketPort {
        open_port(&self.hosts[host], "eth0").unwrap()
    }
}

pub fn config(settings: &[&str]) -> LinkConfig {
    let mut read = emu::Settings::default();
    settings.iter().for_each(|pair| emu::set_pair(&mut read, pair).unwrap());
    read.config().unwrap()
}

/// Builds a broadcast frame with the EtherType for local experiments (IEEE 802), which no kernel
/// answers.
pub fn numbered(number: u32) -> Frame {
    let mut frame = Frame::from_bytes(&[0xff; FRAME], Time::ZERO);
    frame.bytes_mut()[12..14].copy_from_slice(&0x88b5_u16.to_be_bytes());
    frame.bytes_mut()[14..18].copy_from_slice(&number.to_be_bytes());
    frame
}

pub fn numbers(frames: &[Frame]) -> Vec<u32> {
    frames
        .iter()
        .map(Frame::bytes)
        .filter(|bytes| bytes[12..14] == [0x88, 0xb5])
        .map(|bytes| u32::from_be_bytes(bytes[14..18].try_into().unwrap()))
        .collect()
}

/// Sends frames in small batches, each after the link has received the previous batch, so that no
/// port or queue overflows on a slow machine.
pub fn send_paced(port: &mut dyn Port, handle: &Handle, range: std::ops::Range<u32>) {
    let before = forward(handle).arrived.frames;
    let all: Vec<u32> = range.collect();
    let mut sent = 0;
    for few in all.chunks(32) {
        let frames: Vec<Frame> = few.iter().map(|&number| numbered(number)).collect();
        assert_eq!(port.send(&frames).unwrap().dropped, 0);
        sent += few.len() as u64;
        until("the frames are in the link", || {
            let seen = forward(handle);
            seen.arrived.frames == before + sent && seen.queued.frames < 32
        });
    }
}

pub fn receive(port: &mut dyn Port, count: usize) -> Vec<u32> {
    let (mut frames, mut found) = (Vec::new(), Vec::new());
    until("the frames come out", || {
        port.receive(&mut frames, 256).unwrap();
        found.extend(numbers(&frames));
        frames.clear();
        found.len() >= count
    });
    found
}

pub fn drained(handle: &Handle) {
    until("the link is empty", || {
        let seen = forward(handle);
        seen.queued.frames + seen.in_flight == 0
    });
}

pub fn forward(handle: &Handle) -> DirectionStatistics {
    handle.statistics().unwrap().cables.swap_remove(0).forward
}

/// Returns the frames of `0..count` that the model alone delivers, spaced so that its queue stays
/// short.
pub fn model_alone(config: &LinkConfig, count: u32) -> Vec<u32> {
    let mut link = Link::new(config, Time::ZERO).unwrap();
    let mut delivered = Vec::new();
    for number in 0..count {
        let at = Time::ZERO + Span::from_millis(u64::from(number));
        link.arrive(at, Number(number));
        while let Some(delivery) = link.deliver(at) {
            delivered.push(delivery.packet.0);
        }
    }
    while let Some(delivery) = link.deliver(Time::NEVER) {
        delivered.push(delivery.packet.0);
    }
    delivered
}

/// Waits for a condition. A time limit keeps a test with a defect from running for ever.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "timed out waiting until {what}");
        std::thread::yield_now();
    }
}

#[derive(Clone)]
struct Number(u32);

impl link::Packet for Number {
    fn size(&self) -> Bytes {
        Bytes::new(FRAME as u64)
    }
    fn flow(&self) -> u64 {
        0
    }
    fn ecn_capable(&self) -> bool {
        false
    }
    fn mark_congestion(&mut self) {}
    fn corrupt(&mut self, _random: u64) {}
}

pub const FRAME: usize = 200;
