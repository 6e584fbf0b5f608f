//! Writes malformed frames. Each `Kind` has its own function.

use super::base::{Bases, insert_tags, put, seal, seal_ipv4};
use super::{Kind, Random};
use wire::corrupt::flip_bit;
use wire::headers::{IPV4, IPV6, MAC_HEADER, TAG};
use wire::vlan::Tag;

pub(super) fn write(kind: Kind, bases: &Bases, random: &mut Random, frame: &mut Vec<u8>) {
    match kind {
        // `Malformed` cuts these frames, because the lengths of the cuts follow an order.
        Kind::Cut => frame.extend(&bases.tcp),
        Kind::Length => length(bases, random, frame),
        Kind::Tpid => tpid(bases, random, frame),
        Kind::Vlan => vlan(bases, random, frame),
        Kind::Flags => flags(bases, random, frame),
        Kind::Options => options(bases, random, frame),
        Kind::Fragment => fragment(bases, random, frame),
        Kind::Checksum => checksum(bases, random, frame),
        Kind::Address => address(bases, random, frame),
        Kind::Type => ether_type(bases, random, frame),
        Kind::Datagram => datagram(bases, random, frame),
        Kind::Flipped => {
            let base = random.below(bases.valid.len());
            frame.extend(&bases.valid[base]);
            for _ in 0..=random.below(8) {
                flip_bit(frame, random.next());
            }
        }
        Kind::Noise => {
            frame.extend(&bases.tcp[..MAC_HEADER - 2]);
            let count = random.below(1_400);
            random.extend(frame, count);
        }
    }
}

fn any_base<'a>(bases: &'a Bases, random: &mut Random) -> &'a [u8] {
    random.one_of(&[&bases.tcp, &bases.udp, &bases.tcp6, &bases.udp6, &bases.echo])
}

fn length(bases: &Bases, random: &mut Random, frame: &mut Vec<u8>) {
    let lie = match random.below(4) {
        0 => random.below(64) as u16,
        1 => u16::MAX - random.below(64) as u16,
        _ => random.word(),
    };
    match random.below(6) {
        0 => {
            frame.extend(random.one_of(&[&bases.tcp, &bases.udp, &bases.echo]));
            put(frame, MAC_HEADER + 2, lie);
            seal_ipv4(frame, MAC_HEADER);
        }
        1 => {
            frame.extend(random.one_of(&[&bases.tcp, &bases.udp]));
            frame[MAC_HEADER] = 0x40 | random.below(16) as u8;
            seal_ipv4(frame, MAC_HEADER);
        }
        2 => {
            frame.extend(random.one_of(&[&bases.tcp6, &bases.udp6]));
            put(frame, MAC_HEADER + 4, lie);
        }
        3 => {
            frame.extend(&bases.udp);
            put(frame, UDP_AT + 4, lie);
        }
        4 => {
            frame.extend(&bases.udp6);
            put(frame, MAC_HEADER + 40 + 4, lie);
        }
        _ => {
            frame.extend(&bases.tcp);
            frame[TCP_AT + 12] = random.byte();
            // `seal` writes the checksum only if a header of this length fits into the frame.
            seal(frame);
        }
    }
    if random.below(3) == 0 {
        let len = random.below(frame.len()).max(MAC_HEADER);
        frame.truncate(len);
    }
}

fn tpid(bases: &Bases, random: &mut Random, frame: &mut Vec<u8>) {
    frame.extend(&bases.tcp[..MAC_HEADER - 2]);
    // Up to three complete tags precede the tag that is cut at the end of the frame.
    for _ in 0..random.one_of(&[0, 0, 0, 1, 2, 3]) {
        frame.extend(random.one_of(&TPIDS).to_be_bytes());
        frame.extend(random.word().to_be_bytes());
    }
    frame.extend(random.one_of(&TPIDS).to_be_bytes());
    let behind = random.below(4);
    random.extend(frame, behind);
}

fn vlan(bases: &Bases, random: &mut Random, frame: &mut Vec<u8>) {
    frame.extend(any_base(bases, random));
    let count = 1 + random.below(12);
    let tags: Vec<Tag> = (0..count)
        .map(|_| {
            // Priority tags and the reserved number 4095 are unusual.
            let any = random.word() & 0x0fff;
            let vid = random.one_of(&[0, 1, 4094, 4095, any]);
            Tag { tpid: random.one_of(&TPIDS), tci: vid | (random.word() & 0xf000) }
        })
        .collect();
    insert_tags(frame, &tags);
    if random.below(4) == 0 {
        // The frame ends at the innermost EtherType.
        frame.truncate(MAC_HEADER + TAG * count);
    }
}

fn flags(bases: &Bases, random: &mut Random, frame: &mut Vec<u8>) {
    let six = random.below(4) == 0;
    frame.extend(if six { &bases.tcp6 } else { &bases.tcp });
    let at = if six { MAC_HEADER + 40 } else { TCP_AT };
    put(frame, at, random.word());
    if random.below(2) == 0 {
        put(frame, at + 2, random.word());
    }
    for word in [4, 6, 8, 10, 14, 18] {
        put(frame, at + word, random.word());
    }
    frame[at + 12] = 5 << 4 | (random.byte() & 15);
    frame[at + 13] = random.byte();
    seal(frame);
}

fn options(bases: &Bases, random: &mut Random, frame: &mut Vec<u8>) {
    match random.below(3) {
        0 => {
            frame.extend(&bases.tcp[..TCP_AT + 20]);
            let words = 1 + random.below(10);
            option_bytes(random, frame, 4 * words);
            frame[TCP_AT + 12] = ((5 + words) as u8) << 4;
            frame[TCP_AT + 13] = random.one_of(&[2, 16, 18, 0xc2]);
            let total = (frame.len() - MAC_HEADER) as u16;
            put(frame, MAC_HEADER + 2, total);
            seal(frame);
        }
        1 => {
            let words = 1 + random.below(10);
            frame.extend(&bases.udp[..UDP_AT]);
            option_bytes(random, frame, 4 * words);
            frame.extend(&bases.udp[UDP_AT..]);
            frame[MAC_HEADER] = 0x40 | (5 + words) as u8;
            let total = (frame.len() - MAC_HEADER) as u16;
            put(frame, MAC_HEADER + 2, total);
            seal_ipv4(frame, MAC_HEADER);
        }
        _ => extension_headers(bases, random, frame),
    }
}

/// Appends options: an option of one byte, an option with the right length, or an option with a
/// length of 0, of 1 or beyond the header.
fn option_bytes(random: &mut Random, frame: &mut Vec<u8>, count: usize) {
    let end = frame.len() + count;
    while frame.len() < end {
        let kind = match random.below(3) {
            0 => random.byte(),
            _ => random
                .one_of(&[0, 1, 2, 3, 4, 5, 7, 8, 19, 28, 30, 34, 68, 131, 137, 148, 253, 254]),
        };
        let any = random.byte();
        let len = random.one_of(&[0, 1, 2, 3, 4, 8, 10, 40, any]);
        frame.extend([kind, len]);
        let body = random.below(usize::from(len.min(12)) + 1);
        random.extend(frame, body);
    }
    frame.truncate(end);
}

fn extension_headers(bases: &Bases, random: &mut Random, frame: &mut Vec<u8>) {
    // The types of hop by hop, routing, fragment, authentication, destination and mobility headers,
    // and of no next header.
    const HEADERS: [u8; 7] = [0, 43, 44, 51, 60, 135, 59];
    frame.extend(&bases.udp6[..MAC_HEADER + 40]);
    let count = 1 + random.below(12);
    frame[MAC_HEADER + 6] = random.one_of(&HEADERS);
    for number in 0..count {
        let last = number + 1 == count;
        let next = if last { random.one_of(&[17, 6, 58, 59]) } else { random.one_of(&HEADERS) };
        let any = random.byte();
        let units = random.one_of(&[0, 0, 1, 2, any]);
        frame.extend([next, units]);
        let body = 6 + 8 * usize::from(units.min(2));
        match random.below(2) {
            0 => random.extend(frame, body),
            _ => {
                let from = frame.len();
                option_bytes(random, frame, body);
                frame.truncate(from + body);
            }
        }
    }
    frame.extend(&bases.udp6[MAC_HEADER + 40..]);
    let payload = (frame.len() - MAC_HEADER - 40) as u16;
    put(frame, MAC_HEADER + 4, payload);
}

fn fragment(bases: &Bases, random: &mut Random, frame: &mut Vec<u8>) {
    // There are few different identifications, so that a receiver combines fragments of different
    // frames.
    let identification = random.below(512) as u16;
    let offset = match random.below(4) {
        0 => random.below(4) as u16,
        1 => 0x1fff - random.below(4) as u16,
        _ => random.word() & 0x1fff,
    };
    let more = random.below(3) > 0;
    if random.below(3) == 0 {
        frame.extend(&bases.udp6[..MAC_HEADER + 40]);
        let next = frame[MAC_HEADER + 6];
        frame[MAC_HEADER + 6] = 44;
        frame.extend([next, random.one_of(&[0, 0, 0, 255])]);
        frame.extend((offset << 3 | u16::from(more)).to_be_bytes());
        frame.extend(u32::from(identification).to_be_bytes());
        let body = random.one_of(&[0, 1, 7, 8, 16, 64]);
        random.extend(frame, body);
        let payload = (frame.len() - MAC_HEADER - 40) as u16;
        put(frame, MAC_HEADER + 4, payload);
        return;
    }
    let base = random.one_of(&[&bases.tcp, &bases.udp, &bases.echo]);
    let body = random.one_of(&[0, 1, 7, 8, 16, 24, 64]).min(base.len() - UDP_AT);
    frame.extend(&base[..UDP_AT + body]);
    put(frame, MAC_HEADER + 2, (20 + body) as u16);
    put(frame, MAC_HEADER + 4, identification);
    // The reserved bit and `don't fragment` contradict the other fields.
    let bits = random.one_of(&[0, 0, 0, 0x4000, 0x8000]) | if more { 0x2000 } else { 0 };
    put(frame, MAC_HEADER + 6, offset | bits);
    seal_ipv4(frame, MAC_HEADER);
}

fn checksum(bases: &Bases, random: &mut Random, frame: &mut Vec<u8>) {
    let (base, places): (&Vec<u8>, &[usize]) = random.one_of(&[
        (&bases.tcp, &[MAC_HEADER + 10, TCP_AT + 16][..]),
        (&bases.udp, &[MAC_HEADER + 10, UDP_AT + 6][..]),
        (&bases.echo, &[MAC_HEADER + 10, UDP_AT + 2][..]),
        (&bases.tcp6, &[MAC_HEADER + 40 + 16][..]),
        (&bases.udp6, &[MAC_HEADER + 40 + 6][..]),
    ]);
    frame.extend(base);
    let at = random.one_of(places);
    // A UDP checksum of 0 means "none", which IPv6 forbids.
    let any = random.word();
    let lie = random.one_of(&[0, 0xffff, any]);
    put(frame, at, lie);
}

fn address(bases: &Bases, random: &mut Random, frame: &mut Vec<u8>) {
    let [own, _] = bases.addresses.ipv4.map(|one| one.octets());
    match random.below(4) {
        0 => {
            frame.extend(any_base(bases, random));
            let macs = [[0; 6], [0xff; 6], bases.addresses.macs[1], [1, 0, 0x5e, 0, 0, 1]];
            frame[6..12].copy_from_slice(&random.one_of(&macs));
        }
        1 => {
            frame.extend(any_base(bases, random));
            let groups = [[0xff; 6], [1, 0x80, 0xc2, 0, 0, 14], [0x33, 0x33, 0, 0, 0, 1], [0; 6]];
            frame[..6].copy_from_slice(&random.one_of(&groups));
        }
        2 => {
            frame.extend(&random.one_of(&[&bases.tcp6, &bases.udp6])[..]);
            let mut source = [0; 16];
            match random.below(4) {
                0 => source[15] = 1,
                1 => source[..2].copy_from_slice(&[0xff, 2]),
                2 => source.copy_from_slice(&bases.addresses.ipv6[1].octets()),
                _ => {}
            }
            frame[MAC_HEADER + 8..MAC_HEADER + 24].copy_from_slice(&source);
        }
        _ => {
            frame.extend(&random.one_of(&[&bases.tcp, &bases.udp, &bases.echo])[..]);
            let target = bases.addresses.ipv4[1].octets();
            let mut broadcast = own;
            broadcast[3] = 255;
            let source = random.one_of(&[
                [0; 4],
                [127, 0, 0, 1],
                [224, 0, 0, 1],
                [255; 4],
                target,
                broadcast,
                [240, 1, 2, 3],
            ]);
            frame[MAC_HEADER + 12..MAC_HEADER + 16].copy_from_slice(&source);
        }
    }
    // A random word at the end makes frames differ.
    let end = frame.len() - 2;
    put(frame, end, random.word());
    seal(frame);
}

fn ether_type(bases: &Bases, random: &mut Random, frame: &mut Vec<u8>) {
    if random.below(3) == 0 {
        // The IP protocol does not match the payload.
        frame.extend(&random.one_of(&[&bases.udp, &bases.echo])[..]);
        frame[MAC_HEADER + 9] = random.byte();
        seal_ipv4(frame, MAC_HEADER);
        return;
    }
    // The types of 802.3 lengths, loopback, PPPoE, MPLS, LLDP, EAPOL, MACsec, PTP, TIPC, BATMAN,
    // ERSPAN, NSH and ARP.
    const TYPES: [u16; 22] = [
        0, 1, 46, 1500, 1501, 0x05ff, 0x0806, 0x8035, 0x8847, 0x8848, 0x8863, 0x8864, 0x888e,
        0x88cc, 0x88e5, 0x88f7, 0x88ca, 0x4305, 0x88be, 0x894f, 0x9000, 0x22f0,
    ];
    frame.extend(&bases.tcp[..MAC_HEADER - 2]);
    let (known, any) = (random.one_of(&TYPES), random.word());
    let kind = random.one_of(&[known, IPV4, IPV6, any]);
    frame.extend(kind.to_be_bytes());
    match random.below(3) {
        0 => {
            let base = any_base(bases, random);
            frame.extend(&base[MAC_HEADER..]);
        }
        _ => {
            let count = random.below(200);
            random.extend(frame, count);
        }
    }
}

fn datagram(bases: &Bases, random: &mut Random, frame: &mut Vec<u8>) {
    frame.extend(&bases.udp[..UDP_AT + 8]);
    put(frame, UDP_AT, random.word());
    // The first byte covers RFC 9000 section 17: long and short headers, version negotiation, and
    // fixed bits.
    let any = random.byte();
    let first = random.one_of(&[0xc0, 0xd0, 0xe0, 0xf0, 0x40, 0x80, 0x00, any]);
    frame.push(first | (random.byte() & 3));
    let any = random.next() as u32;
    let version: u32 = random.one_of(&[0, 1, 0x6b33_43cf, 0x0a0a_0a0a, any]);
    frame.extend(version.to_be_bytes());
    for _ in 0..2 {
        let any = random.byte();
        let len = random.one_of(&[0, 8, 20, 21, 255, any]);
        frame.push(len);
        let few = random.below(21);
        let present = random.one_of(&[usize::from(len), few]);
        random.extend(frame, present);
    }
    // Append a token length and a packet length (section 16), which may exceed the datagram.
    for _ in 0..2 {
        frame.push(random.one_of(&[0, 0x3f, 0x40, 0x7f, 0x80, 0xbf, 0xc0, 0xff]));
        let rest = random.below(8);
        random.extend(frame, rest);
    }
    let body = random.one_of(&[0, 1, 16, 40, 1100]);
    random.extend(frame, body);
    frame.truncate(1_514);
    let total = (frame.len() - MAC_HEADER) as u16;
    put(frame, MAC_HEADER + 2, total);
    put(frame, UDP_AT + 4, total - 20);
    seal(frame);
}

/// The TPIDs of 802.1Q and 802.1ad (also CAQM's TPID), and the two older numbers of service tags.
const TPIDS: [u16; 4] = [0x8100, 0x88a8, 0x9100, 0x9200];
const TCP_AT: usize = MAC_HEADER + 20;
const UDP_AT: usize = MAC_HEADER + 20;
