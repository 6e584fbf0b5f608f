//! Megaflows as `ovs-appctl dpctl/dump-flows` prints them.

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use flow::port_number::PortNumber;
use flow::{Field, Key, Megaflow};

use super::address::{print_ethernet, print_ipv6};
use super::flags::{CT_STATE, TCP_FLAGS};
use super::port::{PortNames, print_name};
use super::steps::print_steps;

/// Prints a megaflow with its counters. The printed `in_port` is the datapath's port number.
/// `used`: milliseconds since the megaflow's last packet; `None` if the megaflow has had no packet.
/// `names`: the names of the datapath's ports.
#[must_use]
pub fn print_datapath_flow(flow: &Megaflow, used: Option<u64>, names: &PortNames) -> String {
    let mut out = print_datapath_key_with(&flow.key, &flow.mask, names);
    let _ = write!(out, ", packets:{}, bytes:{}, used:", flow.packets, flow.bytes);
    match used {
        Some(used) => {
            let _ = write!(out, "{}.{:03}s", used / 1000, used % 1000);
        }
        None => out.push_str("never"),
    }
    if flow.tcp_flags != 0 {
        out.push_str(", flags:");
        for (bit, letter) in "FSRP.UEC".chars().enumerate() {
            if flow.tcp_flags >> bit & 1 != 0 {
                out.push(letter);
            }
        }
    }
    let _ = write!(out, ", actions:{}", print_steps(&flow.steps, &flow.key, names));
    out
}

/// Prints the fields of a megaflow that its mask covers: `recirc_id(0),in_port(3),…`.
#[must_use]
pub fn print_datapath_key(key: &Key, mask: &Key) -> String {
    print_datapath_key_with(key, mask, &PortNames::none())
}

fn print_datapath_key_with(key: &Key, mask: &Key, names: &PortNames) -> String {
    let mut printer = Printer { out: String::new(), key, mask, names };
    printer.metadata();
    printer.link();
    let kind = key.read(Field::EthType) as u16;
    match kind {
        _ if mask.read(Field::EthType) == 0 => {}
        0x0800 => printer.ipv4(),
        0x86dd => printer.ipv6(),
        0x0806 | 0x8035 => printer.arp(),
        0x8847 | 0x8848 => printer.mpls(),
        _ => {}
    }
    if printer.is_encapsulated() {
        printer.close();
    }
    printer.out.pop();
    printer.out
}

struct Printer<'a> {
    out: String,
    key: &'a Key,
    mask: &'a Key,
    names: &'a PortNames,
}

impl Printer<'_> {
    /// Returns the packet's value of a field, and the mask of the field. The value may have bits
    /// outside the mask.
    fn part(&self, field: Field) -> (u128, u128) {
        (self.key.read(field), self.mask.read(field))
    }

    fn open(&mut self, name: &str) {
        self.out.push_str(name);
        self.out.push('(');
    }

    /// Ends a group: replaces the comma after the last part by a parenthesis.
    fn close(&mut self) {
        if self.out.ends_with(',') {
            self.out.pop();
        }
        self.out.push_str("),");
    }

    /// Prints `name(0x1/0xff),`.
    fn alone(&mut self, name: &str, field: Field) {
        let (value, mask) = self.part(field);
        if mask != 0 {
            self.open(name);
            self.hexadecimal(value);
            if mask != field.place().all_ones() {
                self.out.push('/');
                self.hexadecimal(mask);
            }
            self.close();
        }
    }

    fn hexadecimal(&mut self, value: u128) {
        super::value::print_hexadecimal(&mut self.out, value);
    }

    fn number(&mut self, name: &str, field: Field) {
        let (value, mask) = self.part(field);
        if mask == 0 {
            return;
        }
        let _ = write!(self.out, "{name}={value}");
        if mask != field.place().all_ones() {
            let _ = write!(self.out, "/{mask:#x}");
        }
        self.out.push(',');
    }

    fn ethernet(&mut self, name: &str, field: Field) {
        let (value, mask) = self.part(field);
        if mask == 0 {
            return;
        }
        let _ = write!(self.out, "{name}=");
        print_ethernet(&mut self.out, value);
        if mask != field.place().all_ones() {
            self.out.push('/');
            print_ethernet(&mut self.out, mask);
        }
        self.out.push(',');
    }

    fn address(&mut self, name: &str, field: Field) {
        let (value, mask) = self.part(field);
        if mask == 0 {
            return;
        }
        let _ = write!(self.out, "{name}=");
        let is_wide = field.place().width == 128;
        let is_whole = mask == field.place().all_ones();
        for (index, part) in [value, mask].into_iter().take(2 - usize::from(is_whole)).enumerate() {
            if index > 0 {
                self.out.push('/');
            }
            if is_wide {
                print_ipv6(&mut self.out, part);
            } else {
                let _ = write!(self.out, "{}", Ipv4Addr::from(part as u32));
            }
        }
        self.out.push(',');
    }

    fn metadata(&mut self) {
        if self.mask.read_at(Key::PRIORITY) != 0 {
            self.open("skb_priority");
            self.hexadecimal(self.key.read_at(Key::PRIORITY));
            self.close();
        }
        self.alone("skb_mark", Field::PktMark);
        let (state, mask) = self.part(Field::CtState);
        if mask != 0 {
            self.open("ct_state");
            CT_STATE.print(&mut self.out, state, mask);
            self.close();
        }
        self.alone("ct_zone", Field::CtZone);
        self.alone("ct_mark", Field::CtMark);
        self.alone("ct_label", Field::CtLabel);
        self.tuple();
        let (recirculation, _) = self.part(Field::RecircId);
        self.open("recirc_id");
        self.hexadecimal(recirculation);
        self.close();
        self.alone("dp_hash", Field::DpHash);
        let (port, mask) = self.part(Field::InPort);
        if mask != 0 {
            self.open("in_port");
            match self.names.name(PortNumber(port as u32)) {
                Some(name) => print_name(&mut self.out, name),
                None => {
                    let _ = write!(self.out, "{port}");
                }
            }
            self.close();
        }
        self.out.push_str("packet_type(ns=0,id=0),");
    }

    fn tuple(&mut self) {
        let four = [Field::CtNwSrc, Field::CtNwDst];
        let six = [Field::CtIpv6Src, Field::CtIpv6Dst];
        let has = |fields: &[Field]| fields.iter().any(|field| self.mask.read(*field) != 0);
        let (name, addresses) = if has(&four) {
            ("ct_tuple4", four)
        } else if has(&six) {
            ("ct_tuple6", six)
        } else {
            return;
        };
        self.open(name);
        self.address("src", addresses[0]);
        self.address("dst", addresses[1]);
        self.number("proto", Field::CtNwProto);
        self.number("tp_src", Field::CtTpSrc);
        self.number("tp_dst", Field::CtTpDst);
        self.close();
    }

    fn is_encapsulated(&self) -> bool {
        let (tci, mask) = self.part(Field::VlanTci);
        tci & 0x1000 != 0 && mask != 0
    }

    fn link(&mut self) {
        if self.mask.read(Field::EthSrc) | self.mask.read(Field::EthDst) != 0 {
            self.open("eth");
            self.ethernet("src", Field::EthSrc);
            self.ethernet("dst", Field::EthDst);
            self.close();
        }
        if self.is_encapsulated() {
            let tpid = self.key.words[flow::word::VLAN_TPID] as u16;
            let tpid = if tpid == 0 { 0x8100 } else { tpid };
            let (tci, mask) = self.part(Field::VlanTci);
            let _ = write!(self.out, "eth_type(0x{tpid:04x}),");
            self.tag(tci, mask);
            self.open("encap");
        }
        let (kind, mask) = self.part(Field::EthType);
        if mask != 0 {
            let _ = write!(self.out, "eth_type(0x{kind:04x}),");
        }
        let (inner, mask) = (self.key.read_at(Key::INNER_TCI), self.mask.read_at(Key::INNER_TCI));
        if inner != 0 && mask != 0 {
            self.tag(inner, mask);
        }
    }

    fn tag(&mut self, tci: u128, mask: u128) {
        self.open("vlan");
        for (name, shift, ones) in [("vid", 0, 0xfff), ("pcp", 13, 7)] {
            let (value, bits) = (tci >> shift & ones, mask >> shift & ones);
            if value | bits != 0 {
                let _ = write!(self.out, "{name}={value}");
                if bits != ones {
                    let _ = write!(self.out, "/0x{bits:x}");
                }
                self.out.push(',');
            }
        }
        self.close();
    }

    fn ipv4(&mut self) {
        self.open("ipv4");
        self.address("src", Field::IpSrc);
        self.address("dst", Field::IpDst);
        self.number("proto", Field::NwProto);
        self.service("tos");
        self.number("ttl", Field::NwTtl);
        self.fragment();
        self.transport();
    }

    fn ipv6(&mut self) {
        self.open("ipv6");
        self.address("src", Field::Ipv6Src);
        self.address("dst", Field::Ipv6Dst);
        let (label, mask) = self.part(Field::Ipv6Label);
        if mask != 0 {
            let _ = write!(self.out, "label={label:#x},");
        }
        self.number("proto", Field::NwProto);
        self.service("tclass");
        self.number("hlimit", Field::NwTtl);
        self.fragment();
        self.transport();
    }

    /// Prints DSCP and ECN as one byte.
    fn service(&mut self, name: &str) {
        let (dscp, dscp_mask) = self.part(Field::NwTos);
        let (ecn, ecn_mask) = self.part(Field::NwEcn);
        let (value, mask) = (dscp << 2 | ecn, dscp_mask << 2 | ecn_mask);
        if mask == 0 {
            return;
        }
        let _ = write!(self.out, "{name}=");
        self.hexadecimal(value);
        if mask != 0xff {
            let _ = write!(self.out, "/{mask:#x}");
        }
        self.out.push(',');
    }

    /// Prints the fragment field, which every IP megaflow has.
    fn fragment(&mut self) {
        let name = match self.key.read(Field::IpFrag) & 3 {
            0 => "no",
            1 => "first",
            _ => "later",
        };
        let _ = write!(self.out, "frag={name}");
        self.close();
    }

    fn transport(&mut self) {
        let protocol = self.key.read(Field::NwProto);
        if self.mask.read(Field::NwProto) == 0 || self.key.read(Field::IpFrag) & 2 != 0 {
            return;
        }
        let (name, fields) = match protocol {
            1 => ("icmp", [("type", Field::IcmpType), ("code", Field::IcmpCode)]),
            6 => ("tcp", [("src", Field::TcpSrc), ("dst", Field::TcpDst)]),
            17 => ("udp", [("src", Field::UdpSrc), ("dst", Field::UdpDst)]),
            58 => ("icmpv6", [("type", Field::Icmpv6Type), ("code", Field::Icmpv6Code)]),
            132 => ("sctp", [("src", Field::SctpSrc), ("dst", Field::SctpDst)]),
            _ => return,
        };
        if fields.iter().any(|(_, field)| self.mask.read(*field) != 0) {
            self.open(name);
            for (name, field) in fields {
                self.number(name, field);
            }
            self.close();
        }
        let (flags, mask) = self.part(Field::TcpFlags);
        if protocol == 6 && mask != 0 {
            self.open("tcp_flags");
            TCP_FLAGS.print(&mut self.out, flags, mask);
            self.close();
        }
        let discovery = [Field::NdTarget, Field::NdSll, Field::NdTll];
        if protocol == 58 && discovery.iter().any(|field| self.mask.read(*field) != 0) {
            self.open("nd");
            self.address("target", Field::NdTarget);
            self.ethernet("sll", Field::NdSll);
            self.ethernet("tll", Field::NdTll);
            self.close();
        }
    }

    fn arp(&mut self) {
        let fields = [Field::ArpSpa, Field::ArpTpa, Field::ArpOp, Field::ArpSha, Field::ArpTha];
        if fields.iter().all(|field| self.mask.read(*field) == 0) {
            return;
        }
        self.open("arp");
        self.address("sip", Field::ArpSpa);
        self.address("tip", Field::ArpTpa);
        self.number("op", Field::ArpOp);
        self.ethernet("sha", Field::ArpSha);
        self.ethernet("tha", Field::ArpTha);
        self.close();
    }

    fn mpls(&mut self) {
        let fields = [
            ("label", Field::MplsLabel, "0x"),
            ("tc", Field::MplsTc, ""),
            ("ttl", Field::MplsTtl, "0x"),
            ("bos", Field::MplsBos, ""),
        ];
        if fields.iter().all(|(_, field, _)| self.mask.read(*field) == 0) {
            return;
        }
        let is_whole =
            |(_, field, _): &(_, Field, _)| self.mask.read(*field) == field.place().all_ones();
        let is_exact = fields.iter().all(is_whole);
        self.open("mpls");
        for (name, field, prefix) in fields {
            let (value, mask) = self.part(field);
            let _ = write!(self.out, "{name}={value}");
            if !is_exact {
                let _ = write!(self.out, "/{prefix}{mask:x}");
            }
            self.out.push(',');
        }
        self.close();
    }
}

/// Prints an address of either IP version, for connections.
pub(crate) fn write_address(out: &mut String, address: std::net::IpAddr) {
    match address {
        std::net::IpAddr::V4(address) => {
            let _ = write!(out, "{address}");
        }
        std::net::IpAddr::V6(address) => print_ipv6(out, Ipv6Addr::into(address)),
    }
}
