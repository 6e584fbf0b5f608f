//! Runs a QUIC server under a hostile client, which sends datagrams of any content, and frames of
//! any content in otherwise valid packets. The server never panics, forgets the connection in the
//! end, and sends an unvalidated address at most three times the bytes received from this address.
#![no_main]

use arbitrary::{Arbitrary, Unstructured};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use quic::plain::Plain;
use quic::{Endpoint, Event, Key, Meter, Readable, Settings};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

#[derive(Debug, Arbitrary)]
enum Step {
    /// The client's next packets carry these frames.
    Frames(Vec<u8>),
    /// Replaces bytes of the client's next packets.
    Change { at: u8, byte: u8 },
    /// A datagram from another address (`stranger`) or from the client's address.
    Datagram { stranger: bool, bytes: Vec<u8> },
    Open(u16),
    Finish,
    Reset,
    Read,
    Drop(u8),
    /// The client sends from this port from now on.
    Move(u8),
    Wait(u16),
}

#[derive(Default)]
struct Forgery {
    frames: Vec<u8>,
    change: Option<(u8, u8)>,
}

fuzz_target!(|bytes: &[u8]| {
    let mut input = Unstructured::new(bytes);
    let mut world = World::new(bytes.first().copied().unwrap_or(0));
    let mut steps = 0;
    while let (false, Ok(step)) = (input.is_empty(), Step::arbitrary(&mut input)) {
        world.take(step);
        steps += 1;
        if steps == 200 {
            break;
        }
    }
    world.end();
});

struct World {
    now: Instant,
    plain: Plain,
    client: Endpoint,
    server: Endpoint,
    key: Key,
    accepted: Vec<Key>,
    forgery: Arc<Mutex<Forgery>>,
    port: u16,
    dropped: u8,
    stream: Option<quic::StreamId>,
    /// Bytes received from, and sent to, an address that is not validated.
    stranger: (u64, u64),
}

impl World {
    fn new(seed: u8) -> Self {
        let settings = Settings {
            congestion: "cubic".parse().unwrap(),
            keepalive: Duration::from_secs(5),
            idle: Duration::from_secs(15),
            largest_packet: 1452,
            streams: 64,
            seed: u64::from(seed),
            epoch: Instant::now(),
            meter: Arc::new(Meter::unlimited()),
        };
        let mut plain = Plain::new(u64::from(seed));
        let (mut client, server) = (plain.client(settings.clone()), plain.server(settings));
        let now = Instant::now();
        let key = plain.connect(&mut client, now, SERVER).unwrap();
        let forgery = Arc::new(Mutex::new(Forgery::default()));
        let mut world = Self {
            now,
            plain,
            client,
            server,
            key,
            accepted: Vec::new(),
            forgery: Arc::clone(&forgery),
            port: 4000,
            dropped: 0,
            stream: None,
            stranger: (0, 0),
        };
        // Half of the inputs arrive during a handshake.
        if seed % 2 == 0 {
            world.run(60);
            assert_eq!(world.accepted.len(), 1);
        }
        world.plain.forge_clients(move |frames| {
            let mut forgery = forgery.lock().unwrap();
            let given = std::mem::take(&mut forgery.frames);
            for (place, byte) in frames.iter_mut().zip(&given) {
                *place = *byte;
            }
            // Zeros, which are PADDING frames, fill the rest of the packet.
            if !given.is_empty() {
                frames.iter_mut().skip(given.len()).for_each(|place| *place = 0);
            }
            if let Some((at, byte)) = forgery.change.take()
                && let Some(place) = frames.get_mut(usize::from(at))
            {
                *place = byte;
            }
        });
        world
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Frames(frames) => {
                self.forgery.lock().unwrap().frames = frames;
                // Makes the client send a packet.
                self.write(40);
                self.run(2);
            }
            Step::Change { at, byte } => self.forgery.lock().unwrap().change = Some((at, byte)),
            Step::Datagram { stranger, bytes } => {
                let from = if stranger { STRANGER } else { self.client_address() };
                if stranger {
                    self.stranger.0 += bytes.len() as u64;
                }
                self.server.handle(self.now, self.now, from, None, None, bytes[..].into());
                self.server.handled(self.now);
                self.run(1);
            }
            Step::Open(bytes) => {
                if let Some(connection) = self.client.get(self.key) {
                    self.stream = connection.open().ok().flatten().or(self.stream);
                }
                self.write(usize::from(bytes));
                self.run(1);
            }
            Step::Finish => self.on_stream(|connection, id| connection.finish(id)),
            Step::Reset => self.on_stream(|connection, id| connection.reset(id, 7)),
            Step::Read => self.read(),
            Step::Drop(packets) => self.dropped = packets % 16,
            Step::Move(port) => self.port = 4000 + u16::from(port),
            Step::Wait(steps) => {
                self.now += Duration::from_micros(u64::from(steps) * 100);
                self.run(1);
            }
        }
    }

    fn write(&mut self, count: usize) {
        self.on_stream(|connection, id| {
            let mut bytes = Bytes::from(vec![7; count]);
            let _ = connection.write(id, &mut bytes);
        });
    }

    fn on_stream(&mut self, act: impl FnOnce(&mut quic::Connection, quic::StreamId)) {
        if let (Some(connection), Some(id)) = (self.client.get(self.key), self.stream) {
            act(connection, id);
            self.client.touch(self.now, self.key);
        }
    }

    /// Accepts the streams at the server, and reads the received data.
    fn read(&mut self) {
        for key in self.accepted.clone() {
            let Some(connection) = self.server.get(key) else { continue };
            while let Ok(Some(id)) = connection.accept() {
                let mut chunks = Vec::new();
                while let Ok(Readable::Some) = connection.read(id, 1 << 16, &mut chunks) {}
                let read = chunks.iter().map(|(_, chunk)| chunk.len() as u64).sum();
                connection.consume(id, read);
            }
            while connection.receive_datagram().is_some() {}
            self.server.touch(self.now, key);
        }
    }

    fn client_address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), self.port))
    }

    fn run(&mut self, times: usize) {
        for _ in 0..times {
            self.now += Duration::from_millis(1);
            let (from, now) = (self.client_address(), self.now);
            let mut buffer = Vec::new();
            self.client.handle_timeouts(now);
            self.client.touch(now, self.key);
            while let Some(transmit) = self.client.poll_transmit(now, 10, &mut buffer) {
                for datagram in buffer.chunks(transmit.segment_size.unwrap_or(buffer.len())) {
                    if self.dropped > 0 {
                        self.dropped -= 1;
                        continue;
                    }
                    self.server.handle(now, now, from, None, None, datagram.into());
                }
                self.server.handled(now);
                buffer.clear();
            }
            while let Some(incoming) = self.server.incoming() {
                if let Ok(key) = self.plain.accept(&mut self.server, now, incoming) {
                    self.accepted.push(key);
                }
            }
            self.server.handle_timeouts(now);
            for key in self.accepted.clone() {
                self.server.touch(now, key);
            }
            while let Some(transmit) = self.server.poll_transmit(now, 10, &mut buffer) {
                if transmit.destination == STRANGER {
                    self.stranger.1 += buffer.len() as u64;
                    assert!(self.stranger.1 <= self.stranger.0 * 3, "{:?}", self.stranger);
                }
                for datagram in buffer.chunks(transmit.segment_size.unwrap_or(buffer.len())) {
                    self.client.handle(now, now, SERVER, None, None, datagram.into());
                }
                self.client.handled(now);
                buffer.clear();
            }
            for end in [&mut self.client, &mut self.server] {
                while let Some((_, _event)) = end.next_event() {
                    let _: Event = _event;
                }
            }
        }
    }

    /// Checks that the server forgets its connections after the client has left.
    fn end(mut self) {
        self.read();
        // A connection stays for at least three probe timeouts (RFC 9000, section 10.1), and an
        // input's waits can make the round trip as long as 20 s.
        for _ in 0..600 {
            self.now += Duration::from_secs(1);
            self.server.handle_timeouts(self.now);
            let mut buffer = Vec::new();
            while self.server.poll_transmit(self.now, 10, &mut buffer).is_some() {
                buffer.clear();
            }
            while self.server.next_event().is_some() {}
        }
        let left = self.server.open_connections();
        assert_eq!(left, 0, "{left} connections left");
    }
}

const SERVER: SocketAddr =
    SocketAddr::V4(std::net::SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 4000));
const STRANGER: SocketAddr =
    SocketAddr::V4(std::net::SocketAddrV4::new(Ipv4Addr::new(10, 9, 9, 9), 4000));
