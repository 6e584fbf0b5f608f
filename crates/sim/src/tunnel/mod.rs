//! A QUIC tunnel of a world: two endpoints of [`quic`] without encryption, and the TCP flows that
//! they carry. [`crate::World`] owns the packets and the time.

mod carried;
mod datagrams;
mod spec;

pub(crate) use carried::{Carried, Windows};
pub(crate) use datagrams::Datagrams;
pub use spec::TunnelSpec;

use crate::outcome::TunnelCount;
use quic::plain::Plain;
use quic::{Connection, Endpoint, Key, Meter, Settings, StreamId};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use units::{Bytes, Span, Time};

pub(crate) const CLIENT: usize = 0;
pub(crate) const SERVER: usize = 1;

#[derive(Debug)]
pub(crate) struct Tunnel {
    pub(crate) spec: TunnelSpec,
    plain: Plain,
    pub(crate) ends: [End; 2],
    /// The indices in the table of routes at which the tunnel's forward and return paths begin.
    pub(crate) ways: (u32, u32),
    /// The flow number of the tunnel's packets.
    pub(crate) number: u32,
    pub(crate) flows: Vec<TunnelFlow>,
    /// Flows that have begun but have no stream, by their indices in `flows`.
    waiting: VecDeque<usize>,
    /// The indices of flows with a stream, in the order of the streams' numbers.
    opened: Vec<usize>,
    /// The number of flows that have not ended.
    pub(crate) left: usize,
    pub(crate) lost: Option<String>,
    /// The latest counters, for use after the connection has ended.
    last: Measured,
    pub(crate) before: TunnelCount,
}

/// A flow that the tunnel carries.
#[derive(Debug)]
pub(crate) struct TunnelFlow {
    pub(crate) flow: usize,
    /// The connection from the server to the receiving application.
    pub(crate) far: usize,
    pub(crate) carried: Carried,
}

#[derive(Debug)]
pub(crate) struct End {
    pub(crate) endpoint: Endpoint,
    pub(crate) address: SocketAddr,
    pub(crate) key: Option<Key>,
    pub(crate) windows: Windows,
    /// The time of the end's event in the wheel.
    pub(crate) armed: Time,
    /// Packets that the end has not processed yet.
    pub(crate) inbox: VecDeque<Arrival>,
    pub(crate) look_at: Time,
}

#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) at: Time,
    pub(crate) payload: bytes::BytesMut,
    pub(crate) ecn: Option<quic::EcnCodepoint>,
}

/// The counters of the client's connection.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Measured {
    pub(crate) count: TunnelCount,
    pub(crate) rtt: Option<Span>,
    pub(crate) reading: quic::Reading,
}

impl Tunnel {
    /// Creates a tunnel. `flows`: the number of each flow, with its connection from the server.
    pub(crate) fn new(
        spec: TunnelSpec,
        (start, seed): (Instant, u64),
        ways: (u32, u32),
        number: u32,
        flows: Vec<(usize, usize)>,
    ) -> Self {
        let mut plain = Plain::new(seed);
        let settings = |side: u64| Settings {
            congestion: spec.congestion,
            keepalive: KEEPALIVE,
            idle: KEEPALIVE * 3,
            largest_packet: LARGEST_PACKET,
            streams: STREAMS,
            seed: link::mix(seed ^ side),
            epoch: start,
            meter: Arc::new(Meter::unlimited()),
        };
        let client = SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), 4000));
        let server = SocketAddr::from((Ipv4Addr::new(10, 0, 1, 1), 443));
        let mut ends = [
            End::new(plain.client(settings(1)), client, start),
            End::new(plain.server(settings(2)), server, start),
        ];
        // Wake the client at its start.
        ends[CLIENT].armed = spec.start;
        let tunnel_flow = |(flow, far)| TunnelFlow { flow, far, carried: Carried::default() };
        Self {
            spec,
            plain,
            ends,
            ways,
            number,
            left: flows.len(),
            flows: flows.into_iter().map(tunnel_flow).collect(),
            waiting: VecDeque::new(),
            opened: Vec::new(),
            lost: None,
            last: Measured::default(),
            before: TunnelCount::default(),
        }
    }

    /// Connects the client.
    pub(crate) fn connect(&mut self, now: Instant) {
        let server = self.ends[SERVER].address;
        let client = &mut self.ends[CLIENT];
        match self.plain.connect(&mut client.endpoint, now, server) {
            Ok(key) => client.key = Some(key),
            Err(error) => self.lost = Some(error.to_string()),
        }
    }

    /// Accepts every connecting client. Returns whether a client was connecting.
    pub(crate) fn accept(&mut self, side: usize, now: Instant) -> bool {
        let end = &mut self.ends[side];
        let mut any = false;
        while let Some(incoming) = end.endpoint.incoming() {
            if let Ok(key) = self.plain.accept(&mut end.endpoint, now, incoming) {
                end.key.get_or_insert(key);
            }
            any = true;
        }
        any
    }

    /// Queues a flow whose application has connected to the client.
    pub(crate) fn begin(&mut self, place: usize) {
        self.waiting.push_back(place);
    }

    /// Opens streams for waiting flows, as far as the server allows. Returns the indices of these
    /// flows.
    pub(crate) fn open(&mut self) -> Vec<usize> {
        let mut opened = Vec::new();
        let Some(connection) = self.ends[CLIENT].connection() else { return opened };
        while let Some(place) = self.waiting.front().copied() {
            if !connection.is_connected() {
                break;
            }
            let Ok(Some(stream)) = connection.open() else { break };
            self.waiting.pop_front();
            self.flows[place].carried.begin(stream);
            self.opened.push(place);
            opened.push(place);
        }
        opened
    }

    /// Returns the index of the flow in this stream.
    pub(crate) fn place_of(&self, stream: StreamId) -> Option<usize> {
        self.opened.get(usize::try_from(stream.index()).ok()?).copied()
    }

    /// Returns the client's counters; after the connection's end, the last counters.
    pub(crate) fn measured(&mut self) -> Measured {
        if let Some(connection) = self.ends[CLIENT].connection() {
            let reported = connection.statistics();
            self.last = Measured {
                count: TunnelCount {
                    packets: reported.packets_sent,
                    sent: Bytes::new(reported.sent_bytes),
                    packets_lost: reported.packets_lost,
                    packets_late: reported.packets_late,
                    lost: Bytes::new(reported.bytes_lost),
                },
                rtt: Some(Span::from(reported.rtt)),
                reading: reported.reading,
            };
        }
        self.last
    }
}

impl End {
    fn new(endpoint: Endpoint, address: SocketAddr, start: Instant) -> Self {
        Self {
            endpoint,
            address,
            key: None,
            windows: Windows::new(start),
            armed: Time::NEVER,
            inbox: VecDeque::new(),
            look_at: Time::NEVER,
        }
    }

    pub(crate) fn connection(&mut self) -> Option<&mut Connection> {
        self.endpoint.get(self.key?)
    }

    /// Returns the connection and its buffer sizes.
    pub(crate) fn parts(&mut self) -> Option<(&mut Connection, &mut Windows)> {
        let connection = self.endpoint.get(self.key?)?;
        Some((connection, &mut self.windows))
    }

    pub(crate) fn touch(&mut self, now: Instant) {
        if let Some(key) = self.key {
            self.endpoint.touch(now, key);
        }
    }
}

/// The timers of `weir tunnel`.
const KEEPALIVE: Duration = Duration::from_secs(5);
const LARGEST_PACKET: u16 = 1472;
const STREAMS: u32 = 16_384;
