//! Matches: `in_port=1,ip,nw_dst=48.0.0.0/8`.

use std::fmt::Write;

use flow::port_number::PortNumber;
use flow::{Field, Format, Key, Match};

use super::address::{print_ethernet_masked, print_ipv4_masked, print_ipv6_masked};
use super::error::{TextError, refuse};
use super::flags::{CT_STATE, TCP_FLAGS};
use super::normal::{self, normalize};
use super::number::integer;
use super::port::{PortNames, print_port};
use super::subfield::parse_subfield;
use super::token::KeyValues;
use super::value::{
    self, field_named, foreign, is_foreign, parse_masked, print_hexadecimal, print_value,
};

/// Keywords that stand for an Ethernet type and, unless the last number is 0, for an IP protocol.
const PROTOCOLS: [(&str, u16, u8); 17] = [
    ("ip", 0x0800, 0),
    ("ipv4", 0x0800, 0),
    ("ip4", 0x0800, 0),
    ("arp", 0x0806, 0),
    ("icmp", 0x0800, 1),
    ("tcp", 0x0800, 6),
    ("udp", 0x0800, 17),
    ("sctp", 0x0800, 132),
    ("ipv6", 0x86dd, 0),
    ("ip6", 0x86dd, 0),
    ("icmp6", 0x86dd, 58),
    ("tcp6", 0x86dd, 6),
    ("udp6", 0x86dd, 17),
    ("sctp6", 0x86dd, 132),
    ("rarp", 0x8035, 0),
    ("mpls", 0x8847, 0),
    ("mplsm", 0x8848, 0),
];

const VLAN_PRESENT: u128 = 0x1000;
const VLAN_VID: u128 = 0x0fff;
const VLAN_PCP: u128 = 0xe000;

/// Reads a text that consists of a match only. Drops fields whose prerequisites are missing.
pub fn parse_match(text: &str, names: &PortNames) -> Result<Match, TextError> {
    let mut matching = Match::any();
    for (key, text) in KeyValues::new(text) {
        if !parse_key(&mut matching, key, text, names)? {
            return Err(refuse!("unknown keyword {key}"));
        }
    }
    normalize(&mut matching);
    Ok(matching)
}

/// Adds the condition `key=text` to a match. Returns `false` if matches have no such key.
pub(crate) fn parse_key(
    matching: &mut Match,
    key: &str,
    text: &str,
    names: &PortNames,
) -> Result<bool, TextError> {
    if let Some((_, kind, protocol)) = PROTOCOLS.iter().find(|(name, ..)| *name == key) {
        matching.set(Field::EthType, (*kind).into());
        if *protocol != 0 {
            matching.set(Field::NwProto, (*protocol).into());
        }
        return Ok(true);
    }
    if key == "eth" {
        return Ok(true);
    }
    if let Some(field) = field_named(key) {
        // A field without a value matches any value.
        let (value, mask) =
            if text.is_empty() { empty_value(field)? } else { parse_masked(field, text, names)? };
        set(matching, field, value, mask);
        return Ok(true);
    }
    if is_foreign(key) {
        return Err(foreign(key));
    }
    if key.contains('[') {
        parse_part(matching, key, text)?;
        return Ok(true);
    }
    Ok(false)
}

/// Open vSwitch reads a missing value as `0/0`. Only some formats allow a missing value.
fn empty_value(field: Field) -> Result<(u128, u128), TextError> {
    parse_masked(field, "0/0", &PortNames::none())
}

/// Sets the condition on a field, in place of a former condition. The value has the width that the
/// field has in messages.
fn set(matching: &mut Match, field: Field, value: u128, mask: u128) {
    match field {
        Field::DlVlan if mask == 0 => {
            let tci = matching.mask.read(Field::VlanTci) & VLAN_PCP;
            keep_tci(matching, tci | if tci == 0 { 0 } else { VLAN_PRESENT });
        }
        Field::DlVlan if value == 0xffff => {
            matching.clear(Field::VlanTci);
            matching.set(Field::VlanTci, 0);
        }
        Field::DlVlan => {
            matching.set_masked(Field::VlanTci, value & VLAN_VID | VLAN_PRESENT, 0x1fff);
        }
        Field::DlVlanPcp | Field::VlanPcp if mask == 0 => {
            let tci = matching.mask.read(Field::VlanTci) & VLAN_VID;
            keep_tci(matching, tci | if tci == 0 { 0 } else { VLAN_PRESENT });
        }
        Field::DlVlanPcp | Field::VlanPcp => {
            let bits = (value & 7) << 13 | VLAN_PRESENT;
            matching.set_masked(Field::VlanTci, bits, VLAN_PCP | VLAN_PRESENT);
        }
        Field::NwProto | Field::ArpOp => {
            matching.clear(Field::ArpOp);
            matching.set_masked(Field::NwProto, value, mask);
        }
        Field::IcmpType | Field::Icmpv6Type => set_code(matching, Field::TcpSrc, value, mask),
        Field::IcmpCode | Field::Icmpv6Code => set_code(matching, Field::TcpDst, value, mask),
        _ => {
            let (value, mask) = value::stored(field, value, mask);
            matching.clear(field);
            matching.set_masked(field, value, mask);
        }
    }
}

fn set_code(matching: &mut Match, field: Field, value: u128, mask: u128) {
    matching.clear(field);
    if mask != 0 {
        matching.set(field, value & 0xff);
    }
}

fn keep_tci(matching: &mut Match, mask: u128) {
    let value = matching.value.read(Field::VlanTci) & mask;
    matching.clear(Field::VlanTci);
    matching.set_masked(Field::VlanTci, value, mask);
}

/// Reads `reg0[0..15]=5`.
fn parse_part(matching: &mut Match, key: &str, text: &str) -> Result<(), TextError> {
    let part = parse_subfield(key)?;
    let Ok((value, "")) = integer(text, value::bytes(part.field)) else {
        return Err(refuse!("{key}: cannot parse integer value: {text}"));
    };
    if part.width < 128 && value >> part.width != 0 {
        let mut shown = String::new();
        print_value(&mut shown, part.field, value, u128::MAX, &PortNames::none());
        return Err(refuse!("{key}: value {shown} does not fit into {} bits", part.width));
    }
    let (former, former_mask) =
        value::written(part.field, matching.value.read(part.field), matching.mask.read(part.field));
    let ones = (u128::MAX >> (128 - u32::from(part.width))) << part.start;
    let value = former & !ones | value << part.start;
    set(matching, part.field, value, former_mask | ones);
    Ok(())
}

#[must_use]
pub fn print_match(matching: &Match) -> String {
    print_match_with(matching, &PortNames::none())
}

#[must_use]
pub fn print_match_with(matching: &Match, names: &PortNames) -> String {
    let mut out = String::new();
    write_match(&mut out, matching, names);
    out
}

/// Prints a megaflow's match as Open vSwitch's traces do. The traces print ICMP types and codes
/// with masks, because the low bits of the port fields hold the ICMP type and code.
#[must_use]
pub fn print_megaflow_match(matching: &Match, names: &PortNames) -> String {
    let mut out = String::new();
    write(&mut out, matching, names, true);
    out
}

/// Writes a match in Open vSwitch's order, without a trailing comma.
pub(crate) fn write_match(out: &mut String, matching: &Match, names: &PortNames) {
    write(out, matching, names, false);
}

fn write(out: &mut String, matching: &Match, names: &PortNames, is_megaflow: bool) {
    let start = out.len();
    let mut printer = Printer { out, matching, names, is_megaflow };
    printer.metadata();
    let kind = printer.kind();
    let has_protocol = printer.keyword(kind);
    printer.registers();
    printer.ethernet(kind, is_keyword(kind));
    printer.network(kind, has_protocol);
    printer.transport(kind);
    if out.len() > start && out.ends_with(',') {
        out.pop();
    }
}

fn is_keyword(kind: u16) -> bool {
    PROTOCOLS.iter().any(|(_, known, _)| *known == kind)
}

struct Printer<'a> {
    out: &'a mut String,
    matching: &'a Match,
    names: &'a PortNames,
    is_megaflow: bool,
}

impl Printer<'_> {
    /// Returns the Ethernet type; 0 for a match without an Ethernet type.
    fn kind(&self) -> u16 {
        self.matching.value.read(Field::EthType) as u16
    }

    fn value(&self, field: Field) -> (u128, u128) {
        (self.matching.value.read(field), self.matching.mask.read(field))
    }

    /// Prints a field under the name `name`, if the match has the field.
    fn field_as(&mut self, name: &str, field: Field) {
        let (value, mask) = self.value(field);
        if mask == 0 {
            return;
        }
        let ones = field.place().all_ones();
        let _ = write!(self.out, "{name}=");
        match field.format() {
            Format::Ethernet => print_ethernet_masked(self.out, value, mask),
            Format::Ipv4 => print_ipv4_masked(self.out, value, mask),
            Format::Ipv6 => print_ipv6_masked(self.out, value, mask),
            Format::Port => print_port(self.out, PortNumber(value as u32), self.names),
            Format::Hexadecimal => {
                print_hexadecimal(self.out, value);
                if mask != ones {
                    self.out.push('/');
                    print_hexadecimal(self.out, mask);
                }
            }
            _ if mask == ones => {
                let _ = write!(self.out, "{value}");
            }
            _ => {
                let _ = write!(self.out, "0x{value:x}/0x{mask:x}");
            }
        }
        self.out.push(',');
    }

    fn field(&mut self, field: Field) {
        self.field_as(field.name(), field);
    }

    fn metadata(&mut self) {
        for field in [Field::PktMark, Field::RecircId, Field::DpHash, Field::ConjId] {
            match field {
                Field::RecircId if self.matching.is_set(field) => {
                    self.out.push_str("recirc_id=");
                    print_hexadecimal(self.out, self.matching.value.read(field));
                    self.out.push(',');
                }
                _ => self.field(field),
            }
        }
        // Only the packet of a trace may have a queue; rules cannot match the queue.
        if self.matching.mask.read_at(Key::PRIORITY) != 0 {
            self.out.push_str("skb_priority=");
            print_hexadecimal(self.out, self.matching.value.read_at(Key::PRIORITY));
            self.out.push(',');
        }
        self.field(Field::ActsetOutput);
        let (value, mask) = self.value(Field::CtState);
        if mask != 0 {
            self.out.push_str("ct_state=");
            CT_STATE.print(self.out, value, mask & 0xff);
            self.out.push(',');
        }
        let (value, mask) = self.value(Field::CtZone);
        if mask == 0xffff {
            let _ = write!(self.out, "ct_zone={value},");
        } else if mask != 0 {
            let _ = write!(self.out, "ct_zone=0x{value:x}/0x{mask:x},");
        }
        for field in [
            Field::CtMark,
            Field::CtLabel,
            Field::CtNwSrc,
            Field::CtIpv6Src,
            Field::CtNwDst,
            Field::CtIpv6Dst,
        ] {
            self.field(field);
        }
        if self.matching.is_set(Field::CtNwProto) {
            self.field(Field::CtNwProto);
            self.field(Field::CtTpSrc);
            self.field(Field::CtTpDst);
        }
        if self.matching.is_set(Field::RecircId) {
            // A match of the datapath starts with the packet type.
            self.out.push_str("eth,");
        }
    }

    /// Prints `tcp` or a similar keyword. Returns whether the keyword implies the protocol.
    fn keyword(&mut self, kind: u16) -> bool {
        if !self.matching.is_set(Field::EthType) {
            return false;
        }
        let (protocol, mask) = self.value(Field::NwProto);
        let is_ip = matches!(kind, 0x0800 | 0x86dd);
        let named = if is_ip && mask != 0 {
            PROTOCOLS.iter().find(|(_, known, number)| {
                *known == kind && *number != 0 && u128::from(*number) == protocol
            })
        } else {
            None
        };
        let keyword = named.or_else(|| PROTOCOLS.iter().find(|(_, known, _)| *known == kind));
        if let Some((name, ..)) = keyword {
            let name = if *name == "ip" && kind == 0x86dd { "ipv6" } else { name };
            self.out.push_str(name);
            self.out.push(',');
        }
        named.is_some()
    }

    fn registers(&mut self) {
        if !self.matching.mask.words[flow::word::REGISTERS..flow::word::CT]
            .iter()
            .all(|word| *word == 0)
        {
            for field in &normal::REGISTERS {
                self.field(*field);
            }
        }
        self.field(Field::TunId);
        self.field(Field::Metadata);
        self.field(Field::InPort);
    }

    fn ethernet(&mut self, kind: u16, is_keyword: bool) {
        let (tci, mask) = self.value(Field::VlanTci);
        let (vid, pcp) = (mask & VLAN_VID, mask & VLAN_PCP);
        let is_plain = mask & tci & VLAN_PRESENT != 0
            && (vid == 0 || vid == VLAN_VID)
            && (pcp == 0 || pcp == VLAN_PCP)
            && (vid | pcp) != 0;
        if is_plain {
            if vid != 0 {
                let _ = write!(self.out, "dl_vlan={},", tci & VLAN_VID);
            }
            if pcp != 0 {
                let _ = write!(self.out, "dl_vlan_pcp={},", tci >> 13);
            }
        } else if mask == 0xffff {
            let _ = write!(self.out, "vlan_tci=0x{tci:04x},");
        } else if mask != 0 {
            let _ = write!(self.out, "vlan_tci=0x{tci:04x}/0x{mask:04x},");
        }
        let Match { value, mask } = self.matching;
        let (inner, mask) = (value.read_at(Key::INNER_TCI), mask.read_at(Key::INNER_TCI));
        if inner != 0 && mask != 0 {
            let _ = write!(self.out, "dl_vlan1={},", inner & VLAN_VID);
            if mask & VLAN_PCP != 0 {
                let _ = write!(self.out, "dl_vlan_pcp1={},", inner >> 13);
            }
        }
        self.field_as("dl_src", Field::EthSrc);
        self.field_as("dl_dst", Field::EthDst);
        if self.matching.is_set(Field::EthType) && !is_keyword {
            let _ = write!(self.out, "dl_type=0x{kind:04x},");
        }
    }

    fn network(&mut self, kind: u16, has_protocol: bool) {
        let is_arp = matches!(kind, 0x0806 | 0x8035);
        if kind == 0x86dd {
            self.field(Field::Ipv6Src);
            self.field(Field::Ipv6Dst);
            let (label, mask) = self.value(Field::Ipv6Label);
            if mask == 0xfffff {
                let _ = write!(self.out, "ipv6_label=0x{label:05x},");
            } else if mask != 0 {
                let _ = write!(self.out, "ipv6_label=0x{label:05x}/0x{mask:05x},");
            }
        } else if is_arp {
            self.field(Field::ArpSpa);
            self.field(Field::ArpTpa);
        } else {
            self.field_as("nw_src", Field::IpSrc);
            self.field_as("nw_dst", Field::IpDst);
        }
        let (protocol, mask) = self.value(Field::NwProto);
        if mask != 0 && !has_protocol {
            let name = if is_arp { "arp_op" } else { "nw_proto" };
            let _ = write!(self.out, "{name}={protocol},");
        }
        if is_arp {
            self.field(Field::ArpSha);
            self.field(Field::ArpTha);
            return;
        }
        let (tos, mask) = self.value(Field::NwTos);
        if mask != 0 {
            let _ = write!(self.out, "nw_tos={},", tos << 2);
        }
        self.field(Field::NwEcn);
        self.field(Field::NwTtl);
        for field in [Field::MplsLabel, Field::MplsTc, Field::MplsTtl, Field::MplsBos] {
            if matches!(kind, 0x8847 | 0x8848) {
                self.field(field);
            }
        }
        let (value, mask) = self.value(Field::IpFrag);
        if mask != 0 {
            self.out.push_str("nw_frag=");
            print_value(self.out, Field::IpFrag, value, mask | 0xfc, self.names);
            self.out.push(',');
        }
    }

    fn transport(&mut self, kind: u16) {
        let protocol = self.matching.value.read(Field::NwProto);
        let is_icmp = matches!((kind, protocol), (0x0800, 1) | (0x86dd, 58));
        let names = if is_icmp { ("icmp_type", "icmp_code") } else { ("tp_src", "tp_dst") };
        if is_icmp && self.is_megaflow {
            for (name, field) in [(names.0, Field::IcmpType), (names.1, Field::IcmpCode)] {
                let (value, mask) = self.value(field);
                if mask != 0 {
                    let _ = write!(self.out, "{name}=0x{value:x}/0x{mask:x},");
                }
            }
        } else if is_icmp {
            self.field_as(names.0, Field::IcmpType);
            self.field_as(names.1, Field::IcmpCode);
        } else if matches!(kind, 0x0800 | 0x86dd) {
            self.field_as(names.0, Field::TcpSrc);
            self.field_as(names.1, Field::TcpDst);
        }
        if is_icmp && kind == 0x86dd {
            self.field(Field::NdTarget);
            self.field(Field::NdSll);
            self.field(Field::NdTll);
        }
        let (flags, mask) = self.value(Field::TcpFlags);
        if matches!(kind, 0x0800 | 0x86dd) && protocol == 6 && mask != 0 {
            self.out.push_str("tcp_flags=");
            TCP_FLAGS.print(self.out, flags, mask);
            self.out.push(',');
        }
    }
}
