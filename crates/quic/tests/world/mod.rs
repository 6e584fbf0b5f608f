//! Two endpoints and the path between them in virtual time. Equal seeds give equal runs.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

mod application;
pub mod packet;
mod path;

pub use application::{Application, Transfer};
pub use path::{Datagram, PathConfig, PathDirection};

use quic::plain::Plain;
use quic::{Congestion, Connection, Endpoint, Event, Key, Lost, Settings, Statistics};
use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use units::{Span, Time};

pub const CLIENT: usize = 0;
pub const SERVER: usize = 1;

pub struct World {
    start: Instant,
    now: Time,
    plain: Plain,
    pub hosts: [Host; 2],
    /// The two directions of the path: the client's packets use the first direction, and the
    /// server's packets the second direction.
    pub ways: [PathDirection; 2],
    changes: VecDeque<(Time, Change)>,
    /// Transfers by initiator, in the order in which their streams open.
    transfers: [Vec<Transfer>; 2],
    steps_at_once: u32,
    /// Whether to print every datagram, which `WEIR_WATCH` requests.
    watched: bool,
    numbers: [BTreeMap<packet::Space, u64>; 2],
}

pub struct Host {
    pub endpoint: Endpoint,
    pub address: SocketAddr,
    pub key: Option<Key>,
    pub application: Application,
    pub lost: Option<Lost>,
    windows: Windows,
    opened: usize,
    inbox: VecDeque<(Time, Datagram)>,
    look_at: Option<Time>,
    /// The interval at which the host processes arrivals.
    pub moderation: Span,
    /// The delay with which the host's timers fire.
    pub slack: Span,
    /// The datagram lengths of each batch that the host sent, if the test enables this log.
    pub trains: Option<Vec<(Time, Vec<usize>)>>,
}

/// The memory limits of each endpoint.
#[derive(Debug, Clone, Copy)]
pub struct Windows {
    pub receive: u64,
    pub stream: u64,
    pub send: u64,
}

#[derive(Debug, Clone)]
pub enum Change {
    /// The client's new address. Packets in flight to the former address are lost.
    Address(SocketAddr),
    PathConfig(Box<PathConfig>),
}

impl World {
    pub fn new(seed: u64, settings: Settings, path: &PathConfig) -> Self {
        Self::of(seed, [settings.clone(), settings], path)
    }

    pub fn of(seed: u64, [client, server]: [Settings; 2], path: &PathConfig) -> Self {
        let mut plain = Plain::new(seed);
        let start = Instant::now();
        let [client, server] =
            [client, server].map(|settings| Settings { epoch: start, ..settings });
        let addresses = [
            SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), 4000)),
            SocketAddr::from((Ipv4Addr::new(10, 0, 1, 1), 443)),
        ];
        let hosts = [
            Host::new(plain.client(client), addresses[CLIENT]),
            Host::new(plain.server(server), addresses[SERVER]),
        ];
        let mut world = Self {
            start,
            now: Time::ZERO,
            plain,
            hosts,
            ways: [
                PathDirection::new(&path.up, path.mtu, seed),
                PathDirection::new(&path.down, path.mtu, link::mix(seed)),
            ],
            changes: VecDeque::new(),
            transfers: [Vec::new(), Vec::new()],
            steps_at_once: 0,
            watched: std::env::var_os("WEIR_WATCH").is_some(),
            numbers: Default::default(),
        };
        let now = world.instant(Time::ZERO);
        let client = &mut world.hosts[CLIENT];
        let key = world.plain.connect(&mut client.endpoint, now, addresses[SERVER]);
        client.key = Some(key.unwrap());
        world.settle(CLIENT);
        world
    }

    /// Applies the windows to both endpoints.
    pub fn with_windows(mut self, windows: Windows) -> Self {
        for host in &mut self.hosts {
            host.windows = windows;
        }
        self
    }

    pub fn change_at(&mut self, at: Time, change: Change) {
        let place = self.changes.partition_point(|(other, _)| *other <= at);
        self.changes.insert(place, (at, change));
    }

    /// Runs until the handshake is complete at both endpoints and a settling time has passed.
    /// Returns false if `limit` comes first.
    pub fn run_until_confirmed(&mut self, limit: Time) -> bool {
        let is_connected = |host: &mut Host| {
            let connection = host.key.and_then(|key| host.endpoint.get(key));
            connection.is_some_and(|connection| connection.is_connected())
        };
        while !self.hosts.iter_mut().all(is_connected) {
            if self.lost().is_some() || !self.step(limit) {
                return false;
            }
        }
        self.run_for(Span::from_secs(3));
        true
    }

    pub fn transfer(&mut self, from: usize, transfer: Transfer) {
        self.transfers[from].push(transfer);
        self.open(from);
        self.settle(from);
    }

    pub fn now(&self) -> Time {
        self.now
    }

    pub fn run_for(&mut self, span: Span) {
        self.run_until(self.now + span);
    }

    pub fn run_until(&mut self, limit: Time) {
        while self.step(limit) {}
        self.now = limit;
    }

    /// Runs until every transfer has ended. Returns false if `limit` comes first.
    pub fn run_to_the_end(&mut self, limit: Time) -> bool {
        while !self.is_over() && self.lost().is_none() {
            if !self.step(limit) {
                return false;
            }
        }
        self.is_over()
    }

    pub fn is_over(&self) -> bool {
        let all = (self.transfers[CLIENT].len() + self.transfers[SERVER].len()) as u64;
        self.hosts.iter().all(|host| host.application.over == all)
    }

    /// Returns the open streams, closed streams, and received bytes of each endpoint.
    pub fn progress(&self) -> [(usize, u64, u64); 2] {
        let of = |host: &Host| {
            (host.application.open(), host.application.over, host.application.received)
        };
        [of(&self.hosts[CLIENT]), of(&self.hosts[SERVER])]
    }

    pub fn lost(&self) -> Option<(usize, &Lost)> {
        self.hosts.iter().enumerate().find_map(|(side, host)| Some((side, host.lost.as_ref()?)))
    }

    pub fn connection(&mut self, side: usize) -> &mut Connection {
        let host = &mut self.hosts[side];
        host.endpoint.get(host.key.unwrap()).unwrap()
    }

    pub fn statistics(&mut self, side: usize) -> Statistics {
        self.connection(side).statistics()
    }

    /// Lets an endpoint act on a change to its connection. A test must call this function after
    /// every change.
    pub fn touch(&mut self, side: usize) {
        let now = self.instant(self.now);
        let host = &mut self.hosts[side];
        if let Some(key) = host.key {
            host.endpoint.touch(now, key);
        }
        self.settle(side);
    }

    /// Returns the number of packets that failed the checksum.
    pub fn refused(&self) -> u64 {
        self.plain.refused()
    }

    pub fn sealed(&self) -> u64 {
        self.plain.sealed()
    }

    pub fn hash(&self) -> u64 {
        link::mix(self.ways[0].hash) ^ self.ways[1].hash
    }

    pub fn instant(&self, time: Time) -> Instant {
        self.start + Duration::from_nanos(time.nanos())
    }

    fn time(&self, instant: Instant) -> Time {
        let nanos = instant.saturating_duration_since(self.start).as_nanos();
        Time::from_nanos(u64::try_from(nanos).unwrap())
    }

    fn next(&self) -> Option<Time> {
        let changes = self.changes.front().map(|(at, _)| *at);
        let ways = self.ways.iter().filter_map(PathDirection::next);
        let hosts = self.hosts.iter().flat_map(|host| [host.look_at, self.wakes(host)]);
        changes.into_iter().chain(ways).chain(hosts.flatten()).min()
    }

    fn wakes(&self, host: &Host) -> Option<Time> {
        host.endpoint.next_timeout().map(|at| self.time(at) + host.slack)
    }

    fn step(&mut self, limit: Time) -> bool {
        let Some(next) = self.next().filter(|next| *next <= limit) else { return false };
        self.steps_at_once = if next > self.now { 0 } else { self.steps_at_once + 1 };
        assert!(self.steps_at_once < 1000, "an endpoint asks to be woken at {next} for ever");
        self.now = self.now.max(next);
        while self.changes.front().is_some_and(|(at, _)| *at <= self.now)
            && let Some((_, change)) = self.changes.pop_front()
        {
            self.change(change);
        }
        for side in [CLIENT, SERVER] {
            self.fetch(side);
            self.wake(side);
        }
        true
    }

    fn change(&mut self, change: Change) {
        match change {
            Change::Address(address) => self.hosts[CLIENT].address = address,
            Change::PathConfig(path) => {
                self.ways[0].reconfigure(self.now, &path.up, path.mtu);
                self.ways[1].reconfigure(self.now, &path.down, path.mtu);
            }
        }
    }

    /// Passes the datagrams that have arrived at a host to its endpoint.
    fn fetch(&mut self, side: usize) {
        let host = &mut self.hosts[side];
        while let Some((at, datagram)) = self.ways[1 - side].deliver(self.now) {
            if self.watched {
                let Datagram { from, to, payload, .. } = &datagram;
                println!("{at} at {to} from {from}: {} bytes", payload.len());
            }
            if datagram.to != host.address {
                continue;
            }
            host.inbox.push_back((at, datagram));
            host.look_at.get_or_insert(self.now + host.moderation);
        }
    }

    fn wake(&mut self, side: usize) {
        let now = self.instant(self.now);
        let timer = self.wakes(&self.hosts[side]).is_some_and(|at| at <= self.now);
        let looks = self.hosts[side].look_at.is_some_and(|at| at <= self.now);
        if looks {
            self.hosts[side].look_at = None;
            while let Some((at, datagram)) = self.hosts[side].inbox.pop_front() {
                let arrived = self.instant(at);
                let Datagram { from, ecn, payload, .. } = datagram;
                self.hosts[side].endpoint.handle(now, arrived, from, None, ecn, payload);
            }
            self.hosts[side].endpoint.handled(now);
        }
        if timer {
            self.hosts[side].endpoint.handle_timeouts(now);
        }
        if looks || timer {
            self.settle(side);
        }
    }

    /// Makes a host handle its timeouts and events and send its packets at the present time.
    fn settle(&mut self, side: usize) {
        let now = self.instant(self.now);
        let mut buffer = Vec::new();
        loop {
            let mut idle = true;
            while let Some(incoming) = self.hosts[side].endpoint.incoming() {
                let host = &mut self.hosts[side];
                // Ignore an error: a corrupted packet may look like a client's first packet.
                if let Ok(key) = self.plain.accept(&mut host.endpoint, now, incoming) {
                    host.key.get_or_insert(key);
                }
                idle = false;
            }
            while let Some((key, event)) = self.hosts[side].endpoint.next_event() {
                if self.hosts[side].key == Some(key) {
                    self.on_event(side, event);
                }
                idle = false;
            }
            while let Some(transmit) =
                self.hosts[side].endpoint.poll_transmit(now, SEGMENTS, &mut buffer)
            {
                assert_eq!(transmit.size, buffer.len());
                let segment = transmit.segment_size.unwrap_or(buffer.len());
                let mut lengths = Vec::new();
                for payload in buffer.chunks(segment) {
                    lengths.push(payload.len());
                    let from = self.hosts[side].address;
                    let (to, ecn) = (transmit.destination, transmit.ecn);
                    if self.watched {
                        let packets = packet::headers(payload, &mut self.numbers[side]);
                        let (now, length) = (self.now, payload.len());
                        println!("{now} {from} to {to}: {length} bytes {packets:?}");
                    }
                    let datagram = Datagram { from, to, ecn, payload: payload.into() };
                    self.ways[side].enter(self.now, datagram);
                }
                assert!(lengths.len() <= SEGMENTS, "{} datagrams at once", lengths.len());
                if let Some(trains) = &mut self.hosts[side].trains {
                    trains.push((self.now, lengths));
                }
                buffer.clear();
                idle = false;
            }
            if idle {
                return;
            }
        }
    }

    fn on_event(&mut self, side: usize, event: Event) {
        match event {
            Event::Connected => {
                let windows = self.hosts[side].windows;
                let connection = self.connection(side);
                connection.set_receive_window(windows.receive);
                connection.set_stream_window(windows.stream);
                connection.set_send_window(windows.send);
                self.open(side);
            }
            Event::MayOpen => self.open(side),
            Event::Opened => self.accept(side),
            Event::Readable(id) => self.on_stream(side, |application, connection| {
                application.read(connection, id);
            }),
            Event::Writable(id) => self.on_stream(side, |application, connection| {
                application.write(connection, id);
            }),
            Event::Delivered(id) => self.on_stream(side, |application, connection| {
                application.delivered(connection, id);
            }),
            Event::Datagrams => {}
            Event::Lost(why) => self.hosts[side].lost = Some(why),
        }
        let now = self.instant(self.now);
        let host = &mut self.hosts[side];
        if let Some(key) = host.key {
            host.endpoint.touch(now, key);
        }
    }

    fn on_stream(&mut self, side: usize, act: impl FnOnce(&mut Application, &mut Connection)) {
        let Host { endpoint, application, key, .. } = &mut self.hosts[side];
        if let Some(connection) = key.and_then(|key| endpoint.get(key)) {
            act(application, connection);
        }
    }

    fn open(&mut self, side: usize) {
        let Host { endpoint, application, key, opened, .. } = &mut self.hosts[side];
        let Some(connection) = key.and_then(|key| endpoint.get(key)) else { return };
        if !connection.is_connected() {
            return;
        }
        while let Some(transfer) = self.transfers[side].get(*opened) {
            let Ok(Some(id)) = connection.open() else { break };
            *opened += 1;
            application.initiate(id, transfer);
            application.write(connection, id);
        }
        let now = self.instant(self.now);
        let host = &mut self.hosts[side];
        host.endpoint.touch(now, host.key.unwrap());
    }

    fn accept(&mut self, side: usize) {
        let Host { endpoint, application, key, .. } = &mut self.hosts[side];
        let Some(connection) = key.and_then(|key| endpoint.get(key)) else { return };
        while let Ok(Some(id)) = connection.accept() {
            let transfer = &self.transfers[1 - side][usize::try_from(id.index()).unwrap()];
            application.accept(id, transfer);
            application.write(connection, id);
            application.read(connection, id);
        }
    }
}

impl Host {
    fn new(endpoint: Endpoint, address: SocketAddr) -> Self {
        Self {
            endpoint,
            address,
            key: None,
            application: Application::default(),
            lost: None,
            windows: Windows { receive: 64 << 20, stream: 64 << 20, send: 64 << 20 },
            opened: 0,
            inbox: VecDeque::new(),
            look_at: None,
            moderation: Span::ZERO,
            slack: Span::ZERO,
            trains: None,
        }
    }
}

/// Returns the settings that the tunnel uses.
pub fn settings(congestion: &str) -> Settings {
    Settings {
        congestion: congestion.parse::<Congestion>().unwrap(),
        keepalive: Duration::from_secs(5),
        idle: Duration::from_secs(15),
        largest_packet: 1452,
        streams: 4096,
        seed: 1,
        // Algorithms count time from the start of the simulation.
        epoch: Instant::now(),
        meter: Arc::new(quic::Meter::unlimited()),
    }
}

pub fn millis(count: u64) -> Time {
    Time::from_nanos(count * 1_000_000)
}

pub fn seconds(count: u64) -> Time {
    millis(count * 1000)
}

/// Maximum number of datagrams per send call in this test.
const SEGMENTS: usize = 44;
