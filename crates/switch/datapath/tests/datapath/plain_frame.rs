//! A frame that is changed without optimization: each change overwrites fields and computes all
//! checksums again.

use datapath::extract;
use flow::{Field, Key, word};

/// A frame, its key and the offset of its network header.
#[derive(Clone)]
pub(super) struct PlainFrame {
    pub(super) bytes: Vec<u8>,
    key: Key,
    network: usize,
}

impl PlainFrame {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        let key = extract(0, &bytes);
        let tagged = key.read(Field::VlanTci) & 0x1000 != 0;
        Self { network: if tagged { 18 } else { 14 }, bytes, key }
    }

    pub(super) fn push_vlan(&mut self, tpid: u16, tci: u16) {
        let tci = tci & !0x1000;
        let tag = [(tpid >> 8) as u8, tpid as u8, (tci >> 8) as u8, tci as u8];
        self.bytes.splice(12..12, tag);
        self.network += 4;
        self.key.write(Field::VlanTci, 0x1000);
    }

    pub(super) fn pop_vlan(&mut self) {
        if self.has_tag() {
            self.bytes.drain(12..16);
            self.network = (self.network - 4).max(14);
            let has_other = self.network >= 18 && self.has_tag();
            self.key.write(Field::VlanTci, if has_other { 0x1000 } else { 0 });
        }
    }

    fn has_tag(&self) -> bool {
        self.bytes.len() >= 18 && matches!(self.bytes[12..14], [0x81, 0x00] | [0x88, 0xa8])
    }

    pub(super) fn push_mpls(&mut self, ethertype: u16, entry: u32) {
        let at = self.network;
        self.bytes[at - 2..at].copy_from_slice(&ethertype.to_be_bytes());
        self.bytes.splice(at..at, entry.to_be_bytes());
        self.forget_network(ethertype);
    }

    pub(super) fn pop_mpls(&mut self, ethertype: u16) {
        let at = self.network;
        let is_mpls = matches!(self.key.read(Field::EthType), 0x8847 | 0x8848);
        if is_mpls && self.bytes.len() >= at + 4 {
            self.bytes.drain(at..at + 4);
            self.bytes[at - 2..at].copy_from_slice(&ethertype.to_be_bytes());
            self.forget_network(ethertype);
        }
    }

    fn forget_network(&mut self, ethertype: u16) {
        self.key.words[word::IPV4..].fill(0);
        self.key.write(Field::EthType, ethertype.into());
    }

    /// Sets one field of a rewrite if the frame has the field.
    pub(super) fn set(&mut self, field: Field, value: u128, mask: u128) {
        let at = self.network;
        let kind = self.key.read(Field::EthType);
        let has_ip = matches!(kind, 0x0800 | 0x86dd) && self.key.words[word::NW] != 0;
        let is_ipv4 = has_ip && kind == 0x0800;
        let is_ipv6 = has_ip && kind == 0x86dd;
        let is_arp = kind == 0x0806 && self.key.words[word::ARP_SHA] != 0;
        let protocol = self.key.read(Field::NwProto);
        let is_later = self.key.read(Field::IpFrag) & 2 != 0;
        let (transport, end) = if has_ip { self.segment(is_ipv4) } else { (0, 0) };
        let has_transport = has_ip && !is_later && end >= transport + 8;
        let has_ports = has_transport && matches!(protocol, 6 | 17 | 132);
        let has_icmp = has_transport && matches!(protocol, 1 | 58);
        let mut put = |at: usize, bytes: usize, shift: u32| {
            let old =
                self.bytes[at..at + bytes].iter().fold(0, |old, byte| old << 8 | u128::from(*byte));
            let new = old & !(mask << shift) | (value & mask) << shift;
            self.bytes[at..at + bytes].copy_from_slice(&new.to_be_bytes()[16 - bytes..]);
        };
        match field {
            Field::EthSrc => put(6, 6, 0),
            Field::EthDst => put(0, 6, 0),
            Field::VlanTci if self.key.read(Field::VlanTci) != 0 => {
                let mask = mask as u16 & 0xefff;
                let old = u16::from_be_bytes([self.bytes[14], self.bytes[15]]);
                let new = old & !mask | value as u16 & mask;
                self.bytes[14..16].copy_from_slice(&new.to_be_bytes());
            }
            Field::IpSrc if is_ipv4 => put(at + 12, 4, 0),
            Field::IpDst if is_ipv4 => put(at + 16, 4, 0),
            Field::IpSrc if is_arp => put(at + 14, 4, 0),
            Field::IpDst if is_arp => put(at + 24, 4, 0),
            Field::Ipv6Src if is_ipv6 => put(at + 8, 16, 0),
            Field::Ipv6Dst if is_ipv6 => put(at + 24, 16, 0),
            Field::Ipv6Label if is_ipv6 => put(at, 4, 0),
            Field::NwTos if is_ipv4 => put(at + 1, 1, 2),
            Field::NwEcn if is_ipv4 => put(at + 1, 1, 0),
            Field::NwTtl if is_ipv4 => put(at + 8, 1, 0),
            Field::NwTos if is_ipv6 => put(at, 4, 22),
            Field::NwEcn if is_ipv6 => put(at, 4, 20),
            Field::NwTtl if is_ipv6 => put(at + 7, 1, 0),
            Field::ArpOp if is_arp => put(at + 6, 2, 0),
            Field::ArpSha if is_arp => put(at + 8, 6, 0),
            Field::ArpTha if is_arp => put(at + 18, 6, 0),
            Field::TcpSrc if has_ports => put(transport, 2, 0),
            Field::TcpDst if has_ports => put(transport + 2, 2, 0),
            Field::TcpSrc if has_icmp => put(transport, 1, 0),
            Field::TcpDst if has_icmp => put(transport + 1, 1, 0),
            Field::MplsLabel if matches!(kind, 0x8847 | 0x8848) => put(at, 4, 12),
            Field::MplsTc if matches!(kind, 0x8847 | 0x8848) => put(at, 4, 9),
            Field::MplsTtl if matches!(kind, 0x8847 | 0x8848) => put(at, 4, 0),
            _ => return,
        }
        if has_ip && !matches!(field, Field::EthSrc | Field::EthDst | Field::VlanTci) {
            self.complete(is_ipv4, protocol as u8, is_later);
        }
    }

    /// Returns the range of the transport header and its payload.
    fn segment(&self, is_ipv4: bool) -> (usize, usize) {
        let at = self.network;
        let field = at + if is_ipv4 { 2 } else { 4 };
        let length = usize::from(u16::from_be_bytes([self.bytes[field], self.bytes[field + 1]]));
        if is_ipv4 { (at + 20, at + length) } else { (at + 40, at + 40 + length) }
    }

    /// Computes all checksums.
    fn complete(&mut self, is_ipv4: bool, protocol: u8, is_later: bool) {
        let at = self.network;
        let (transport, end) = self.segment(is_ipv4);
        let mut pseudo;
        if is_ipv4 {
            self.bytes[at + 10..at + 12].fill(0);
            let header = checksum(&self.bytes[at..at + 20], 0);
            self.bytes[at + 10..at + 12].copy_from_slice(&header.to_be_bytes());
            pseudo = sum(&self.bytes[at + 12..at + 20]);
        } else {
            pseudo = sum(&self.bytes[at + 8..at + 40]);
        }
        if is_later || end < transport + 8 {
            return;
        }
        pseudo += u32::from(protocol) + (end - transport) as u32;
        let segment = &mut self.bytes[transport..end];
        let (at, start) = match protocol {
            6 => (16, pseudo),
            17 => (6, pseudo),
            1 => (2, 0),
            58 => (2, pseudo),
            132 => {
                segment[8..12].fill(0);
                let crc = crc32c(segment);
                segment[8..12].copy_from_slice(&crc.to_le_bytes());
                return;
            }
            _ => return,
        };
        if protocol == 17 && segment[6..8] == [0, 0] {
            return;
        }
        segment[at..at + 2].fill(0);
        let value = match checksum(segment, start) {
            0 if protocol == 17 => 0xffff,
            value => value,
        };
        segment[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }
}

/// Writes the checksum of an SCTP packet, which `compose` leaves out.
pub(super) fn complete_sctp(frame: Vec<u8>) -> Vec<u8> {
    let mut plain = PlainFrame::new(frame);
    let is_sctp = plain.key.read(Field::NwProto) == 132 && plain.key.words[word::TP] != 0;
    if is_sctp {
        let is_ipv4 = plain.key.read(Field::EthType) == 0x0800;
        plain.complete(is_ipv4, 132, false);
    }
    plain.bytes
}

fn sum(bytes: &[u8]) -> u32 {
    let pairs = bytes.chunks(2);
    pairs.map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low))).sum()
}

fn checksum(bytes: &[u8], start: u32) -> u16 {
    let mut total = sum(bytes) + start;
    while total >> 16 != 0 {
        total = (total & 0xffff) + (total >> 16);
    }
    !(total as u16)
}

fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 0 { crc >> 1 } else { crc >> 1 ^ 0x82f6_3b78 };
        }
    }
    !crc
}
