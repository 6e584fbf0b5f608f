//! A packet and functions that drive a link, shared by the tests.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

pub mod tcp;

use link::{Link, LinkConfig, Packet};
use units::{Bytes, Time};
use wire::caqm::Info;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestPacket {
    pub number: u64,
    pub size: u64,
    pub flow: u64,
    pub ecn: bool,
    pub marked: bool,
    pub corrupted: Option<u64>,
    pub asks: Option<Info>,
}

impl TestPacket {
    pub fn new(number: u64, size: u64) -> Self {
        Self { number, size, flow: 0, ecn: false, marked: false, corrupted: None, asks: None }
    }
}

impl Packet for TestPacket {
    fn size(&self) -> Bytes {
        Bytes::new(self.size)
    }

    fn flow(&self) -> u64 {
        self.flow
    }

    fn ecn_capable(&self) -> bool {
        self.ecn
    }

    fn mark_congestion(&mut self) {
        self.marked = true;
    }

    fn corrupt(&mut self, random: u64) {
        self.corrupted = Some(random);
    }

    fn caqm(&self, _tpid: u16) -> Option<Info> {
        self.asks
    }

    fn set_caqm(&mut self, _tpid: u16, info: Info) {
        self.asks = Some(info);
    }
}

pub fn at(nanos: u64) -> Time {
    Time::from_nanos(nanos)
}

pub fn link(config: &LinkConfig) -> Link<TestPacket> {
    Link::new(config, Time::ZERO).unwrap()
}

/// Fetches all remaining deliveries, as (delivery time, packet).
pub fn drain(link: &mut Link<TestPacket>) -> Vec<(u64, TestPacket)> {
    std::iter::from_fn(|| link.deliver(Time::from_nanos(u64::MAX - 1)))
        .map(|delivery| (delivery.at.nanos(), delivery.packet))
        .collect()
}
