//! Changes of a packet's header fields, with the checksums that cover them. A field that the packet
//! lacks stays unchanged.

use flow::word;

use super::checksum::{Change, crc32c, fixed};
use super::packet::{Layout, Packet, flag};
use super::parse::transport::{ICMP, ICMPV6, SCTP, TCP, UDP};
use super::parse::{is_vlan, neighbor, u16_at, u64_at};

impl Packet {
    /// Sets bits in words of the key and in the frame: each element of the list is the index of a
    /// word, a value and a mask. As in Open vSwitch, the network header does not change if the IP
    /// protocol or the ARP operation would be 0 afterwards.
    pub(super) fn rewrite(&mut self, words: &[(u8, u64, u64)]) {
        let changes =
            || words.iter().map(|(index, value, mask)| (usize::from(*index), value, mask));
        let mut network = self.key.words[word::NW];
        if let Some((_, value, mask)) = changes().find(|(index, ..)| *index == word::NW) {
            network = network & !mask | value & mask;
        }
        let has_network = network >> PROTOCOL != 0;
        for (index, value, mask) in changes() {
            if has_network || !word::is_network(index) {
                self.write(index, *value, *mask);
            }
        }
    }

    /// Sets the bits of `mask` in one word of the key, and in the frame.
    pub fn write(&mut self, index: usize, value: u64, mask: u64) {
        self.is_usual = false;
        let former = self.key.words[index];
        let mask = match index {
            word::ETH_SRC => mask & !0xffff,
            word::ETH_DST if !self.layout.has(flag::TAGGED) => mask & !0xffff,
            _ => mask,
        };
        let word = former & !mask | value & mask;
        let has = |flags| self.layout.flags & flags != 0;
        let is_there = match index {
            word::ETH_SRC | word::ETH_DST => self.write_address(index, word, mask),
            word::IPV4 if has(flag::IPV4) => {
                self.write_ipv4(former, word);
                true
            }
            word::IPV4 if has(flag::ARP) => {
                let at = self.network();
                self.put(at + 14, word >> 32, 4);
                self.put(at + 24, word & 0xffff_ffff, 4);
                true
            }
            word::IPV6_SRC..word::NW if has(flag::IPV6) => {
                self.write_ipv6(index, former, word);
                true
            }
            word::MPLS if has(flag::MPLS) => {
                self.put(self.network(), word >> 32, 4);
                true
            }
            word::MPLS if has(flag::IPV6) => {
                let at = self.network();
                let first = self.long(at) >> 32 & !0xf_ffff;
                self.put(at, first | word & 0xf_ffff, 4);
                true
            }
            word::NW => self.write_network(word, mask),
            word::TP if has(flag::TRANSPORT) => {
                self.write_ports(former, word);
                true
            }
            word::ARP_SHA | word::ARP_THA if has(flag::ARP) => {
                let at = if index == word::ARP_SHA { 8 } else { 18 };
                self.put(self.network() + at, word >> 16, 6);
                true
            }
            word::ARP_SHA | word::ARP_THA if has(flag::NEIGHBOR) => {
                self.write_option(index, former, word)
            }
            word::ND_TARGET.. if has(flag::NEIGHBOR) => {
                let at = self.layout.transport as usize + 8 + (index - word::ND_TARGET) * 8;
                self.put(at, word, 8);
                self.fix_transport(Change::of(former, word), false);
                true
            }
            _ => false,
        };
        if is_there {
            self.key.words[index] = word;
        }
    }

    /// Adds a VLAN tag as the outermost tag.
    pub fn push_vlan(&mut self, tpid: u16, tci: u16) {
        if self.frame.len() < 14 {
            return;
        }
        self.frame.grow_front(4);
        let bytes = self.frame.bytes_mut();
        bytes.copy_within(4..16, 0);
        bytes[12..14].copy_from_slice(&tpid.to_be_bytes());
        bytes[14..16].copy_from_slice(&(tci & !PRESENT).to_be_bytes());
        self.move_headers(4);
        self.layout.flags |= flag::TAGGED;
        let inner = self.key.words[word::ETH_DST] & 0xffff;
        self.key.words[word::ETH_DST] =
            self.key.words[word::ETH_DST] & !0xffff | u64::from(tci | PRESENT);
        self.key.words[word::VLAN_TPID] = u64::from(tpid) | inner << 16;
    }

    /// Removes the outermost VLAN tag.
    pub fn pop_vlan(&mut self) {
        let bytes = self.frame.bytes_mut();
        if bytes.len() < 18 || !is_vlan(u16_at(bytes, 12)) {
            return;
        }
        bytes.copy_within(0..12, 4);
        self.frame.cut_front(4);
        self.move_headers(-4);
        self.layout.flags &= !flag::TAGGED;
        self.key.words[word::ETH_DST] &= !0xffff;
        self.key.words[word::VLAN_TPID] = 0;
        // The outermost tag is now the packet's own tag, if a push had covered that tag.
        let bytes = self.frame.bytes();
        if self.layout.network >= 18 && bytes.len() >= 18 && is_vlan(u16_at(bytes, 12)) {
            self.layout.flags |= flag::TAGGED;
            self.key.words[word::ETH_DST] |= u64::from(u16_at(bytes, 14) | PRESENT);
            self.key.words[word::VLAN_TPID] = u16_at(bytes, 12).into();
        }
    }

    /// Adds an MPLS entry in front of the network header.
    pub fn push_mpls(&mut self, ethertype: u16, entry: u32) {
        let at = self.network();
        if at < 14 {
            return;
        }
        self.frame.grow_front(4);
        let bytes = self.frame.bytes_mut();
        bytes.copy_within(4..at + 4, 0);
        bytes[at - 2..at].copy_from_slice(&ethertype.to_be_bytes());
        bytes[at..at + 4].copy_from_slice(&entry.to_be_bytes());
        self.layout.end += 4;
        self.layout.flags = self.layout.flags & flag::TAGGED | flag::MPLS;
        self.become_stale();
        self.key.words[word::ETH_SRC] =
            self.key.words[word::ETH_SRC] & !0xffff | u64::from(ethertype);
        self.key.words[word::MPLS] = u64::from(entry) << 32;
    }

    /// Removes the outermost MPLS entry.
    pub fn pop_mpls(&mut self, ethertype: u16) {
        let at = self.network();
        if !self.layout.has(flag::MPLS) {
            return;
        }
        let bytes = self.frame.bytes_mut();
        bytes.copy_within(0..at, 4);
        self.frame.cut_front(4);
        let bytes = self.frame.bytes_mut();
        bytes[at - 2..at].copy_from_slice(&ethertype.to_be_bytes());
        self.layout.end -= 4;
        let is_mpls = matches!(ethertype, 0x8847 | 0x8848) && bytes.len() >= at + 4;
        if !is_mpls {
            self.layout.flags &= !flag::MPLS;
        }
        self.become_stale();
        self.key.words[word::ETH_SRC] =
            self.key.words[word::ETH_SRC] & !0xffff | u64::from(ethertype);
        self.key.words[word::MPLS] = if is_mpls { self.long(at) & !0xffff_ffff } else { 0 };
    }

    /// Sets both IPv4 addresses. The upper half of `addresses` is the source.
    pub fn set_ipv4(&mut self, addresses: u64) {
        self.write(word::IPV4, addresses, u64::MAX);
    }

    pub fn set_ipv6(&mut self, source: u128, destination: u128) {
        for (index, address) in [(word::IPV6_SRC, source), (word::IPV6_DST, destination)] {
            self.write(index, (address >> 64) as u64, u64::MAX);
            self.write(index + 1, address as u64, u64::MAX);
        }
    }

    /// Sets the ports of TCP, UDP or SCTP.
    pub fn set_ports(&mut self, source: u16, destination: u16) {
        let ports = u64::from(source) << 48 | u64::from(destination) << 32;
        self.write(word::TP, ports, 0xffff_ffff << 32);
    }

    fn write_address(&mut self, index: usize, word: u64, mask: u64) -> bool {
        let bytes = self.frame.bytes_mut();
        if bytes.len() < 14 {
            return false;
        }
        if mask >> 16 != 0 {
            let at = if index == word::ETH_SRC { 6 } else { 0 };
            bytes[at..at + 6].copy_from_slice(&word.to_be_bytes()[..6]);
        }
        if index == word::ETH_DST && mask & 0xffff != 0 {
            let former = u16_at(bytes, 14);
            let mask = mask as u16 & !PRESENT;
            let tci = former & !mask | word as u16 & mask;
            bytes[14..16].copy_from_slice(&tci.to_be_bytes());
        }
        true
    }

    fn write_ipv4(&mut self, former: u64, word: u64) {
        let at = self.network();
        self.put(at + 12, word, 8);
        let change = Change::of(former, word);
        self.fix(at + 10, change);
        self.fix_transport(change, true);
    }

    fn write_ipv6(&mut self, index: usize, former: u64, word: u64) {
        let at = self.network() + 8 + (index - word::IPV6_SRC) * 8;
        self.put(at, word, 8);
        // If a routing header has segments left, the checksum covers the last destination (RFC
        // 8200, 8.1).
        if index < word::IPV6_DST || !self.layout.has(flag::ROUTED) {
            self.fix_transport(Change::of(former, word), true);
        }
    }

    fn write_network(&mut self, word: u64, mask: u64) -> bool {
        let at = self.network();
        let class = word >> 40 & 0xff;
        if self.layout.has(flag::IPV4) {
            let length_word = self.short(at);
            let ttl_word = self.short(at + 8);
            self.put(at + 1, class, 1);
            self.put(at + 8, word >> 32 & 0xff, 1);
            let fixed = Change::of(length_word, self.short(at));
            self.fix(at + 10, fixed.and(Change::of(ttl_word, self.short(at + 8))));
            return true;
        }
        if self.layout.has(flag::IPV6) {
            let first = self.long(at) >> 32 & !(0xff << 20);
            self.put(at, first | class << 20, 4);
            self.put(at + 7, word >> 32 & 0xff, 1);
            return true;
        }
        if self.layout.has(flag::ARP) && mask >> 48 != 0 {
            self.put(at + 6, word >> 48, 2);
            return true;
        }
        false
    }

    fn write_ports(&mut self, former: u64, word: u64) {
        let at = self.layout.transport as usize;
        match self.protocol() {
            TCP | UDP => {
                self.put(at, word >> 32, 4);
                self.fix_transport(Change::of(former, word), false);
            }
            SCTP => {
                let range = at..self.layout.end as usize;
                // Add the difference of the CRCs to the checksum, so that a wrong checksum stays
                // wrong.
                let before = crc32c(&self.frame.bytes()[range.clone()]);
                self.put(at, word >> 32, 4);
                let after = crc32c(&self.frame.bytes()[range]);
                let bytes = self.frame.bytes_mut();
                let change = before ^ after;
                for (byte, bits) in bytes[at + 8..at + 12].iter_mut().zip(change.to_le_bytes()) {
                    *byte ^= bits;
                }
            }
            _ => {
                let header = self.short(at);
                self.put(at, word >> 48 & 0xff, 1);
                self.put(at + 1, word >> 32 & 0xff, 1);
                let change = Change::of(header, self.short(at));
                match self.protocol() {
                    ICMP => self.fix(at + 2, change),
                    _ => self.fix_transport(change, false),
                }
            }
        }
    }

    /// Writes the link-layer address in an option of neighbour discovery.
    fn write_option(&mut self, index: usize, former: u64, word: u64) -> bool {
        let wanted = if index == word::ARP_SHA { 1 } else { 2 };
        let option = neighbor::options(self.segment()).find(|(kind, _)| *kind == wanted);
        let Some((_, address)) = option else { return false };
        self.put(self.layout.transport as usize + address, word >> 16, 6);
        self.fix_transport(Change::of(former, word), false);
        true
    }

    /// Updates the checksum of TCP, UDP or ICMPv6. `is_pseudo`: the change is in the addresses.
    fn fix_transport(&mut self, change: Change, is_pseudo: bool) {
        if !self.layout.has(flag::TRANSPORT) {
            return;
        }
        let at = self.layout.transport as usize;
        if self.layout.has(flag::UNFINISHED) {
            self.fix_unfinished(at, change, is_pseudo);
            return;
        }
        match self.protocol() {
            TCP => self.fix(at + 16, change),
            UDP => {
                let bytes = self.frame.bytes_mut();
                // A checksum of 0 means no checksum (RFC 768).
                match u16_at(bytes, at + 6) {
                    0 => {}
                    former => {
                        let fixed = change.apply(former);
                        let fixed = if fixed == 0 { 0xffff } else { fixed };
                        bytes[at + 6..at + 8].copy_from_slice(&fixed.to_be_bytes());
                    }
                }
            }
            ICMPV6 => self.fix(at + 2, change),
            _ if is_pseudo => {}
            _ => self.fix(at + 2, change),
        }
    }

    /// Updates the pseudo-header's sum in the checksum field of an unfinished packet.
    #[cold]
    fn fix_unfinished(&mut self, at: usize, change: Change, is_pseudo: bool) {
        if is_pseudo {
            let at = at + if self.protocol() == TCP { 16 } else { 6 };
            let bytes = self.frame.bytes_mut();
            let fixed = fixed(u16_at(bytes, at), change, Change::NONE, true);
            bytes[at..at + 2].copy_from_slice(&fixed.to_be_bytes());
        }
    }

    fn fix(&mut self, at: usize, change: Change) {
        let bytes = self.frame.bytes_mut();
        let fixed = change.apply(u16_at(bytes, at));
        bytes[at..at + 2].copy_from_slice(&fixed.to_be_bytes());
    }

    fn network(&self) -> usize {
        self.layout.network as usize
    }

    fn move_headers(&mut self, by: i32) {
        let Layout { network, transport, end, .. } = &mut self.layout;
        for offset in [network, transport, end] {
            *offset = offset.saturating_add_signed(by).max(14);
        }
        self.become_stale();
    }

    /// Writes the low `count` bytes of a value, the most significant first.
    #[inline(always)]
    fn put(&mut self, at: usize, value: u64, count: usize) {
        self.frame.bytes_mut()[at..at + count].copy_from_slice(&value.to_be_bytes()[8 - count..]);
    }

    fn short(&self, at: usize) -> u64 {
        u16_at(self.frame.bytes(), at).into()
    }

    fn long(&self, at: usize) -> u64 {
        let bytes = self.frame.bytes();
        match bytes.len() >= at + 8 {
            true => u64_at(bytes, at),
            // An MPLS entry may be the last four bytes of the frame.
            false => u64::from(super::parse::u32_at(bytes, at)) << 32,
        }
    }
}

/// The lowest bit of the IP protocol or the ARP operation in the word of the network header.
const PROTOCOL: u32 = 48;
/// The bit that marks a VLAN tag as present, in the key's word of the tag.
const PRESENT: u16 = 0x1000;
