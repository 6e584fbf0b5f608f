//! A simple sender with a window. The window grows by one packet per round trip, and halves once
//! per round trip in which a packet was lost or marked.

use super::{TestPacket, at};
use link::{Link, LinkConfig};
use std::collections::VecDeque;
use units::Time;

pub struct Sender {
    flow: u64,
    ecn: bool,
    window: f64,
    /// Packets sent and neither acknowledged nor known to be lost.
    outstanding: VecDeque<u64>,
    next: u64,
    /// The packet number below which the sender has already answered losses and marks.
    recover: u64,
    pub delivered: u64,
}

impl Sender {
    pub fn new(flow: u64, ecn: bool) -> Self {
        Self {
            flow,
            ecn,
            window: 10.0,
            outstanding: VecDeque::new(),
            next: 0,
            recover: 0,
            delivered: 0,
        }
    }

    fn acknowledge(&mut self, packet: &TestPacket) {
        let mut congested = packet.marked;
        while let Some(number) = self.outstanding.pop_front() {
            if number == packet.number {
                break;
            }
            congested = true;
        }
        self.delivered += 1;
        if congested && packet.number >= self.recover {
            self.window = (self.window / 2.0).max(2.0);
            self.recover = self.next;
        } else {
            self.window += 1.0 / self.window;
        }
    }

    fn send(&mut self, now: Time, link: &mut Link<TestPacket>) {
        while (self.outstanding.len() as f64) < self.window {
            self.outstanding.push_back(self.next);
            let packet =
                TestPacket { flow: self.flow, ecn: self.ecn, ..TestPacket::new(self.next, 1514) };
            self.next += 1;
            link.arrive(now, packet);
        }
    }
}

/// Runs `senders` for `seconds` over one link. Acknowledgements return immediately.
pub fn transfer(config: &LinkConfig, senders: &mut [Sender], seconds: u64) -> Link<TestPacket> {
    let mut link = super::link(config);
    for sender in senders.iter_mut() {
        sender.send(Time::ZERO, &mut link);
    }
    let end = at(seconds * 1_000_000_000);
    while let Some(now) = link.next_event().filter(|now| *now < end) {
        while let Some(delivery) = link.deliver(now) {
            let sender = &mut senders[delivery.packet.flow as usize];
            sender.acknowledge(&delivery.packet);
            sender.send(now, &mut link);
        }
        // The whole window may have been lost.
        if link.next_event().is_none() {
            for sender in senders.iter_mut() {
                sender.outstanding.clear();
                sender.send(now, &mut link);
            }
        }
    }
    link
}
