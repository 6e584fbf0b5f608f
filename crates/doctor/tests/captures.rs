//! Turns captures of packets into the facts that the rules judge. The captures are synthetic: a
//! sender whose windows, losses and pauses are known, captured at the sender or at the receiver.
#![allow(clippy::unwrap_used)]

use doctor::observe::Focus;
use doctor::{Diagnosis, Question, Recording, capture, diagnose, output};
use proptest::prelude::*;
use std::collections::BTreeSet;
use wire::pcap::{file_header, record_header_cut};

/// The capture point on a path with a round trip of 20 ms.
#[derive(Debug, Clone, Copy)]
enum Side {
    Sender,
    Receiver,
}

/// Packets with the times at which they pass the capture.
struct Trace {
    packets: Vec<(u64, Vec<u8>, u32)>,
    side: Side,
    with_stamps: bool,
}

const ONE_WAY: u64 = 10_000_000;
const MSS: u64 = 1448;
const MS: u64 = 1_000_000;
const CLIENT: ([u8; 4], u16) = ([10, 0, 0, 1], 40_000);
const SERVER: ([u8; 4], u16) = ([10, 0, 0, 2], 5201);
/// A window of which 45 segments leave less than a segment.
const FILLED: u64 = 45 * MSS + 128;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// The fields of a segment of the client or of the server.
#[derive(Debug, Clone, Copy, Default)]
struct Packet {
    is_answer: bool,
    sequence: u32,
    acknowledgement: u32,
    flags: u8,
    window: u16,
    payload: u32,
    echo: u32,
    sack: Option<(u32, u32)>,
}

impl Trace {
    fn new(side: Side) -> Self {
        Self { packets: Vec::new(), side, with_stamps: true }
    }

    /// Adds a segment that its sender sends at `at`.
    fn send(&mut self, at: u64, packet: Packet) {
        let (far, near) = match self.side {
            Side::Sender => (ONE_WAY, 0),
            Side::Receiver => (0, ONE_WAY),
        };
        let passes = at + if packet.is_answer { far } else { near };
        let (bytes, length) = self.bytes(at, packet);
        self.packets.push((passes, bytes, length));
    }

    fn bytes(&self, at: u64, packet: Packet) -> (Vec<u8>, u32) {
        let mut options = Vec::new();
        if packet.flags & SYN != 0 {
            options.extend([2, 4, 5, 180, 4, 2, 3, 3, 7, 1]);
        }
        if self.with_stamps {
            options.extend([8, 10]);
            options.extend(((at / MS) as u32).to_be_bytes());
            options.extend(packet.echo.to_be_bytes());
        }
        if let Some((left, right)) = packet.sack {
            options.extend([5, 10]);
            options.extend(left.to_be_bytes());
            options.extend(right.to_be_bytes());
        }
        options.resize(options.len().next_multiple_of(4), 0);
        let (from, to) = if packet.is_answer { (SERVER, CLIENT) } else { (CLIENT, SERVER) };
        let length = 40 + options.len() as u32 + packet.payload;
        let mut bytes = vec![0x45, 0];
        bytes.extend((length as u16).to_be_bytes());
        bytes.extend([0, 0, 0, 0, 64, 6, 0, 0]);
        bytes.extend(from.0);
        bytes.extend(to.0);
        bytes.extend(from.1.to_be_bytes());
        bytes.extend(to.1.to_be_bytes());
        bytes.extend(packet.sequence.to_be_bytes());
        bytes.extend(packet.acknowledgement.to_be_bytes());
        bytes.extend([((20 + options.len()) / 4 * 16) as u8, packet.flags]);
        bytes.extend(packet.window.to_be_bytes());
        bytes.extend([0; 4]);
        bytes.extend(options);
        (bytes, length)
    }

    fn handshake(&mut self) {
        let syn = Packet { sequence: 999, flags: SYN, window: 64_000, ..Packet::default() };
        self.send(0, syn);
        let answer = Packet { is_answer: true, sequence: 4999, acknowledgement: 1000, ..syn };
        self.send(ONE_WAY, Packet { flags: SYN | ACK, ..answer });
        let ack = Packet { sequence: 1000, acknowledgement: 5000, flags: ACK, ..syn };
        self.send(2 * ONE_WAY, ack);
    }

    /// Adds data of the client at `at`; `position` is in bytes.
    fn data(&mut self, at: u64, position: u64, length: u64) {
        let echo = (at.saturating_sub(ONE_WAY) / MS) as u32;
        let sequence = 1000 + position as u32;
        let packet = Packet {
            sequence,
            acknowledgement: 5000,
            flags: ACK,
            window: 64_000,
            ..Packet::default()
        };
        self.send(at, Packet { payload: length as u32, echo, ..packet });
    }

    /// Adds an acknowledgement of the server up to `position`, with this window.
    fn ack(&mut self, at: u64, position: u64, window: u64, sack: Option<(u64, u64)>) {
        let sack = sack.map(|(left, right)| (1000 + left as u32, 1000 + right as u32));
        let packet = Packet { is_answer: true, sequence: 5000, flags: ACK, ..Packet::default() };
        let acknowledgement = 1000 + position as u32;
        self.send(at, Packet { acknowledgement, window: (window >> 7) as u16, sack, ..packet });
    }

    /// Adds a segment that waits in the queue of the path and arrives at `arrives`.
    fn queued(&mut self, arrives: u64, waits: u64, position: u64) {
        self.data(arrives - ONE_WAY - waits, position, MSS);
        if let (Side::Receiver, Some((passes, ..))) = (self.side, self.packets.last_mut()) {
            *passes += waits;
        }
    }

    /// Writes a pcap file with this link type, and `head` in front of each packet.
    fn file(&self, link: u32, head: &[u8]) -> Vec<u8> {
        let mut sorted = Self { packets: self.packets.clone(), ..*self };
        sorted.packets.sort_by_key(|(at, ..)| *at);
        sorted.unsorted_file(link, head)
    }

    fn unsorted_file(&self, link: u32, head: &[u8]) -> Vec<u8> {
        let mut file = file_header(65_535).to_vec();
        file[20..24].copy_from_slice(&link.to_le_bytes());
        for (at, bytes, length) in &self.packets {
            let (kept, length) = ((head.len() + bytes.len()) as u32, head.len() as u32 + length);
            file.extend(record_header_cut(1_700_000_000_000_000_000 + at, kept, length));
            file.extend(head);
            file.extend(bytes);
        }
        file
    }

    fn judged(&self) -> Diagnosis {
        diagnosis(&read(&self.file(101, &[])))
    }
}

fn read(file: &[u8]) -> Recording {
    capture::parse(file, &Focus::All).unwrap()
}

fn diagnosis(recording: &Recording) -> Diagnosis {
    let diagnosis = diagnose(recording, Question::of(recording));
    let page = output::text(&diagnosis, 80, false);
    assert!(page.lines().count() <= 12, "{page}");
    diagnosis
}

fn window_limited(side: Side) -> Trace {
    bursts(side, 45 * MSS)
}

/// Captures a sender of 45 segments per round trip, for three seconds; `offered`: the receiver's
/// window.
fn bursts(side: Side, offered: u64) -> Trace {
    let mut trace = Trace::new(side);
    trace.handshake();
    let window = 45 * MSS;
    for round in 0..140_u64 {
        let begin = (round + 1) * 2 * ONE_WAY;
        for segment in 0..45 {
            let at = begin + segment * 100_000;
            let position = round * window + segment * MSS;
            trace.data(at, position, MSS);
            trace.ack(at + ONE_WAY, position + MSS, offered, None);
        }
    }
    trace
}

#[test]
fn a_full_receive_window_is_diagnosed_at_either_capture_point() {
    for side in [Side::Sender, Side::Receiver] {
        let diagnosis = window_limited(side).judged();
        assert_eq!(diagnosis.verdict.cause, Some("receiver-window"), "{side:?}: {diagnosis:#?}");
        let flow = &diagnosis.periods[0].flows[0];
        let rtt = flow.rtt.unwrap().secs_f64();
        assert!((0.019..0.023).contains(&rtt), "{side:?}: {rtt}");
        assert!((23e6..28e6).contains(&(flow.rate.bits_per_second() as f64)), "{:?}", flow.rate);
        let page = output::text(&diagnosis, 80, false);
        assert!(
            page.contains("(on 10.0.0.2)") && page.contains("10.0.0.1:40000 → 10.0.0.2:5201"),
            "{page}"
        );
    }
}

/// The capture begins within the connection, so that the scale of the windows is not stated.
#[test]
fn a_full_receive_window_is_diagnosed_without_the_handshake() {
    for side in [Side::Sender, Side::Receiver] {
        let mut trace = bursts(side, FILLED);
        trace.packets.drain(..3);
        let recording = read(&trace.file(101, &[]));
        let last = recording.periods[0].samples.last().unwrap();
        assert_eq!(last.connections[0].tcp.peer_window.unwrap().count(), 65_280, "{side:?}");
        let verdict = diagnosis(&recording).verdict;
        assert_eq!(verdict.cause, Some("receiver-window"), "{side:?}: {verdict:?}");
    }
}

/// The snap length keeps 44 bytes: the option of the scale is cut off, and is not absent.
#[test]
fn options_that_the_capture_cut_off_are_unknown() {
    let mut trace = bursts(Side::Sender, FILLED);
    for (_, bytes, _) in &mut trace.packets[..2] {
        bytes.truncate(44);
    }
    let recording = read(&trace.file(101, &[]));
    let last = recording.periods[0].samples.last().unwrap();
    assert_eq!(last.connections[0].tcp.window_scaling, None);
    let verdict = diagnosis(&recording).verdict;
    assert_eq!(verdict.cause, Some("receiver-window"), "{verdict:?}");
}

/// The capture keeps whole headers, and not the padding of short frames.
#[test]
fn options_that_a_whole_header_lacks_are_absent() {
    let mut trace = bursts(Side::Sender, FILLED);
    for (_, bytes, length) in &mut trace.packets[..2] {
        // Replaces the option of the scale by padding within the header.
        bytes[46..49].fill(1);
        *length += 6;
    }
    let recording = read(&trace.file(101, &[]));
    let last = recording.periods[0].samples.last().unwrap();
    assert_eq!(last.connections[0].tcp.window_scaling, Some(false));
}

/// A sender that fills half of its windows: no scale follows, and no window limits it.
#[test]
fn no_scale_follows_from_windows_that_the_data_does_not_fill() {
    let (mut trace, mut position) = (Trace::new(Side::Sender), 0);
    for round in 0..140_u64 {
        for segment in 0..20 + round % 5 {
            let at = (round + 1) * 2 * ONE_WAY + segment * 100_000;
            trace.data(at, position, MSS);
            position += MSS;
            trace.ack(at + ONE_WAY, position, FILLED, None);
        }
    }
    let recording = read(&trace.file(101, &[]));
    let last = recording.periods[0].samples.last().unwrap();
    assert_eq!(last.connections[0].tcp.peer_window, None);
}

/// A scale that makes the window about as large as one small message says nothing.
#[test]
fn no_scale_follows_from_single_messages() {
    let mut trace = Trace::new(Side::Sender);
    for round in 0..140_u64 {
        let at = (round + 1) * 2 * ONE_WAY;
        trace.data(at, round * 200, 200);
        trace.ack(at + ONE_WAY, round * 200 + 200, FILLED, None);
    }
    let recording = read(&trace.file(101, &[]));
    let last = recording.periods[0].samples.last().unwrap();
    assert_eq!(last.connections[0].tcp.peer_window, None);
}

#[test]
fn every_link_type_gives_the_same_facts() {
    let trace = window_limited(Side::Sender);
    let raw = read(&trace.file(101, &[]));
    let ethernet = [&[0; 12][..], &[8, 0]].concat();
    let tagged = [&[0; 12][..], &[0x81, 0, 0, 9, 8, 0]].concat();
    let cooked = [&[0; 14][..], &[8, 0]].concat();
    let cooked2 = [&[8, 0][..], &[0; 18]].concat();
    for (link, head) in
        [(1, ethernet), (1, tagged), (113, cooked), (276, cooked2), (0, vec![2, 0, 0, 0])]
    {
        assert_eq!(read(&trace.file(link, &head)), raw, "{link}");
    }
}

/// Captures a sender of 30 segments in every second round trip. The path loses the fifth segment,
/// and the sender repeats it a round trip later.
fn lossy(side: Side) -> Trace {
    let mut trace = Trace::new(side);
    trace.handshake();
    let mut position = 0;
    for round in 0..70_u64 {
        let begin = (2 * round + 1) * 2 * ONE_WAY;
        let first = position;
        for segment in 0..30 {
            let at = begin + segment * 100_000;
            let is_lost = segment == 5;
            match (is_lost, side) {
                // The receiver's side never sees the segment.
                (true, Side::Receiver) => {}
                _ => trace.data(at, position, MSS),
            }
            position += MSS;
            match segment {
                0..5 => trace.ack(at + ONE_WAY, position, 900_000, None),
                5 => {}
                _ => trace.ack(
                    at + ONE_WAY,
                    first + 5 * MSS,
                    900_000,
                    Some((first + 6 * MSS, position)),
                ),
            }
        }
        let again = begin + 2 * ONE_WAY + MS;
        trace.data(again, first + 5 * MSS, MSS);
        trace.ack(again + ONE_WAY, position, 900_000, None);
    }
    trace
}

#[test]
fn a_lost_segment_is_counted_at_either_capture_point() {
    for side in [Side::Sender, Side::Receiver] {
        let trace = lossy(side);
        let recording = read(&trace.file(101, &[]));
        let last = recording.periods[0].samples.last().unwrap();
        let tcp = &last.connections[0].tcp;
        assert_eq!(tcp.retransmitted, Some(70), "{side:?}");
        assert_eq!((tcp.spurious, tcp.reordered), (Some(0), Some(0)), "{side:?}");
        let diagnosis = diagnosis(&recording);
        assert_eq!(diagnosis.verdict.cause, Some("loss"), "{side:?}: {diagnosis:#?}");
    }
}

impl Trace {
    /// Removes the handshake, as a capture does that begins later.
    fn without_handshake(mut self) -> Self {
        self.packets.drain(..3);
        self
    }

    /// Removes the packets that pass before `begin`.
    fn beginning_at(mut self, begin: u64) -> Self {
        self.packets.retain(|(passes, ..)| *passes >= begin);
        self
    }
}

/// The capture begins among the segments of a round trip of which one segment was lost.
#[test]
fn reports_about_data_from_before_the_capture_are_no_repeated_data() {
    for (side, begin) in [(Side::Sender, 422 * MS), (Side::Receiver, 432 * MS)] {
        let recording = read(&lossy(side).beginning_at(begin).file(101, &[]));
        let last = recording.periods[0].samples.last().unwrap();
        let tcp = &last.connections[0].tcp;
        assert_eq!((tcp.retransmitted, tcp.spurious), (Some(60), Some(0)), "{side:?}");
        let verdict = diagnosis(&recording).verdict;
        assert_eq!(verdict.cause, Some("loss"), "{side:?}: {verdict:?}");
    }
}

/// Captures a full link on which each twentieth segment is 8 ms late. The sender waits for late
/// segments.
fn reordered(side: Side) -> Trace {
    let mut trace = Trace::new(side);
    let late = |number: u64| if number % 20 == 5 { 8 * MS } else { 0 };
    let arrives = |number: u64| 100 * MS + number * 600_000 + late(number);
    let mut order: Vec<u64> = (0..5_000).collect();
    order.sort_by_key(|number| arrives(*number));
    let (mut missing, mut next) = (BTreeSet::new(), 0);
    for number in order {
        let waits = 12 * MS + number * 8_000;
        trace.queued(arrives(number), waits + late(number), number * MSS);
        missing.extend(next..number);
        missing.remove(&number);
        next = next.max(number + 1);
        let first = missing.first().copied().unwrap_or(next);
        let sack = missing.last().map(|last| ((last + 1) * MSS, next * MSS));
        trace.ack(arrives(number), first * MSS, 3_000_000, sack);
    }
    trace
}

/// A segment from before the capture arrives after the first segment of the capture.
#[test]
fn late_segments_at_the_begin_of_a_capture_are_no_retransmissions() {
    for side in [Side::Sender, Side::Receiver] {
        let recording = read(&reordered(side).beginning_at(600 * MS).file(101, &[]));
        let last = recording.periods[0].samples.last().unwrap();
        let tcp = &last.connections[0].tcp;
        assert_eq!(tcp.retransmitted, Some(0), "{side:?}");
        assert!(tcp.reordered > Some(100), "{side:?}: {:?}", tcp.reordered);
        let verdict = diagnosis(&recording).verdict;
        assert_eq!(verdict.cause, Some("path"), "{side:?}: {verdict:?}");
    }
}

/// Captures a sender that fills windows of ten to twelve segments to the last byte: the receiver's
/// program reads slowly.
fn slow_reader(side: Side) -> Trace {
    let (mut trace, mut position) = (Trace::new(side), 0);
    trace.handshake();
    let windows = [17_408, 15_360, 18_432, 16_384];
    for round in 0..140 {
        let (window, next) = (windows[round % 4], windows[(round + 1) % 4]);
        let begin = 2 * ONE_WAY + round as u64 * 22 * MS;
        let lengths = (0..window).step_by(MSS as usize).map(|at| MSS.min(window - at));
        for (number, length) in lengths.enumerate() {
            trace.data(begin + number as u64 * 100_000, position, length);
            position += length;
        }
        trace.ack(begin + ONE_WAY + 2 * MS, position, next, None);
    }
    trace
}

#[test]
fn a_slow_reader_is_diagnosed_without_the_handshake() {
    for side in [Side::Sender, Side::Receiver] {
        let recording = read(&slow_reader(side).without_handshake().file(101, &[]));
        let last = recording.periods[0].samples.last().unwrap();
        assert!(last.connections[0].tcp.peer_window.is_some(), "{side:?}");
        let verdict = diagnosis(&recording).verdict;
        assert_eq!(verdict.cause, Some("slow-reader"), "{side:?}: {verdict:?}");
    }
}

/// The program sends messages of 16 KiB, and the window stays at 64 KiB. At one scale the window
/// would be as large as a message.
#[test]
fn no_scale_follows_from_messages_as_large_as_a_window() {
    let mut trace = Trace::new(Side::Receiver);
    for round in 0..140_u64 {
        let at = (round + 1) * 2 * ONE_WAY;
        trace.data(at, round * 16_384, 16_384);
        trace.ack(at + ONE_WAY, (round + 1) * 16_384, 65_536, None);
    }
    let recording = read(&trace.file(101, &[]));
    let last = recording.periods[0].samples.last().unwrap();
    assert_eq!(last.connections[0].tcp.peer_window, None);
}

/// Captures a full link from within a connection: a segment arrives each 0.6 ms. The queue grows by
/// 20 ms in each second, in which the queue drops a segment.
fn full_link(side: Side) -> Trace {
    let (mut trace, mut lost) = (Trace::new(side), None);
    for number in 0..5_000_u64 {
        let arrives = 100 * MS + number * 600_000;
        let waits = 12 * MS + number % 1_667 * 12_000;
        let until = (number + 1) * MSS;
        if number % 1_667 == 1_400 {
            lost = Some(number);
            continue;
        }
        trace.queued(arrives, waits, number * MSS);
        match lost {
            Some(gap) if number == gap + 90 => {
                trace.queued(arrives + 300_000, waits, gap * MSS);
                trace.ack(arrives + 300_000, until, 3_000_000, None);
                lost = None;
            }
            Some(gap) => {
                let sack = Some(((gap + 1) * MSS, until));
                trace.ack(arrives, gap * MSS, 3_000_000, sack);
            }
            None => trace.ack(arrives, until, 3_000_000, None),
        }
    }
    trace
}

#[test]
fn a_full_link_is_diagnosed_without_the_handshake_in_spite_of_its_drops() {
    for side in [Side::Sender, Side::Receiver] {
        let verdict = full_link(side).judged().verdict;
        assert_eq!(verdict.cause, Some("path"), "{side:?}: {verdict:?}");
    }
}

/// The receiver reads slowly, and reports its window again and again.
#[test]
fn acknowledged_data_is_not_in_flight_while_further_packets_leave_the_receiver() {
    let mut trace = Trace::new(Side::Receiver);
    trace.handshake();
    for place in 0..20_u64 {
        trace.data(40 * MS, place * MSS, MSS);
    }
    for place in 0..200_u64 {
        trace.ack(51 * MS + place * 5 * MS, 20 * MSS, 900_000, None);
    }
    let recording = read(&trace.file(101, &[]));
    let last = recording.periods[0].samples.last().unwrap();
    assert_eq!(last.connections[0].tcp.unacked, Some(0));
}

#[test]
fn a_capture_at_the_receiver_without_the_handshake_shows_the_round_trip() {
    let recording = read(&window_limited(Side::Receiver).without_handshake().file(101, &[]));
    let last = recording.periods[0].samples.last().unwrap();
    let tcp = &last.connections[0].tcp;
    let (rtt, least) = (tcp.rtt.unwrap().secs_f64(), tcp.min_rtt.unwrap().secs_f64());
    assert!((0.019..0.023).contains(&rtt) && (0.019..0.021).contains(&least), "{rtt} {least}");
}

/// The sender's kernel passes super-packets of ten segments to its interface.
#[test]
fn super_packets_without_the_handshake_are_whole_segments() {
    let mut trace = Trace::new(Side::Sender);
    trace.handshake();
    for place in 0..600_u64 {
        let at = 2 * ONE_WAY + place * 5 * MS;
        trace.data(at, place * 10 * MSS, 10 * MSS);
        trace.ack(at + ONE_WAY, (place + 1) * 10 * MSS, 900_000, None);
    }
    let recording = read(&trace.without_handshake().file(101, &[]));
    for sample in &recording.periods[0].samples[1..] {
        let tcp = &sample.connections[0].tcp;
        assert_eq!(tcp.mss.map(|mss| mss.count()), Some(MSS));
        assert_eq!(tcp.application_limited, Some(false));
    }
}

/// The clock of the capture is set back by 10 s after half of the packets.
#[test]
fn times_of_a_capture_continue_if_the_clock_was_set_back() {
    let mut trace = window_limited(Side::Sender);
    trace.packets.sort_by_key(|(at, ..)| *at);
    let half = trace.packets.len() / 2;
    for (at, ..) in &mut trace.packets[..half] {
        *at += 10_000 * MS;
    }
    let diagnosis = diagnosis(&read(&trace.unsorted_file(101, &[])));
    assert_eq!(diagnosis.verdict.cause, Some("receiver-window"), "{diagnosis:#?}");
    let flow = &diagnosis.periods[0].flows[0];
    let rtt = flow.rtt.unwrap().secs_f64();
    assert!((0.019..0.023).contains(&rtt), "{rtt}");
    assert!((23e6..28e6).contains(&(flow.rate.bits_per_second() as f64)), "{:?}", flow.rate);
}

#[test]
fn unanswered_and_refused_handshakes_are_told_apart() {
    let syn = Packet { sequence: 999, flags: SYN, window: 64_000, ..Packet::default() };
    let mut silent = Trace::new(Side::Sender);
    for at in [0, 1000, 3000, 7000] {
        silent.send(at * MS, syn);
    }
    assert_eq!(silent.judged().verdict.cause, Some("no-answer"));
    let mut refused = Trace::new(Side::Sender);
    refused.send(0, syn);
    let reset =
        Packet { is_answer: true, acknowledgement: 1000, flags: RST | ACK, ..Packet::default() };
    refused.send(ONE_WAY, reset);
    let diagnosis = refused.judged();
    assert_eq!(diagnosis.verdict.cause, Some("refused"), "{diagnosis:#?}");
}

#[test]
fn a_capture_of_one_direction_names_the_other_direction_as_unseen() {
    let mut trace = window_limited(Side::Sender);
    // The addresses begin at the twelfth byte.
    trace.packets.retain(|(_, bytes, _)| bytes[12..16] == CLIENT.0);
    let recording = read(&trace.file(101, &[]));
    assert!(recording.unseen.iter().any(|one| one.what == "the other direction"), "{recording:?}");
    let verdict = diagnosis(&recording).verdict;
    assert!(verdict.cause.is_none(), "{verdict:?}");
    let mut answers = window_limited(Side::Sender);
    answers.packets.retain(|(_, bytes, _)| bytes[12..16] == SERVER.0);
    let recording = read(&answers.file(101, &[]));
    assert!(recording.unseen.iter().any(|one| one.what == "the other direction"));
    diagnosis(&recording);
}

#[test]
fn a_capture_without_segments_or_without_the_asked_connection_is_an_error() {
    let empty = file_header(65_535);
    let error = capture::parse(&empty, &Focus::All).unwrap_err().to_string();
    assert!(error.contains("none of the 0 packets"), "{error}");
    let file = window_limited(Side::Sender).file(101, &[]);
    let focus = |text: &str| Focus::parse(text).unwrap();
    let error = capture::parse(&file, &focus("port:9")).unwrap_err().to_string();
    assert!(error.contains("port 9 in this capture"), "{error}");
    let error = capture::parse(&file, &focus("pid:9")).unwrap_err().to_string();
    assert!(error.contains("knows no processes"), "{error}");
    assert!(capture::parse(&file, &focus("port:5201")).is_ok());
}

#[test]
fn the_busiest_of_a_hundred_thousand_connections_is_judged() {
    let mut trace = window_limited(Side::Sender);
    let (syn, length) = trace.bytes(0, Packet { flags: SYN, ..Packet::default() });
    for number in 0..100_000_u32 {
        let mut bytes = syn.clone();
        bytes[12..16].copy_from_slice(&(0x0b00_0000 + number).to_be_bytes());
        trace.packets.push((u64::from(number) * 20_000, bytes, length));
    }
    let recording = read(&trace.file(101, &[]));
    let most = recording.periods[0].samples.iter().map(|sample| sample.connections.len()).max();
    assert!(most.unwrap() <= 32, "{most:?}");
    let diagnosis = diagnosis(&recording);
    let causes = &diagnosis.verdict.causes;
    assert!(causes.contains(&"receiver-window"), "{causes:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any byte may be wrong, and the file may end anywhere.
    #[test]
    fn damaged_captures_are_judged_or_refused(
        edits in prop::collection::vec((0usize..24_000, any::<u8>()), 0..40),
        cut in 0usize..24_000,
        receiver in any::<bool>(),
    ) {
        let side = if receiver { Side::Receiver } else { Side::Sender };
        let mut file = lossy(side).file(101, &[]);
        file.truncate(24_000);
        for (at, value) in edits {
            file[at] = value;
        }
        file.truncate(cut.max(23_000 * usize::from(cut % 2 == 0)));
        if let Ok(recording) = capture::parse(&file, &Focus::All) {
            prop_assert!(recording.periods[0].samples.len() <= 250);
            diagnosis(&recording);
        }
    }
}
