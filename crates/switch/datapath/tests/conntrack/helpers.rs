//! Connections that a control connection announces.

use std::sync::Arc;

use datapath::conntrack::{Conntrack, Settings, ThreadTracker};
use datapath::{Packet, TrackCall, Tracked, Tracker};
use flow::Field;
use flow::action::Nat;
use flow::step::{Step, Track};
use port::Frame as PortFrame;
use units::Time;

use crate::frames::{ACK, End, Frame, SYN, Tcp, end, tcp, tcp_with, udp};
use crate::tracking::{commit, dnat, look, snat};

const FTP: u16 = 21;
const TFTP: u16 = 69;
const CLIENT: &str = "10.0.0.1:40000";
const SERVER: &str = "10.0.0.2:21";
const NEW: u16 = 0x21;
const ESTABLISHED: u16 = 0x22;
const REPLY: u16 = 0x2a;
const INVALID: u16 = 0x30;
const RELATED: u16 = 0x04;
const SNAT: u16 = 0x40;
const DNAT: u16 = 0x80;

struct Switch {
    table: Arc<Conntrack>,
    tracker: ThreadTracker,
}

impl Switch {
    fn new() -> Self {
        let table = Arc::new(Conntrack::new(&Settings::default()));
        Self { tracker: ThreadTracker::new(table.clone()), table }
    }

    /// Tracks a frame, and checks its key and checksums. Returns the frame after tracking, and its
    /// flags.
    fn track(&mut self, frame: &Frame, track: &Track) -> (Frame, u16) {
        let mut packet = Packet::arrived(1, PortFrame::from_bytes(&frame.bytes, Time::ZERO));
        let steps = [Step::Track(Box::new(track.clone()))];
        let call = TrackCall::first_of(&steps).expect("a Track");
        let hash = self.tracker.hash(&packet, track.zone);
        let now = Time::from_nanos(1_000_000_000);
        let outcome = self.tracker.track(&mut packet, &call, Some(hash), now);
        assert_eq!(outcome, Tracked::Continues);
        let flags = packet.key.read(Field::CtState) as u16;
        let mut seen = frame.clone();
        seen.bytes = packet.frame.bytes().to_vec();
        seen.parse();
        let mut complete = seen.clone();
        complete.complete();
        assert_eq!(complete.bytes, seen.bytes, "a checksum is wrong");
        seen.key = packet.key.clone();
        (seen, flags)
    }

    fn flags(&mut self, frame: &Frame, track: &Track) -> u16 {
        self.track(frame, track).1
    }

    /// Opens a control connection. `first` is the call for the connection's first packet. `shown`:
    /// the endpoints after translation.
    fn connect(&mut self, client: End, server: End, first: &Track, shown: [End; 2]) {
        let syn = tcp(client, server, Tcp::new(SYN, 100, 0));
        self.flags(&syn, first);
        let answer = tcp(shown[1], shown[0], Tcp::new(SYN | ACK, 500, 101));
        assert_eq!(self.flags(&answer, &look(first.zone)) & REPLY, REPLY);
        let ack = tcp(client, server, Tcp::new(ACK, 101, 501));
        assert_eq!(self.flags(&ack, &look(first.zone)) & ESTABLISHED, ESTABLISHED);
    }
}

fn helped(track: Track, alg: u16) -> Track {
    Track { alg, ..track }
}

fn says(from: End, to: End, numbers: (u32, u32), text: &str) -> Frame {
    tcp_with(from, to, Tcp::new(ACK, numbers.0, numbers.1), text.as_bytes())
}

fn data_of(frame: &Frame) -> String {
    String::from_utf8_lossy(&frame.bytes[frame.headers.transport + 20..]).into_owned()
}

fn numbers_of(frame: &Frame) -> (u32, u32) {
    let at = frame.headers.transport;
    let number = |at: usize| u32::from_be_bytes(frame.bytes[at..at + 4].try_into().expect("four"));
    (number(at + 4), number(at + 8))
}

#[test]
fn an_ftp_data_connection_is_related_to_its_control_connection() {
    let mut switch = Switch::new();
    let (client, server) = (end(CLIENT), end(SERVER));
    let first = Track { mark: Some((7, u32::MAX)), ..helped(commit(1), FTP) };
    switch.connect(client, server, &first, [client, server]);
    let data = end("10.0.0.2:20");
    let syn = |port: u16| tcp(data, (client.0, port), Tcp::new(SYN, 1, 0));
    assert_eq!(switch.flags(&syn(50000), &look(1)), NEW);
    let command = says(client, server, (101, 501), "PORT 10,0,0,1,195,80\r\n");
    assert_eq!(switch.flags(&command, &look(1)), ESTABLISHED);
    let (seen, flags) = switch.track(&syn(50000), &look(1));
    assert_eq!(flags, NEW | RELATED);
    assert_eq!(seen.key.read(Field::CtMark), 7);
    assert_eq!(seen.key.read(Field::CtTpSrc), 40000);
    // A connection to another port, or in another zone, is not related.
    assert_eq!(switch.flags(&syn(50001), &look(1)), NEW);
    assert_eq!(switch.flags(&syn(50000), &look(2)), NEW);
    let (seen, flags) = switch.track(&syn(50000), &commit(1));
    assert_eq!((flags, seen.key.read(Field::CtMark)), (NEW | RELATED, 7));
    let answer = tcp((client.0, 50000), data, Tcp::new(SYN | ACK, 9, 2));
    let (seen, flags) = switch.track(&answer, &look(1));
    assert_eq!(flags, REPLY | RELATED);
    assert_eq!((seen.key.read(Field::CtTpSrc), seen.key.read(Field::CtTpDst)), (40000, 21));
    // The flush of the parent also removes the expected connections.
    switch.table.flush(None);
    assert_eq!(switch.flags(&syn(50000), &look(1)), NEW);
}

#[test]
fn a_connection_without_a_helper_expects_no_connection() {
    let mut switch = Switch::new();
    let (client, server) = (end(CLIENT), end(SERVER));
    switch.connect(client, server, &commit(1), [client, server]);
    let command = says(client, server, (101, 501), "PORT 10,0,0,1,195,80\r\n");
    assert_eq!(switch.flags(&command, &look(1)), ESTABLISHED);
    let syn = tcp(end("10.0.0.2:20"), (client.0, 50000), Tcp::new(SYN, 1, 0));
    assert_eq!(switch.flags(&syn, &look(1)), NEW);
}

#[test]
fn a_server_may_announce_its_own_port_but_not_a_third_host() {
    let mut switch = Switch::new();
    let (client, server) = (end("[fd00::1]:40000"), end("[fd00::2]:21"));
    switch.connect(client, server, &helped(commit(1), FTP), [client, server]);
    let text = "229 Entering Extended Passive Mode (|||50000|)\r\n";
    assert_eq!(switch.flags(&says(server, client, (501, 101), text), &look(1)), REPLY);
    let syn = tcp((client.0, 40001), (server.0, 50000), Tcp::new(SYN, 1, 0));
    assert_eq!(switch.flags(&syn, &commit(1)), NEW | RELATED);
    let bounce = says(client, server, (101, 550), "EPRT |2|fd00::9|50000|\r\n");
    assert_eq!(switch.flags(&bounce, &look(1)) & INVALID, INVALID);
}

#[test]
fn an_ftp_command_of_a_translated_client_carries_its_new_address() {
    let mut switch = Switch::new();
    let (client, server, outside) = (end(CLIENT), end(SERVER), end("10.0.0.240:40000"));
    let first = helped(snat(1, "10.0.0.240", None), FTP);
    switch.connect(client, server, &first, [outside, server]);
    let text = "PORT 10,0,0,1,195,80\r\n";
    let command = says(client, server, (101, 501), text);
    // The second packet is a retransmission.
    for _ in 0..2 {
        let (seen, flags) = switch.track(&command, &look(1));
        assert_eq!(flags, ESTABLISHED | SNAT);
        assert_eq!(data_of(&seen), "PORT 10,0,0,240,195,80\r\n");
        assert_eq!(numbers_of(&seen), (101, 501));
    }
    // The tracker corrects the server's acknowledgements and the client's later data by the length
    // that the text gained.
    let length = text.len() as u32;
    let answer = says(server, outside, (501, 101 + length + 2), "200 OK\r\n");
    let (seen, _) = switch.track(&answer, &look(1));
    assert_eq!(numbers_of(&seen), (501, 101 + length));
    let (seen, flags) =
        switch.track(&says(client, server, (101 + length, 509), "LIST\r\n"), &look(1));
    assert_eq!((numbers_of(&seen), flags), ((101 + length + 2, 509), ESTABLISHED | SNAT));
    // The server connects to the translated address, and the connection reaches the client.
    let data = end("10.0.0.2:20");
    let syn = tcp(data, (outside.0, 50000), Tcp::new(SYN, 1, 0));
    let call = Track { nat: Some(Nat::default()), ..commit(1) };
    let (seen, flags) = switch.track(&syn, &call);
    assert_eq!(flags, NEW | RELATED | DNAT);
    assert_eq!(seen.destination(), client.0);
    let answer = tcp((client.0, 50000), data, Tcp::new(SYN | ACK, 9, 2));
    let (seen, flags) = switch.track(&answer, &look(1));
    assert_eq!((seen.source(), flags), (outside.0, REPLY | RELATED | SNAT));
}

#[test]
fn a_translated_server_announces_the_address_that_the_client_knows() {
    let mut switch = Switch::new();
    let (client, shown, server) = (end(CLIENT), end("10.0.0.64:21"), end(SERVER));
    let first = helped(dnat(1, "10.0.0.2", None), FTP);
    switch.connect(client, shown, &first, [client, server]);
    let text = "227 Entering Passive Mode (10,0,0,2,195,80).\r\n";
    let (seen, _) = switch.track(&says(server, client, (501, 101), text), &look(1));
    assert_eq!(data_of(&seen), "227 Entering Passive Mode (10,0,0,64,195,80).\r\n");
    let length = text.len() as u32;
    let ack = says(client, shown, (101, 501 + length + 1), "LIST\r\n");
    let (seen, _) = switch.track(&ack, &look(1));
    assert_eq!(numbers_of(&seen), (101, 501 + length));
    let syn = tcp((client.0, 40001), (shown.0, 50000), Tcp::new(SYN, 1, 0));
    let call = Track { nat: Some(Nat::default()), ..commit(1) };
    let (seen, flags) = switch.track(&syn, &call);
    assert_eq!((seen.destination(), flags), (server.0, NEW | RELATED | DNAT));
}

#[test]
fn a_tftp_reply_from_another_port_is_related() {
    let mut switch = Switch::new();
    let (client, server) = (end("10.0.0.1:3000"), end("10.0.0.2:69"));
    assert_eq!(switch.flags(&udp(client, server), &helped(commit(1), TFTP)), NEW);
    let answer = udp((server.0, 5000), client);
    assert_eq!(switch.flags(&answer, &look(1)), NEW | RELATED);
    assert_eq!(switch.flags(&udp((server.0, 5000), (client.0, 3001)), &look(1)), NEW);
}

#[test]
fn the_expected_connections_of_one_control_connection_are_bounded() {
    let mut switch = Switch::new();
    let (client, server) = (end(CLIENT), end(SERVER));
    switch.connect(client, server, &helped(commit(1), FTP), [client, server]);
    let mut sequence = 101;
    for port in 1..=40 {
        let text = format!("PORT 10,0,0,1,100,{port}\r\n");
        let command = says(client, server, (sequence, 501), &text);
        assert_eq!(switch.flags(&command, &look(1)), ESTABLISHED);
        sequence += text.len() as u32;
    }
    let related = (1..=40).filter(|port| {
        let to = (client.0, 25600 + port);
        let syn = tcp(end("10.0.0.2:20"), to, Tcp::new(SYN, 1, 0));
        switch.flags(&syn, &look(1)) == NEW | RELATED
    });
    assert_eq!(related.count(), 16);
}
