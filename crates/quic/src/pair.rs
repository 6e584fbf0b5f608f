//! Connects two endpoints directly, and tests how an endpoint treats a peer that violates the
//! protocol.

use crate::connection::{Connection, Event};
use crate::credit::{FIRST_CREDIT, Record};
use crate::endpoint::{Endpoint, Key, Settings};
use crate::lost::Lost;
use crate::meter::Meter;
use crate::plain::Plain;
use crate::stream::Readable;
use crate::turns::RESERVE;
use bytes::Bytes;
use quinn_proto::{Dir, Side, StreamId};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

struct Pair {
    now: Instant,
    plain: Plain,
    ends: [Endpoint; 2],
    keys: [Option<Key>; 2],
    events: [Vec<Event>; 2],
    /// The reason for which each endpoint lost its connection. An endpoint soon forgets a closed
    /// connection, so the reason is stored here.
    lost: [Option<Lost>; 2],
}

const CLIENT: usize = 0;
const SERVER: usize = 1;

impl Pair {
    fn new() -> Self {
        let settings = Settings {
            congestion: "fixed 1gbit".parse().unwrap(),
            keepalive: Duration::from_secs(5),
            idle: Duration::from_secs(15),
            largest_packet: 1452,
            streams: 256,
            seed: 1,
            epoch: Instant::now(),
            meter: Arc::new(Meter::unlimited()),
        };
        let mut plain = Plain::new(1);
        let mut ends = [plain.client(settings.clone()), plain.server(settings)];
        let now = Instant::now();
        let key = plain.connect(&mut ends[CLIENT], now, address(SERVER)).unwrap();
        let (events, lost) = ([Vec::new(), Vec::new()], [None, None]);
        let mut pair = Self { now, plain, ends, keys: [Some(key), None], events, lost };
        pair.run(Duration::from_millis(100));
        assert!(pair.at(CLIENT).is_connected() && pair.at(SERVER).is_connected());
        pair
    }

    fn at(&mut self, side: usize) -> &mut Connection {
        self.ends[side].get(self.keys[side].unwrap()).unwrap()
    }

    /// Runs both endpoints for `span`. Packets arrive without delay.
    fn run(&mut self, span: Duration) {
        for _ in 0..span.as_micros() / 100 {
            self.now += Duration::from_micros(100);
            for side in [CLIENT, SERVER] {
                self.ends[side].handle_timeouts(self.now);
                if let Some(key) = self.keys[side] {
                    self.ends[side].touch(self.now, key);
                }
                self.send(side);
                while let Some(incoming) = self.ends[side].incoming() {
                    let key = self.plain.accept(&mut self.ends[side], self.now, incoming);
                    self.keys[side] = Some(key.unwrap());
                }
                while let Some((_, event)) = self.ends[side].next_event() {
                    self.events[side].push(event);
                }
                for (end, (key, lost)) in
                    self.ends.iter_mut().zip(self.keys.iter().zip(&mut self.lost))
                {
                    let connection = key.and_then(|key| end.get(key));
                    let why = connection.and_then(|connection| connection.lost().cloned());
                    *lost = lost.take().or(why);
                }
            }
        }
    }

    fn send(&mut self, side: usize) {
        let mut buffer = Vec::new();
        while let Some(transmit) = self.ends[side].poll_transmit(self.now, 10, &mut buffer) {
            for datagram in buffer.chunks(transmit.segment_size.unwrap_or(buffer.len())) {
                let (now, from) = (self.now, address(side));
                self.ends[1 - side].handle(now, now, from, None, None, datagram.into());
            }
            self.ends[1 - side].handled(self.now);
            buffer.clear();
        }
    }

    /// Opens a stream and writes the part of the bytes that the connection takes.
    fn write(&mut self, bytes: u64) -> StreamId {
        let id = self.at(CLIENT).open().unwrap().unwrap();
        let mut bytes = Bytes::from(vec![7; bytes as usize]);
        while !bytes.is_empty() {
            self.at(CLIENT).write(id, &mut bytes).unwrap();
            self.run(Duration::from_millis(5));
            if self.lost != [None, None] {
                break;
            }
        }
        id
    }

    /// Opens bulk streams until these streams fill the client's send window. Returns the streams.
    fn fill_send_window(&mut self) -> Vec<StreamId> {
        self.at(SERVER).set_receive_window(16 * FIRST_CREDIT);
        self.run(Duration::from_millis(10));
        let mut opened = Vec::new();
        loop {
            let id = self.at(CLIENT).open().unwrap().unwrap();
            let mut bytes = Bytes::from(vec![7; FIRST_CREDIT as usize]);
            self.at(CLIENT).write(id, &mut bytes).unwrap();
            opened.push(id);
            if !bytes.is_empty() {
                return opened;
            }
        }
    }

    /// Asserts that the server closed the connection for this reason and reported it to the client.
    fn assert_closed(&mut self, why: &'static str) {
        self.run(Duration::from_millis(10));
        assert_eq!(self.lost[SERVER], Some(Lost::Violation(why)));
        assert_eq!(self.lost[CLIENT], Some(Lost::ByPeer(why.to_owned())));
        let is_lost = |event: &Event| matches!(event, Event::Lost(_));
        assert!(self.events.iter().all(|events| events.iter().any(is_lost)));
    }
}

fn address(side: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1 + side as u8), 4000))
}

#[test]
fn a_peer_that_sends_beyond_a_streams_credit_is_disconnected() {
    let mut pair = Pair::new();
    pair.at(CLIENT).set_send_window(4 * FIRST_CREDIT);
    pair.at(CLIENT).ignore_credit(None);
    let id = pair.write(FIRST_CREDIT);
    assert_eq!(pair.lost, [None, None]);
    pair.at(CLIENT).ignore_credit(Some(id));
    let mut more = Bytes::from_static(b"more");
    pair.at(CLIENT).write(id, &mut more).unwrap();
    pair.assert_closed("the peer sent more than its credit");
}

#[test]
fn a_peer_that_sends_beyond_the_connections_credit_is_disconnected() {
    let mut pair = Pair::new();
    pair.at(CLIENT).set_send_window(4 * FIRST_CREDIT);
    // Each stream stays within its own credit.
    pair.write(FIRST_CREDIT / 2);
    pair.write(FIRST_CREDIT / 2);
    assert_eq!(pair.lost, [None, None]);
    pair.at(CLIENT).ignore_credit(None);
    pair.write(1);
    pair.assert_closed("the peer sent more than its credit");
}

#[test]
fn a_final_size_beyond_the_credit_closes_the_connection() {
    let mut pair = Pair::new();
    let id = pair.write(1000);
    pair.at(SERVER).accept().unwrap().unwrap();
    pair.at(SERVER).stop(id, 0);
    pair.at(CLIENT).say(&Record::Final(id, FIRST_CREDIT + 1).encode());
    pair.assert_closed("the peer sent more than its credit");
}

#[test]
fn a_malformed_credit_record_closes_the_connection() {
    let mut pair = Pair::new();
    pair.at(CLIENT).say(&[0xff; 16]);
    pair.assert_closed("malformed credit record");
}

#[test]
fn a_final_size_of_a_stream_far_ahead_closes_the_connection() {
    let mut pair = Pair::new();
    let id = StreamId::new(Side::Client, Dir::Bi, 1 << 40);
    pair.at(CLIENT).say(&Record::Final(id, 0).encode());
    pair.assert_closed("the peer ended a stream that it was not allowed to open");
}

#[test]
fn streams_that_have_ended_are_forgotten_at_both_ends() {
    let mut pair = Pair::new();
    for number in 0..300_u64 {
        let id = pair.at(CLIENT).open().unwrap().unwrap();
        let mut bytes = Bytes::from_static(b"question");
        pair.at(CLIENT).write(id, &mut bytes).unwrap();
        match number % 3 {
            0 => pair.at(CLIENT).finish(id),
            1 => pair.at(CLIENT).reset(id, 5),
            _ => {}
        }
        pair.run(Duration::from_millis(1));
        assert_eq!(pair.at(SERVER).accept().unwrap(), Some(id));
        match number % 4 {
            0 => pair.at(SERVER).finish(id),
            1 => pair.at(SERVER).reset(id, 6),
            _ => {}
        }
        pair.run(Duration::from_millis(1));
        for side in [CLIENT, SERVER] {
            let mut chunks = Vec::new();
            while let Ok(Readable::Some) = pair.at(side).read(id, 100, &mut chunks) {}
            pair.at(side).stop(id, 7);
            pair.at(side).drop_sending(id);
        }
        pair.run(Duration::from_millis(3));
    }
    pair.run(Duration::from_millis(100));
    assert_eq!((pair.at(CLIENT).known_streams(), pair.at(SERVER).known_streams()), (0, 0));
}

/// An endpoint must keep a stream as long as the peer has not reported the stream's final size.
#[test]
fn a_stream_that_only_the_peer_keeps_is_counted_until_the_peer_ends_it() {
    let mut pair = Pair::new();
    let control = pair.at(SERVER).mute();
    let mut kept = Vec::new();
    for number in 0..200_u64 {
        let id = pair.at(CLIENT).open().unwrap().unwrap();
        pair.at(CLIENT).write(id, &mut Bytes::from_static(b"question")).unwrap();
        if number % 2 == 0 {
            pair.at(CLIENT).reset(id, 1);
        }
        pair.at(CLIENT).stop(id, 1);
        pair.at(CLIENT).drop_sending(id);
        pair.run(Duration::from_millis(2));
        assert_eq!(pair.at(SERVER).accept().unwrap(), Some(id));
        kept.push(id);
        let counted = pair.at(CLIENT).held();
        assert!(counted >= kept.len() as u64 * 1024, "{counted} bytes for {} streams", kept.len());
    }
    for id in kept {
        pair.at(SERVER).stop(id, 0);
        pair.at(SERVER).drop_sending(id);
    }
    pair.at(SERVER).unmute(control);
    pair.run(Duration::from_millis(100));
    assert_eq!((pair.at(CLIENT).held(), pair.at(SERVER).held()), (0, 0));
    assert_eq!((pair.at(CLIENT).known_streams(), pair.at(SERVER).known_streams()), (0, 0));
}

#[test]
fn an_idle_connection_asks_its_peer_after_each_silence_of_the_time_that_was_set() {
    let mut pair = Pair::new();
    let during = |pair: &mut Pair, silence, span| {
        pair.at(CLIENT).probe_after(silence);
        let before = pair.at(CLIENT).statistics();
        pair.run(span);
        let after = pair.at(CLIENT).statistics();
        let sent = after.packets_sent - before.packets_sent;
        (sent, after.packets_received - before.packets_received)
    };
    during(&mut pair, None, Duration::from_secs(1));
    // The keepalive interval is five seconds.
    assert_eq!(during(&mut pair, None, Duration::from_secs(2)), (0, 0));
    let (sent, received) =
        during(&mut pair, Some(Duration::from_millis(500)), Duration::from_secs(2));
    // The first PING is due at once. The peer acknowledges each PING.
    assert!((4..=5).contains(&sent) && received == sent, "{sent} sent, {received} received");
    pair.at(CLIENT).probe();
    assert_eq!(during(&mut pair, None, Duration::from_millis(100)), (1, 1));
}

#[test]
fn a_message_is_sent_while_bulk_waits_for_the_send_window() {
    let mut pair = Pair::new();
    let bulk = pair.fill_send_window();
    let id = pair.at(CLIENT).open().unwrap().unwrap();
    let mut message = Bytes::from_static(b"question");
    pair.at(CLIENT).write(id, &mut message).unwrap();
    assert!(message.is_empty(), "the message waits behind bulk");
    for _ in 0..100 {
        pair.run(Duration::from_micros(100));
        if pair.at(SERVER).unread_of(id) == 8 {
            break;
        }
    }
    let before: u64 = bulk.iter().map(|id| pair.at(SERVER).unread_of(*id)).sum();
    assert_eq!(pair.at(SERVER).unread_of(id), 8);
    assert!(before < FIRST_CREDIT / 2, "{before} bytes of bulk arrived before the message");
}

/// The reserve beyond the send window bounds the memory that messages may add.
#[test]
fn messages_exceed_the_send_window_by_a_bounded_number_of_bytes() {
    let mut pair = Pair::new();
    pair.at(SERVER).set_receive_window(16 * FIRST_CREDIT);
    pair.run(Duration::from_millis(10));
    let mut taken = 0;
    for _ in 0..20 {
        let id = pair.at(CLIENT).open().unwrap().unwrap();
        let mut bytes = Bytes::from(vec![7; 60_000]);
        pair.at(CLIENT).write(id, &mut bytes).unwrap();
        taken += 60_000 - bytes.len() as u64;
    }
    assert!(taken <= FIRST_CREDIT + RESERVE, "{taken} bytes are buffered");
    assert!(taken >= FIRST_CREDIT, "{taken} bytes are buffered");
}

#[test]
fn credit_is_sent_while_the_send_window_is_full() {
    let mut pair = Pair::new();
    pair.fill_send_window();
    pair.at(CLIENT).set_receive_window(16 * FIRST_CREDIT);
    assert!(pair.at(CLIENT).has_unsent_records());
    let (now, key) = (pair.now, pair.keys[CLIENT].unwrap());
    pair.ends[CLIENT].touch(now, key);
    assert!(pair.ends[CLIENT].poll_transmit(now, 1, &mut Vec::new()).is_some());
    assert!(!pair.at(CLIENT).has_unsent_records());
}
