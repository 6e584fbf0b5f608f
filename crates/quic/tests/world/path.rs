//! The path between two endpoints: a link in each direction.

use bytes::BytesMut;
use link::{Link, LinkConfig, LinkStats, Packet};
use quic::EcnCodepoint;
use std::net::SocketAddr;
use units::{Bytes, Time};

/// The links of both directions, and the MTU, which both endpoints know.
#[derive(Debug, Clone, PartialEq)]
pub struct PathConfig {
    /// The link from client to server.
    pub up: LinkConfig,
    pub down: LinkConfig,
    /// Maximum UDP payload that the path carries, in bytes.
    pub mtu: usize,
}

#[derive(Debug, Clone)]
pub struct Datagram {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub ecn: Option<EcnCodepoint>,
    pub payload: BytesMut,
}

/// A direction of a path, with counts of the datagrams that enter and leave the direction.
#[derive(Debug)]
pub struct PathDirection {
    link: Link<Datagram>,
    mtu: usize,
    /// A hash over all datagrams that entered, with their times.
    pub hash: u64,
    pub sent: TrafficCount,
    pub arrived: TrafficCount,
    /// The number of datagrams that were too large for the path.
    pub too_large: u64,
    /// Times and payloads of the datagrams that entered, if the test enables this log.
    pub log: Option<Vec<(Time, BytesMut)>>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TrafficCount {
    pub datagrams: u64,
    pub bytes: u64,
    /// Bytes of datagrams that carry more than acknowledgements and credit.
    pub bulk: u64,
}

impl PathConfig {
    /// Creates a path with the same rate, delay and queue in both directions.
    pub fn new(rate: &str, round_trip: &str, queue: &str) -> Self {
        let round_trip: units::Span = round_trip.parse().unwrap();
        let link = LinkConfig {
            rate: rate.parse().unwrap(),
            delay: round_trip / 2,
            queue: queue.parse().unwrap(),
            ..LinkConfig::default()
        };
        let down = LinkConfig { seed: 1, ..link.clone() };
        Self { up: link, down, mtu: 1472 }
    }

    pub fn both(mut self, change: impl Fn(&mut LinkConfig)) -> Self {
        change(&mut self.up);
        change(&mut self.down);
        self
    }

    pub fn loss(self, loss: &str) -> Self {
        self.both(|link| link.loss = loss.parse().unwrap())
    }

    pub fn jitter(self, jitter: &str) -> Self {
        self.both(|link| link.jitter = jitter.parse().unwrap())
    }
}

impl PathDirection {
    pub fn new(config: &LinkConfig, mtu: usize, seed: u64) -> Self {
        let config = LinkConfig { seed: link::mix(config.seed ^ seed), ..config.clone() };
        Self {
            link: Link::new(&config, Time::ZERO).unwrap(),
            mtu,
            hash: 0,
            sent: TrafficCount::default(),
            arrived: TrafficCount::default(),
            too_large: 0,
            log: None,
        }
    }

    pub fn reconfigure(&mut self, now: Time, config: &LinkConfig, mtu: usize) {
        self.link.reconfigure(now, config).unwrap();
        self.mtu = mtu;
    }

    pub fn enter(&mut self, now: Time, datagram: Datagram) {
        self.hash = link::mix(self.hash ^ now.nanos()).wrapping_add(u64::from(datagram.to.port()));
        for part in datagram.payload.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.hash =
                (self.hash ^ u64::from_le_bytes(word)).wrapping_mul(0x9fb2_1c65_1e98_df25) ^ 1;
            self.hash = self.hash.rotate_left(29);
        }
        self.sent.add(&datagram);
        if let Some(log) = &mut self.log {
            log.push((now, datagram.payload.clone()));
        }
        if datagram.payload.len() > self.mtu {
            self.too_large += 1;
            return;
        }
        self.link.arrive(now, datagram);
    }

    pub fn next(&self) -> Option<Time> {
        self.link.next_delivery()
    }

    pub fn deliver(&mut self, now: Time) -> Option<(Time, Datagram)> {
        let delivery = self.link.deliver(now)?;
        self.arrived.add(&delivery.packet);
        Some((delivery.at, delivery.packet))
    }

    pub fn stats(&self) -> &LinkStats {
        self.link.stats()
    }

    pub fn config(&self) -> &LinkConfig {
        self.link.config()
    }

    pub fn is_empty(&self) -> bool {
        self.link.in_flight() == 0 && self.link.queued().0 == 0
    }
}

impl TrafficCount {
    fn add(&mut self, datagram: &Datagram) {
        let bytes = datagram.payload.len() as u64;
        self.datagrams += 1;
        self.bytes += bytes;
        if bytes >= BULK {
            self.bulk += bytes;
        }
    }
}

impl Packet for Datagram {
    fn size(&self) -> Bytes {
        Bytes::new(self.payload.len() as u64 + HEADERS)
    }

    fn flow(&self) -> u64 {
        0
    }

    fn ecn_capable(&self) -> bool {
        self.ecn.is_some()
    }

    fn mark_congestion(&mut self) {
        self.ecn = Some(EcnCodepoint::Ce);
    }

    fn corrupt(&mut self, random: u64) {
        // Leave the packet type and version intact. Otherwise, corruption could turn a packet into
        // a Retry or a packet of another version, which has no tag and would end the engine's
        // handshake. In reality, UDP's checksum detects the corruption.
        let spared = if self.payload[0] & 0x80 == 0 { 0 } else { 8 * 5 };
        let bit = spared + random as usize % (self.payload.len() * 8 - spared);
        self.payload[bit / 8] ^= 1 << (bit % 8);
    }
}

/// Bytes of the Ethernet, IPv4 and UDP headers.
pub const HEADERS: u64 = 14 + 20 + 8;
const BULK: u64 = 200;
