//! Fragments that wait until their packet is complete.

use std::sync::Arc;

use datapath::conntrack::{Conntrack, Settings, ThreadTracker};
use datapath::{Packet, TrackCall, Tracked, Tracker};
use flow::Field;
use flow::step::{Step, Track};
use port::Frame as PortFrame;
use units::{Span, Time};
use wire::checksum::Sum;

use crate::frames::{Frame, end, udp_with};
use crate::tracking::{commit, snat};

struct Switch {
    table: Arc<Conntrack>,
    tracker: ThreadTracker,
    now: Time,
}

impl Switch {
    fn new() -> Self {
        let table = Arc::new(Conntrack::new(&Settings::default()));
        let tracker = ThreadTracker::new(table.clone());
        Self { table, tracker, now: Time::from_nanos(1_000_000_000) }
    }

    /// Tracks a fragment. Returns the outcome and the packets that continue.
    fn track(&mut self, bytes: &[u8], track: &Track) -> (Tracked, Vec<Packet>) {
        let mut packet = Packet::arrived(1, PortFrame::from_bytes(bytes, Time::ZERO));
        let steps = [Step::Track(Box::new(track.clone()))];
        let call = TrackCall::first_of(&steps).expect("a Track");
        match self.tracker.track(&mut packet, &call, None, self.now) {
            Tracked::Held => {
                (Tracked::Held, packet.released.take().map_or_else(Vec::new, |all| *all))
            }
            other => (other, vec![packet]),
        }
    }

    fn flags(&mut self, bytes: &[u8], track: &Track) -> u64 {
        let (_, packets) = self.track(bytes, track);
        packets.first().map_or(0, |packet| packet.key.read(Field::CtState) as u64)
    }
}

/// Splits an IPv4 or IPv6 packet into fragments at these offsets of its transport data.
fn cut(frame: &Frame, places: &[usize]) -> Vec<Vec<u8>> {
    let transport = frame.headers.transport;
    let length = frame.bytes.len() - transport;
    let ends = places.iter().copied().chain([length]);
    let starts = [0].into_iter().chain(places.iter().copied());
    starts
        .zip(ends)
        .map(|(from, to)| {
            let more = to < length;
            let mut bytes = frame.bytes[..transport].to_vec();
            if frame.is_v6() {
                let payload = 8 + (to - from) as u16;
                bytes[18..20].copy_from_slice(&payload.to_be_bytes());
                let protocol = std::mem::replace(&mut bytes[20], 44);
                bytes.extend([protocol, 0]);
                bytes.extend((from as u16 | u16::from(more)).to_be_bytes());
                bytes.extend([0, 0, 0, 9]);
            } else {
                let total = 20 + (to - from) as u16;
                bytes[16..18].copy_from_slice(&total.to_be_bytes());
                let offset = (from as u16 / 8) | (u16::from(more) << 13);
                bytes[20..22].copy_from_slice(&offset.to_be_bytes());
                bytes[24..26].fill(0);
                let sum = Sum::of(&bytes[14..34]).checksum();
                bytes[24..26].copy_from_slice(&sum.to_be_bytes());
            }
            bytes.extend_from_slice(&frame.bytes[transport + from..transport + to]);
            bytes
        })
        .collect()
}

fn packet(is_v6: bool) -> Frame {
    let data: Vec<u8> = (0..4000_u32).map(|n| (n % 251) as u8).collect();
    match is_v6 {
        false => udp_with(end("10.0.0.1:1000"), end("10.0.0.2:53"), &data),
        true => udp_with(end("[fd00::1]:1000"), end("[fd00::2]:53"), &data),
    }
}

#[test]
fn fragments_wait_for_the_whole_packet_and_show_its_connection() {
    for (is_v6, address, translated) in
        [(false, "192.0.2.1", "192.0.2.1:600"), (true, "2001:db8::1", "[2001:db8::1]:600")]
    {
        let mut switch = Switch::new();
        let pieces = cut(&packet(is_v6), &[1400, 2800]);
        let track = snat(4, address, Some((600, 600)));
        for early in [&pieces[2], &pieces[0]] {
            let (outcome, packets) = switch.track(early, &track);
            assert_eq!((outcome, packets.len()), (Tracked::Held, 0));
        }
        assert_eq!(switch.table.fragment_status().waiting, 2);
        let (outcome, packets) = switch.track(&pieces[1], &track);
        assert_eq!((outcome, packets.len()), (Tracked::Held, 3));
        // The flags are new|trk|snat.
        assert!(packets.iter().all(|packet| packet.key.read(Field::CtState) == 0x61));
        let whole = udp_with(
            end(translated),
            packet(is_v6).ends().1,
            &packet(is_v6).bytes[packet(is_v6).headers.transport + 8..],
        );
        let sent: Vec<_> = packets.iter().map(|packet| packet.frame.bytes().to_vec()).collect();
        assert_eq!(sent, cut(&whole, &[1400, 2800]));
        assert_eq!(packets[0].key.read(Field::UdpSrc), 600);
        let status = switch.table.fragment_status();
        assert_eq!((status.waiting, status.packets.len()), (0, 0));
        assert_eq!(status.counts[usize::from(is_v6)].completed, 3);
    }
}

#[test]
fn overlapping_fragments_are_invalid() {
    let mut switch = Switch::new();
    let pieces = cut(&packet(false), &[1400]);
    let other = cut(&packet(false), &[1392]);
    switch.track(&pieces[0], &commit(1));
    // The flags are inv|trk.
    assert_eq!(switch.flags(&other[1], &commit(1)), 0x30);
    assert_eq!(switch.flags(&pieces[0], &commit(1)), 0x30);
    assert_eq!(switch.table.fragment_status().counts[0].overlapped, 2);
    assert_eq!(switch.track(&pieces[1], &commit(1)).1.len(), 2);
}

#[test]
fn fragments_of_other_packets_and_zones_complete_no_packet() {
    let mut switch = Switch::new();
    let pieces = cut(&packet(false), &[1400]);
    let mut other = pieces[1].clone();
    other[18] ^= 1;
    let checksum = u16::from_be_bytes([other[24], other[25]]).wrapping_sub(0x100);
    other[24..26].copy_from_slice(&checksum.to_be_bytes());
    assert_eq!(switch.track(&pieces[0], &commit(1)).1.len(), 0);
    assert_eq!(switch.track(&other, &commit(1)).1.len(), 0);
    assert_eq!(switch.track(&pieces[1], &commit(2)).1.len(), 0);
    assert_eq!(switch.table.fragment_status().packets.len(), 3);
}

/// Builds the last fragment of a packet, without data, at this offset of the transport data.
fn empty(is_v6: bool, place: usize) -> Vec<u8> {
    let mut pieces = cut(&packet(is_v6), &[place]);
    let mut bytes = pieces.swap_remove(1);
    if is_v6 {
        bytes.truncate(14 + 40 + 8);
        bytes[18..20].copy_from_slice(&8_u16.to_be_bytes());
    } else {
        bytes.truncate(14 + 20);
        bytes[16..18].copy_from_slice(&20_u16.to_be_bytes());
        bytes[24..26].fill(0);
        let sum = Sum::of(&bytes[14..34]).checksum();
        bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    bytes
}

#[test]
fn a_later_fragment_without_data_waits_like_any_other_fragment() {
    for is_v6 in [false, true] {
        for place in [8, 1400, 4000] {
            let mut switch = Switch::new();
            let (outcome, packets) = switch.track(&empty(is_v6, place), &commit(1));
            assert_eq!((outcome, packets.len()), (Tracked::Held, 0), "{is_v6} {place}");
            // A second fragment without data at the same offset overlaps the first.
            assert_eq!(switch.flags(&empty(is_v6, place), &commit(1)), 0x30);
            assert_eq!(switch.table.fragment_status().waiting, 1);
            switch.now += Span::from_secs(16);
            switch.table.expire(switch.now);
            let status = switch.table.fragment_status();
            assert_eq!((status.waiting, status.counts[usize::from(is_v6)].expired), (0, 1));
        }
    }
}

#[test]
fn a_fragment_without_data_does_not_complete_a_packet_that_has_more() {
    for is_v6 in [false, true] {
        let mut switch = Switch::new();
        let pieces = cut(&packet(is_v6), &[1400, 2800]);
        for piece in [&empty(is_v6, 2800), &pieces[0]] {
            assert_eq!(switch.track(piece, &commit(1)).1.len(), 0);
        }
        // All data precedes the empty fragment, which marks the end of the packet.
        let (outcome, packets) = switch.track(&pieces[1], &commit(1));
        assert_eq!((outcome, packets.len()), (Tracked::Held, 3));
        // The UDP header still has the length of the original packet, so the packet is invalid.
        assert!(packets.iter().all(|packet| packet.key.read(Field::CtState) == 0x30));
        // An empty last fragment inside the range of another fragment overlaps with the other
        // fragment.
        let mut switch = Switch::new();
        switch.track(&pieces[0], &commit(1));
        assert_eq!(switch.flags(&empty(is_v6, 800), &commit(1)), 0x30);
    }
}

#[test]
fn fragments_beyond_the_limits_are_invalid() {
    let mut switch = Switch::new();
    let small = cut(&packet(false), &[800]);
    assert_eq!(switch.flags(&small[0], &commit(1)), 0x30);
    switch.table.change_fragment_limits(|limits| limits.smallest[0] = 400);
    assert_eq!(switch.track(&small[0], &commit(1)).1.len(), 0);
    assert_eq!(switch.track(&small[1], &commit(1)).1.len(), 2);

    switch.table.change_fragment_limits(|limits| limits.most = 1);
    assert_eq!(switch.track(&small[0], &commit(1)).1.len(), 0);
    assert_eq!(switch.flags(&small[1], &commit(1)), 0x30);

    // Without reassembly, only the first fragment has ports.
    switch.table.change_fragment_limits(|limits| limits.is_enabled[0] = false);
    assert_eq!(switch.flags(&small[0], &commit(1)), 0x21);
    assert_eq!(switch.flags(&small[1], &commit(1)), 0x30);
}

#[test]
fn fragments_of_an_incomplete_packet_are_discarded_after_a_timeout() {
    let mut switch = Switch::new();
    let pieces = cut(&packet(true), &[1400]);
    switch.track(&pieces[0], &commit(1));
    switch.now += Span::from_secs(14);
    switch.table.expire(switch.now);
    assert_eq!(switch.table.fragment_status().waiting, 1);
    switch.now += Span::from_secs(2);
    switch.table.expire(switch.now);
    let status = switch.table.fragment_status();
    assert_eq!((status.waiting, status.counts[1].expired), (0, 1));
    assert_eq!(switch.track(&pieces[1], &commit(1)).1.len(), 0);
}

#[test]
fn fragments_of_a_packet_longer_than_ip_allows_are_discarded() {
    let mut switch = Switch::new();
    let mut pieces = cut(&packet(false), &[1400]);
    switch.table.change_fragment_limits(|limits| limits.most = 5000);
    // The last fragment begins at the highest offset, and ends beyond 64 KiB.
    pieces[1][20..22].copy_from_slice(&0x1fff_u16.to_be_bytes());
    for (at, piece) in pieces.iter_mut().enumerate() {
        piece[24..26].fill(0);
        let sum = Sum::of(&piece[14..34]).checksum();
        piece[24..26].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(switch.track(piece, &commit(1)).0, Tracked::Held, "{at}");
    }
    let length = 65_528 - 1400;
    let middle = udp_with(end("10.0.0.1:1000"), end("10.0.0.2:53"), &vec![0; length - 8]);
    let mut middle = middle.bytes;
    middle[20..22].copy_from_slice(&(0x2000_u16 | (1400 / 8)).to_be_bytes());
    middle[24..26].fill(0);
    let sum = Sum::of(&middle[14..34]).checksum();
    middle[24..26].copy_from_slice(&sum.to_be_bytes());
    let (outcome, packets) = switch.track(&middle, &commit(1));
    assert_eq!((outcome, packets.len()), (Tracked::Held, 0));
    let status = switch.table.fragment_status();
    assert_eq!((status.waiting, status.counts[0].purged), (0, 3));
}
