//! Packets that the datapath parses and a thread's tracker tracks.

use std::sync::Arc;

use datapath::conntrack::{Conntrack, Settings, ThreadTracker};
use datapath::{Packet, TrackCall, Tracked, Tracker, extract};
use flow::step::{Step, Track};
use flow::{Field, word};
use port::Frame as PortFrame;
use units::Time;

use crate::frames::{ACK, Frame, SYN, Tcp, echo, end, sctp, tcp, udp, unreachable};
use crate::tracking::{commit, look, snat, v4};

struct Switch {
    table: Arc<Conntrack>,
    tracker: ThreadTracker,
}

impl Switch {
    fn new(verify_checksums: bool) -> Self {
        let table = Arc::new(Conntrack::new(&Settings { verify_checksums, ..Settings::default() }));
        Self { tracker: ThreadTracker::new(table.clone()), table }
    }

    /// Tracks a packet, and returns it with its flags.
    fn track(&mut self, bytes: &[u8], track: &Track) -> (Packet, u16) {
        let now = Time::from_nanos(1_000_000_000);
        let mut packet = Packet::arrived(1, PortFrame::from_bytes(bytes, Time::ZERO));
        let steps = [Step::Track(Box::new(track.clone()))];
        let call = TrackCall::first_of(&steps).expect("a Track");
        let hash = self.tracker.hash(&packet, track.zone);
        self.tracker.prefetch(&[hash], &mut [0]);
        let outcome = self.tracker.track(&mut packet, &call, Some(hash), now);
        let flags = packet.key.read(Field::CtState) as u16;
        if outcome == Tracked::Continues {
            // The key agrees with the changed bytes.
            let fresh = extract(1, packet.frame.bytes());
            assert_eq!(fresh.words[word::ETH_SRC..], packet.key.words[word::ETH_SRC..]);
        }
        (packet, flags)
    }
}

fn tagged(frame: &Frame) -> Vec<u8> {
    let mut bytes = frame.bytes.clone();
    bytes.splice(12..12, [0x81, 0, 0, 5]);
    bytes
}

/// Builds an IPv6 packet with an extension header of this protocol number before its transport
/// header.
fn extended(frame: &Frame, protocol: u8, header: &[u8; 8]) -> Vec<u8> {
    let mut bytes = frame.bytes.clone();
    let mut header = *header;
    header[0] = bytes[20];
    bytes[20] = protocol;
    let length = u16::from_be_bytes([bytes[18], bytes[19]]) + 8;
    bytes[18..20].copy_from_slice(&length.to_be_bytes());
    bytes.splice(54..54, header);
    bytes
}

#[test]
fn a_vlan_tag_and_padding_are_no_part_of_a_connection() {
    let mut switch = Switch::new(true);
    let (client, server) = (end("10.0.0.1:1000"), end("10.0.0.2:80"));
    let out = udp(client, server);
    assert_eq!(switch.track(&tagged(&out), &snat(0, "192.0.2.1", None)).1, 0x61);
    let mut back = udp(server, end("192.0.2.1:1000"));
    back.bytes.extend_from_slice(&[0xaa; 14]);
    let (packet, flags) = switch.track(&back.bytes, &look(0));
    assert_eq!(flags, 0xaa);
    assert_eq!(packet.key.read(Field::IpDst), 0x0a00_0001);
    assert_eq!(packet.frame.bytes()[..46], udp(server, client).bytes[..46]);
}

#[test]
fn the_tracker_finds_a_transport_header_behind_extension_headers() {
    let mut switch = Switch::new(true);
    let (client, server) = (end("[fd00::1]:1000"), end("[fd00::2]:80"));
    let options = [0, 0, 1, 4, 0, 0, 0, 0];
    let request = extended(&tcp(client, server, Tcp::new(SYN, 1, 0)), 60, &options);
    assert_eq!(switch.track(&request, &commit(0)).1, 0x21);
    let answer = tcp(server, client, Tcp::new(SYN | ACK, 7, 2));
    assert_eq!(switch.track(&answer.bytes, &look(0)).1, 0x2a);
    // Without reassembly, a first fragment has ports and a later fragment has no ports.
    switch.table.change_fragment_limits(|limits| limits.is_enabled = [false; 2]);
    let first = extended(&udp(client, server), 44, &[0, 0, 0, 1, 0, 0, 0, 9]);
    assert_eq!(switch.track(&first, &commit(0)).1, 0x21);
    let later = extended(&udp(client, server), 44, &[0, 0, 0, 9, 0, 0, 0, 9]);
    assert_eq!(switch.track(&later, &commit(0)).1, 0x30);
}

#[test]
fn frames_that_are_not_ip_are_invalid() {
    let mut switch = Switch::new(true);
    let mut arp = vec![2; 12];
    arp.extend_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    arp.resize(60, 1);
    assert_eq!(switch.track(&arp, &commit(0)).1, 0x30);
    assert_eq!(switch.track(&[], &commit(0)).1, 0x30);
    assert_eq!(switch.track(&[0; 14], &commit(0)).1, 0x30);
    assert_eq!(switch.table.connections(), 0);
}

#[test]
fn every_truncated_frame_is_tracked_or_invalid() {
    let (client, server) = (end("10.0.0.1:1000"), end("10.0.0.2:80"));
    let (client6, server6) = (end("[fd00::1]:1000"), end("[fd00::2]:80"));
    let samples = [
        udp(client, server),
        tcp(client, server, Tcp { scale: Some(2), ..Tcp::new(SYN, 1, 0) }),
        sctp(client, server),
        unreachable(v4(9), v4(1), &udp(client, server)),
        unreachable(server6.0, client6.0, &echo(client6.0, server6.0, 128, 4)),
        udp(client6, server6),
    ];
    let mut switch = Switch::new(false);
    for sample in &samples {
        for bytes in [sample.bytes.clone(), tagged(sample)] {
            for length in 0..bytes.len() {
                // Try first the length in the original header, then the length of the truncated
                // packet.
                let mut fitting = bytes[..length].to_vec();
                switch.track(&fitting, &snat(0, "192.0.2.1", None));
                let shift = bytes.len() - sample.bytes.len();
                let at = shift + if sample.is_v6() { 18 } else { 16 };
                let header = shift + if sample.is_v6() { 54 } else { 14 };
                if length >= header && length > at + 2 {
                    let claimed = (length - header) as u16;
                    fitting[at..at + 2].copy_from_slice(&claimed.to_be_bytes());
                    let (_, flags) = switch.track(&fitting, &snat(0, "192.0.2.1", None));
                    assert!(flags == 0 || flags & 0x20 != 0);
                }
            }
        }
    }
}
